"""A cohort: runs computed as one batch, evaluated on the experiment's cadence."""

import numpy as np
import torch
from kinds import tiny
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.model.model import SELF_MASK
from attnkit.model.reference import Layer
from attnkit.training.cohort import Cohort, _mean_scores
from attnkit.training.snapshot import METRICS
from attnkit.variants.sharing import Sharing

EXPERIMENT = Experiment(
    n_entries=5,
    n_names=11,
    n_values=7,
    n_seeds=4,
    n_layers=3,
    n_heads=2,
    d_head=3,
    steps=17,
    evaluate_every=5,
    batch_size=16,
    n_eval=16,
)


def build(experiment=EXPERIMENT, seeds=(1, 3)):
    """A cohort of two of the four seeds."""
    return Cohort(experiment, seeds, torch.device("cpu"))


def test_evaluations_have_a_number_for_every_run():
    """(r,) of every metric, (r, l, h) symmetry of heads whose mean is that of the run."""
    cohort = build()
    cohort.advance(4)
    cohort.advance(13)
    assert [evaluation.step for evaluation in cohort.evaluations] == [0, 5, 10, 15, 17]
    for evaluation in cohort.evaluations:
        assert set(evaluation.metrics) == set(METRICS)
        assert all(values.shape == (10,) for values in evaluation.metrics.values())
        assert all(values.dtype == np.float32 for values in evaluation.metrics.values())
        assert evaluation.head_symmetry.shape == (10, 3, 2)
        expected = evaluation.head_symmetry.mean((1, 2))
        np.testing.assert_allclose(evaluation.metrics["score_symmetry"], expected, atol=1e-6)


def test_runs_are_in_the_order_of_the_experiment():
    """Sharings in their own order, not in that of the computation; seeds within."""
    cohort = build()
    owned = [{name[2:] for name in own if name.startswith("0.W_")} for own in cohort.parameters()]
    expected = [{f"W_{members[0]}" for members in s.classes} | {"W_O"} for s in Sharing]
    assert owned == [names for names in expected for _ in cohort.seeds]


def test_parameters_are_copies():
    """They do not change when training goes on."""
    cohort = build()
    before = cohort.parameters()
    kept = before[0]["W_U"].copy()
    cohort.advance(3)
    np.testing.assert_array_equal(before[0]["W_U"], kept)
    assert not np.array_equal(cohort.parameters()[0]["W_U"], kept)


def test_answers_patterns_and_scores_of_every_run():
    """(r, b, a) classes, and (r, b, l, h, i, j) attention and scores of the same examples."""
    cohort = build()
    examples = cohort.experiment.task.make_examples(7, torch.Generator().manual_seed(0))
    answers, pattern, scores = cohort.answer(examples)
    assert answers.shape == (10, 7, 5)
    assert pattern.shape == scores.shape == (10, 7, 3, 2, 5, 5)
    np.testing.assert_allclose(pattern.sum(-1), 1, rtol=1e-5)
    diagonal = SELF_MASK * np.eye(5, dtype=np.float32) * cohort.experiment.size.self_mask
    expected = torch.from_numpy(scores + diagonal).softmax(-1)
    np.testing.assert_allclose(pattern, expected, rtol=1e-4, atol=1e-6)


def test_scores_of_several_maps_are_their_mean():
    """Each of the three maps of a head counts the same, and heads do not mix."""
    by_map = torch.arange(2 * 3 * 5 * 5, dtype=torch.float).view(1, 1, 6, 5, 5)
    pattern = torch.zeros(1, 1, 2, 5, 5)
    found = _mean_scores(Layer(by_map, pattern))
    expected = torch.stack([by_map[:, :, :3].mean(2), by_map[:, :, 3:].mean(2)], 2)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_answering_changes_nothing():
    """A look between steps draws nothing and moves no weight."""
    looked, undisturbed = build(), build()
    examples = looked.experiment.task.make_examples(3, torch.Generator().manual_seed(0))
    for cohort in (looked, undisturbed):
        cohort.advance(2)
        if cohort is looked:
            cohort.answer(examples)
        cohort.advance(2)
    assert_same(looked.parameters(), undisturbed.parameters())


def test_training_lowers_the_loss_of_every_run():
    """Each run descends its own loss, also where most positions are asked nothing."""
    for cohort in (
        build(EXPERIMENT.replace(steps=60, evaluate_every=60, n_layers=1), seeds=(1,)),
        Cohort(tiny("mqar", steps=60, evaluate_every=60), [0, 1], torch.device("cpu")),
    ):
        cohort.advance(60)
        first, last = (evaluation.metrics["loss"] for evaluation in cohort.evaluations)
        assert (last < first).all()


def test_a_learning_rate_that_is_too_high_is_survived():
    """Runs may diverge; the others go on, and nothing raises or warns."""
    cohort = build(EXPERIMENT.replace(learning_rate=1.0, steps=30), seeds=(1,))
    cohort.advance(30)
    lost = cohort.diverged_at >= 0
    losses = cohort.evaluations[-1].metrics["loss"]
    np.testing.assert_array_equal(np.isnan(losses), lost)


def test_attention_may_be_measured_at_the_end_only():
    """Everything else, and the last evaluation, have the same bits as with all curves."""
    experiment = tiny("directed", steps=6, evaluate_every=2)
    device = torch.device("cpu")
    full = Cohort(experiment, [0, 1], device)
    short = Cohort(experiment, [0, 1], device, attention_curves=False)
    full.advance(6)
    short.advance(6)
    for complete, reduced in zip(full.evaluations, short.evaluations, strict=True):
        last = complete.step == 6
        for name, values in complete.metrics.items():
            curve = name in ("accuracy", "training_accuracy", "loss")
            wanted = values if last or curve else np.full_like(values, np.nan)
            np.testing.assert_array_equal(reduced.metrics[name], wanted)
        assert np.isnan(reduced.head_symmetry).all() == (not last)
    np.testing.assert_array_equal(
        full.evaluations[-1].head_symmetry, short.evaluations[-1].head_symmetry
    )
