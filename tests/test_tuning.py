"""The search for recipes, the trials that train arms beside each other, and how often both err."""

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY, about

from attnkit.claims import CLAIMS
from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.measures import MEASURES
from attnkit.evidence import trials, tuning
from attnkit.evidence.simulation import SIMULATED, errors_in_words, simulate
from attnkit.evidence.trials import comparing_trials, tuning_measure, tuning_trials
from attnkit.evidence.tuning import Recipe, Runs, Search, scores_of
from attnkit.evidence.verdict import LEVEL
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.variants import Variant

ARM = arm("QKV", **TINY)
DEFAULT = ARM.experiment.training.learning_rate


def runs(accuracies, losses=None):
    """Return runs that reach an accuracy and a loss at the last of five evaluations."""
    last = np.asarray(accuracies, float)
    loss = 1 - last if losses is None else np.asarray(losses, float)
    steps, rises = np.linspace(0.0, 100.0, 5), np.linspace(0.0, 1.0, 5)[:, None]
    return Runs(steps, rises * last, np.broadcast_to(loss, (5, len(loss))))


def finish(search, landscape):
    """Answer all requests of a search by a function of the point; return them in their order."""
    requests = []
    while wanted := search.wanted():
        assert len(requests) < 200
        for request in wanted:
            requests.append(request)
            search.add(request, landscape(request))
    return requests


def peak(schedule, doublings, width):
    """Return a landscape: fewer of ten seeds learn the further a learning rate lies from its best.

    With the other schedule, and further away than `width` doublings, none learns.
    """

    def landscape(request):
        away = abs(request.point.doublings - doublings)
        learns = max(0.0, 1 - away / width) if request.point.schedule == schedule else 0.0
        seeds = np.arange(request.first, request.first + request.n_seeds)
        return runs(np.where(seeds / tuning.TUNING_SEEDS < learns, 1.0, 0.2 * 0.7**away))

    return landscape


@given(
    st.sampled_from(SCHEDULES),
    st.integers(-tuning.MOST_DOUBLINGS + 1, 6),
    st.integers(2, 6),
    st.booleans(),
)
def test_the_grid_grows_until_the_best_rate_is_inside(schedule, doublings, width, long):
    """Wherever it lies, tuned on ten seeds, with a smaller and a larger rate tried beside it."""
    search = Search(replace(ARM, up_to=2 * tuning.SHORTENED if long else 1))
    requests = finish(search, peak(schedule, doublings, width))
    found = search.found()
    rates = sorted(one.rate for one in found.tried if one.schedule == found.schedule)
    assert not found.at_edge
    assert math.log2(rates[-1] / rates[0]) == pytest.approx(len(rates) - 1, abs=0.01)
    (best,) = (one for one in found.tried if (one.rate, one.schedule) == found.recipe)
    assert best.n_seeds == tuning.TUNING_SEEDS
    reached = {(one.rate, one.schedule): one.mean for one in found.tried}
    assert best.mean == max(reached.values())
    if any(one.n_solved for one in found.tried):
        assert found.schedule == schedule
        assert found.rate == pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3)
    assert len({(r.point, r.times, r.first) for r in requests}) == len(requests)
    assert {r.first + r.n_seeds for r in requests} <= {tuning.SCREENING_SEEDS, tuning.TUNING_SEEDS}


