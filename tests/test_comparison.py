"""Finished experiments in sentences, tables, raw data and curves; trainings that failed."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from finished import THREE_SEEDS, finished, letters, one_variant
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import tiny
from numpy.testing import assert_array_equal
from plotted import unpacked
from searching import briefly
from test_metrics import expected_of

from attnkit.analysis import comparison
from attnkit.analysis.comparison import comparison_in_words, in_a_cell, levels_in_words, metric_of
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.reasons import headline
from attnkit.examples import load_example
from attnkit.figures.curves import STYLES, plot_overlay, replay, style_of
from attnkit.figures.panels import MAX_POINTS
from attnkit.foundation.language import reading
from attnkit.tasks import TASKS
from attnkit.training import summary, train
from attnkit.training.failure import LEAST_LEARNED, failure_of
from attnkit.training.loops import record
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import ROUNDING
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant

NAMES = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
FIVE = [*map(Variant, NAMES)]
QKV, Q_K = FIVE[:2]
NAN = np.nan
SHARES = st.floats(0, 1, width=32)


def close(values):
    """Return what numbers of single precision are compared with."""
    return pytest.approx(values, abs=1e-6, nan_ok=True)


def two(accuracy, diverged_at=None, **given):
    """Return a finished experiment on two variants; all seeds end with these accuracies."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], **given)
    rising = np.array([[0.1, 0.1], accuracy])[:, :, None] + np.zeros((2, 2, experiment.n_seeds))
    return finished(experiment, rising, diverged_at=diverged_at)


