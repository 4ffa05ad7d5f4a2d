"""The sentences that views of films conclude with, in every situation that a film can be in."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.analysis.inspection.lookup_words import lookup_sentences
from attnkit.analysis.inspection.similarity_words import alikeness_sentences, head_table
from attnkit.analysis.inspection.symmetry_words import direction_sentences, table_columns
from attnkit.foundation.words import named
from attnkit.training.summary import percents

# Asymmetry: variants as (name, must, error, right, mirrored, accuracy, scores there and back)

SCORED = (1.36, 1.36)


def direction(*variants, step=600, **header):
    """Return the sentences about one frame, and the table as {heading: text} of each variant."""
    known = {"square": True, "pair": [0, 1], "labels": ["Zoe", "Eli"], "positions": [0, 1]}
    known |= {"request": {"layer": 0, "head": 0}, "n_masses": 2, "steps": [step], **header}
    known["variants"] = [{"name": name, "n_heads": 1} for name, *_ in variants]
    framed = {"accuracy": np.array([[one[5] for one in variants]])}
    for p, (_, must, error, right, mirrored, _, (there, back)) in enumerate(variants):
        framed |= {
            f"{p}.must": np.array([must]),
            f"{p}.error": np.array([[[error, error]]]),
            f"{p}.a": np.array([[[error**2 / 4]]]),
            f"{p}.mass": np.array([[right, mirrored]]),
            f"{p}.scores": np.array([[[[9, there], [back, 9]]]]),
            f"{p}.positional": np.array([[0.25]]),
        }
    told = direction_sentences(known, framed)
    rows = [dict(zip(table_columns(known), row, strict=True)) for row in told["meaning"][0]]
    return told["conclusion"][0], rows, told["breakers"][0]


def test_sentences_on_direction_name_what_holds_for_each_variant():
    """What is called the same is, and every percentage is that of a variant that is named."""
    apart, alike, near = (1.36, 0.5), (1.36, 1.36), (1.36, 1.3627)
    tells, torn = ("A", False, 0.4, 0.8, 0.1, 0.98, apart), ("E", False, 0.3, 0.1, 0.1, 0.2, apart)
    tied, close = ("B", True, 0, 0.4, 0.4, 0.5, alike), ("C", False, 1e-3, 0.4, 0.38, 0.5, near)
    known = "Zoe→Eli and Eli→Zoe"
    for variants, told in (
        ([tells], f"^A scores {known} differently, .* 98%"),
        ([tells, torn], f"^Both variants score {known} differently"),
        ([tied], f"^B scores {known} the same and does not tell .* 50% [^.]*right[.]$"),
        ([tied, (*tied[:5], 0.52, alike)], "^B and B score .* do not tell .* 50 to 52%"),
        ([tied, tells, torn], "^B scores .* not tell .*: 50% .* A does: 98%"),
        ([tied, torn], f"^B scores {known} the same .*: 50% [^.]*right[.]$"),
        ([close], f"^C scores {known} nearly the same, .* 50%"),
        ([(*close[:2], 0.21, *close[3:])], f"^C scores {known} differently"),
        ([close, tells], "^No variant .* exactly the same: 50 to 98%"),
        ([("D", False, 0.99e-5, *tied[3:])], f"^D scores {known} the same .*nothing forces"),
        ([("D", False, 1.01e-5, *tied[3:])], f"^D scores {known} nearly the same"),
    ):
        text, rows, breakers = direction(*variants)
        assert re.search(told, text), text
        for row, (_, _, error, *_, (_, back)), breaker in zip(
            rows, variants, breakers, strict=True
        ):
            sign, second = row["score Eli→Zoe"].split()
            assert (sign == "=") == (error < 1e-5)
            assert float(second) == pytest.approx(back, abs=1e-3)
            assert breaker.startswith("Nothing breaks" if sign == "=" else "Farthest apart: ")
            assert ("25%" in breaker) == (sign != "=")  # the share that all examples have


def test_nothing_is_said_of_what_is_right_before_training_or_without_a_direction():
    """Nor of trainings that diverged; twins are told apart; a table has a task's columns only."""
    both = [("A", False, 0.4, 0.12, 0.13, 0.03, SCORED), ("B", True, 0, 0.4, 0.4, 0.04, SCORED)]
    for some in (both, both[:1], both[1:]):
        assert "%" not in direction(*some, step=0)[0]
    text, rows, _ = direction(*both, square=False)
    assert not re.search("%|same", text)
    assert (len(rows[0]), "accuracy" in rows[0]) == (3, True)
    text, _, apart = direction(("QKV", False, *[np.nan] * 4, SCORED))
    assert "diverged" in text
    assert "diverged" in apart[0]
    lost = ("Q=K", True, 0, 0.47, 0.46, 0.5, SCORED)
    text = direction(lost, labels=["Eli", "Eli"], positions=[0, 9])[0]
    assert "Eli (token 1)→Eli (token 10) and Eli (token 10)→Eli (token 1)" in text
    text, rows, _ = direction(lost, pair=None)
    assert "→" not in text
    assert rows[0]["both directions"] == "= the same"


