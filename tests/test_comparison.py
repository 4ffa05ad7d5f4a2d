"""Finished experiments beside each other: sentences, tables, raw data, curves and replays."""

import csv
import io
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from finished import THREE_SEEDS, finished, letters, one_variant
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import tiny
from plotted import unpacked
from searching import briefly
from test_statistics import expected_of

from attnkit.analysis.comparison import (
    ABSENT,
    LETTERS,
    differences_between,
    differences_within,
    evaluation_table,
    n_evaluations,
    settings_table,
    summary_table,
    to_json,
    variants_of,
)
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.reached import comparison_in_words, in_a_cell, levels_in_words, metric_of
from attnkit.figures.overlay import INK, STYLES, plot_overlay, style_of
from attnkit.figures.panels import MAX_POINTS
from attnkit.figures.replay import replay
from attnkit.training.metrics import METRICS
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, FURTHER

FIVE = [Variant(text) for text in ("QKV", "Q=K", "K=V", "Q=V", "Q=K=V")]
SEVEN = [*FIVE, Variant("Q=K signed"), Variant("QKV sum")]
QKV, Q_K = FIVE[:2]
NONE = math.nan
SHARES = st.floats(0, 1, width=32)


def close(values):
    """Return what numbers of single precision are compared with."""
    return pytest.approx(values, abs=1e-6, nan_ok=True)


