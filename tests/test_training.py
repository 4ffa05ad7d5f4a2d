"""Training: cadence, snapshots, cohorts, interruption, and that tasks end where they should."""

from concurrent.futures import wait

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, SMALL, tiny
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.model.model import SELF_MASK
from attnkit.model.reference import Layer
from attnkit.tasks import NOTHING
from attnkit.training import plans
from attnkit.training import training as training_module
from attnkit.training.cohort import Cohort
from attnkit.training.evaluation import mean_scores
from attnkit.training.metrics import METRICS
from attnkit.training.plans import RUNS_PER_COHORT, plan_cohorts
from attnkit.training.snapshot import Snapshot
from attnkit.training.training import Training, stream, train
from attnkit.variants.sharing import Sharing

CPU = torch.device("cpu")
SMALL = {**SMALL, "n_seeds": 2, "steps": 17, "evaluate_every": 5}


def small(**given):
    """An experiment of 4 runs that trains in a moment."""
    return Experiment(**{**SMALL, **given})


# What training gives


def test_training_keeps_its_cadence_and_ends_with_its_last_step():
    """Evaluated before the first step, every five steps, and at the seventeenth, however cut up."""
    training = Training(small(), "cpu")
    seconds = training.seconds
    assert training.snapshot().eval_steps.tolist() == [0]
    assert training.snapshot().status == "running"
    assert training.snapshot("stopped").status == training.result().snapshot.status == "stopped"
    for n_steps in (1, 6, 0, 100):
        assert not training.finished
        training.advance(n_steps)
    assert (training.step, training.finished) == (17, True)
    assert training.seconds > seconds > 0
    before = training.result()
    training.advance(3)
    after = training.result()
    assert training.snapshot().status == after.snapshot.status == "finished"
    assert after.snapshot.eval_steps.tolist() == [0, 5, 10, 15, 17]
    assert_same(after.parameters, before.parameters)


def test_untrained_models_are_at_chance():
    """Nothing leaks: accuracy is near one over the classes, loss above its logarithm."""
    experiment = Experiment(n_eval=512)
    history = Training(experiment, "cpu").snapshot().history
    assert history["accuracy"].mean() == pytest.approx(1 / experiment.task.n_classes, abs=0.01)
    assert (history["loss"] > np.log(experiment.task.n_classes)).all()


@pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
def test_every_engine_and_device_trains_as_torch_does_on_a_cpu(device):
    """Within rounding, in two layers, with clipping, on a training set that is repeated."""
    chosen = [f"{name} learning_rate={rate}" for name in ("QKV", "K=V") for rate in (0.005, 0.01)]
    experiment = small(sharing=chosen, n_layers=2, d_mlp=7, n_train=48, clip=0.5, steps=12)
    trainings = Training(experiment, "cpu", "torch"), Training(experiment, device)
    for training in trainings:
        training.advance(12)
    losses = [training.snapshot().history["loss"] for training in trainings]
    np.testing.assert_allclose(*losses, rtol=1e-3)


