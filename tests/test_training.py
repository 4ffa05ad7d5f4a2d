"""Training: examples, cadence, snapshots, cohorts, interruption, longer tests, where tasks end."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, SMALL, tiny
from random_experiments import problem_of
from same import assert_same
from searching import briefly

from attnkit.claims.measures import MEASURES
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import longer_experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import SELF_MASK, Model
from attnkit.model.reference import Layer
from attnkit.sweeps import Sweep
from attnkit.sweeps.specification import InvalidSweep
from attnkit.tasks import NOTHING, TASKS, Examples
from attnkit.training import evaluation as evaluation_module
from attnkit.training import plans
from attnkit.training import training as training_module
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData, held_out_examples, unstack
from attnkit.training.evaluation import mean_scores
from attnkit.training.loops import stream, train
from attnkit.training.metrics import METRICS, accuracy
from attnkit.training.plans import RUNS_PER_COHORT, plan_cohorts
from attnkit.training.training import Training
from attnkit.variants.sharing import Sharing

CPU = torch.device("cpu")
SMALL = {**SMALL, "n_seeds": 2, "steps": 17, "evaluate_every": 5}


def small(**given):
    """An experiment of 4 runs that trains in a moment."""
    return Experiment(**{**SMALL, **given})


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
    assert before.snapshot.status == "finished"
    assert before.snapshot.eval_steps.tolist() == [0, 5, 10, 15, 17]
    assert_same(training.result().parameters, before.parameters)


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


# Metrics that tasks do not have: a reversed entry, one right place, examples that come again.
FRESH = {"training_accuracy", "mass_on_reverse"}
MISSING = {
    "directed": {"training_accuracy"},
    **dict.fromkeys(("phonebook", "mqar", "dictionary"), FRESH),
    "reverse": {"mass_on_reverse"},
    "language": {"mass_on_reverse", "mass_on_target"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_has_the_numbers_of_its_task(kind):
    """Metrics that a task does not have are NaN; arrays have the documented shapes."""
    given = {"n_layers": 2, "n_heads": 2, "n_seeds": 2, "evaluate_every": 5}
    experiment = tiny(kind, sharing=["QKV", "Q=K=V"], **given)
    training = Training(experiment, "cpu")
    training.advance(7)
    snapshot = training.snapshot()
    assert list(snapshot.history) == list(METRICS)
    kinds = {(rows.shape, rows.dtype.name) for rows in snapshot.history.values()}
    assert kinds == {((2, 4), "float32")}
    missing, whole = (
        {name for name, rows in snapshot.history.items() if some(np.isnan(rows))}
        for some in (np.any, np.all)
    )
    assert missing == whole == {"longer_accuracy", *MISSING.get(kind, missing)}
    symmetry = np.nanmean(snapshot.head_symmetry, (1, 2))
    np.testing.assert_allclose(snapshot.history["score_symmetry"][-1], symmetry, atol=1e-6)
    probe, task = snapshot.probe, experiment.task
    assert probe.answers.shape == (4, task.n_ctx - task.answers_from)
    assert probe.pattern.shape == (4, 6 if task.n_source else 2, 2, task.n_ctx, task.n_ctx)
    assert (probe.scores is None) == (probe.target == NOTHING).all()


def test_snapshots_and_results_do_not_change_later():
    """Weights are copies; the probe is one example for all settings; scores are cut to 16 bits."""
    training, other = Training(small(), "cpu"), Training(small(first_seed=7, d_head=5), "cpu")
    for cohort in training.cohorts:
        cohort.model.numbers.mul_(1e6)
    snapshot, result = training.snapshot(), training.result()
    arrays = [*snapshot.history.values(), snapshot.probe.pattern, *result.parameters[0].values()]
    before = [array.copy() for array in arrays]
    training.advance(17)
    assert_same(arrays, before)
    one, two = (shown.probe for shown in (snapshot, other.snapshot()))
    assert_same([one.tokens, one.labels], [two.tokens, two.labels])
    assert np.abs(one.scores).max() == np.finfo(np.float16).max


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
    snapshots, reported = list(stream(small(steps=300), "cpu")), []
    steps = [snapshot.step for snapshot in snapshots]
    assert steps[:5] == [0, 1, 2, 4, 8]
    assert np.diff(steps).max() <= 300 // 40
    assert len(steps) < 60
    assert [s.status for s in snapshots] == ["running"] * (len(steps) - 1) + ["finished"]
    train(small(steps=300), "cpu", progress=lambda training: reported.append(training.step))
    assert reported == sorted(set(reported))
    assert steps[-1] == reported[-1] == 300
    assert 5 < len(reported) <= 51


def test_an_interrupt_between_cohorts_brings_all_to_one_step(monkeypatch):
    """Ctrl-C while threads train: what is left equals an undisturbed training so far."""

    def interrupted_wait(workers):
        monkeypatch.undo()
        raise KeyboardInterrupt

    experiment = small(sharing=list(Sharing), n_seeds=3, steps=4000, evaluate_every=1000)
    training = Training(experiment, "cpu")
    training.cohorts[1].advance(3)  # threads take five steps at a time: never even by chance
    monkeypatch.setattr(training_module, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        training.advance(4000)
    assert 3 <= training.step < 4000
    assert {cohort.step for cohort in training.cohorts} == {training.step}
    expected = Training(experiment, "cpu")
    expected.advance(training.step)
    assert_same(training.result().parameters, expected.result().parameters)


SETS, CORES = st.sets(st.sampled_from(Sharing), min_size=1), st.sampled_from([1, 2, 3, 4, 8, 64])


@given(SETS, st.integers(1, 20), CORES)
def test_cohorts_part_the_runs(chosen, n_seeds, n_cores):
    """Every run is in one cohort, with about ten runs each on a CPU, all at once on a GPU."""
    experiment = small(sharing=chosen, n_seeds=n_seeds, first_seed=7)
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


def test_directed_needs_queries_that_are_not_keys_and_mutual_does_not(long):
    """Symmetric scores cannot tell superior from subordinate; those of mutual become symmetric."""
    given = {"n_seeds": 3 if long else 1}
    table = train(Experiment(task="directed", **given), "cpu").table.set_index("sharing")
    assert (table.loc[["QKV", "K=V", "Q=V"], "accuracy"] >= 0.98).all()
    assert table.loc[["Q=K", "Q=K=V"], "accuracy"].between(0.35, 0.60).all()
    assert (table.loc[["QKV"], "mass_on_reverse"] <= 0.05).all()
    gap = (table["mass_on_target"] - table["mass_on_reverse"]).loc[["Q=K"]]
    assert (gap.abs() <= 0.03).all()
    result = train(Experiment(task="mutual", sharing=["QKV", "Q=K=V"], **given), "cpu")
    table, probe = result.table.set_index("sharing"), result.snapshot.probe
    assert (table["accuracy"] >= 0.95).all()
    assert (table.loc[["QKV"], "asymmetry"] < 0.1).all()
    assert (probe.pattern[table.index == "Q=K=V", 0, 0].argmax(-1) == probe.target).all()


def rows_of(tokens):
    """Examples as values, in order: (b, i, fields)."""
    return [tuple(row) for row in tokens.flatten(1).tolist()]


@given(st.integers(1, 9), st.sampled_from([16, 32, 48]), st.integers(1, 3), st.integers(1, 3))
@briefly(25)
def test_every_round_holds_each_example_once(n_sixteens, n_batch, n_seeds, n_rounds):
    """In a new order, with the last batch as short as it must be; labels go with their tokens."""
    n_train = max(16 * n_sixteens, n_batch)
    experiment = tiny("phonebook", n_train=n_train, batch_size=n_batch, n_seeds=n_seeds)
    data = TrainingData(experiment, experiment.seeds, CPU)
    shown = data.evaluation_examples().tokens
    sizes = [min(n_batch, n_train - start) for start in range(0, n_train, n_batch)]
    rounds = [[data.next() for _ in sizes] for _ in range(n_rounds)]
    for batches in rounds:
        assert [tokens.shape[1] for tokens, _ in batches] == sizes
    for s, seed in enumerate(experiment.seeds):
        stock = experiment.task.draw(n_train, generator_for(seed, "training data"), held_out=False)
        known = sorted(zip(rows_of(stock.tokens), rows_of(stock.labels), strict=True))
        orders = []
        for batches in rounds:
            tokens, labels = (torch.cat([pair[i][s] for pair in batches]) for i in (0, 1))
            orders.append(rows_of(tokens))
            assert sorted(zip(orders[-1], rows_of(labels), strict=True)) == known
            assert {*orders[-1]} >= {*rows_of(shown[s])}
        if n_train > 16:
            assert all(one != other for one, other in pairwise(orders))


@pytest.mark.parametrize("kind", ["reverse", "language", "transfer", "mqar", "neighbours"])
def test_accuracies_are_shares_of_right_answers(kind):
    """Accuracies of every run, on its training examples and in each group of held-out ones."""
    experiment = tiny(kind, n_train=32, n_eval=32)
    task, cohort = experiment.task, Cohort(experiment, [0, 1], CPU)
    cohort.advance(8)
    shown = TrainingData(experiment, cohort.seeds, CPU, task).evaluation_examples()
    found = cohort.evaluations[-1]
    assert found.slice_accuracy.shape == (len(cohort.runs), len(task.slice_names))
    for run, (_, seed) in enumerate(cohort.runs):
        examples = unstack(shown)[seed]
        labels = examples.labels.numpy()
        right = (cohort.answer(examples)[0][run] == labels)[labels != NOTHING]
        assert found.metrics["training_accuracy"][run] == pytest.approx(right.mean())
        if task.slice_names:
            held_out = task.draw(32, generator_for(seed, "evaluation"), held_out=True)
            labels, group = held_out.labels.numpy(), task.slices(held_out).numpy()
            right = cohort.answer(held_out)[0][run] == labels
            places = [(group == n) & (labels != NOTHING) for n in range(len(task.slice_names))]
            expected = [right[place].mean() if place.any() else np.nan for place in places]
            np.testing.assert_allclose(found.slice_accuracy[run], expected, rtol=1e-6)


@pytest.mark.parametrize(("kind", "together"), [("directed", 16), ("mqar", 48), ("language", 80)])
def test_held_out_examples_are_answered_in_parts(kind, together, monkeypatch):
    """Accuracies and losses are those of all at once; attention is measured on the first part."""

    def evaluated(n_together, n_held_out=80):
        def first_part(*arguments):
            parts = vars(held_out_examples(*arguments)).values()
            return Examples(*(part if part is None else part[:, :n_held_out] for part in parts))

        monkeypatch.setattr(evaluation_module, "held_out_examples", first_part)
        monkeypatch.setattr(evaluation_module, "MEASURED_TOGETHER", n_together)
        given = {"n_eval": 80, "n_train": 96, "sharing": ["QKV", "Q=K qk_norm"]}
        (found,) = Cohort(tiny(kind, **given), [0, 1], CPU).evaluations
        return found

    expected, first, found = evaluated(10**6), evaluated(10**6, together), evaluated(together)
    np.testing.assert_array_equal(found.slice_accuracy, expected.slice_accuracy)
    for name in ("accuracy", "training_accuracy", "loss", "weight_symmetry"):
        np.testing.assert_allclose(found.metrics[name], expected.metrics[name], rtol=1e-6)
    for name in ("score_symmetry", "mass_on_target", "symmetry_error"):
        np.testing.assert_allclose(found.metrics[name], first.metrics[name], atol=1e-6)


# Sizes that can be doubled, where those of the default cannot.
SHORT = {"mutual": {"n_entries": 4}, "neighbours": {"n_asking": 3}, "dual_role": {"n_circles": 2}}
SHARING = ["QKV d_k=6", "Q=K positions=rope", "QKV n_heads=2 positions=alibi", "QKV tie=K=V"]


def asked_of_six(engine, **given):
    """A training, to its end, on three names of seven, tested on six, with widths made equal."""
    sizes = {"n_entries": 3, "n_names": 7, "n_eval": 48, "d_head": 8, "equal": "multiply_adds"}
    experiment = tiny("phonebook", **{"sharing": SHARING, "longer_test": 2, **sizes, **given})
    training = Training(experiment, "cpu", engine)
    training.advance(experiment.training.steps)
    return training


@pytest.mark.parametrize("task", TASKS)
def test_longer_examples_have_the_same_vocabulary(task):
    """Every length is multiplied; a task without lengths refuses the longer test."""
    lengths = TASKS[task].lengths
    given = {"task": task, "positions": "none", "longer_test": 2}
    if not lengths:
        assert problem_of(**given).allowed.startswith("1:")
        return
    experiment = Experiment(**given, **SHORT.get(task, {}))
    longer, own = longer_experiment(experiment), experiment.task
    for name in (*lengths, "d_vocab", "n_classes", "n_fields"):
        assert getattr(longer.task, name) == getattr(own, name) * (2 if name in lengths else 1)
    assert longer.task.n_ctx > own.n_ctx
    n_tokens = experiment.training.n_eval * own.n_ctx
    assert longer.training.n_eval * longer.task.n_ctx <= 1.2 * n_tokens


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_longer_test_is_the_accuracy_of_the_same_weights(engine):
    """Compared with a model that is made for the longer examples; it changes nothing else."""
    training = asked_of_six(engine)
    snapshot, parameters = training.snapshot(), training.result().parameters
    experiment = training.experiment.replace(longer_test=1, equal="nothing", n_entries=6, n_eval=16)
    for run, (variant, seed) in enumerate(training.experiment.runs):
        adjusted = training.experiment.adjusted(variant).size
        alone = experiment.replace(sharing=[variant.stages[-1]], n_seeds=1, first_seed=seed)
        alone = alone.replace(d_head=adjusted.d_head, d_mlp=adjusted.d_mlp)
        model = Model(alone, [seed], CPU, drawn=False)
        for name, value in model.run_parameters(0).items():
            value.copy_(torch.tensor(parameters[run][name]))
        examples = held_out_examples(alone, [seed], CPU)
        expected = accuracy(model.logits(examples.tokens), examples.labels)
        assert snapshot.latest("longer_accuracy")[run] == pytest.approx(float(expected[0]))
    plain, last = asked_of_six(engine, longer_test=1), training.experiment.training.steps
    for each, name in ((snapshot, "longer_accuracy"), (plain.snapshot(), "accuracy")):
        read = MEASURES["longest_accuracy"].read(each, last)  # of longer examples, if any
        np.testing.assert_array_equal(read, each.latest(name).astype(float))
    assert_same(plain.result().parameters, parameters)
    history, expected = (dict(one.history) for one in (snapshot, plain.snapshot()))
    assert np.isnan(expected.pop("longer_accuracy")).all()
    assert history.pop("longer_accuracy").shape == history["accuracy"].shape
    assert_same(history, expected)
    alone = asked_of_six(engine, sharing=SHARING[-1:], n_seeds=1, equal="nothing")
    beside = asked_of_six(engine, equal="nothing")
    run = beside.experiment.runs.index((SHARING[-1], 0))
    found = alone.snapshot().history["longer_accuracy"][:, 0]
    np.testing.assert_array_equal(found, beside.snapshot().history["longer_accuracy"][:, run])


def test_what_is_too_long_is_named():
    """Learned positions, a setting that would be too large, and a longer test of a sweep."""
    book, mqar = {"task": "phonebook"}, {"task": "mqar", "positions": "rope"}
    large = {"n_tokens": 256, "n_pairs": 16, "length": 128, "n_heads": 8, "n_seeds": 40}
    for chosen, named in (
        ({**book, "positions": "learned"}, "positions=learned"),
        ({**book, "sharing": ["QKV", "QKV positions=relative"]}, "positions=relative"),
        ({**book, "longer_test": 8}, "n_entries would be 64"),
        ({**mqar, "n_pairs": 6, "longer_test": 6}, "n_pairs would"),
        ({**mqar, **large, "longer_test": 4, "n_eval": 2048}, "n_seeds would be 40"),
    ):
        problem = problem_of(**{"longer_test": 2, **chosen})
        assert problem.field == "longer_test"
        assert named in problem.allowed
    with pytest.raises(InvalidSweep, match="longer_test"):
        Sweep(base={**book, "longer_test": 2})
    # So the hashes of cells stay those of earlier versions.
    assert Sweep(base=book).cell_hashes()[0, 0] == b"26a31f89fb177cfd"
