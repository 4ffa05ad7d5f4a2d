"""The text form of variants: read, written, refused; and the catalogue of named ones."""

import pickle
import random
import re

import pytest
from kinds import NEEDS_ONE_SIDE
from searching import times

from attnkit import variants
from attnkit.experiment.experiment import Experiment, InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS, InvalidVariant, Option, Variant, names_of
from attnkit.variants.catalogue import FAMILIES, search
from attnkit.variants.sharing import Sharing


def refusal(call, *args, **kwargs):
    """Return the error of a call that is refused, None if it is not; let other errors pass."""
    try:
        call(*args, **kwargs)
    except (InvalidVariant, InvalidExperiment) as error:
        return error
    return None


WRITTEN = {
    "K=V=I Q=I": "Q=K=V=I",
    "o=i q=k=v=i D_HEAD=M/H": "Q=K=V=I O=I d_head=m/h",
    "QKV kv_rank=2m/8": "QKV kv_rank=m/4",
    "SELF_MASK=yes UNIT_KEY K=Q": "Q=K unit_key self_mask",
    "kv_heads=01 QKV n_heads=4": "QKV n_heads=4 kv_heads=1",
    "tie_by=KEEP_v tie=k=v QKV": "QKV tie=K=V tie_by=keep_V",
    "  k=v +  MQA": "K=V n_heads=4 kv_heads=1",
    "mqa positions=rope": "QKV n_heads=4 kv_heads=1 positions=rope",
    "Q-K=V": "K=V",
    "q ≠ k = v  n_heads=2": "K=V n_heads=2",
    "Q=K-V unit_key": "Q=K unit_key",
    "Q-K-V": "QKV",
    "K_EQ_V": "K=V",
    "shared-qk self_mask": "Q=K self_mask",
    "Multi Query Attention": "QKV n_heads=4 kv_heads=1",
    "K=V+MQA": "K=V n_heads=4 kv_heads=1",
    "gqa-2": "QKV n_heads=4 kv_heads=2",
}


def test_a_text_has_one_written_form(seed):
    """A text reads as the same variant in any order, case and spacing, or never."""
    rng, n_read = random.Random(seed), 0
    for _ in range(times(200)):
        words = rng.choice([*Sharing, "QKV V=I", "Q=K V=I", "Q=K=V=I"]).split()
        for name in rng.sample([*OPTIONS], rng.randrange(5)):
            sample = rng.choice([*OPTIONS[name].samples, "2m/17", "3d", "m/h", "7", "0.35"])
            words.append(name if sample is None else f"{name}={sample}")
        error = refusal(Variant, text := " ".join(words))
        rng.shuffle(words)
        letters = "  ".join(words)
        typed = f" {''.join(rng.choice([x.upper(), x.lower()]) for x in letters)}\t"
        if error is not None:
            assert str(error)
            assert refusal(Variant, typed) is not None
            continue
        n_read += 1
        variant = Variant(text)
        parts = (variant.sharing, variant.identity, variant.options)
        for again in (Variant(variant.value), Variant(typed), pickle.loads(pickle.dumps(variant))):
            assert again == variant
            assert again.value == variant.value == str(variant)
            assert (again.sharing, again.identity, again.options) == parts
    assert n_read > times(30)
    for typed, written in WRITTEN.items():
        assert Variant(typed).value == written, typed
    for sharing in Sharing:  # a partition is a key in the place of its sharing
        variant = Variant(sharing)
        assert ({sharing: 1}[variant], variant.sharing, variant.is_partition) == (1, sharing, True)
    assert "200" in str(refusal(Variant, "mqa " * 50_000))


# Texts with a word that there is not, or with a value that it may not have.
WRONG = """
    QKW | QKV n_haeds=2 | Reformr | | Q=K K=V | Q=Q | Q=K K=I
    QKV keyless keyless | QKV keyless=3 | QKV n_heads | QKV n_heads=0 | QKV d_head=m/0
    QKV d_head=-3 | QKV temperature=0 | QKV temperature=nan | QKV positions=sines
    QKV kv_every=1 | QKV tie=QKV | QKV kv_from=top | QKV tie=Q=K tie_by=keep_O
"""

# Texts whose words are right, but do not go together.
TOGETHER = """
    Q=K n_heads=4 kv_heads=2 | K=V d_k=3 | QKV d_k=3 tie=K=V | K=V keyless | QKV K=I keyless
    QKV keyless tie=K=V | Q=K kv_rank=3 | QKV V=I kv_rank=3 | QKV kv_rank=3 keyless
    QKV kv_residual=2 kv_rank=3 | K=V shared_half kv_residual=2 | K=V k_rank=3 | QKV K=I k_rank=3
    QKV signed | K=V skew=2 | Q=K signed unit_key | Q=K unit_key qk_norm | Q=K skew=2 qk_norm
    K=V scaled rotate_values | Q=K kv_from=bottom_middle | Q=K kv_every=2
    QKV kv_from=bottom_middle kv_every=2 | Q=K kv_residual=2 | QKV shared_half
    K=V shared_half rope_width=2 | QKV sum diff | QKV sum keyless | K=V diff | QKV Q=I sum
    Q=K scaled qk_norm | K=V tie=Q=K | QKV V=I tie=K=V d_head=m/h | QKV Q=I start=Q=K
    QKV tie_by=keep_K | QKV tie_at=0.5 | QKV tie=Q=K tie_by=keep_V
"""