MISSING = {
    "directed": {"training_accuracy"},
    "phonebook": {"training_accuracy", "mass_on_reverse"},
    "mqar": {"training_accuracy", "mass_on_reverse"},
    "dictionary": {"training_accuracy", "mass_on_reverse"},
    "reverse": {"mass_on_reverse"},
    "language": {"mass_on_reverse", "mass_on_target"},
}
"""Metrics that tasks do not have: a reversed entry, one right place, examples that come again."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_has_the_numbers_of_its_task(kind):
    """Metrics that a task does not have are NaN; arrays have the documented shapes."""
    given = {"n_layers": 2, "n_heads": 2, "n_seeds": 2, "evaluate_every": 5}
    experiment = tiny(kind, sharing=["QKV", "Q=K=V"], **given)
    training = Training(experiment, "cpu")
    training.advance(7)
    snapshot = training.snapshot()
    assert list(snapshot.history) == list(METRICS)
    assert all(rows.shape == (2, 4) for rows in snapshot.history.values())
    assert all(rows.dtype == np.float32 for rows in snapshot.history.values())
    missing, whole = (
        {name for name, rows in snapshot.history.items() if some(np.isnan(rows))}
        for some in (np.any, np.all)
    )
    assert missing == whole == {"longer_accuracy", *MISSING.get(kind, missing)}
    symmetry = np.nanmean(snapshot.head_symmetry, (1, 2))
    np.testing.assert_allclose(snapshot.history["score_symmetry"][-1], symmetry, atol=1e-6)
    again = Snapshot.from_bytes(snapshot.to_bytes())  # refuses another shape of any array
    assert_same(again, snapshot)
    probe, task = snapshot.probe, experiment.task
    assert probe.answers.shape == (4, task.n_ctx - task.answers_from)
    assert probe.pattern.shape == (4, 6 if task.n_source else 2, 2, task.n_ctx, task.n_ctx)
    assert (probe.scores is None) == (probe.target == NOTHING).all()


def test_snapshots_and_results_do_not_change_later():
    """What was sent to a page stays as it was, and weights are copies.

    The probe is one example for all settings of a task; its scores are cut to 16 bits.
    """
    training, other = Training(small(), "cpu"), Training(small(first_seed=7, d_head=5), "cpu")
    for cohort in training.cohorts:
        cohort.model.numbers.mul_(1e6)
    snapshot, result = training.snapshot(), training.result()
    arrays = [*snapshot.history.values(), snapshot.head_symmetry, snapshot.probe.pattern]
    arrays += result.parameters[0].values()
    before = [array.copy() for array in arrays]
    training.advance(17)
    assert_same(arrays, before)
    probes = [shown.probe for shown in (snapshot, other.snapshot())]
    assert np.array_equal(probes[0].tokens, probes[1].tokens)
    assert np.array_equal(probes[0].labels, probes[1].labels)
    assert np.abs(probes[0].scores).max() == np.finfo(np.float16).max


def test_answers_scores_and_patterns_of_a_cohort_belong_together():
    """Softmax of the scores, with their mask; of several maps of a head, scores are the mean."""
    cohort = Cohort(small(n_heads=2, n_layers=3, sharing=list(Sharing)), (1, 3), CPU)
    examples = cohort.experiment.task.make_examples(7, torch.Generator().manual_seed(0))
    answers, pattern, scores = cohort.answer(examples)
    assert answers.shape == (10, 7, 5)
    assert pattern.shape == scores.shape == (10, 7, 3, 2, 5, 5)
    masked = scores + SELF_MASK * np.eye(5, dtype=np.float32) * cohort.experiment.size.self_mask
    expected = torch.from_numpy(masked).softmax(-1)
    np.testing.assert_allclose(pattern, expected, rtol=1e-4, atol=1e-6)
    maps = torch.arange(6.0).view(1, 1, 6, 1, 1)
    found = mean_scores(Layer(maps, torch.zeros(1, 1, 2, 1, 1)))
    assert found.flatten().tolist() == [1, 4]


def test_stream_and_progress_are_dense_enough():
    """Steps 0, 1, 2, 4, 8 … then evenly; only the end is finished."""
    snapshots = list(stream(small(steps=300), "cpu"))
    steps = [snapshot.step for snapshot in snapshots]
    assert steps[:5] == [0, 1, 2, 4, 8]
    assert np.diff(steps).max() <= 300 // 40
    assert steps[-1] == 300
    assert len(steps) < 60
    assert [s.status for s in snapshots] == ["running"] * (len(steps) - 1) + ["finished"]
    reported = []
    train(small(steps=300), "cpu", progress=lambda training: reported.append(training.step))
    assert reported == sorted(set(reported))
    assert reported[-1] == 300
    assert 5 < len(reported) <= 51


def test_attention_may_be_measured_at_the_end_only():
    """Everything else, and the last evaluation, have the same bits as with all curves."""
    experiment = tiny("directed", steps=6, evaluate_every=2)
    full, short = (Cohort(experiment, [0, 1], CPU, attention_curves=c) for c in (True, False))
    for cohort in (full, short):
        cohort.advance(6)
    for complete, reduced in zip(full.evaluations, short.evaluations, strict=True):
        last = complete.step == 6
        for name, values in complete.metrics.items():
            curve = name in ("accuracy", "training_accuracy", "loss")
            wanted = values if last or curve else np.full_like(values, np.nan)
            np.testing.assert_array_equal(reduced.metrics[name], wanted)
        wanted = complete.head_symmetry if last else np.full_like(complete.head_symmetry, np.nan)
        np.testing.assert_array_equal(reduced.head_symmetry, wanted)


# Interruption


def test_an_interrupt_between_cohorts_brings_all_to_one_step(monkeypatch):
    """Ctrl-C while threads train: what is left equals an undisturbed training so far."""
    waits = []

    def interrupted_wait(workers):
        waits.append(workers)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return wait(workers)

    experiment = small(sharing=list(Sharing), n_seeds=3, steps=4000, evaluate_every=1000)
    training = Training(experiment, "cpu")
    training.cohorts[1].advance(3)  # threads take five steps at a time: never even by chance
    monkeypatch.setattr(training_module, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        training.advance(4000)
    monkeypatch.undo()
    assert 3 <= training.step < 4000
    assert {cohort.step for cohort in training.cohorts} == {training.step}
    expected = Training(experiment, "cpu")
    expected.advance(training.step)
    assert_same(training.result().parameters, expected.result().parameters)


# Cohorts, batches and rates


@given(
    st.sets(st.sampled_from(Sharing), min_size=1),
    st.integers(1, 20),
    st.integers(0, 99),
    st.sampled_from([1, 2, 3, 4, 8, 64]),
)
def test_cohorts_part_the_runs(chosen, n_seeds, first_seed, n_cores):
    """Every run is in one cohort, with about ten runs each on a CPU, all at once on a GPU."""
    experiment = small(sharing=chosen, n_seeds=n_seeds, first_seed=first_seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "n_cores", lambda: n_cores)
        plan = plan_cohorts(experiment, "cpu")
    runs = [(sharing, seed) for part in plan for sharing in part.sharing for seed in part.seeds]
    assert sorted(runs) == sorted(experiment.runs)
    assert all(len(part.sharing) * len(part.seeds) <= RUNS_PER_COHORT for part in plan)
    assert len(plan) >= min(n_cores, experiment.n_runs)
    large = experiment.replace(d_model=128, d_mlp=512, n_entries=11, batch_size=64)
    plan = plan_cohorts(large, "cpu")  # what a step computes stays in the cache
    assert max(len(part.sharing) * len(part.seeds) for part in plan) <= 2
    (whole,) = plan_cohorts(experiment, "cuda")
    assert (whole.sharing, whole.seeds) == (experiment.sharing, list(experiment.seeds))


def test_every_cohort_computes_on_one_thread(monkeypatch, threads):
    """A lone run, its evaluations and its probe, too: its bits must not depend on its company."""
    threads(2)
    seen = set()
    for name in ("advance", "_evaluate", "answer"):
        method = getattr(Cohort, name)

        def noting(cohort, *given, method=method, name=name):
            seen.add((name, torch.get_num_threads()))
            return method(cohort, *given)

        monkeypatch.setattr(Cohort, name, noting)
    training = Training(small(sharing=["QKV"], n_seeds=1, d_model=128), "cpu")
    training.advance(2)
    training.snapshot()
    assert seen == {("advance", 1), ("_evaluate", 1), ("answer", 1)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"steps": 5}, [1.0] * 6),
        ({"steps": 10, "warm_up": 0.2}, [0.5, *[1.0] * 10]),
        ({"steps": 4, "schedule": "cosine"}, [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]),
        (
            {"steps": 6, "schedule": "cosine", "warm_up": 1 / 3},
            [0.5, 1, 1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0],
        ),
    ],
)
def test_rates_rise_along_a_line_and_fall_along_a_cosine(given, expected):
    """By hand: a cosine falls over what is left of the steps, to zero after the last one."""
    training = small(**given).training
    found = [training.learning_rate_factor(step) for step in range(given["steps"] + 1)]
    assert found == pytest.approx(expected, abs=1e-12)


# Convergence: at the defaults, every task ends where it should, on three seeds at night


def trained(task, sharing, long, **given):
    """Return the table of a task's runs, with an index of sharings, and the snapshot."""
    given = {"task": task, "sharing": sharing, "n_seeds": 3 if long else 1, **given}
    result = train(Experiment(**given), "cpu")
    return result.table.set_index("sharing"), result.snapshot


