"""Tables and sentences made of a snapshot."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny

from attnkit.training import Training
from attnkit.training.snapshot import ROUNDING
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import (
    asymmetry_in_words,
    finding,
    measures_finding,
    percent,
    percent_beside,
    percent_interval,
    run_table,
    sharing_table,
    slice_table,
    two_decimals,
    two_numbers,
)


def with_accuracy(snapshot, accuracy, **changes):
    """The snapshot with the accuracies, (sharing, seed), of all evaluations replaced."""
    last = np.asarray(accuracy, np.float32).ravel()
    history = dict(snapshot.history, accuracy=np.tile(last, (len(snapshot.eval_steps), 1)))
    return dataclasses.replace(snapshot, history=history, **changes)


def begun(kind, **given):
    """A snapshot of five seeds of every sharing, called finished."""
    training = Training(tiny(kind, n_seeds=5, **given), "cpu")
    training.advance(4)
    return training.snapshot("finished")


@pytest.fixture(scope="module")
def example():
    """The directed relation: five sharings, five seeds."""
    return begun("directed")


@pytest.fixture(scope="module")
def recall():
    """A task that tells groups of answers apart."""
    return begun("mqar", sharing=["QKV", "Q=K"])


@pytest.fixture(scope="module")
def text():
    """A task with a loss to beat."""
    return begun("language", sharing=["QKV", "Q=K", "Q=K=V"])


def test_finding_sorts_sharings_into_solved_and_not(example):
    """All seeds at 0.99 is solved; less is given with its interval, or called diverged."""
    accuracy = np.ones((5, 5))
    accuracy[1] = [0.4, 0.5, 0.6, 0.5, 0.5]
    assert finding(with_accuracy(example, accuracy)) == (
        "Solved by all 5 seeds: QKV, K=V, Q=V, Q=K=V. Not solved: Q=K 50% (95% interval 41 to 59%)."
    )
    accuracy = np.ones((5, 5))
    accuracy[0, 0] = 0.98  # a mean above the threshold does not hide a seed below it
    assert "Not solved: QKV 99%" in finding(with_accuracy(example, accuracy))
    accuracy[0, 0] = 1
    accuracy[4] = accuracy[3, 0] = np.nan
    diverged_at = np.where(np.isnan(accuracy), 10, -1).ravel()
    text = finding(with_accuracy(example, accuracy, diverged_at=diverged_at))
    assert text.endswith("Not solved: Q=V 100% (1 of 5 diverged), Q=K=V diverged.")
    text = finding(with_accuracy(example, np.zeros((5, 5)), status="running"))
    assert text.startswith("Not solved yet: QKV 0%")  # before the end nothing is final


@pytest.mark.parametrize(
    ("n_seeds", "said"),
    [(1, "Solved: Q=K."), (2, "Solved by both seeds: Q=K."), (3, "Solved by all 3 seeds: Q=K.")],
)
def test_what_is_solved_is_told_in_few_words(n_seeds, said):
    """The rule stands in the glossary."""
    snapshot = finished(
        tiny("directed", sharing=["Q=K"], n_seeds=n_seeds), np.ones((4, 1, n_seeds))
    )
    assert finding(snapshot) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.41, 0.59, "41 to 59%"),
        (1.0, 1.0, "100%"),
        (0.993, 1.02, "99 to 100%"),
        (0.501, 0.503, "50%"),
        (-0.1, 0.2, "0 to 20%"),
        (float("nan"), float("nan"), ""),
    ],
)
def test_limits_that_are_shown_alike_are_one_percentage(low, high, said):
    """Nobody needs "100 to 100%"; without an interval there is nothing to say."""
    assert percent_interval(low, high) == said


def test_sharing_table_pairs_differences_by_seed(example):
    """The difference from QKV is that of equal seeds, so a common shift leaves no spread."""
    seeds = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    accuracy = np.stack([seeds, seeds - 0.1, seeds, seeds, seeds])
    table = sharing_table(with_accuracy(example, accuracy)).set_index("sharing")
    assert table.loc["Q=K", "difference"] == pytest.approx(-0.1, abs=1e-6)
    assert table.loc["Q=K", "difference_high"] == pytest.approx(-0.1, abs=1e-6)
    assert np.isnan(table.loc["QKV", "difference"])


def test_tables_have_one_row_per_run_and_the_mean_over_seeds():
    """Rows follow Experiment.runs; values that a task does not have are missing."""
    snapshot = begun("reverse", sharing=["QKV", "Q=K"])
    table = run_table(snapshot)
    expected = [(sharing.value, seed) for sharing, seed in snapshot.experiment.runs]
    assert list(zip(table["sharing"], table["seed"], strict=True)) == expected
    of_runs = table["training_accuracy"].to_numpy()
    np.testing.assert_array_equal(of_runs, snapshot.history["training_accuracy"][-1].astype(float))
    assert not np.isnan(of_runs).any()
    means = sharing_table(snapshot)["training_accuracy"]
    np.testing.assert_allclose(means, of_runs.reshape(2, 5).mean(1))
    table = run_table(begun("phonebook", sharing=["QKV"]))
    assert table["mass_on_reverse"].isna().all()
    assert table["training_accuracy"].isna().all()
    assert table["mass_on_target"].notna().all()


# Groups of answers


def test_slice_table_by_hand(recall, example):
    """A run without such an answer is left out of the mean; a group without any has none."""
    table, names = slice_table(recall), recall.experiment.task.slice_names
    assert list(table.columns) == ["sharing", *names]
    assert table["sharing"].tolist() == ["QKV", "Q=K"]
    shares = recall.slice_accuracy.reshape(2, 5, 2)
    np.testing.assert_allclose(table[list(names)].to_numpy(), np.nanmean(shares, 1), rtol=1e-6)
    shares = np.full((10, 2), np.nan, np.float32)
    shares[:5, 0] = [0.0, 0.5, 1.0, 0.5, np.nan]
    shares[5:, 1] = 0.25
    table = slice_table(dataclasses.replace(recall, slice_accuracy=shares))
    np.testing.assert_allclose(table[list(names)].to_numpy(), [[0.5, np.nan], [np.nan, 0.25]])
    assert list(slice_table(example).columns) == ["sharing"]


# A loss to beat


def with_loss(snapshot, loss, **changes):
    """The snapshot with the last losses, (sharing, seed), replaced."""
    rows = np.tile(np.asarray(loss, np.float32).ravel(), (len(snapshot.eval_steps), 1))
    return dataclasses.replace(snapshot, history={**snapshot.history, "loss": rows}, **changes)


def test_a_finding_on_losses_says_who_is_below_the_simple_model(text):
    """By the upper limit of the mean: what reaches over it is not below it."""
    to_beat = text.experiment.task.loss_to_beat
    steps = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])
    loss = [to_beat - 1 + steps, to_beat - 0.01 + steps, to_beat + 1 + steps]
    below, touching, above = (mean_interval(np.float32(row)) for row in loss)
    assert touching.mean < to_beat < touching.high
    told = [f"{i.mean:.2f} [{i.low:.2f} to {i.high:.2f}]" for i in (below, touching, above)]
    assert finding(with_loss(text, loss)) == (
        f"Below the loss of a bigram model, {to_beat:.2f}: QKV {told[0]}. "
        f"Not clearly below the loss of a bigram model, {to_beat:.2f}: Q=K {told[1]}, "
        f"Q=K=V {told[2]}."
    )


def test_a_finding_on_losses_names_what_diverged(text):
    """A sharing without any number left is not below; the loss of one seed decides by itself."""
    to_beat = text.experiment.task.loss_to_beat
    loss = np.full((3, 5), np.nan)
    loss[0] = to_beat - 0.5
    found = finding(with_loss(text, loss))
    assert found.endswith(f"bigram model, {to_beat:.2f}: Q=K diverged, Q=K=V diverged.")
    assert finding(with_loss(text, np.full((3, 5), np.nan))).startswith("Training failed")
    alone = finished(tiny("language", sharing="QKV", n_seeds=1), np.zeros((2, 1, 1)))
    found = finding(with_loss(alone, [[to_beat - 0.5]]))
    assert found == f"Below the loss of a bigram model, {to_beat:.2f}: QKV {to_beat - 0.5:.2f}."


def test_measures_are_told_for_every_variant_that_has_them(example):
    """Means over seeds, as the table has them; a measure that nobody has is left out."""
    names = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
    table = sharing_table(example)
    asymmetries = [f"{n} {mean:.2f}" for n, mean in zip(names, table["asymmetry"], strict=True)]
    found = measures_finding(example)
    assert found.startswith(f"Asymmetry of the scores: {', '.join(asymmetries)}. Attention on")
    unknown = {"mass_on_reverse": np.full_like(example.history["accuracy"], np.nan)}
    fewer = dataclasses.replace(example, history=example.history | unknown)
    assert measures_finding(fewer) == found.partition(" Attention on the mirrored entry")[0]


def test_only_a_perfect_share_is_a_hundred_percent():
    """Rounding never claims perfection, nor that a share is the limit that it misses."""
    assert [percent(share) for share in (1, 0.9996, 0.5)] == ["100%", "99%", "50%"]
    random = np.random.default_rng(8)
    for limit in (0.98, 0.99, 0.5):
        for below in 10 ** random.uniform(-5, -1, 200):
            assert percent_beside(limit - below, limit) != percent(limit)


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


def test_scores_are_called_the_same_by_their_exact_difference(example):
    """Not by an asymmetry that is rounded: seeded errors of every seed, some just too large."""
    random = np.random.default_rng(6)
    shape = example.history["symmetry_error"].shape
    for _ in range(50):
        error = 10 ** random.uniform(-9, -2, shape[1])
        error[random.random(shape[1]) < 0.7] = 0
        symmetry = np.tile((1 - error**2 / 2).astype(np.float32), (shape[0], 1))
        history = {
            "symmetry_error": np.tile(error, (shape[0], 1)),
            "score_symmetry": symmetry,
        }
        changed = dataclasses.replace(example, history=example.history | history)
        exact = changed.per_sharing(error <= ROUNDING).all(-1)
        for variant, same in zip(changed.experiment.sharing, exact, strict=True):
            assert ("the same both ways" in asymmetry_in_words(changed, variant)) == same
    small = {"symmetry_error": np.full(shape, 0.1), "score_symmetry": np.full(shape, 0.9946)}
    changed = dataclasses.replace(example, history=example.history | small)
    assert asymmetry_in_words(changed, changed.experiment.sharing[0]) == "0.0027"