# Similarity: per frame, (CKA of weights, CKA of activations) of each variant's three pairs

LESS, AS, MORE, ONE, UNDEFINED = (0.1, 0.2), (0.3, 0.5), (0.5, 0.9), (1, 1), (0.3, np.nan)


def alikeness(*frames):
    """Return the sentences about frames at steps 0, 600, …"""
    header = {
        "steps": [600 * frame for frame in range(len(frames))],
        "variants": [{"name": str(p), "n_heads": 1} for p in range(len(frames[0]))],
        "pairs": ["QK", "QV", "KV"],
        "measures": ["cos_weights", "cka_weights", "cka_activations"],
        "notes": [{"has_head": True}] * len(frames[0]),
    }
    limits = np.array([[0, -0.1, 0.1], [0.3, 0.2, 0.4], [0.5, 0.4, 0.6]])
    framed = {}
    for p in range(len(frames[0])):
        alike = [[(float(w == 1), w, a) for w, a in frame[p]] for frame in frames]
        framed[f"{p}.alike"] = np.array(alike, float)
        framed[f"{p}.random"] = np.broadcast_to(limits, (len(frames), 3, 3, 3))
    told = alikeness_sentences(header, framed)
    tables = {f"{p}.table": framed[f"{p}.alike"][-1:][:, None] for p in range(len(frames[0]))}
    tables |= {f"{p}.table_random": limits[None, None].repeat(3, 1) for p in range(len(frames[0]))}
    return told["conclusion"][-1], told["alike"][-1], head_table(header, tables)


def test_what_vectors_have_in_common_is_told_beside_random_matrices():
    """Training is said to change only what it has changed; most pairs are told from all."""
    for frames, told, untold in (
        ([[AS] * 6], ["Before training", "as alike as random"], ["training makes", "of 6"]),
        ([[AS] * 6, [MORE] * 6], ["training makes", "more alike than random"], ["mostly"]),
        ([[LESS] * 6, [LESS] * 6], ["less alike than random"], ["training makes", "Before"]),
        ([[AS] * 6, [MORE] * 4 + [AS] * 2], ["mostly more alike", "(4 of 6 pairs)"], ["less"]),
        ([[MORE, AS, LESS] * 2], ["f 6 pairs", " 2 are less alike than random"], ["mostly"]),
        ([[ONE] * 6], ["one matrix"], ["random"]),
        ([[AS, AS, AS, ONE, UNDEFINED, ONE]], ["as alike as random"], ["one matrix", "of 3"]),
    ):
        text, _, _ = alikeness(*([pairs[:3], pairs[3:]] for pairs in frames))
        assert all(one in text for one in told), text
        assert not any(one in text for one in untold), text
    names = [["A"], ["A", "B"], ["A", "B", "C"], list("ABCDEF")]
    assert list(map(named, names)) == ["A", "A and B", "A, B and C", "6 variants"]
    shares = [[], [0.5], [0.5, np.nan, 0.48], [1, 0.999]]
    assert list(map(percents, shares)) == ["", "50%", "48 to 50%", "99 to 100%"]


# Attention: variants as (name, weights, class of the answer); the right entry is 1, its answer 4


def lookup(*variants, step=600, **header):
    """Return the sentences about one frame."""
    layer = {"title": "Layer 1", "columns": ["Zoe", "Eli", "Ada"]}
    layer["column_titles"] = ["Zoe, 9", "Eli, 14", "Ada, 31"]
    known = {"layer": 0, "row": 0, "target": 1, "reverse": 2, "right": 4, "head": 0}
    known |= {"query_index": 0, "texts": {"3": "31", "4": "14"}, "askable": [{"label": "Zoe: Eli"}]}
    known |= {
        "layers": [layer, {"title": "Layer 2"}],
        "seed": 3,
        "is_asked": True,
        "steps": [step],
        **header,
    }
    known["variants"] = [
        {"name": name, "n_heads": 1, "refusal": "", "lacking": "It has 1 head only."}
        for name, *_ in variants
    ]
    framed = {}
    for p, (_, weights, answer) in enumerate(variants):
        if weights is not None:
            framed[f"{p}.weights"] = np.array([weights])
        if weights is not None and known["is_asked"]:
            framed |= {f"{p}.logits": np.zeros((1, 2)), f"{p}.answers": np.array([[answer]])}
            framed |= {f"{p}.top": np.array([np.log(0.75)]), f"{p}.total": np.zeros(1)}
        framed[f"{p}.mass"] = np.array([[[[0.2, 0.1]], [[0.6, np.nan]]]])
    told = lookup_sentences(known, framed)
    assert {*told["heads"][0]} == {"60% in Layer 2"}
    return told["conclusion"][0], told["finding"][0]