def two(accuracy, diverged_at=None, **given):
    """Return a finished experiment on two variants; all seeds end with these accuracies."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], **given)
    rising = np.array([[0.1, 0.1], accuracy])[:, :, None] + np.zeros((2, 2, experiment.n_seeds))
    return finished(experiment, rising, diverged_at=diverged_at)


LOST = two([1, NONE], diverged_at=[[-1, -1], [5, 5]])
"""All seeds of Q=K diverged."""

# sentences


def test_levels_are_told_from_the_best_to_the_last():
    """Numbers that read alike are one level, variants without a result are named."""
    for means, parts in (
        ([0.97], "QKV reaches 97%"),
        ([NONE], "QKV has no result"),
        ([1, 1], "Both | 100%"),
        ([0.999, 1], "Q=K reaches 100% | QKV 99%"),
        ([0.991, 0.999], "Both | 99%"),
        ([1, NONE], "QKV reaches 100% | Q=K has no result"),
        ([1, 1, NONE], "QKV and Q=K reach 100% | K=V has no result"),
        ([NONE, NONE], "QKV and Q=K have no result"),
        ([1] * 5, "All 5 variants reach 100%"),
        ([1, 0.49, 1, 1, 0.4], "QKV, K=V and Q=V reach 100% | Q=K 49%, Q=K=V 40%."),
        ([1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "QKV reaches 100% | Q=K comes last with 10%."),
        ([0.1, 1, 1, 1, 1, 1, 0.1], "and Indefinite reach 100% | QKV and Two scores come last"),
    ):
        sentence = levels_in_words(SEVEN[: len(means)], means, "accuracy")
        assert all(part in sentence for part in parts.split(" | ")), sentence
        assert ("accuracy" in sentence) == ("%" in sentence)
    for means, parts in (
        ([2.5, 2.25], "Q=K has a loss of 2.25, QKV 2.50."),
        ([2.251, 2.249], "Both variants have a loss of 2.25."),
        ([NONE, 2.25], "2.25, QKV has no result."),
    ):
        assert levels_in_words(FIVE[:2], means, "loss").endswith(parts)
    assert levels_in_words(FIVE[:2], [1, 1], "accuracy", "At 2, ").startswith("At 2, both")


def test_a_comparison_names_the_variant_that_differs_most():
    """The conclusion is about variants that several experiments have, whatever their tasks."""
    seeds, other = one_variant(THREE_SEEDS), tiny("directed", sharing=["K=V"])
    for snapshots, parts in (
        ([two([1, 0.5]), two([1, 0.9])], "Q=K differs most: 50% in A, 90% in B."),
        ([two([1, 0.5])] * 2, "Every variant | A and B share | the same"),
        ([two([a, 0.5]) for a in (1, 1, 0.25)], "QKV differs most: 100% in A, 100% in B, 25% in C"),
        ([two([0.25, 0.5]), seeds], "QKV differs: 25% in A, 70% in B."),
        ([seeds, one_variant(THREE_SEEDS, kind="reverse")], "QKV has the same | in A and B."),
        ([seeds, finished(other, np.zeros((2, 1, 2)))], "A and B | no variant in common"),
        ([LOST, two([1, 0.5])], "QKV has the same"),
        ([two([0.9, 0.5]), two([0.9001, 0.5])], "about the same"),
    ):
        sentence = comparison_in_words(letters(*snapshots))
        assert all(part in sentence for part in parts.split(" | ")), sentence
        assert ("about" in sentence) == ("about" in parts)
    assert in_a_cell(two([1, 0.5])) == "QKV 100%, Q=K 50%"
    assert in_a_cell(LOST) == "QKV 100%, Q=K diverged"
    text = tiny("language", sharing=["QKV"])
    assert in_a_cell(finished(text, np.full((2, 1, text.n_seeds), 0.25))) == "loss: QKV 0.75"
    five = finished(tiny("directed", n_seeds=1), np.zeros((2, 5, 1)))
    assert in_a_cell(five) == "QKV 0%, Q=K 0%, K=V 0%, Q=V 0%, …"


def film_of(snapshot, variants):
    """Return the curves of some variants."""
    return InspectionResult.from_bytes(replay(snapshot, variants, metric_of([snapshot])))


def test_a_replay_has_the_means_and_limits_of_every_stored_evaluation():
    """And a sentence for each; a long history is thinned, but for its end."""
    film = film_of(one_variant(THREE_SEEDS), FIVE[:1])
    assert film.framed["accuracy"][:, 0] == pytest.approx([0.2, 1.7 / 3, 0.7])
    low, high = film.framed["accuracy_low"][:, 0], film.framed["accuracy_high"][:, 0]
    assert (low < film.framed["accuracy"][:, 0]).all()
    assert ((low >= 0) & (high <= 1)).all()
    assert film.header["steps"] == [0, 4, 8]
    told = film.header["sentences"]["conclusion"]
    for sentence, parts in zip(told, ("Untrained 20%", "4, 57%", "8, 70%"), strict=True):
        assert all(part in sentence for part in parts.split())
    both, second = (film_of(two([1, 0.5]), variants) for variants in (FIVE[:2], FIVE[1:2]))
    assert second.header["variants"] == both.header["variants"][1:]  # with its own colour
    assert list(both.header["curves"]) == ["accuracy", "loss"]
    assert "3 seeds; bands: 95%" in film.header["hints"]["accuracy"]
    assert "2 seeds" in both.header["hints"]["loss"]
    assert "bands" not in both.header["hints"]["loss"]
    accuracy = np.linspace(0, 1, 1001)[:, None] * [1.0, 1.0]
    header = film_of(one_variant(accuracy, steps=1000), FIVE[:1]).header
    assert len(header["steps"]) < 200
    assert header["steps"][-1] == 1000
    assert "1000, QKV reaches 100%" in header["sentences"]["conclusion"][-1]


# tables


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
        row = summary_table(letters(snapshot), metric).iloc[0]
        assert (row["seeds"], row["diverged"]) == (5, len(lost))
        expected = expected_of(of[2].astype(float))
        assert row[["last", "low", "high", "sd"]].tolist() == close(expected)
        over_training = [of.mean(), best(of)] if of.size else [np.nan, np.nan]
        assert row[["mean", "best"]].tolist() == close(over_training)


def test_only_solved_seeds_and_evaluations_of_what_a_variant_becomes_count():
    """Seed 0 is at the threshold from step 2 on; before it is tied, a variant is another model."""
    accuracy = [[0.1, 0.1], [1, 0.5], [1, 0.5], [1, 0.9], [1, 0.9]]
    row = summary_table(letters(one_variant(accuracy)), "accuracy").iloc[0]
    assert (row["solved"], row["seeds"], row["steps_to_threshold"]) == (1, 2, 2)
    experiment = tiny("directed", sharing=["QKV tie=K=V tie_at=0.5"], n_seeds=1)
    snapshot = finished(experiment, np.array([0.1, 0.9, 0.3, 0.5, 0.4])[:, None, None])
    row = summary_table(letters(snapshot), "accuracy").iloc[0]
    assert row[["best", "mean"]].tolist() == close([0.5, 0.4])


def test_settings_that_differ_are_told_and_no_others():
    """A dial that the other task lacks differs, too; one alone is told beside the defaults."""
    first = one_variant([[0.1], [0.2]], d_head=3)
    other = one_variant([[0.1], [0.2]], d_head=5, steps=12, self_mask=False)
    table = settings_table(letters(first, other)).set_index("Setting")
    assert table["A"].to_dict() == {"Head width": "3", "Self-mask": "yes", "Steps": "8"}
    assert table["B"].to_dict() == {"Head width": "5", "Self-mask": "no", "Steps": "12"}
    foreign = one_variant([[0.1], [0.2]], kind="reverse")
    told = settings_table(letters(first, foreign)).set_index("Setting")
    assert told.loc["Task"].tolist() == ["Directed relation", "Reverse"]
    assert all(ABSENT in told[letter].tolist() for letter in "AB")
    table = settings_table(letters(first)).set_index("Setting")
    assert list(table.columns) == ["A", "Default"]
    assert table.loc[["Variants", "Steps"], "A"].tolist() == ["QKV", "8"]
    pairs = [["Q=K", "QKV"], ["K=V", "QKV"]]
    both = [finished(tiny("directed", sharing=p, n_seeds=1), np.zeros((2, 2, 1))) for p in pairs]
    assert variants_of(letters(*both)) == [QKV, Q_K, Variant("K=V")]


@given(
    hnp.arrays(np.float32, (2, 5), elements=SHARES | st.just(np.nan)),
    st.integers(0, 7),
    st.sampled_from(["directed", "reverse"]),
)
def test_experiments_are_paired_over_the_seeds_that_both_have(last, first_seed, kind):
    """On the same task; a seed that diverged is no pair, and without pairs no number is made up."""
    other = one_variant(last[1:], kind=kind, first_seed=first_seed)
    first, other = letters(one_variant(last[:1]), other)
    gaps = last[1, : max(0, 5 - first_seed)] - last[0, first_seed:]
    gaps = gaps[~np.isnan(gaps)] if kind == "directed" else gaps[:0]
    there = differences_between([first, other], first, "accuracy").iloc[0]
    back = differences_between([first, other], other, "accuracy").iloc[0]
    assert (there["experiment"], back["experiment"]) == ("B", "A")
    assert there["n_pairs"] == back["n_pairs"] == len(gaps)
    expected = expected_of(gaps.astype(float))[:3]
    assert there[["difference", "low", "high"]].tolist() == close(expected)
    assert (-back[["difference", "high", "low"]]).tolist() == close(expected)


def test_variants_are_paired_by_seed_within_an_experiment():
    """Gaps −0.1, −0.3, −0.2, whatever the seeds themselves spread."""
    qkv, tied = np.array([0.3, 0.9, 0.6]), np.array([0.2, 0.6, 0.4])
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3)
    compared = letters(finished(experiment, np.stack([qkv, tied])[None]))
    row = differences_within(compared, QKV, "accuracy").iloc[0]
    assert (row["sharing"], row["n_pairs"]) == ("Q=K", 3)
    expected = expected_of((tied - qkv).astype(float))[:3]
    assert row[["difference", "low", "high"]].tolist() == close(expected)
    assert differences_within(compared, Variant("K=V"), "accuracy").empty


# raw data


@given(hnp.arrays(np.float32, (7, 2, 3), elements=SHARES | st.just(np.nan)))
@briefly(40)
def test_raw_data_as_csv_are_every_number_to_the_last_bit(accuracy):
    """Nothing is thinned or rounded: the file read back is the history."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3, first_seed=11)
    compared = letters(finished(experiment, accuracy))
    text = evaluation_table(compared).to_csv(index=False)
    back = list(csv.DictReader(io.StringIO(text)))
    assert len(back) == n_evaluations(compared) == 7 * 6
    for run, (variant, seed) in enumerate(experiment.runs):
        rows = [row for row in back if (row["sharing"], row["seed"]) == (variant.value, str(seed))]
        assert [int(row["step"]) for row in rows] == compared[0].snapshot.eval_steps.tolist()
        found = np.array([row["accuracy"] or "nan" for row in rows], np.float32)
        np.testing.assert_array_equal(found, accuracy.reshape(7, 6)[:, run])