@pytest.mark.parametrize("up_to", [1, 4 * tuning.SHORTENED])
def test_few_seeds_go_to_all_recipes_and_many_to_the_best(up_to):
    """Long trainings are first tried for a quarter of their steps."""
    search = Search(replace(ARM, up_to=up_to))
    requests = finish(search, peak("constant", 0, 3))
    n_first = len(SCHEDULES) * len(tuning.FIRST_DOUBLINGS)
    assert all(r.n_seeds == tuning.SCREENING_SEEDS for r in requests[:n_first])
    assert {r.times for r in requests[:n_first]} == {up_to // tuning.SHORTENED or up_to}
    assert {r.times for r in requests[n_first:]} == {up_to}
    tried = search.found().tried
    assert sum(one.n_seeds == tuning.TUNING_SEEDS for one in tried) >= tuning.FINALISTS
    assert search.found().steps == up_to * ARM.base_steps
    given_ = Search(replace(ARM, up_to=up_to, schedules=("cosine",)))
    assert {r.recipe.schedule for r in finish(given_, peak("constant", 0, 3))} == {"cosine"}
    assert given_.found().never_learnt


def test_one_rate_that_learns_is_found_wherever_it_lies():
    """A search finds the only rate that learns, even if the other schedule seems better."""
    for schedule, doublings in product(SCHEDULES, tuning.ALL_DOUBLINGS):

        def landscape(request, learns=(schedule, doublings)):
            other = 0.03 + 0.02 * (request.point.schedule != learns[0])
            return runs(np.full(request.n_seeds, 1.0 if request.point == learns else other))

        for up_to in (1, tuning.SHORTENED):
            search = Search(replace(ARM, up_to=up_to))
            finish(search, landscape)
            rate = pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3)
            assert search.found().recipe == (rate, schedule)


def test_of_rates_as_good_the_one_whose_neighbours_learn_is_chosen():
    """One that is as good beside rates that fail, or is somewhat faster, is not."""
    learnt = {-2: 1.0, -1: 1.0, 0: 1.0, 1: 0.2, 2: 1.0, 3: 0.1, -3: 1.0}

    def landscape(request):
        level = learnt.get(request.point.doublings, 0.1)
        return runs(np.full(request.n_seeds, level if request.point.schedule == "cosine" else 0.1))

    search = Search(ARM)
    finish(search, landscape)
    assert search.leading[0] in {("cosine", -2), ("cosine", -1)}


def test_learning_counts_most_then_accuracy_and_speed():
    """A run that diverged has learnt nothing."""
    nan = np.nan
    accuracy = np.array([[0.1, 0.1, 0.1, 0.1], [0.96, 0.1, 0.1, 0.96], [0.97, 0.96, 0.94, nan]])
    loss = np.array([[1.0] * 4, [0.5] * 4, [0.1, 0.2, 0.3, nan]])
    made = Runs(np.array([0.0, 50.0, 100.0]), accuracy, loss)
    expected = [0.97 + 1 + tuning.SPEED / 2, 0.96 + 1, 0.94, tuning.DIVERGED["accuracy"]]
    assert scores_of(made, "accuracy") == pytest.approx(expected)
    assert scores_of(made, "loss") == pytest.approx([-0.1, -0.2, -0.3, tuning.DIVERGED["loss"]])


def test_what_is_found_holds_all_that_was_tried():
    """With the seeds that learn, the mean, and the curves of the best; none diverges unseen."""

    def landscape(request):
        losses = np.full(request.n_seeds, abs(request.point.doublings - 1.0))
        if request.point.doublings == 3:
            losses[0] = np.nan
        return runs(np.full(request.n_seeds, 0.99), losses)

    search = Search(ARM, "loss")
    finish(search, landscape)
    found = search.found()
    assert found.recipe == (pytest.approx(2 * DEFAULT), found.schedule)
    assert len(found.curves) == tuning.FINALISTS
    assert found.curves[f"{found.schedule} {found.rate:g}"].by == "loss"
    for one in found.tried:
        away = round(math.log2(one.rate / DEFAULT))
        assert (one.mean == pytest.approx(abs(away - 1))) != (away == 3)
        assert one.n_solved == one.n_seeds
    assert not found.never_learnt  # a loss says nothing about it


MIXED = (  # in none of the orders in which experiments have their variants
    arm("K=V kv_heads=1 n_heads=2", "K=V, MQA", **TINY),
    arm("Q=K", "symmetric", **TINY),
    arm("QKV", "free", **TINY),
    arm("Q=K=V", "one", **TINY),
    arm("K=V", "tied", **TINY),
)


def check_cells(trial, arms):
    """Hold the cells of a trial against the variants of its experiment, in their order."""
    by_name, training = {one.name: one for one in arms}, trial.experiment.training
    expected = [
        f"{by_name[name].variant} learning_rate={rate:g}" for name, (rate, _) in trial.cells
    ]
    assert list(map(Variant, expected)) == list(trial.experiment.sharing)
    assert {recipe.schedule for _, recipe in trial.cells} - {None} <= {training.schedule}
    cosine = any(recipe.schedule == "cosine" for _, recipe in trial.cells)
    assert (training.warm_up, training.clip > 0) == (0.05, True) or not cosine