def test_an_impossible_text_is_refused_and_possible_without_one_word():
    """The reason names a word of it, and Experiment says it as well."""
    for texts, together in ((WRONG, False), (TOGETHER, True)):
        for text in re.split(r"[|\n]", texts.strip()):
            words = text.split()
            reason = str(refusal(Variant, text))
            assert any(word.split("=")[0] in reason for word in words) or not words, (text, reason)
            error = refusal(Experiment, sharing=[text])
            assert [problem.field for problem in error.problems] == ["sharing"], text
            if together:
                fewer = [" ".join(words[:i] + words[i + 1 :]) for i in range(1, len(words))]
                assert None in [refusal(Variant, one) for one in fewer], text
    assert "n_heads?" in str(refusal(Variant, "QKV n_haeds=2"))


UNFIT = [  # a variant, sizes with which it does not go, and what the reason names
    ("QKV n_heads=4 kv_heads=3", {}, "kv_heads=3"),
    ("QKV Q=I", {"n_heads": 3, "d_head": 7}, "3 · 7"),
    ("QKV d_head=m/h", {"n_heads": 3}, "32/3"),
    ("QKV", {"d_head": 7, "positions": "rope"}, "even d_k, not 7"),
    ("Q=K skew=d d_k=d/2", {}, "which is 8"),
    ("QKV rope_width=4 positions=learned", {}, "positions=rope"),
    ("QKV d_v=3 rotate_values", {"positions": "rope"}, "even d_v, not 3"),
    ("K=V shared_half", {"d_head": 6, "positions": "rope"}, "by 4, not 6"),
    ("QKV exclusive d_v=1", {}, "d_v"),
    ("QKV d_head=9m", {}, "1 to 256"),
    ("QKV n_heads=4 kv_heads=2 sum", {}, "kv_heads"),
    ("K=V d_k=3 d_v=5", {}, "one shape"),
    ("QKV d_k=3 start=K=V", {}, "K, V"),
]


def test_a_variant_that_does_not_fit_is_refused_by_the_experiment():
    """It is a variant all the same, so that a link can hold it."""
    for text, sizes, named in UNFIT:
        value = Variant(text).value
        error = refusal(Experiment, sharing=["QKV n_heads=2 d_head=4", text], **sizes)
        assert named in str(error), text
        assert [(one.field, one.value) for one in error.problems] == [("sharing", value)]


def test_lists_are_read_once_each_and_in_one_order():
    """Partitions come first; doubles and the order given do not matter; what is kept is texts."""
    texts = ["Reformer", "K=V", "q=k self_mask unit_key", "QKV keyless", "QKV"]
    expected = ("QKV", "K=V", "QKV keyless", "Q=K unit_key self_mask")
    for given_as in (texts[::-1], set(texts), ",".join(texts)):
        assert variants.read_variants(given_as) == expected
    assert Experiment(sharing=texts).settings()["sharing"] == list(expected)
    many = [f"QKV temperature={i + 1}" for i in range(101)]
    for wrong in (3, ["QKV", None], many):
        assert refusal(variants.read_variants, wrong)
    assert len(variants.read_variants(many[:100])) == 100


def test_an_entry_says_what_it_is_and_goes_with_every_task():
    """It is found by its words; where an option needs one side, two are refused with a reason."""
    assert list(dict.fromkeys(named.family for named in CATALOGUE.values())) == list(FAMILIES)
    for named in CATALOGUE.values():
        assert len(named.brief) <= 150, named.name
        assert names_of(Variant(named.variant)) == [named]
        assert Variant(f"  {named.name.title()} ").value == named.variant, named.name
        for task in TASKS:
            error = refusal(Experiment, task=task, sharing=[named.variant])
            one_side = NEEDS_ONE_SIDE & named.variant.given.keys() and TASKS[task]().n_source
            assert (error is not None) == bool(one_side), (named.name, task)
    for query, found in {"2405.12981": ["CLA", "CLA with K=V"], "linear": ["ALiBi"]}.items():
        names = [named.name for named in search(query)]
        assert names[: len(found)] == found, query
    assert "Learned positions" not in names  # which only has the letters of "linear"


def test_names_of_ones_own_are_typed_like_others_and_clashes_are_refused(untouched):
    """It may be registered again, as when a module is reloaded; two meanings are refused."""
    for _ in range(2):
        named = variants.register("My  Thin = GQA", "n_heads=4 d_k=3 kv_heads=2")
    assert named.variant == "QKV n_heads=4 d_k=3 kv_heads=2"
    assert Experiment(sharing="  MY THIN=  gqa").sharing == (named.variant,)
    assert names_of(named.variant) == [named]
    before = dict(CATALOGUE), dict(OPTIONS)
    for name, text, clash in (
        ("  reFORMER ", "Q=K", "scores"),
        ("q=k n_heads=2", "K=V", "q=k n_heads=2"),
        ("one, two", "K=V", "commas"),
    ):
        with pytest.raises(ValueError, match=clash):
            variants.register(name, text)
    for own in ({"name": "keyless", "help": "It is."}, {"name": "own_word", "help": ""}):
        with pytest.raises(ValueError, match=r"KeylessOption|help: own"):
            variants.register_option(type("Own", (Option,), own))
    assert before == (CATALOGUE, OPTIONS)