def test_raw_data_tell_the_settings_that_differ():
    """A column each, so that rows of several experiments can be told apart; JSON has all."""
    first, other = one_variant([[0.1], [0.2]], d_head=3), one_variant([[0.1], [0.2]], d_head=5)
    table = evaluation_table(letters(first, other))
    widths = {first.experiment.hash: 3, other.experiment.hash: 5}
    assert table.groupby("experiment")["d_head"].first().to_dict() == widths
    assert not {"n_values", "steps", "n_seeds"} & set(table.columns)
    assert set(METRICS) <= set(table.columns)
    compared = letters(one_variant([[0.25, np.nan], [0.5, np.nan]], first_seed=3))
    (told,) = json.loads(to_json(compared), parse_constant=pytest.fail)["experiments"]
    assert (told["name"], told["experiment"]["first_seed"]) == ("name A", 3)
    assert told["eval_steps"] == [0, 8]
    assert [run["history"]["accuracy"] for run in told["runs"]] == [[0.25, 0.5], [None, None]]


# curves over each other


def lines(figure):
    """Return the traces that speak when pointed at: the means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


def test_every_experiment_with_a_variant_has_a_line_in_its_panel():
    """Panels are variants; letters, colours and dashes are experiments, all of them different."""
    both = finished(tiny("directed", sharing=["QKV", "Q=K"]), np.full((3, 2, 2), 0.5))
    compared = letters(both, one_variant(THREE_SEEDS))
    figure = plot_overlay(compared, [QKV, Q_K], "loss")
    go.Figure(figure)
    found = [(t["xaxis"], t["hovertemplate"][0], t["line"].get("color")) for t in lines(figure)]
    colors = [style_of(one)[0] for one in compared]
    assert colors[0] == INK
    assert found == [("x", "A", None), ("x", "B", colors[1]), ("x2", "A", None)]
    letters_drawn = [(t["xaxis"], t["text"]) for t in figure["data"] if t["mode"] == "text"]
    assert letters_drawn == [("x", ["A"]), ("x", ["B"]), ("x2", ["A"])]
    assert len(set(STYLES)) == len(STYLES) == len(LETTERS)
    assert not {color for color, _ in STYLES} & {*COLORS.values(), *FURTHER}
    first, other = one_variant(THREE_SEEDS), one_variant(THREE_SEEDS, kind="reverse")
    chance = f"chance {percent(first.experiment.task.chance)}"  # told if it is the same for all
    for snapshots, expected in (
        ((first,), ["A name A", chance]),
        ((first, other), ["A name A", "B name B"]),
    ):
        legend = plot_overlay(letters(*snapshots), [], "accuracy")["layout"]["meta"]["legend"]
        assert [entry["text"] for entry in legend] == expected


def test_lines_are_means_over_seeds_of_the_full_history():
    """The thinned curve keeps first and last evaluation; letters of equal lines do not overlap."""
    accuracy = np.linspace(0, 1, 4 * MAX_POINTS)[:, None] * [1.0, 0.5]
    line = lines(plot_overlay(letters(one_variant(accuracy, steps=1000)), [QKV], "accuracy"))[0]
    drawn = unpacked(line["y"]["bdata"])
    assert len(drawn) == MAX_POINTS
    assert (drawn[0], drawn[-1]) == (0.0, pytest.approx(0.75))
    same = [one_variant(np.full((40, 2), 1.0), steps=1000, first_seed=i) for i in range(8)]
    figure = plot_overlay(letters(*same), [QKV], "accuracy")
    places = [float(unpacked(t["x"]["bdata"])[0]) for t in figure["data"] if t["mode"] == "text"]
    assert places == sorted(set(places))
    assert len(places) == len(LETTERS)