def test_every_claim_trains_its_arms_and_compares_on_seeds_of_their_own():
    """Cells follow an experiment's own order, and no seed is both tuned on and compared."""
    for claim in CLAIMS.values():
        for arms in (claim.judged_arms, claim.confirmation[0]):
            recipes = {
                one.name: Recipe(0.001 * (1 + place), one.schedules[-1])
                for place, one in enumerate(arms)
            }
            wanted = [(one, request) for one in arms for request in Search(one).wanted()]
            tuned, compared = tuning_trials(wanted), comparing_trials(arms, recipes, 2)
            cells = sorted(cell for trial in tuned for cell in trial.cells)
            with about(claim):
                assert cells == sorted((one.name, request.recipe) for one, request in wanted)
                for trial in (*tuned, *compared):
                    check_cells(trial, arms)
                    assert len(trial.cells) <= trials.MOST_TOGETHER
                tuned_on, others = (
                    {seed for trial in some for seed in trial.experiment.seeds}
                    for some in (tuned, compared)
                )
                assert not tuned_on & others
                assert others <= {trials.FIRST_SEED, trials.FIRST_SEED + 1}


def test_arms_train_beside_each_other_unless_something_sets_them_apart():
    """Other settings, a rate of another arm, fewer seeds, and more steps make another trial."""
    (_, request), *_ = wanted = [(one, r) for one in MIXED for r in Search(one).wanted()]
    most = trials.MOST_TOGETHER
    assert [len(trial.cells) for trial in tuning_trials(wanted)] == [most, most, 5] * 2
    (trial,) = tuning_trials([(MIXED[0], request._replace(first=5, n_seeds=4))])
    assert trial.experiment.seeds == range(trials.TUNING_SEED + 5, trials.TUNING_SEED + 9)
    own = MIXED[1].experiment.training.learning_rate
    (trial,) = comparing_trials(MIXED[1:3], {"free": Recipe(0.0071)}, 3)
    assert dict(trial.cells) == {"free": Recipe(0.0071), "symmetric": Recipe(own)}
    assert tuning_measure(arm("QKV", task="language")) == "loss"  # whose accuracy says little
    assert tuning_measure(replace(MIXED[0], up_to=2)) == "accuracy"
    arms = (
        *MIXED[1:3],
        arm("Q=K", "longer", **{**TINY, "steps": 7}),
        arm("Q=K", "borrowing", recipe_of="free", **TINY),
        replace(MIXED[3], most_seeds=3),
        replace(MIXED[4], up_to=8),
    )
    rates = dict.fromkeys((one.name for one in arms), Recipe(0.01))
    found = [
        ({name for name, _ in trial.cells}, trial.up_to, one.training.steps, one.seeds)
        for trial in comparing_trials(arms, rates, 5, first_seed=7)
        for one in [trial.experiment]
    ]
    assert found == [
        ({"symmetric", "free"}, 1, 6, range(7, 12)),
        ({"longer"}, 1, 7, range(7, 12)),
        ({"borrowing"}, 1, 6, range(7, 12)),
        ({"one"}, 1, 6, range(7, 10)),
        ({"tied"}, 8, 48, range(7, 12)),
    ]


def test_what_is_too_large_for_one_experiment_is_split_and_nothing_left_out():
    """More seeds than an experiment has, and arms or seeds that take too much memory together."""
    found = comparing_trials(MIXED[1:3], {}, 2 * trials.MOST_SEEDS + 3, first_seed=7)
    seeds = [seed for trial in found for seed in trial.experiment.seeds]
    assert seeds == [*range(7, 7 + 2 * trials.MOST_SEEDS + 3)]
    assert len({trial.cells for trial in found}) == 1
    large = {"task": "mqar", "batch_size": 512, "n_layers": 4, "d_model": 128, "d_mlp": 512}
    arms = [replace(one, settings=large) for one in MIXED]
    parts = comparing_trials(arms, {}, 3)
    assert len(parts) > 1
    assert sorted(name for part in parts for name, _ in part.cells) == sorted(a.name for a in arms)
    for part in parts:
        check_cells(part, arms)
    with pytest.raises(InvalidExperiment):
        comparing_trials([replace(MIXED[0], settings=large | {"length": 128})], {}, 7)


