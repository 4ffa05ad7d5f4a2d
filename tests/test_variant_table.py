"""The table of the catalogue, the sentence above it, and the choice of one variant by link."""

from attnkit.examples import RecordedAccuracy, RecordedVariants, load_variants
from attnkit.ui.reference.variant_choice import VariantChoice
from attnkit.ui.reference.variant_table import (
    accuracy_in_words,
    catalogue_table,
    conclusion,
    short_source,
)
from attnkit.variants import CATALOGUE, Named, Variant
from attnkit.variants.names import find

FIVE = [find(name) for name in ("QKV", "Q=K", "MQA", "K=V", "GQA")]
THREE = FIVE[:3]


def recorded(*means):
    """Accuracies of the first variants, with an interval of ten points on each side."""
    accuracy = {
        entry.variant.value: RecordedAccuracy(
            mean, max(mean - 0.1, 0), min(mean + 0.1, 1), mean >= 0.98
        )
        for entry, mean in zip(FIVE, means, strict=False)
    }
    return RecordedVariants("phonebook", 600, 5, 0.98, accuracy)


def test_the_sentence_counts_and_names_what_falls_short():
    """It holds for any recorded accuracies, also if some variants were not measured."""
    reach = "variants reach 98% accuracy on the task “Phone book”"
    for means, sentence in {
        (1.0, 1.0, 0.98): f"All 3 {reach}.",
        (1.0, 0.5, 1.0): f"2 of 3 {reach}; Q=K (50%) does not.",
        (1.0, 0.5, 0.25): f"1 of 3 {reach}; MQA (25%) and Q=K (50%) do not.",
        (1.0, 0.5): f"1 of 2 measured {reach}; Q=K (50%) does not.",
        (): "There are 3 named ways to make queries, keys and values.",
    }.items():
        assert conclusion(THREE, recorded(*means)) == sentence
    four = recorded(1.0, 0.5, 0.25, 0.75, 0.125)
    lowest = "the lowest are GQA (12%), MQA (25%) and Q=K (50%)."
    assert conclusion(FIVE, four) == f"1 of 5 {reach}; {lowest}"


def test_rows_have_costs_accuracies_and_an_interval_where_seeds_differ():
    """Accuracies are whole numbers, so that the column sorts; only 100% is told as 100."""
    table = catalogue_table(THREE, recorded(1.0, 0.999))
    assert table["accuracy"].tolist()[:2] == [100, 99]
    assert table["accuracy"].isna().tolist() == [False, False, True]
    assert table["interval"].tolist() == ["90 to 100%", "90 to 100%", ""]
    assert table["kv_cache"].tolist() == [16, 16, 16]
    odd = catalogue_table([Named("Odd", Variant("QKV kv_heads=3"), "", "")], None)
    assert odd["name"].tolist() == ["Odd"]  # though it does not go with the default sizes
    assert odd[["accuracy", "parameters", "kv_cache"]].isna().all(axis=None)
    assert accuracy_in_words(THREE[0], recorded(0.5)) == (
        "Accuracy on the task “Phone book”: 50% (95% interval 40 to 60%), below 98%."
    )
    assert accuracy_in_words(find("QKV"), load_variants()).endswith("”: 100%.")
    assert accuracy_in_words(find("QKV"), None) == ""


def test_every_row_says_in_a_few_words_what_the_variant_does_and_who_wrote_it():
    """No two variants do the same, and none asks a question; preprints' numbers are on the card."""
    briefs = [named.brief for named in CATALOGUE.values()]
    assert len(set(briefs)) == len(briefs)
    assert not [brief for brief in briefs if len(brief) > 150 or brief.endswith("?")]
    for source, short in {
        "Vaswani et al. 2017, arXiv 1706.03762": "Vaswani et al. 2017",
        "Borji 2023, arXiv 1; Kayyam et al. 2026, arXiv 2": "Borji 2023; Kayyam et al. 2026",
        "reported: Thin Keys, arXiv 2603.04427 (abstract)": "Thin Keys",
        "reported: after Kowsher et al. 2024, arXiv 2412.00359": "Kowsher et al. 2024",
        "": "",
    }.items():
        assert short_source(source) == short


def test_a_search_that_hides_the_choice_opens_what_it_finds_first():
    """A choice that is found stays."""
    choice = VariantChoice(key="mha")
    for found in (["mqa", "gqa"], ["gqa", "mqa"], []):
        choice.stay_among(found)
        assert choice.key == "mqa"
    choice.take_row(["mqa"], [3])  # a press that left the browser before the table changed
    choice.take_row(["gqa"], [])
    assert choice.key == "mqa"
    choice.take_row(["gqa", "mqa"], [0])
    assert choice.entry.name == "GQA"
