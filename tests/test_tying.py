"""Variants that are tied for a time, and settings of a variant's own."""

import itertools
import random
import re

import pytest
from reference import CPU, TINY, InspectedExample, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.training.cohort import Cohort
from attnkit.variants import OPTIONS, Variant

SCHEDULE = {"steps": 20, "evaluate_every": 5, "n_layers": 2, "n_heads": 2, "d_head": 7}
TIES = [  # variant, what it was, what it becomes, and the matrices that W_<key> goes on with
    ("QKV tie=K=V", "QKV", "K=V", {"K": "KV"}),
    ("QKV tie=K=V tie_by=keep_K", "QKV", "K=V", {"K": "K"}),
    ("QKV tie=K=V tie_by=keep_V", "QKV", "K=V", {"K": "V"}),
    ("QKV tie=Q=K", "QKV", "Q=K", {"Q": "QK"}),
    ("QKV tie=Q=K tie_by=keep_K", "QKV", "Q=K", {"Q": "K"}),
    ("QKV tie=Q=V tie_by=keep_Q", "QKV", "Q=V", {"Q": "Q"}),
    ("QKV tie=Q=K=V", "QKV", "Q=K=V", {"Q": "QKV"}),
    ("QKV tie=Q=K=V tie_by=keep_V", "QKV", "Q=K=V", {"Q": "V"}),
    ("Q=K tie=Q=K=V", "Q=K", "Q=K=V", {"Q": "QV"}),
    ("K=V tie=Q=K=V tie_by=keep_V", "K=V", "Q=K=V", {"Q": "K"}),
]


def beside(*texts, **given):
    """A cohort of these variants, by default with a schedule of 20 steps; seeds 0 and 1."""
    experiment = Experiment(sharing=set(texts), **{**TINY, **SCHEDULE, **given})
    return Cohort(experiment, [0, 1], CPU)


def numbers_of(cohort, text, seed=0):
    """The parameters of one run."""
    return cohort.parameters()[cohort.runs.index((Variant(text), seed))]


def same_bits(one, other):
    """Whether two runs have the same parameters, of the same bits."""
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )


@pytest.mark.parametrize("blocks", ["lean", "standard"])
def test_what_is_tied_at_half_of_the_steps(blocks):
    """Until then it is what it was, bit for bit; then it is, and trains on as, what it became.

    The matrix and bias that are kept or the average go on; all other numbers stay as they were.
    All of its parameters move afterwards, besides biases of keys, which cancel in the softmax, and
    it computes what the formula of the tied model says.
    """
    cohort = beside(*(text for row in TIES for text in row[:2]), blocks=blocks)
    for n_steps in (0, 9):
        cohort.advance(n_steps)
        for text, before, *_ in TIES:
            for seed in (0, 1):
                pair = (numbers_of(cohort, one, seed) for one in (text, before))
                assert same_bits(*pair), text
    cohort.advance(1)
    tied = {}
    for text, before, after, kept in TIES:
        old, new = numbers_of(cohort, before, 1), numbers_of(cohort, text, 1)
        tied[text] = numbers_of(cohort, text)
        assert new.keys() == numbers_of(beside(after, blocks=blocks), after).keys()
        for name, value in new.items():
            if name[2:4] in ("W_", "b_") and name[4:] in kept:
                parts = [old[name[:4] + role] for role in kept[name[4:]]]
                assert_close(value, sum(parts) / len(parts), rtol=1e-6, atol=1e-7)
            else:
                assert value.tobytes() == old[name].tobytes(), (text, name)
    cohort.advance(3)
    looked = InspectedExample(cohort.model, cohort.experiment)
    for text, _, after, _ in TIES:
        later = numbers_of(cohort, text)
        assert later.keys() == tied[text].keys()
        still = {name for name in later if (later[name] == tied[text][name]).all()}
        assert still <= {"0.b_K", "1.b_K"}, text
        reference = Reference(cohort.experiment, after)
        expected = reference.logits(looked.own(Variant(text)), looked.tokens[0])
        found = looked.of_answers[looked.run(Variant(text))]
        assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


STARTS = {
    "QKV start=Q=K": "QK",
    "QKV start=K=V": "KV",
    "QKV start=Q=K=V": "QKV",
    "K=V start=Q=K=V": "QK",
    "QKV kv_rank=3 start=K=V": "KV",
}
"""Variants and the roles whose matrices start equal."""


def test_matrices_that_start_equal_are_free_afterwards():
    """Equal copies of the first at step 0, different after one step; different between layers."""
    plain = {text: re.sub(" start=.*", "", text) for text in STARTS}
    cohort = beside(*plain, *plain.values(), blocks="standard")
    for text, equal in STARTS.items():
        own, without = (numbers_of(cohort, t) for t in (text, plain[text]))
        first = f"W_{equal[0]}"
        copies = {
            f"{layer}.{kind}_{role}": f"{layer}.{kind}_{equal[0]}"
            for layer, kind, role in itertools.product((0, 1), "Wb", equal)
        }
        for name, value in own.items():
            assert (value == without[copies.get(name, name)]).all(), (text, name)
        assert (own[f"0.{first}"] != own[f"1.{first}"]).any()
    cohort.advance(1)
    for text, equal in STARTS.items():
        own = numbers_of(cohort, text)
        for kind in "Wb":
            assert (own[f"0.{kind}_{equal[0]}"] != own[f"0.{kind}_{equal[-1]}"]).any()


COMPANY = ("QKV", "K=V n_heads=4 kv_heads=1", "QKV d_mlp=11")
OF_ONES_OWN = {
    **{f"{name}={n}": {name: n} for name, n in (("n_heads", 3), ("d_head", 9), ("d_mlp", 7))},
    "learning_rate=0.003": {"learning_rate": 0.003},
    "d_head=m/h": {"d_head": 16},
    "self_mask": {"self_mask": True},
    "self_mask=no": {"self_mask": False},
    **{f"positions={name}": {"positions": name} for name in OPTIONS["positions"].samples},
}


@pytest.mark.parametrize("word", OF_ONES_OWN)
def test_a_setting_of_one_s_own_is_that_of_the_experiment(word, seed):
    """Bit for bit, whatever the others beside it have, which is drawn, as is the sharing.

    The width of a head is even for the sake of RoPE. Standard blocks spread biases by width.
    """
    given, drawn = OF_ONES_OWN[word], random.Random(f"{seed} {word}")
    form, company = drawn.choice(["Q=K", "QKV d_v=6"]), drawn.choice([(), COMPANY])
    elsewhere = {"d_head": 14, "self_mask": not given.get("self_mask", False)}
    elsewhere["blocks"] = "standard" if "d_mlp" in given else "lean"
    own = beside(f"{form} {word}", *company, **elsewhere)
    of_experiment = beside(form, **{**elsewhere, **given})
    for cohort in (own, of_experiment):
        cohort.advance(5)
    assert same_bits(numbers_of(own, f"{form} {word}", 1), numbers_of(of_experiment, form, 1))
    losses = [
        cohort.evaluations[-1].metrics["loss"][cohort.runs.index((Variant(text), 1))]
        for cohort, text in ((own, f"{form} {word}"), (of_experiment, form))
    ]
    assert losses[0] == losses[1]