WEIGHTS = st.one_of(
    st.sampled_from([[0, 0.98, 0.02], [0.1, 0.44, 0.46]]),
    st.tuples(st.floats(0, 1), st.floats(0, 1))
    .map(sorted)
    .map(lambda cuts: [cuts[0], cuts[1] - cuts[0], 1 - cuts[1]]),
)


def test_cells_say_why_there_is_no_number():
    """Pairs of roles may be one matrix, or missing, or one matrix with different vectors."""
    _, cells, (table, _) = alikeness([[ONE, UNDEFINED, (1, 0.7)]])
    assert cells == [["same matrix", "no token has both", "0.70 ▲"]]
    assert table[0][0][0][3:] == ["0.00 =", "0.30 =", "–", "1.00", "1.00", "0.70 ▲"]


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([3, 4])), min_size=1, max_size=6), st.booleans())
@briefly(300)
def test_each_variant_is_said_to_answer_as_it_does(drawn, is_known):
    """An answer is right or wrong, whatever the other variants answer."""
    variants = [(letter, *one) for letter, one in zip("ABCDEF", drawn, strict=False)]
    text, _ = lookup(*variants, **({} if is_known else {"target": -1, "reverse": -1}))
    names, told = "((?:[A-F](?:, | and )?)+)", {}
    for clause in text[text.index("): ") + 3 : -1].split("; "):
        whole = re.match(f"^{names} (?:attend|divide).* answers? (right|wrong)$", clause)
        for who, verdict in (
            [whole.groups()] if whole else re.findall(f"{names} answers? (right|wrong)", clause)
        ):
            for letter in re.findall("[A-F]", who):
                assert letter not in told, text
                told[letter] = verdict
    right = {letter: answer == 4 for letter, _, answer in variants}
    assert all((verdict == "right") == right[letter] for letter, verdict in told.items()), text
    assert re.search(r"\d variants", text) or len(told) == len(variants)
    for count, verdict in re.findall(r"(\d) variants answer (right|wrong)", text):
        assert sum(one == (verdict == "right") for one in right.values()) >= int(count)


def test_answers_are_told_beside_the_attention():
    """With "but" where they do not follow; the finding says who holds a wrong answer."""
    for weights, answer, told in (
        ([0.2, 0.8, 0], 3, r"right entry \(80%\) but answers wrong"),
        ([0.9, 0.1, 0], 4, r"other entries \(10% .*\) but answers right"),
        ([0.4, 0.35, 0.25], 3, r"divides its attention \(35% .*\) and answers wrong"),
    ):
        assert re.search(told, lookup(("QKV", weights, answer))[0])
    _, findings = lookup(("QKV", [0.2, 0.8, 0], 3))
    numbers = ["80%", "0%", "31 ✗", "75%", "31", "Ada", "0%"]
    assert re.findall(r"\d+%|31 ✗|31|Ada", findings[0]) == numbers
    without = {"target": -1, "reverse": -1, "right": -1}
    first, second = [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]
    assert re.search(r"Zoe, 9 \(70%\) and answers 31[.]$", lookup(("QKV", first, 3), **without)[0])
    text, _ = lookup(("QKV", first, 3), is_asked=False, **without)
    assert text.endswith("Zoe, 9 (70%).")
    quoted = [("QKV", first, 3), ("Q=K", first, 4), ("K=V", second, 3), ("Q=V", second, 4)]
    assert lookup(*quoted, **without)[0].endswith("answer differently.")
    assert lookup(("QKV", None, 0))[0].startswith("No variant")
    text, findings = lookup(("QKV", [0, 1, 0], 4), ("Q=K", None, 0), step=0)
    assert re.match(r"Before training, .*“Zoe: Eli” \(seed 3, Layer 1\): ", text)
    assert "Q=K" not in text
    assert findings[1] == "It has 1 head only."
