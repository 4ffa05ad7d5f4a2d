"""Training: cadence, snapshots, interruption, and that each task ends where it should."""

from concurrent.futures import wait

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, SMALL, tiny
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.tasks import NOTHING, TASKS
from attnkit.training import training as training_module
from attnkit.training.cohort import Cohort
from attnkit.training.snapshot import METRICS
from attnkit.training.training import RUNS_PER_COHORT, Training, plan_cohorts, stream, train
from attnkit.variants.sharing import Sharing

SMALL = {**SMALL, "n_seeds": 2, "steps": 17, "evaluate_every": 5}


def small(**given):
    """An experiment of 4 runs that trains in a moment."""
    return Experiment(**{**SMALL, **given})


def test_training_keeps_its_cadence_and_ends_with_its_last_step():
    """Evaluated before the first step, every five steps, and at the seventeenth, however cut up."""
    training = Training(small(), "cpu")
    seconds = training.seconds
    assert (training.step, training.finished) == (0, False)
    assert training.snapshot().eval_steps.tolist() == [0]
    assert training.snapshot().status == "running"
    assert training.snapshot("stopped").status == training.result().snapshot.status == "stopped"
    for n_steps in (1, 6, 0, 100):
        training.advance(n_steps)
    assert (training.step, training.finished) == (17, True)
    assert training.seconds > seconds > 0
    before = training.result()
    training.advance(3)
    after = training.result()
    assert training.snapshot().status == after.snapshot.status == "finished"
    for result in (before, after):
        assert result.snapshot.eval_steps.tolist() == [0, 5, 10, 15, 17]
        assert all(len(rows) == 5 for rows in result.snapshot.history.values())
    assert np.array_equal(after.parameters[0]["W_U"], before.parameters[0]["W_U"])


def test_untrained_models_are_at_chance():
    """Nothing leaks: accuracy is near one over the classes, loss above its logarithm."""
    experiment = Experiment(n_eval=1024)
    history = Training(experiment, "cpu").snapshot().history
    assert history["accuracy"].mean() == pytest.approx(1 / experiment.task.n_classes, abs=0.01)
    assert (history["loss"] > np.log(experiment.task.n_classes)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_snapshot_has_the_documented_shapes(kind):
    """Histories (e, r), symmetry per head (r, l, h), slices, the probe's answers and patterns."""
    given = {"n_layers": 2, "n_heads": 2, "n_seeds": 2, "evaluate_every": 5}
    experiment = tiny(kind, sharing=["QKV", "Q=K=V"], **given)
    training = Training(experiment, "cpu")
    training.advance(7)
    snapshot, task, n_ctx = training.snapshot(), experiment.task, experiment.task.n_ctx
    n_layers, n_answers = 6 if task.n_source else 2, n_ctx - task.answers_from
    assert set(snapshot.history) == set(METRICS)
    for rows in snapshot.history.values():
        assert rows.shape == (2, 4)
        assert rows.dtype == np.float32
    assert snapshot.head_symmetry.shape == (4, n_layers, 2)
    assert snapshot.slice_accuracy.shape == (4, len(task.slice_names))
    assert snapshot.slice_accuracy.dtype == np.float32
    assert snapshot.diverged_at.tolist() == [-1] * 4
    assert snapshot.probe.tokens.shape == (n_ctx, task.n_fields)
    assert snapshot.probe.labels.shape == snapshot.probe.target.shape == (n_answers,)
    assert snapshot.probe.answers.shape == (4, n_answers)
    assert snapshot.probe.pattern.shape == (4, n_layers, 2, n_ctx, n_ctx)
    if (snapshot.probe.target == NOTHING).all():
        assert snapshot.probe.scores is None
    else:
        assert snapshot.probe.scores.shape == (4, n_layers, 2, n_ctx, n_ctx)
        assert snapshot.probe.scores.dtype == np.float16


def test_snapshots_and_results_do_not_change_later():
    """What was sent to a page stays as it was, and weights are copies."""
    training = Training(small(), "cpu")
    snapshot, result = training.snapshot(), training.result()
    arrays = [*snapshot.history.values(), snapshot.head_symmetry, snapshot.probe.pattern]
    arrays += result.parameters[0].values()
    before = [array.copy() for array in arrays]
    training.advance(17)
    assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(arrays, before, strict=True))


def test_scores_beyond_16_bits_are_cut():
    """A run whose scores explode is still shown."""
    training = Training(small(), "cpu")
    for cohort in training.cohorts:
        cohort.model.numbers.mul_(1e6)
    scores = training.snapshot().probe.scores
    assert np.abs(scores).max() == np.finfo(np.float16).max


