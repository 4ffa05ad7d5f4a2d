"""Variants that are tied for a time, and settings of a variant's own."""

import re

import pytest
from reference import CPU, TINY, InspectedExample, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.training.cohort import Cohort
from attnkit.variants import OPTIONS, Variant

# Tied for a time, and settings of one's own

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
every_tie = pytest.mark.parametrize("row", TIES, ids=lambda row: row[0])


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


@every_tie
def test_before_it_is_tied_it_is_what_it_was(row):
    """Bit for bit, up to the step before."""
    text, before, *_ = row
    cohort = beside(text, before)
    for n_steps in (0, 9):
        cohort.advance(n_steps)
        assert all(same_bits(*(numbers_of(cohort, t, s) for t in (text, before))) for s in (0, 1))


@every_tie
def test_it_is_tied_at_half_of_the_steps(row):
    """The matrix that is kept, or the average; all other numbers, bit for bit, as they were."""
    text, before, after, kept = row
    cohort = beside(text, before)
    cohort.advance(10)
    old, new = numbers_of(cohort, before, 1), numbers_of(cohort, text, 1)
    assert new.keys() == numbers_of(beside(after), after).keys()
    for name, value in new.items():
        if name[2:4] == "W_" and name[4:] in kept:
            expected = sum(old[name[:4] + role] for role in kept[name[4:]]) / len(kept[name[4:]])
            assert_close(value, expected, rtol=1e-6, atol=1e-7)
        else:
            assert value.tobytes() == old[name].tobytes()


@every_tie
def test_training_goes_on_when_it_is_tied(row):
    """It has the parameters of what it became, all of them move, and it computes that."""
    text, _, after, _ = row
    cohort = beside(text)
    cohort.advance(10)
    tied = numbers_of(cohort, text)
    cohort.advance(3)
    later = numbers_of(cohort, text)
    assert later.keys() == tied.keys()
    assert not any((later[name] == tied[name]).all() for name in tied)
    looked = InspectedExample(cohort.model, cohort.experiment)
    reference = Reference(cohort.experiment, after)
    expected = reference.logits(looked.own(Variant(text)), looked.tokens[0])
    assert_close(looked.of_answers[0].double(), expected, rtol=1e-4, atol=1e-4)


def test_a_run_that_is_tied_leaves_its_neighbours_alone():
    """Other runs have the same bits as without it, through the step and after."""
    alone, company = beside("QKV", "Q=K diff"), beside("QKV", "Q=K diff", "QKV tie=K=V")
    for cohort in (alone, company):
        cohort.advance(20)
    for text in ("QKV", "Q=K diff"):
        assert same_bits(numbers_of(alone, text), numbers_of(company, text))


@pytest.mark.parametrize(("share", "step"), [("0", 0), ("0.25", 5), ("0.5", 10), ("1", 20)])
def test_tie_at_is_a_share_of_the_steps(share, step):
    """W_V is there until then, and gone from then on."""
    cohort = beside(text := f"QKV tie=K=V tie_at={share}")
    for _ in range(20):
        assert ("0.W_V" in numbers_of(cohort, text)) == (cohort.step < step)
        cohort.advance(1)
    assert "0.W_V" not in numbers_of(cohort, text)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("QKV start=Q=K", "QK"),
        ("QKV start=K=V", "KV"),
        ("QKV start=Q=K=V", "QKV"),
        ("K=V start=Q=K=V", "QK"),
        ("QKV kv_rank=3 start=K=V", "KV"),
    ],
)
def test_matrices_that_start_equal_are_free_afterwards(text, equal):
    """Equal copies of the first at step 0, different after one step; different between layers."""
    cohort = beside(text, plain := re.sub(" start=.*", "", text))
    own, without = (numbers_of(cohort, t) for t in (text, plain))
    first = f"W_{equal[0]}"
    for layer in (0, 1):
        for role in equal:
            assert (own[f"{layer}.W_{role}"] == without[f"{layer}.{first}"]).all()
    assert (own[f"0.{first}"] != own[f"1.{first}"]).all()
    rest = own.keys() - {f"{layer}.W_{role}" for layer in (0, 1) for role in equal}
    assert all((own[name] == without[name]).all() for name in rest)
    cohort.advance(1)
    own = numbers_of(cohort, text)
    assert (own[f"0.{first}"] != own[f"0.W_{equal[-1]}"]).any()


@pytest.mark.parametrize("company", [[], ["QKV", "K=V n_heads=4 kv_heads=1", "QKV d_mlp=11"]])
@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("learning_rate=0.003", {"learning_rate": 0.003}),
        ("n_heads=3", {"n_heads": 3}),
        ("d_head=9", {"d_head": 9}),
        ("d_head=m/h", {"d_head": 16}),
        ("d_mlp=7", {"d_mlp": 7}),
        ("self_mask", {"self_mask": True}),
        ("self_mask=no", {"self_mask": False}),
        *((f"positions={name}", {"positions": name}) for name in OPTIONS["positions"].samples),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["Q=K", "QKV d_v=6"])
def test_a_setting_of_one_s_own_is_that_of_the_experiment(form, word, given, company):
    """Bit for bit, whatever the others beside it have; d_head is even for the sake of RoPE."""
    elsewhere = {"d_head": 14, "self_mask": not given.get("self_mask", False)}
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


def test_learning_rates_are_their_own_each():
    """Three rates in one cohort: after one step of Adam every number has moved by about its own."""
    texts = {"QKV": 0.005, "QKV learning_rate=0.001": 0.001, "Q=K learning_rate=0.01": 0.01}
    cohort = beside(*texts)
    before = {text: numbers_of(cohort, text) for text in texts}
    cohort.advance(1)
    for text, rate in texts.items():
        moved = abs(numbers_of(cohort, text)["W_U"] - before[text]["W_U"]).max()
        assert moved == pytest.approx(rate, rel=1e-3)
