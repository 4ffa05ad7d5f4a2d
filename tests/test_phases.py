"""What changes within a training: an earlier task, and variants that are tied for a time."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
from kinds import KINDS, tiny
from reference import CPU, TINY, InspectedExample, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.training import Training
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.training.metrics import METRICS
from attnkit.variants import Variant

TEXTS = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "QKV qk_norm", "K=V n_heads=4 kv_heads=2"]


def build(**given):
    """Eight steps on the earlier task, eight on the task itself."""
    return Cohort(tiny("transfer", **{"sharing": TEXTS, "steps": 16, **given}), [0, 1], CPU)


def same(one, other):
    """Names of the parameters that have the same bits."""
    return {name for name in one if one[name].tobytes() == other[name].tobytes()}


STANDARD = {"blocks": "standard", "d_mlp": 7, "positions": "learned"}


@pytest.mark.parametrize("given", [STANDARD, {"n_train": 48, "clip": 0.1}])
def test_the_embedding_is_kept_and_all_else_begins_anew(given):
    """Once the last step of the earlier task is taken; later steps move all but the embedding."""
    cohort, idle = build(**given), {"0.b_K"}  # the same for all scores of a row
    states = [cohort.parameters()]
    for n_steps in (7, 1, 8):
        cohort.advance(n_steps)
        states.append(cohort.parameters())
    for drawn, before, turned, last in zip(*states, strict=True):
        assert same(before, drawn) <= idle
        assert (turned["W_E"] != before["W_E"]).any()
        assert same(turned, drawn) == turned.keys() - {"W_E"}
        assert same(last, turned) - idle == {"W_E"}


def test_the_optimiser_begins_anew_and_the_learning_rate_goes_on():
    """The first step of Adam moves numbers by the rate, which one schedule gives for all steps."""
    cohort = build(schedule="cosine", warm_up=0.25, sharing=["QKV"])
    training = cohort.experiment.training
    for step in range(9):
        before = cohort.parameters()[0]["W_U"]
        cohort.advance(1)
        rate = training.learning_rate * training.learning_rate_factor(step)
        moved = np.abs(cohort.parameters()[0]["W_U"] - before).max()
        assert step % 8 or moved == pytest.approx(rate, rel=1e-3 if step else 1e-2)


def test_each_phase_has_its_own_data():
    """Batches, evaluation and training accuracy are of the task at hand, from one stock."""
    experiment = tiny("transfer", n_train=32, steps=16)
    task, earlier = experiment.task, experiment.task.earlier
    assert (experiment.task_at(7), experiment.task_at(8)) == (earlier, task)

    def check(tokens, asked):
        questions = tokens[..., task.answers_from :, :]
        for which, hidden in ((earlier, task.n_classes + 1), (task, task.n_classes)):
            hits = (questions == hidden).any(-1)
            assert hits.all() == hits.any() == (which == asked)

    cohort = Cohort(experiment, [0, 1], CPU)
    for step, asked in ((0, earlier), (7, earlier), (8, task), (9, task)):
        check(TrainingData(experiment, [3], CPU, asked).next()[0][0], asked)
        cohort.advance(step - cohort.step)
        for examples in (cohort._evaluator.held_out, cohort._evaluator.trained_on):
            check(examples.tokens, asked)


def test_pages_see_the_task_itself_in_both_phases():
    """Its probe, and what was solved afterwards; phases that make no sense are refused."""
    for given in (
        {"task": "directed", "earlier_steps": 5},
        {"task": "transfer", "earlier_steps": 0},
        {"task": "transfer", "steps": 20, "earlier_steps": 20},
    ):
        with pytest.raises(InvalidExperiment) as caught:
            Experiment(**given)
        assert [problem.field for problem in caught.value.problems] == ["earlier_steps"]
    training = Training(tiny("transfer", sharing=["QKV", "QKV tie=K=V tie_at=0.75"]), "cpu")
    task, before = training.experiment.task, training.snapshot().probe
    training.advance(8)
    snapshot = training.snapshot()
    assert np.array_equal(before.tokens, snapshot.probe.tokens)
    assert (before.tokens[task.answers_from :] == task.n_classes).any(-1).all()
    history = dict.fromkeys(METRICS, np.ones((9, 4)))
    solved = dataclasses.replace(snapshot, history=history, eval_steps=np.arange(9))
    assert solved.steps_to_threshold().tolist() == [4, 4, 6, 6]


def test_what_is_tied_stays_tied_through_the_turn():
    """Before the turn, with it, or after; what was tied before begins with the numbers of K=V."""
    steps = {"QKV": 99, "K=V": 0}
    steps |= {f"QKV tie=K=V tie_at={n / 16:g}": n for n in (0, 4, 8, 12, 16)}
    cohort = build(sharing=list(steps), n_layers=2)
    expected = {Variant(text): step for text, step in steps.items()}
    for _ in range(17):
        numbers = dict(zip(cohort.runs, cohort.parameters(), strict=True))
        for (variant, _), own in numbers.items():
            tied = cohort.step >= expected[variant]
            assert ("0.W_V" in own) == ("1.W_V" in own) == (not tied), (variant, cohort.step)
        if cohort.step == 8:
            fresh, tied = (numbers[Variant(v), 0] for v in ("K=V", "QKV tie=K=V tie_at=0.25"))
            assert same(fresh, tied) == fresh.keys() - {"W_E"} == tied.keys() - {"W_E"}
        cohort.advance(1)


FIXED = {"fixed_names": True, "n_names": 9, "n_circles": 2, "n_values": 7}


@pytest.mark.parametrize(("task", "given"), [("neighbours", {}), ("dual_role", FIXED)])
def test_given_embeddings_never_move_and_all_others_do(task, given):
    """Rows of names stay bit for bit and count for nothing in clipping: they have no gradient."""
    small = {"steps": 8, "evaluate_every": 2, "batch_size": 16, "n_eval": 16, "n_seeds": 2}
    given = {**KINDS.get(task, {}), **small, **given, "sharing": TEXTS, "clip": 0.1}
    cohort = Cohort(Experiment(task=task, **given), [0, 1], CPU)
    task = cohort.experiment.task
    first = cohort.parameters()
    cohort.advance(8)
    for (_, seed), own, drawn in zip(cohort.runs, cohort.parameters(), first, strict=True):
        ids, rows = task.fixed_embedding(32, generator_for(seed, "fixed embedding"))
        assert np.array_equal(own["W_E"][ids], rows.numpy())
        assert np.array_equal(drawn["W_E"][ids], rows.numpy())
        others = np.setdiff1d(np.arange(task.d_vocab), ids.numpy())
        assert (own["W_E"][others] != drawn["W_E"][others]).any(1).all()
        assert same(own, drawn) == set()
    # After a turn the gradient of a frozen embedding is zero, that of all else as long as allowed.
    cohort = build(clip=0.001, blocks="standard")
    cohort.advance(9)
    for run in range(cohort.model.n_runs):
        own = cohort.model.run_parameters(run, cohort.model.gradient)
        assert not own["W_E"].any()
        total = sum(value.square().sum() for value in own.values()).sqrt()
        assert total == pytest.approx(0.001, rel=1e-2)


SCHEDULE = {"steps": 20, "evaluate_every": 5, "n_layers": 2, "n_heads": 2, "d_head": 7}
TIES = [  # variant, what it was, what it becomes, and the matrices that W_<key> goes on with
    ("QKV tie=K=V", "QKV", "K=V", {"K": "KV"}),
    ("QKV tie=K=V tie_by=keep_V", "QKV", "K=V", {"K": "V"}),
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


@pytest.mark.parametrize("blocks", ["lean", "standard"])
def test_what_is_tied_at_half_of_the_steps(blocks):
    """Until then it is what it was, bit for bit; then it is, and trains on as, what it became."""
    cohort = beside(*(text for row in TIES for text in row[:2]), blocks=blocks)
    for n_steps in (0, 9):
        cohort.advance(n_steps)
        for (text, before, *_), seed in itertools.product(TIES, (0, 1)):
            one, other = (numbers_of(cohort, each, seed) for each in (text, before))
            assert one.keys() == other.keys() == same(one, other), text
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
    for (text, equal), kind in itertools.product(STARTS.items(), "Wb"):
        own = numbers_of(cohort, text)
        assert (own[f"0.{kind}_{equal[0]}"] != own[f"0.{kind}_{equal[-1]}"]).any()