def test_levels_are_told_from_the_best_to_the_last():
    """Numbers that read alike are one level, variants without a result are named."""
    seven = [*FIVE, Variant("Q=K signed"), Variant("QKV sum")]
    for means, parts in (
        ([0.999, 1], "Q=K reaches 100% | QKV 99%"),
        ([NAN, NAN], "QKV and Q=K have no result"),
        ([1] * 5, "All 5 variants reach 100%"),
        ([1, 0.49, 1, 1, 0.4], "QKV, K=V and Q=V reach 100% | Q=K 49%, Q=K=V 40%."),
        ([1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "QKV reaches 100% | Q=K comes last with 10%."),
        ([0.1, 1, 1, 1, 1, 1, 0.1], "and Indefinite reach 100% | QKV and Two scores come last"),
    ):
        sentence = levels_in_words(seven[: len(means)], means, "accuracy")
        assert all(part in sentence for part in parts.split(" | ")), sentence
        assert ("accuracy" in sentence) == ("%" in sentence)
    assert levels_in_words(FIVE[:2], [2.5, 2.25], "loss").endswith("of 2.25, QKV 2.50.")


def test_a_comparison_names_the_variant_that_differs_most():
    """The conclusion is about variants that several experiments have, whatever their tasks."""
    seeds, other = one_variant(THREE_SEEDS), tiny("directed", sharing=["K=V"])
    lost = two([1, NAN], diverged_at=[[-1, -1], [5, 5]])
    for snapshots, parts in (
        ([two([1, 0.5]), two([1, 0.9])], "Q=K differs most: 50% in A, 90% in B."),
        ([two([1, 0.5])] * 2, "Every variant | A and B share | the same"),
        ([two([0.25, 0.5]), seeds], "QKV differs: 25% in A, 70% in B."),
        ([seeds, finished(other, np.zeros((2, 1, 2)))], "A and B | no variant in common"),
        ([lost, two([1, 0.5])], "QKV has the same"),
        ([two([0.9, 0.5]), two([0.9001, 0.5])], "about the same"),
    ):
        sentence = comparison_in_words(letters(*snapshots))
        assert all(part in sentence for part in parts.split(" | ")), sentence
        assert ("about" in sentence) == ("about" in parts)
    assert in_a_cell(two([1, 0.5])) == "QKV 100%, Q=K 50%"
    assert in_a_cell(lost) == "QKV 100%, Q=K diverged"


def test_a_replay_has_the_means_and_limits_of_every_stored_evaluation():
    """And a sentence for each; a long history is thinned, but for its end."""

    def film_of(snapshot, variants=FIVE[:1]):
        return InspectionResult.from_bytes(replay(snapshot, variants, metric_of([snapshot])))

    film = film_of(one_variant(THREE_SEEDS))
    low, mean, high = (film.framed[f"accuracy{limit}"][:, 0] for limit in ("_low", "", "_high"))
    expected = [np.clip(expected_of(np.array(row))[:3], 0, 1) for row in THREE_SEEDS]
    assert np.stack([mean, low, high], 1) == pytest.approx(np.array(expected), abs=1e-6)
    assert film.header["steps"] == [0, 4, 8]
    told = film.header["sentences"]["conclusion"]
    for sentence, parts in zip(told, ("Untrained 20%", "4, 57%", "8, 70%"), strict=True):
        assert all(part in sentence for part in parts.split())
    both, second = (film_of(two([1, 0.5]), variants) for variants in (FIVE[:2], FIVE[1:2]))
    assert second.header["variants"] == both.header["variants"][1:]  # with its own colour
    assert "3 seeds; bands: 95%" in film.header["hints"]["accuracy"]
    assert "bands" not in both.header["hints"]["loss"]
    accuracy = np.linspace(0, 1, 1001)[:, None] * [1.0, 1.0]
    header = film_of(one_variant(accuracy, steps=1000)).header
    assert len(header["steps"]) < 200
    assert "1000, QKV reaches 100%" in header["sentences"]["conclusion"][-1]


@given(hnp.arrays(np.float32, (3, 5), elements=SHARES), st.sets(st.integers(0, 4)))
@briefly(40)
def test_a_summary_has_the_statistics_of_the_seeds_that_did_not_diverge(values, lost):
    """The last evaluation, the mean over training and the best leave diverged seeds out."""
    diverged_at = [[8 if seed in lost else -1 for seed in range(5)]]
    values[2, list(lost)] = np.nan
    experiment = tiny("directed", sharing=["QKV"], n_seeds=5)
    snapshot = finished(experiment, values[:, None], diverged_at=diverged_at)
    kept = np.delete(values, list(lost), axis=1)
    for metric, of, best in (("accuracy", kept, np.max), ("loss", 1 - kept, np.min)):
        row = comparison.summary_table(letters(snapshot), metric).iloc[0]
        assert (row["seeds"], row["diverged"]) == (5, len(lost))
        expected = expected_of(of[2].astype(float))
        assert row[["last", "low", "high", "sd"]].tolist() == close(expected)
        over_training = [of.mean(), best(of)] if of.size else [np.nan, np.nan]
        assert row[["mean", "best"]].tolist() == close(over_training)


def test_only_solved_seeds_and_evaluations_of_what_a_variant_becomes_count():
    """Seed 0 is at the threshold from step 2 on; before it is tied, a variant is another model."""
    accuracy = [[0.1, 0.1], [1, 0.5], [1, 0.5], [1, 0.9], [1, 0.9]]
    row = comparison.summary_table(letters(one_variant(accuracy)), "accuracy").iloc[0]
    assert (row["solved"], row["seeds"], row["steps_to_threshold"]) == (1, 2, 2)
    experiment = tiny("directed", sharing=["QKV tie=K=V tie_at=0.5"], n_seeds=1)
    snapshot = finished(experiment, np.array([0.1, 0.9, 0.3, 0.5, 0.4])[:, None, None])
    row = comparison.summary_table(letters(snapshot), "accuracy").iloc[0]
    assert row[["best", "mean"]].tolist() == close([0.5, 0.4])


def test_settings_that_differ_are_told_and_no_others():
    """A dial that the other task lacks differs, too; one alone is told beside the defaults."""
    first = one_variant([[0.1], [0.2]], d_head=3)
    other = one_variant([[0.1], [0.2]], d_head=5, steps=12, self_mask=False)
    table = comparison.settings_table(letters(first, other)).set_index("Setting")
    assert table["A"].to_dict() == {"Head width": "3", "Self-mask": "yes", "Steps": "8"}
    assert table["B"].to_dict() == {"Head width": "5", "Self-mask": "no", "Steps": "12"}
    foreign = one_variant([[0.1], [0.2]], kind="reverse")
    told = comparison.settings_table(letters(first, foreign)).set_index("Setting")
    assert told.loc["Task"].tolist() == ["Directed relation", "Reverse"]
    assert all(comparison.ABSENT in told[letter].tolist() for letter in "AB")
    table = comparison.settings_table(letters(first)).set_index("Setting")
    assert list(table.columns) == ["A", "Default"]
    assert table.loc[["Variants", "Steps"], "A"].tolist() == ["QKV", "8"]
    raw = comparison.evaluation_table(letters(first, other))  # has a column for each
    assert raw.groupby("experiment")["d_head"].first()[first.experiment.hash] == 3
    assert not {"n_values", "n_seeds"} & set(raw.columns)
    pairs = [["Q=K", "QKV"], ["K=V", "QKV"]]
    both = [finished(tiny("directed", sharing=p, n_seeds=1), np.zeros((2, 2, 1))) for p in pairs]
    assert comparison.variants_of(letters(*both)) == [QKV, Q_K, Variant("K=V")]


@given(
    hnp.arrays(np.float32, (2, 5), elements=SHARES | st.just(np.nan)),
    st.integers(0, 7),
    st.sampled_from(["directed", "reverse"]),
)
def test_experiments_are_paired_over_the_seeds_that_both_have(last, first_seed, kind):
    """On the same task, as variants are; a seed that diverged is no pair."""
    other = one_variant(last[1:], kind=kind, first_seed=first_seed)
    first, other = letters(one_variant(last[:1]), other)
    gaps = last[1, : max(0, 5 - first_seed)] - last[0, first_seed:]
    gaps = gaps if kind == "directed" else gaps[:0]
    there = comparison.differences_between([first, other], first, "accuracy").iloc[0]
    back = comparison.differences_between([first, other], other, "accuracy").iloc[0]
    compared = letters(finished(tiny("directed", sharing=["QKV", "Q=K"], n_seeds=5), last[None]))
    within = comparison.differences_within(compared, QKV, "accuracy").iloc[0]
    assert (there["experiment"], back["experiment"], within["sharing"]) == ("B", "A", "Q=K")
    back[["difference", "high", "low"]] = -back[["difference", "low", "high"]].to_numpy()
    for row, pairs in ((there, gaps), (back, gaps), (within, last[1] - last[0])):
        pairs = pairs[~np.isnan(pairs)].astype(float)
        assert row["n_pairs"] == len(pairs)
        assert row[["difference", "low", "high"]].tolist() == close(expected_of(pairs)[:3])
    assert comparison.differences_within(compared, Variant("K=V"), "accuracy").empty


@given(hnp.arrays(np.float32, (7, 2, 3), elements=SHARES | st.just(np.nan)))
@briefly(40)
def test_raw_data_are_every_number_to_the_last_bit(accuracy):
    """Nothing is thinned or rounded: the file read back is the history, as CSV or as JSON."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3, first_seed=11)
    compared = letters(finished(experiment, accuracy))
    text = comparison.evaluation_table(compared).to_csv(index=False)
    back = list(csv.DictReader(io.StringIO(text)))
    assert len(back) == 7 * 6
    (told,) = json.loads(comparison.to_json(compared), parse_constant=pytest.fail)["experiments"]
    steps = compared[0].snapshot.eval_steps.tolist()
    named = (told["name"], told["experiment"]["first_seed"], told["eval_steps"])
    assert named == ("name A", 11, steps)
    for run, (variant, seed) in enumerate(experiment.runs):
        rows = [row for row in back if (row["sharing"], row["seed"]) == (variant.value, str(seed))]
        assert [int(row["step"]) for row in rows] == steps
        of_csv = [row["accuracy"] or "nan" for row in rows]
        of_json = [np.nan if n is None else n for n in told["runs"][run]["history"]["accuracy"]]
        for found in (of_csv, of_json):
            assert_array_equal(np.array(found, np.float32), accuracy.reshape(7, 6)[:, run])


def test_every_experiment_with_a_variant_has_a_line_in_its_panel():
    """Letters, colours and dashes are experiments; a thinned line keeps first and last value."""
    both = finished(tiny("directed", sharing=["QKV", "Q=K"]), np.full((3, 2, 2), 0.5))
    compared = letters(both, one_variant(THREE_SEEDS))
    figure = plot_overlay(compared, [QKV, Q_K], "loss")
    lines = [trace for trace in figure["data"] if "hovertemplate" in trace]
    found = [(t["xaxis"], t["hovertemplate"][0], t["line"].get("color")) for t in lines]
    assert found == [("x", "A", None), ("x", "B", style_of(compared[1])[0]), ("x2", "A", None)]
    entries = figure["layout"]["meta"]["legend"]
    assert [one["text"] for one in entries[:2]] == ["A name A", "B name B"]
    assert len(set(STYLES)) == len(STYLES) == len(comparison.LETTERS)
    accuracy = np.linspace(0, 1, 4 * MAX_POINTS)[:, None] * [1.0, 0.5]
    drawn = plot_overlay(letters(one_variant(accuracy, steps=1000)), [QKV], "accuracy")["data"]
    (line,) = (unpacked(t["y"]["bdata"]) for t in drawn if "hovertemplate" in t)
    assert (len(line), line[0], line[-1]) == (MAX_POINTS, 0.0, pytest.approx(0.75))


def ended(kind, accuracy=None, loss=None, **given):
    """A finished snapshot of a few seeds from the last accuracies or losses, (sharing, seed)."""
    shape = np.shape(loss if accuracy is None else accuracy)
    accuracy = np.zeros(shape) if accuracy is None else np.asarray(accuracy)
    experiment = tiny(kind, **{"sharing": NAMES[: shape[0]], "n_seeds": shape[1]})
    losses = None if loss is None else np.stack([loss] * 4)
    return finished(experiment, np.stack([accuracy] * 4), losses, **given)


def test_finding_sorts_sharings_into_solved_and_not():
    """All seeds at 0.99 is solved; less is given with its interval, or called diverged."""
    accuracy = np.ones((5, 5))
    accuracy[1] = [0.4, 0.5, 0.6, 0.5, 0.5]
    told = summary.finding(ended("directed", accuracy))
    interval = mean_interval(accuracy[1])
    low, high = (round(100 * float(limit)) for limit in (interval.low, interval.high))
    assert "all 5 seeds: QKV, K=V, Q=V, Q=K=V. Not solved: Q=K 50%" in told
    assert f"95% interval {low} to {high}%)" in told
    accuracy = np.ones((5, 5))
    accuracy[0, 0] = 0.98  # a mean above the threshold does not hide a seed below it
    assert "Not solved: QKV 99%" in summary.finding(ended("directed", accuracy))
    accuracy[0, 0] = 1
    accuracy[4] = accuracy[3, 0] = NAN
    lost = np.where(np.isnan(accuracy), 10, -1)
    text = summary.finding(ended("directed", accuracy, diverged_at=lost))
    assert text.endswith("Not solved: Q=V 100% (1 of 5 diverged), Q=K=V diverged.")
    running = replace(ended("directed", np.zeros((5, 5))), status="running")
    assert summary.finding(running).startswith("Not solved yet: QKV 0%")
    assert summary.finding(replace(running, step=0)).startswith("Untrained")
    for n_seeds, said in ((1, "Solved:"), (2, "both seeds:")):
        assert f"{said} QKV." in summary.finding(ended("directed", np.ones((1, n_seeds))))


def test_a_finding_on_losses_says_who_is_below_the_simple_model():
    """By the upper limit of the mean: what reaches over it is not below it."""
    to_beat = tiny("language").task.loss_to_beat
    steps = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])
    loss = [to_beat - 1 + steps, to_beat - 0.01 + steps, to_beat + 1 + steps]
    intervals = [mean_interval(np.float32(row)) for row in loss]
    assert intervals[1].mean < to_beat < intervals[1].high
    told = [f"{i.mean:.2f} [{i.low:.2f} to {i.high:.2f}]" for i in intervals]
    better, worse = summary.finding(ended("language", loss=loss)).split(". ")
    simple = f"a bigram model, {to_beat:.2f}:"
    assert better.endswith(f"{simple} QKV {told[0]}")
    assert worse.startswith("Not clearly")
    assert worse.endswith(f"{simple} Q=K {told[1]}, K=V {told[2]}.")
    courses = to_beat + np.array([[4, 3, 2, 1], [2, 1, 3, 3], [1, 1, 1, 1], [4, 3, 1, -1]])
    experiment = tiny("language", sharing=NAMES[:4], n_seeds=1)
    snapshot = finished(experiment, np.zeros((4, 4, 1)), courses.T[..., None])
    advice = summary.finding(snapshot).partition("held-out text")[2]
    assert f": Q=K ({snapshot.eval_steps[1]:,})." in advice
    assert advice.endswith("The loss still falls: QKV. More steps help.")
    assert "More steps" not in summary.finding(replace(snapshot, status="running"))
    loss, lost = np.full((2, 5), NAN), np.full((3, 5), NAN)
    loss[0] = to_beat - 0.5
    assert summary.finding(ended("language", loss=loss)).endswith(f"{simple} Q=K diverged.")
    assert summary.finding(ended("language", lost, lost)).startswith("Training failed")


def test_tables_miss_what_a_task_or_a_run_does_not_have():
    """Groups of questions, too: a run without such an answer is left out of the mean."""
    table = summary.run_table(train(tiny("phonebook", sharing=["QKV"], steps=2), "cpu").snapshot)
    assert table[["mass_on_reverse", "training_accuracy"]].isna().all(axis=None)
    assert table["mass_on_target"].notna().all()
    recall = ended("mqar", np.zeros((2, 5)))
    shares = np.full((10, 2), NAN, np.float32)
    shares[:5, 0] = [0.0, 0.5, 1.0, 0.5, NAN]
    shares[5:, 1] = 0.25
    table = summary.slice_table(replace(recall, slice_accuracy=shares))
    names = recall.experiment.task.slice_names
    assert table["sharing"].tolist() == ["QKV", "Q=K"]
    np.testing.assert_allclose(table[list(names)].to_numpy(), [[0.5, NAN], [NAN, 0.25]])
    assert list(summary.slice_table(ended("directed", np.zeros((2, 5)))).columns) == ["sharing"]


def test_every_column_of_the_tables_is_the_number_that_its_name_says(seed):
    """By run, then as means over seeds, without what is lost: the last seed of K=V diverges."""
    draw = np.random.default_rng([43, seed])
    experiment = tiny("directed", sharing=["QKV", "Q=K", "K=V"], n_seeds=2, first_seed=7)
    rows = draw.uniform(0.2, 0.9, (7, 3, 2))
    rows[2:5, 0, 0] = rows[3:6, 1, 0] = rows[1:4, 1, 1] = 1.0
    rows[4:, 2, 1] = NAN
    lost = [[-1, -1], [-1, -1], [-1, 5]]
    snapshot = finished(experiment, rows, draw.uniform(1, 2, rows.shape), diverged_at=lost)
    others = set(snapshot.history) - {"accuracy", "loss"}
    drawn = {name: draw.uniform(-1, 1, (7, 6)).astype(np.float32) for name in sorted(others)}
    snapshot = replace(snapshot, history=snapshot.history | drawn)
    table, steps = summary.run_table(snapshot), snapshot.eval_steps
    last = {name: values[-1].astype(float) for name, values in snapshot.history.items()}
    costs = [experiment.costs(variant) for variant, _ in experiment.runs]
    expected = last | {
        "seed": [7, 8] * 3,
        "steps_to_threshold": [steps[2], NAN, steps[3], steps[1], NAN, NAN],
        "asymmetry": (1 - last["score_symmetry"]) / 2,
        "diverged_at": [NAN] * 5 + [5],
        "attention_parameters": [cost.attention for cost in costs],
        "parameters": [cost.parameters for cost in costs],
        "kv_cache_floats_per_token": [cost.kv_cache for cost in costs],
        "multiply_adds_per_token": [cost.multiply_adds for cost in costs],
    }
    assert table["sharing"].tolist() == ["QKV"] * 2 + ["Q=K"] * 2 + ["K=V"] * 2
    assert set(table) == {"sharing", *expected}
    of_sharing = summary.sharing_table(snapshot)
    by_seed = {name: np.reshape(values, (3, 2)) for name, values in expected.items()}
    accuracy = mean_interval(by_seed["accuracy"])
    gap = mean_interval(by_seed["accuracy"] - by_seed["accuracy"][0])
    summed = set(SHOWN) & set(of_sharing) - {"accuracy"}
    assert {"loss", "asymmetry", "mass_on_target", "mass_on_reverse"} <= summed
    costs = [name for name in of_sharing if name.endswith("per_token") or name == "parameters"]
    means = {name: mean_interval(by_seed[name]).mean for name in summed} | {
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
    assert set(of_sharing) == {"sharing", *means}
    for found, known in ((table, expected), (of_sharing, means)):
        for name, values in known.items():
            told = found[name].astype(float)
            np.testing.assert_allclose(told, values, atol=1e-6, err_msg=name)


def test_numbers_in_words_claim_no_more_than_what_is_known():
    """Limits that are shown alike are one; rounding never claims perfection, a limit or zero."""
    for low, high, said in (
        (0.41, 0.59, "41 to 59%"),
        (0.993, 1.02, "99 to 100%"),
        (0.501, 0.503, "50%"),
        (-0.1, 0.2, "0 to 20%"),
        (NAN, NAN, ""),
    ):
        assert summary.percent_interval(low, high) == said
    assert [summary.percent(share) for share in (1, 0.9996, 0.5)] == ["100%", "99%", "50%"]
    random = np.random.default_rng(8)
    for limit in (0.98, 0.99, 0.5):
        for below in 10 ** random.uniform(-5, -1, 200):
            assert summary.percent_beside(limit - below, limit) != summary.percent(limit)
            other = limit + below * random.choice([-1, 1])
            one, another = summary.two_numbers(limit, other, same=False)
            assert one != another
            assert len(set(summary.two_numbers(limit, other, same=True))) == 1
            assert summary.two_decimals(below) != "0.00" == summary.two_decimals(0.0)
    space = "\N{NARROW NO-BREAK SPACE}"
    with reading("de"):
        shares = [summary.percent(share) for share in (1, 0.5, NAN)]
        assert shares == [f"100{space}%", f"50{space}%", "–"]
        assert (summary.percent_limits(0.501, 0.503), summary.whole_percent(0.501)) == ("", 50)
        assert summary.percent_limits(0.41, 0.59, "({})").endswith(f"59{space}%)")
        assert summary.two_decimals(-12345.6) == f"−12{space}346"
    assert summary.two_decimals(-12345.6) == "−12,346"

    # Scores are the same both ways if no seed is different, by the exact difference.
    example = ended("directed", np.zeros((1, 5)))
    for error, symmetry, told in (
        ([ROUNDING] * 5, 1.0, "the same both ways"),
        ([0, 0, 2 * ROUNDING, 0, 0], 1.0, ""),
        ([0.1] * 5, 0.9946, "0.0027"),
    ):
        symmetries = np.full((4, 5), symmetry, np.float32)
        rows = {"symmetry_error": np.float32([error] * 4), "score_symmetry": symmetries}
        changed = replace(example, history=example.history | rows)
        text = summary.asymmetry_in_words(changed, changed.experiment.sharing[0])
        assert told in text
        assert ("the same" in text) == ("the same" in told)


def test_a_training_has_failed_only_if_no_run_of_it_has_learnt():
    """Random accuracies, also NaN: one run that has learnt is enough."""
    assert [task for task in TASKS if failure_of(load_example(task)) is not None] == []
    random = np.random.default_rng(4)
    for _ in range(100):
        sharing = [name for name in NAMES if random.random() < 0.6] or ["Q=K"]
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
            assert (failure_of(replace(snapshot, status="running")) is not None) == diverged


def test_the_advice_names_a_setting_as_the_screen_does_and_its_default():
    """It is the learning rate if that is not the default, else the steps."""
    for changes, change in (
        ({"learning_rate": 0.3}, "Lower “Learning rate” (default 0.005)"),
        ({"learning_rate": 0.001, "steps": 600}, "Raise “Learning rate” (default 0.005)"),
        ({"steps": 8}, "Raise “Steps” (default 600)"),
        ({"steps": 700}, "Raise “Steps” (default 600)"),
    ):
        experiment = tiny("phonebook", sharing=["QKV"], n_seeds=1, **changes)
        advice = failure_of(finished(experiment, [[[0.0]]] * 2)).advice
        assert advice.startswith(change)
        assert ("easier" in advice) == (changes == {"steps": 700})
    film = record(tiny("phonebook", sharing=["QKV", "Q=K"], n_seeds=1, learning_rate=1.0))
    for frames, told in ((film.frames, True), (film.frames[:-1], False)):  # pages say it at the end
        shown = inspect(replace(film, frames=frames), Inspection("attention"))
        assert ("Lower “Learning rate”" in shown.header["failure"]) == told
