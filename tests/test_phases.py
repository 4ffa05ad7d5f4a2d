"""An earlier task: its embedding is kept and frozen, all else begins anew."""

import dataclasses

import numpy as np
import pytest
import torch
from kinds import KINDS, tiny

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.training import Training
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.training.metrics import METRICS
from attnkit.variants import Variant

CPU = torch.device("cpu")
TEXTS = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "QKV qk_norm", "K=V n_heads=4 kv_heads=2"]


def build(**given):
    """Eight steps on the earlier task, eight on the task itself."""
    return Cohort(tiny("transfer", **{"sharing": TEXTS, "steps": 16, **given}), [0, 1], CPU)


def same(one, other):
    """Names of the parameters that have the same bits."""
    return {name for name in one if one[name].tobytes() == other[name].tobytes()}


blocks = pytest.mark.parametrize(
    "given",
    [{}, {"blocks": "standard", "d_mlp": 7, "positions": "learned"}, {"n_train": 48, "clip": 0.1}],
    ids=["lean", "standard", "stock"],
)


@blocks
def test_the_embedding_is_kept_and_all_else_begins_anew(given):
    """After the turn the embedding has the bits of the earlier task, all else its initial ones.

    The last step of the earlier task is taken; later steps move everything but the embedding.
    """
    cohort, idle = build(**given), {"0.b_K"}  # the same for all scores of a row
    drawn = cohort.parameters()
    cohort.advance(7)
    before = cohort.parameters()
    for own, first in zip(before, drawn, strict=True):
        assert same(own, first) <= idle
    cohort.advance(1)
    turned = cohort.parameters()
    for own, last, first in zip(turned, before, drawn, strict=True):
        assert (own["W_E"] != last["W_E"]).any()
        assert same(own, first) == own.keys() - {"W_E"}
    cohort.advance(8)
    for own, first in zip(cohort.parameters(), turned, strict=True):
        assert same(own, first) - idle == {"W_E"}


def test_the_optimiser_begins_anew_and_the_learning_rate_goes_on():
    """The first step of Adam moves numbers by the rate, which one schedule gives for all steps."""
    cohort, moved = build(schedule="cosine", warm_up=0.25, sharing=["QKV"]), []
    for _ in range(16):
        before = cohort.parameters()[0]["W_U"]
        cohort.advance(1)
        moved.append(np.abs(cohort.parameters()[0]["W_U"] - before).max())
    training = cohort.experiment.training
    rates = [training.learning_rate * training.learning_rate_factor(step) for step in range(16)]
    assert moved[0] == pytest.approx(rates[0], rel=1e-2)
    assert moved[8] == pytest.approx(rates[8], rel=1e-3)


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

    for asked in (earlier, task):
        check(TrainingData(experiment, [3], CPU, asked).next()[0][0], asked)
    cohort = Cohort(experiment, [0, 1], CPU)
    for step, asked in ((0, earlier), (7, earlier), (8, task), (9, task)):
        cohort.advance(step - cohort.step)
        for examples in (cohort._evaluator.held_out, cohort._evaluator.trained_on):
            check(examples.tokens, asked)


def test_pages_see_the_task_itself_in_both_phases():
    """The probe stays one example of it, and only what was solved afterwards is solved."""
    training = Training(tiny("transfer", sharing=["QKV", "QKV tie=K=V tie_at=0.75"]), "cpu")
    task, before = training.experiment.task, training.snapshot().probe
    training.advance(8)
    snapshot = training.snapshot()
    assert np.array_equal(before.tokens, snapshot.probe.tokens)
    assert (before.tokens[task.answers_from :] == task.n_classes).any(-1).all()
    solved = dataclasses.replace(
        snapshot, history=dict.fromkeys(METRICS, np.ones((9, 4))), eval_steps=np.arange(9)
    )
    assert solved.steps_to_threshold().tolist() == [4, 4, 6, 6]


def test_what_is_tied_stays_tied_through_the_turn():
    """Whenever it is tied: before the turn, with it, or after; other numbers begin anew.

    What was tied before begins with the numbers of K=V, bit for bit, besides the embedding.
    """
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


def test_phases_that_make_no_sense_are_refused():
    """An earlier task where there is none, none where there is one, and nothing after it."""
    for given in (
        {"task": "directed", "earlier_steps": 5},
        {"task": "transfer", "earlier_steps": 0},
        {"task": "transfer", "steps": 20, "earlier_steps": 20},
    ):
        with pytest.raises(InvalidExperiment) as caught:
            Experiment(**given)
        assert [problem.field for problem in caught.value.problems] == ["earlier_steps"]


# Embeddings that are given


FIXED = {"fixed_names": True, "n_names": 9, "n_circles": 2, "n_values": 7}


@pytest.mark.parametrize(("task", "given"), [("neighbours", {}), ("dual_role", FIXED)])
def test_given_embeddings_never_move_and_all_others_do(task, given):
    """Rows of names stay bit for bit and count for nothing in clipping: they have no gradient."""
    small = {"steps": 8, "evaluate_every": 2, "batch_size": 16, "n_eval": 16, "n_seeds": 2}
    given = {**KINDS.get(task, {}), **small, **given, "sharing": TEXTS, "clip": 0.1}
    cohort = Cohort(Experiment(task=task, **given), [0, 1], CPU)
    task, model = cohort.experiment.task, cohort.model
    first = cohort.parameters()
    cohort.advance(8)
    for (_, seed), own, drawn in zip(cohort.runs, cohort.parameters(), first, strict=True):
        ids, rows = task.fixed_embedding(32, generator_for(seed, "fixed embedding"))
        assert np.array_equal(own["W_E"][ids], rows.numpy())
        assert np.array_equal(drawn["W_E"][ids], rows.numpy())
        others = np.setdiff1d(np.arange(task.d_vocab), ids.numpy())
        assert (own["W_E"][others] != drawn["W_E"][others]).any(1).all()
        assert same(own, drawn) == set()
    looks = [task.draw(64, generator_for(s, "look"), held_out=False) for s in (0, 1)]
    tokens, labels = (torch.stack([getattr(one, n) for one in looks]) for n in ("tokens", "labels"))
    model.differentiate(tokens, labels)
    for run in range(model.n_runs):
        moves = model.run_parameters(run, model.gradient)["W_E"].any(1).tolist()
        assert moves == [False] * task.n_names + [True] * (task.d_vocab - task.n_names)


def test_a_frozen_embedding_counts_for_nothing_when_gradients_are_clipped():
    """After the turn its gradient is zero, that of all else is as long as allowed."""
    cohort = build(clip=0.001, blocks="standard")
    cohort.advance(9)
    for run in range(cohort.model.n_runs):
        own = cohort.model.run_parameters(run, cohort.model.gradient)
        assert not own["W_E"].any()
        total = sum(value.square().sum() for value in own.values()).sqrt()
        assert total == pytest.approx(0.001, rel=1e-2)