def test_scores_of_a_trial_are_those_of_each_arm_alone():
    """A run does not depend on those beside it; steps to solve are the logarithm of the first."""
    rates = {"free": Recipe(0.013), "tied": Recipe(0.002), "one": Recipe(0.007)}
    (trial,) = comparing_trials(MIXED, rates, 2, first_seed=3)
    together = trial.scores(train(trial.experiment).snapshot)
    assert set(together) == {one.name for one in MIXED}
    for one in (MIXED[0], MIXED[4]):
        (alone,) = comparing_trials([one], rates, 2, first_seed=3)
        snapshot = train(alone.experiment).snapshot
        (expected,) = alone.scores(snapshot).values()
        for name in MEASURES:
            assert together[one.name][name] == pytest.approx(expected[name], rel=1e-5, nan_ok=True)
    assert len({own["loss"][-1, 0] for own in together.values()}) == len(MIXED)
    accuracy = [[0.1, 0.2], [0.96, 0.2], [0.5, 0.3], [0.5, 0.96], [1.0, 0.94]]
    history = {name: values[:1].repeat(5, 0) for name, values in snapshot.history.items()}
    history |= {"accuracy": np.array(accuracy)}
    made = replace(snapshot, eval_steps=np.arange(0, 30, 6), history=history)
    for until, second in ((24, np.log2(18)), (12, np.inf)):
        found = MEASURES["steps_to_solve"].read(made, until)
        np.testing.assert_allclose(found, [np.log2(6), second])


def test_a_long_run_is_read_as_short_runs_of_the_same_arm():
    """With a constant rate the first steps are the same, so each reading is a run of its own."""
    rates = {"free": Recipe(0.013, "constant"), "symmetric": Recipe(0.004, "constant")}

    def scores(up_to):
        arms = [replace(one, up_to=up_to) for one in MIXED[1:3]]
        (trial,) = comparing_trials(arms, rates, 2)
        return trial.scores(train(trial.experiment).snapshot)

    long = scores(8)
    for row, up_to in enumerate((1, 2, 4, 8)):
        for name, own in scores(up_to).items():
            for measure in ("accuracy", "loss", "weight_symmetry"):
                assert long[name][measure].shape == (4, 2)
                np.testing.assert_array_equal(long[name][measure][row], own[measure][-1])


@pytest.mark.parametrize("shares", [[0.1, 0.3, 0.7, 0.4, 0.1], [0.9] * 5])
def test_equal_arms_differ_no_more_often_than_the_level_says(shares, seed):
    """Tuning, which may miss the best recipe, included; the errors that ship are told."""
    n, n_runs, population = 150, 200, {}
    for schedule, factor in (("constant", 1), ("cosine", 0.6)):
        for doublings, share in enumerate(shares, -len(shares) // 2):
            learns = np.arange(n_runs) < n_runs * share * factor
            levels = (np.zeros(n_runs), np.where(learns, 0.5, 0.1), np.where(learns, 0.99, 0.1))
            steps, accuracy = np.array([0.0, 50.0, 100.0]), np.stack(levels)
            population[schedule, doublings] = Runs(steps, accuracy, 1 - accuracy)
    allowed = 1 - LEVEL
    found = simulate(population, ARM, 40, 40, n, seed)
    assert found.together <= found.alone
    assert found.alone <= allowed + 3 * np.sqrt(allowed * (1 - allowed) / n)
    assert (found.learns, found.n, found.n_seeds) == (max(shares), n, 40)
    for one in json.loads(SIMULATED.read_text(encoding="utf-8")):
        assert 0 <= one["together"] <= one["alone"] <= allowed
        name, task = one["arm"].rsplit(", ", 1)
        assert all(part in errors_in_words() for part in (name, TASKS[task].title))