def test_the_probe_is_the_same_for_every_experiment():
    """Pages of one task show one example, whatever the seeds and sharings."""
    one = Training(small(), "cpu").snapshot().probe
    other = Training(small(first_seed=7, sharing="Q=V", d_head=5), "cpu").snapshot().probe
    assert np.array_equal(one.tokens, other.tokens)
    assert np.array_equal(one.labels, other.labels)


def test_results_are_ordered_as_the_experiment():
    """Sharings in the order QKV, Q=K, K=V, Q=V, Q=K=V, though the cohort computes another."""
    result = train(small(sharing=list(Sharing), steps=3), "cpu")
    for (sharing, _), own in zip(result.experiment.runs, result.parameters, strict=True):
        assert {name[-1] for name in own if name[-1] in "QKV"} == {
            members[0] for members in sharing.sharing.classes
        }
    symmetric = [variant.sharing.symmetric for variant, _ in result.experiment.runs]
    assert (result.snapshot.history["symmetry_error"][-1] < 1e-5).tolist() == symmetric
    assert (result.snapshot.head_symmetry[:, 0, 0] > 1 - 1e-5).tolist() == symmetric


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("directed", {"training_accuracy"}),
        ("phonebook", {"training_accuracy", "mass_on_reverse"}),
        ("mqar", {"training_accuracy", "mass_on_reverse"}),
        ("dictionary", {"training_accuracy", "mass_on_reverse"}),
        ("reverse", {"mass_on_reverse"}),
        ("language", {"mass_on_reverse", "mass_on_target"}),
    ],
)
def test_what_a_task_does_not_have_is_missing(kind, missing):
    """NaN, not zero: a reversed entry, a single right position, examples that come again."""
    history = Training(tiny(kind), "cpu").snapshot().history
    found = {name for name, rows in history.items() if np.isnan(rows).all()}
    assert found == missing
    assert not any(np.isnan(history[name]).any() for name in history.keys() - missing)


def test_stream_and_progress_are_dense_enough():
    """Steps 0, 1, 2, 4, 8 … then evenly; only the end is finished."""
    snapshots = list(stream(small(steps=300), "cpu"))
    steps = [snapshot.step for snapshot in snapshots]
    assert steps[:5] == [0, 1, 2, 4, 8]
    assert np.diff(steps).max() <= 300 // 40
    assert steps[-1] == 300
    assert len(steps) < 60
    statuses = [snapshot.status for snapshot in snapshots]
    assert statuses == ["running"] * (len(statuses) - 1) + ["finished"]
    reported = []
    train(small(steps=300), "cpu", progress=lambda training: reported.append(training.step))
    assert reported == sorted(set(reported))
    assert reported[-1] == 300
    assert 5 < len(reported) <= 51
    for few in (1, 2, 17):
        assert [snapshot.step for snapshot in stream(small(steps=few), "cpu")][-1] == few


def test_an_interrupted_training_gives_what_was_reached():
    """Ctrl-C: the result is stopped, with the evaluations made so far."""

    def interrupt(_):
        raise KeyboardInterrupt

    result = train(small(steps=300), "cpu", progress=interrupt)
    reached = result.snapshot.step
    assert 0 < reached < 300
    assert result.snapshot.status == "stopped"
    assert result.snapshot.eval_steps.tolist() == list(range(0, reached + 1, 5))
    assert len(result.parameters) == 4
    with pytest.raises(ZeroDivisionError):  # only an interruption ends training early
        train(small(), "cpu", progress=lambda _: 1 / 0)


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
        patch.setattr(training_module, "n_cores", lambda: n_cores)
        plan = plan_cohorts(experiment, torch.device("cpu"))
    runs = [(sharing, seed) for part in plan for sharing in part.sharing for seed in part.seeds]
    assert sorted(runs) == sorted(experiment.runs)
    assert all(len(part.sharing) * len(part.seeds) <= RUNS_PER_COHORT for part in plan)
    assert len(plan) >= min(n_cores, experiment.n_runs)
    large = experiment.replace(d_model=128, d_mlp=512, n_entries=11, batch_size=64)
    plan = plan_cohorts(large, torch.device("cpu"))  # what a step computes stays in the cache
    assert max(len(part.sharing) * len(part.seeds) for part in plan) <= 2
    (whole,) = plan_cohorts(experiment, torch.device("cuda"))
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


