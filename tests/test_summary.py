"""Tables and sentences made of a snapshot, and trainings that failed."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.reasons import headline
from attnkit.examples import load_example
from attnkit.foundation.language import reading
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.failure import LEAST_LEARNED, failure_of
from attnkit.training.metrics import SHOWN
from attnkit.training.recorder import record
from attnkit.training.snapshot import ROUNDING
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import (
    asymmetry_in_words,
    finding,
    measures_finding,
    percent,
    percent_beside,
    percent_interval,
    percent_limits,
    run_table,
    sharing_table,
    slice_table,
    two_decimals,
    two_numbers,
    whole_percent,
)

FIVE = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
NAN = np.nan


def ended(kind, accuracy=None, loss=None, **given):
    """A finished snapshot of a few seeds from the last accuracies or losses, (sharing, seed)."""
    shape = np.shape(loss if accuracy is None else accuracy)
    accuracy = np.zeros(shape) if accuracy is None else np.asarray(accuracy)
    experiment = tiny(kind, **{"sharing": FIVE[: shape[0]], "n_seeds": shape[1]})
    losses = None if loss is None else np.stack([loss] * 4)
    return finished(experiment, np.stack([accuracy] * 4), losses, **given)


# Findings


def test_finding_sorts_sharings_into_solved_and_not():
    """All seeds at 0.99 is solved; less is given with its interval, or called diverged."""
    accuracy = np.ones((5, 5))
    accuracy[1] = [0.4, 0.5, 0.6, 0.5, 0.5]
    told = finding(ended("directed", accuracy))
    interval = mean_interval(accuracy[1])
    low, high = (round(100 * float(limit)) for limit in (interval.low, interval.high))
    assert "all 5 seeds: QKV, K=V, Q=V, Q=K=V. Not solved: Q=K 50%" in told
    assert f"95% interval {low} to {high}%)" in told
    accuracy = np.ones((5, 5))
    accuracy[0, 0] = 0.98  # a mean above the threshold does not hide a seed below it
    assert "Not solved: QKV 99%" in finding(ended("directed", accuracy))
    accuracy[0, 0] = 1
    accuracy[4] = accuracy[3, 0] = NAN
    lost = np.where(np.isnan(accuracy), 10, -1)
    text = finding(ended("directed", accuracy, diverged_at=lost))
    assert text.endswith("Not solved: Q=V 100% (1 of 5 diverged), Q=K=V diverged.")
    running = dataclasses.replace(ended("directed", np.zeros((5, 5))), status="running")
    assert finding(running).startswith("Not solved yet: QKV 0%")  # before the end nothing is final
    assert finding(dataclasses.replace(running, step=0)).startswith("Untrained")
    for n_seeds, said in ((1, "Solved:"), (2, "both seeds:"), (3, "all 3 seeds:")):
        assert f"{said} QKV." in finding(ended("directed", np.ones((1, n_seeds))))


def test_a_finding_on_losses_says_who_is_below_the_simple_model():
    """By the upper limit of the mean: what reaches over it is not below it."""
    to_beat = tiny("language").task.loss_to_beat
    steps = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])
    loss = [to_beat - 1 + steps, to_beat - 0.01 + steps, to_beat + 1 + steps]
    below, touching, above = (mean_interval(np.float32(row)) for row in loss)
    assert touching.mean < to_beat < touching.high
    told = [f"{i.mean:.2f} [{i.low:.2f} to {i.high:.2f}]" for i in (below, touching, above)]
    better, worse = finding(ended("language", loss=loss)).split(". ")
    simple = f"a bigram model, {to_beat:.2f}:"
    assert better.startswith("Below")
    assert better.endswith(f"{simple} QKV {told[0]}")
    assert worse.startswith("Not clearly")
    assert worse.endswith(f"{simple} Q=K {told[1]}, K=V {told[2]}.")
    loss = np.full((3, 5), NAN)
    loss[0] = to_beat - 0.5
    assert finding(ended("language", loss=loss)).endswith(f"{simple} Q=K diverged, K=V diverged.")
    lost = np.full((3, 5), NAN)
    assert finding(ended("language", lost, lost)).startswith("Training failed")
    alone = finding(ended("language", loss=np.array([[to_beat - 0.5]])))
    assert alone.endswith(f"{simple} QKV {to_beat - 0.5:.2f}.")


def test_measures_are_told_for_every_variant_that_has_them():
    """Means over seeds, as the table has them; a measure that nobody has is left out."""
    example = load_example("directed")
    means = zip(FIVE, sharing_table(example)["asymmetry"], strict=True)
    found = measures_finding(example)
    assert ", ".join(f"{name} {mean:.2f}" for name, mean in means) in found
    unknown = {"mass_on_reverse": np.full_like(example.history["accuracy"], NAN)}
    fewer = dataclasses.replace(example, history=example.history | unknown)
    assert measures_finding(fewer) == found.rpartition(" Attention")[0]


# Tables


def test_tables_follow_the_runs_and_miss_what_a_task_does_not_have():
    """Rows follow Experiment.runs; a common shift of paired seeds leaves no spread."""
    seeds = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    table = sharing_table(ended("directed", [seeds, seeds - 0.1, seeds])).set_index("sharing")
    assert table.loc["Q=K", "difference"] == pytest.approx(-0.1, abs=1e-6)
    assert table.loc["Q=K", "difference_high"] == pytest.approx(-0.1, abs=1e-6)
    assert np.isnan(table.loc["QKV", "difference"])
    snapshot = train(tiny("reverse", sharing=["QKV", "Q=K"], n_seeds=3, steps=2), "cpu").snapshot
    table = run_table(snapshot)
    expected = [(sharing.value, seed) for sharing, seed in snapshot.experiment.runs]
    assert list(zip(table["sharing"], table["seed"], strict=True)) == expected
    assert table["training_accuracy"].notna().all()
    table = run_table(train(tiny("phonebook", sharing=["QKV"], steps=2), "cpu").snapshot)
    assert table[["mass_on_reverse", "training_accuracy"]].isna().all(axis=None)
    assert table["mass_on_target"].notna().all()


def told(seed):
    """A finished snapshot of two seeds whose numbers are all different, and one of which is lost.

    QKV learns its threshold with one seed, Q=K with both, and K=V diverges with the second seed.
    """
    draw = np.random.default_rng([43, seed])
    experiment = tiny("directed", sharing=["QKV", "Q=K", "K=V"], n_seeds=2, first_seed=7)
    rows = draw.uniform(0.2, 0.9, (7, 3, 2))
    rows[2:5, 0, 0] = rows[3:6, 1, 0] = rows[1:4, 1, 1] = 1.0
    rows[4:, 2, 1] = NAN
    lost = np.full((3, 2), -1)
    lost[2, 1] = 5
    snapshot = finished(experiment, rows, draw.uniform(1, 2, rows.shape), diverged_at=lost)
    others = set(snapshot.history) - {"accuracy", "loss"}
    drawn = {name: draw.uniform(-1, 1, (7, 6)).astype(np.float32) for name in sorted(others)}
    return dataclasses.replace(snapshot, history=snapshot.history | drawn)


def test_every_column_of_the_tables_is_the_number_that_its_name_says(seed):
    """By run, then as means over seeds, without what is lost."""
    snapshot = told(seed)
    table, steps = run_table(snapshot), snapshot.eval_steps
    last = {name: values[-1].astype(float) for name, values in snapshot.history.items()}
    symmetry = last["score_symmetry"]
    costs = [snapshot.experiment.costs(variant) for variant, _ in snapshot.experiment.runs]
    expected = last | {
        "seed": [7, 8] * 3,
        "steps_to_threshold": [steps[2], NAN, steps[3], steps[1], NAN, NAN],
        "asymmetry": (1 - symmetry) / 2,
        "diverged_at": [NAN] * 5 + [5],
        "attention_parameters": [cost.attention for cost in costs],
        "parameters": [cost.parameters for cost in costs],
        "kv_cache_floats_per_token": [cost.kv_cache for cost in costs],
        "multiply_adds_per_token": [cost.multiply_adds for cost in costs],
    }
    assert set(table) == {"sharing", *expected}
    for name, values in expected.items():
        np.testing.assert_allclose(table[name].astype(float), values, atol=1e-6, err_msg=name)
    of_sharing = sharing_table(snapshot)
    by_seed = {name: np.reshape(values, (3, 2)) for name, values in expected.items()}
    accuracy = mean_interval(by_seed["accuracy"])
    gap = mean_interval(by_seed["accuracy"] - by_seed["accuracy"][0])
    summed = set(SHOWN) & set(of_sharing) - {"accuracy"}
    assert {"loss", "asymmetry", "mass_on_target", "mass_on_reverse"} <= summed
    costs = [name for name in of_sharing if name.endswith("per_token") or name == "parameters"]
    expected = {name: mean_interval(by_seed[name]).mean for name in summed} | {
        **{name: by_seed[name][:, 0] for name in costs},
        "accuracy": accuracy.mean,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "solved": [1, 2, 0],
        "steps_to_threshold": [steps[2], (steps[3] + steps[1]) / 2, NAN],
        "diverged": [0, 0, 1],
        "difference": [NAN, *gap.mean[1:]],
        "difference_low": [NAN, *gap.low[1:]],
        "difference_high": [NAN, *gap.high[1:]],
    }
    assert set(of_sharing) == {"sharing", *expected}
    for name, values in expected.items():
        np.testing.assert_allclose(of_sharing[name].astype(float), values, atol=1e-6, err_msg=name)


def test_slice_table_by_hand():
    """A run without such an answer is left out of the mean; a group without any has none."""
    recall = ended("mqar", np.zeros((2, 5)))
    shares = np.full((10, 2), NAN, np.float32)
    shares[:5, 0] = [0.0, 0.5, 1.0, 0.5, NAN]
    shares[5:, 1] = 0.25
    table = slice_table(dataclasses.replace(recall, slice_accuracy=shares))
    names = recall.experiment.task.slice_names
    assert list(table.columns) == ["sharing", *names]
    assert table["sharing"].tolist() == ["QKV", "Q=K"]
    np.testing.assert_allclose(table[list(names)].to_numpy(), [[0.5, NAN], [NAN, 0.25]])
    assert list(slice_table(ended("directed", np.zeros((2, 5)))).columns) == ["sharing"]


# Numbers in words


def test_percentages_claim_no_more_than_what_is_known():
    """Limits that are shown alike are one; rounding never claims perfection, nor a limit."""
    for low, high, said in (
        (0.41, 0.59, "41 to 59%"),
        (1.0, 1.0, "100%"),
        (0.993, 1.02, "99 to 100%"),
        (0.501, 0.503, "50%"),
        (-0.1, 0.2, "0 to 20%"),
        (NAN, NAN, ""),
    ):
        assert percent_interval(low, high) == said
    assert [percent(share) for share in (1, 0.9996, 0.5)] == ["100%", "99%", "50%"]
    random = np.random.default_rng(8)
    for limit in (0.98, 0.99, 0.5):
        for below in 10 ** random.uniform(-5, -1, 200):
            assert percent_beside(limit - below, limit) != percent(limit)


@pytest.mark.parametrize("code", ["de", "es"])
def test_other_languages_put_a_narrow_space_before_percent_and_between_digits(code):
    """Numbers that tables sort by stay the same, and a single percentage still has no limits."""
    space = "\N{NARROW NO-BREAK SPACE}"
    with reading(code):
        assert [percent(share) for share in (1, 0.5)] == [f"100{space}%", f"50{space}%"]
        assert percent(NAN) == "–"
        assert percent_beside(0.9899, 0.99) == f"98.99{space}%"
        assert percent_interval(0.501, 0.503) == f"50{space}%"
        assert (percent_limits(0.501, 0.503), whole_percent(0.501)) == ("", 50)
        assert percent_limits(0.41, 0.59, "({})").endswith(f"59{space}%)")
        assert two_decimals(-12345.6) == f"−12{space}346"
    assert (percent(0.5), two_decimals(-12345.6)) == ("50%", "−12,346")


def test_two_numbers_read_alike_only_if_they_are_the_same():
    """Seeded pairs around every limit of rounding; and nothing but zero reads as 0.00."""
    random = np.random.default_rng(5)
    for _ in range(3000):
        first = float(random.choice([0, 1, -1]) * 10 ** random.uniform(-5, 5))
        second = first + float(random.choice([0, 1, -1]) * 10 ** random.uniform(-5.5, 1))
        one, other = two_numbers(first, second, same=False)
        assert one != other or abs(first - second) < 2e-6
        assert len(set(two_numbers(first, second, same=True))) == 1
        assert (two_decimals(first) == "0.00") == (abs(first) < 1e-6)
        assert "-" not in one + other


def test_scores_are_called_the_same_by_their_exact_difference():
    """Not by an asymmetry that is rounded: seeded errors of every seed, some just too large."""
    random, example = np.random.default_rng(6), ended("directed", np.zeros((5, 5)))
    shape = example.history["symmetry_error"].shape

    def with_errors(error, symmetry):
        history = {"symmetry_error": error, "score_symmetry": symmetry}
        rows = {name: np.resize(values, shape) for name, values in history.items()}
        return dataclasses.replace(example, history=example.history | rows)

    for _ in range(50):
        error = 10 ** random.uniform(-9, -2, shape[1])
        error[random.random(shape[1]) < 0.7] = 0
        changed = with_errors(error, (1 - error**2 / 2).astype(np.float32))
        exact = changed.per_sharing(np.resize(error, shape) <= ROUNDING).all(-1)
        for variant, same in zip(changed.experiment.sharing, exact[-1], strict=True):
            assert ("the same both ways" in asymmetry_in_words(changed, variant)) == same
    changed = with_errors(np.array([0.1]), np.array([0.9946]))
    assert asymmetry_in_words(changed, changed.experiment.sharing[0]) == "0.0027"


# Trainings that failed: no variant is blamed


def test_a_training_has_failed_only_if_no_run_of_it_has_learnt():
    """Random accuracies and losses, also NaN: one run that has learnt is enough."""
    assert [task for task in TASKS if failure_of(load_example(task)) is not None] == []
    random = np.random.default_rng(4)
    for _ in range(200):
        names = ["QKV", "Q=K", "K=V", "QKV kv_rank=2 n_heads=2", "Q=K=V"]
        sharing = [name for name in names if random.random() < 0.6] or ["Q=K"]
        experiment = tiny("phonebook", sharing=sharing, n_seeds=2)
        least = experiment.task.chance + LEAST_LEARNED * (1 - experiment.task.chance)
        levels = [0.0, experiment.task.chance, least - 1e-3, least + 1e-3, 1.0, NAN]
        odds = np.array([3, 3, 3, 0.2, 0.2, 3]) if random.random() < 0.8 else np.eye(6)[5]
        last = random.choice(levels, (len(experiment.sharing), 2), p=odds / odds.sum())
        lost = np.where(np.isnan(last), experiment.training.steps, -1)
        snapshot = finished(experiment, [np.zeros_like(last), last], diverged_at=lost)
        failure, diverged = failure_of(snapshot), np.isnan(last).all()
        comparable = "QKV" in sharing or diverged
        assert (failure is not None) == (comparable and not (last >= least).any())
        if failure is not None:
            assert headline(snapshot, 0).kind == "failed"
            running = dataclasses.replace(snapshot, status="running")
            assert (failure_of(running) is not None) == diverged


def test_the_advice_names_a_setting_as_the_screen_does_and_its_default():
    """It is the learning rate if that is not the default, else the steps; pages say the same."""
    for given, change, default in (
        ({"learning_rate": 0.3}, "Lower “Learning rate”", "0.005"),
        ({"learning_rate": 0.001, "steps": 600}, "Raise “Learning rate”", "0.005"),
        ({"steps": 8}, "Raise “Steps”", "600"),
        ({"steps": 700}, "Raise “Steps”", "600"),
    ):
        experiment = tiny("phonebook", sharing=["QKV"], n_seeds=1, **given)
        advice = failure_of(finished(experiment, [[[0.0]]] * 2)).advice
        assert advice.startswith(f"{change} (default {default})")
        assert ("easier" in advice) == (given == {"steps": 700})
    film = record(tiny("phonebook", sharing=["QKV", "Q=K"], n_seeds=1, learning_rate=1.0))
    begun = dataclasses.replace(film, frames=film.frames[:-1])
    for view in ("attention", "symmetry", "similarity"):
        assert inspect(begun, Inspection(view)).header["failure"] == ""
        assert "Lower “Learning rate”" in inspect(film, Inspection(view)).header["failure"]