def test_directed_needs_queries_that_are_not_keys(long):
    """Three sharings solve it; symmetric scores cannot tell superior from subordinate."""
    table, _ = trained("directed", list(Sharing), long)
    assert (table.loc[["QKV", "K=V", "Q=V"], "accuracy"] >= 0.98).all()
    assert table.loc[["Q=K", "Q=K=V"], "accuracy"].between(0.35, 0.60).all()
    masses = table[["mass_on_target", "mass_on_reverse"]]
    assert (masses.loc[["QKV"], "mass_on_reverse"] <= 0.05).all()
    gap = masses.loc[["Q=K"], "mass_on_target"] - masses.loc[["Q=K"], "mass_on_reverse"]
    assert (gap.abs() <= 0.03).all()


def test_other_tasks_need_no_separate_matrices(long):
    """Untied scores of mutual become symmetric by themselves; its probe shows the target."""
    table, snapshot = trained("mutual", ["QKV", "Q=K=V"], long)
    assert (table["accuracy"] >= 0.95).all()
    assert (table.loc[["QKV"], "asymmetry"] < 0.1).all()
    own, probe = table.reset_index()["sharing"] == "Q=K=V", snapshot.probe
    assert (probe.pattern[own, 0, 0].argmax(-1) == probe.target).all()
    assert (probe.answers[own] == probe.labels).all()
    table, _ = trained("phonebook", ["Q=K=V"], long)
    assert (table["accuracy"] >= 0.98).all()
    sizes = {"n_vocab": 8, "n_words": 4, "d_head": 16, "steps": 150}
    table, _ = trained("dictionary", ["QKV", "Q=K=V"], long, **sizes)
    assert (table["accuracy"] > 0.9).all()