@pytest.mark.parametrize(("warm_up", "share"), [(0.0, 1), (0.3, 1 / 5)])
def test_a_run_follows_its_learning_rate(warm_up, share):
    """The first step of Adam moves every number with a gradient by the rate of that step."""
    training = Training(small(learning_rate=0.003, warm_up=warm_up), "cpu")
    before = training.cohorts[0].model.run_parameters(0)["W_U"].detach().clone()
    training.advance(1)
    moved = (training.cohorts[0].model.run_parameters(0)["W_U"].detach() - before).abs()
    assert moved.max().item() == pytest.approx(0.003 * share, rel=1e-3)
    assert moved.median().item() == pytest.approx(0.003 * share, rel=1e-2)


def test_batches_are_fresh_and_of_the_given_size(monkeypatch):
    """Every step has its own examples, of the training side."""
    seen, draw = [], TASKS["directed"].draw

    def recorded(self, n_examples, generator, *, held_out):
        examples = draw(self, n_examples, generator, held_out=held_out)
        if not held_out:
            seen.append(examples.tokens)
        return examples

    monkeypatch.setattr(TASKS["directed"], "draw", recorded)
    training = Training(small(steps=40, sharing=["QKV"]), "cpu")  # every seed is in one cohort
    training.advance(40)
    books = torch.cat(seen).flatten(1)
    assert len(books) >= 2 * 40 * 16
    assert len(books.unique(dim=0)) > 0.99 * len(books)


# Schedules


def shares(**given):
    """The share of the learning rate at every step."""
    training = small(**given).training
    return [training.learning_rate_factor(step) for step in range(training.steps)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"steps": 5}, [1.0] * 5),
        ({"steps": 10, "warm_up": 0.2}, [0.5, *[1.0] * 9]),
        ({"steps": 8, "warm_up": 0.5}, [0.25, 0.5, 0.75, *[1.0] * 5]),
        ({"steps": 4, "schedule": "cosine"}, [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
        (
            {"steps": 6, "schedule": "cosine", "warm_up": 1 / 3},
            [0.5, 1, 1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5],
        ),
    ],
)
def test_rates_rise_along_a_line_and_fall_along_a_cosine(given, expected):
    """By hand: a cosine falls over what is left of the steps, to zero after the last one."""
    assert shares(**given) == pytest.approx(expected)
    after = small(**given).training.learning_rate_factor(given["steps"])
    assert after == pytest.approx(0 if "schedule" in given else 1)


@given(st.integers(1, 60), st.floats(0, 0.5), st.sampled_from(["constant", "cosine"]))
def test_shares_rise_and_fall_once(steps, warm_up, schedule):
    """Never zero, never above one, and one at some step."""
    found = shares(steps=steps, warm_up=warm_up, schedule=schedule, evaluate_every=steps)
    assert all(0 < share <= 1 for share in found)
    assert max(found) == 1
    top = found.index(1)
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


# Convergence: at the defaults, every task ends where it should, on three seeds at night


@pytest.fixture(scope="module")
def table_of(long):
    """Train a task at its defaults, with some sharings, and return the table of its runs."""

    def trained(task, *sharing):
        experiment = Experiment(task=task, sharing=list(sharing), n_seeds=3 if long else 1)
        result = train(experiment, "cpu")
        return result.table.set_index("sharing"), result.snapshot

    return trained


def test_directed_needs_queries_that_are_not_keys(table_of):
    """Three sharings solve it; symmetric scores cannot tell superior from subordinate."""
    table, _ = table_of("directed", *Sharing)
    assert (table.loc[["QKV", "K=V", "Q=V"], "accuracy"] >= 0.98).all()
    assert table.loc[["Q=K", "Q=K=V"], "accuracy"].between(0.35, 0.60).all()
    masses = table[["mass_on_target", "mass_on_reverse"]]
    assert (masses.loc[["QKV"], "mass_on_reverse"] <= 0.05).all()
    gap = masses.loc[["Q=K"], "mass_on_target"] - masses.loc[["Q=K"], "mass_on_reverse"]
    assert (gap.abs() <= 0.03).all()


def test_mutual_and_phonebook_need_no_separate_matrices(table_of):
    """Untied scores of mutual become symmetric by themselves; its probe shows the target."""
    table, snapshot = table_of("mutual", "QKV", "Q=K", "Q=K=V")
    assert (table["accuracy"] >= 0.95).all()
    assert (table.loc[["QKV"], "asymmetry"] < 0.1).all()
    own, probe = table.reset_index()["sharing"] == "Q=K", snapshot.probe
    assert (probe.pattern[own, 0, 0].argmax(-1) == probe.target).all()
    assert (probe.answers[own] == probe.labels).all()
    table, _ = table_of("phonebook", "QKV", "Q=K=V")
    assert (table["accuracy"] >= 0.98).all()
