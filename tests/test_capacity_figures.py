"""Figures of a sweep: Plotly accepts them, they show the table, they say it in words."""

import json
import math
import re
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, made_sweep, without

from attnkit.analysis.boundary import boundary
from attnkit.analysis.capacity import cells, difference, slice_at
from attnkit.figures.capacity import (
    describe_difference,
    describe_phase,
    describe_slice,
    phase_key,
    plot_difference,
    plot_phase,
    plot_slice,
    with_mark,
)
from attnkit.figures.gaps import difference_text
from attnkit.figures.grid import GridAxis, cell_texts
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

X, Y = "d_head", "n_entries"
WHOLE = made_sweep(from_width(QKV=3, KV=6))
HOLED = failed(without(WHOLE, d_head=4, n_entries=8), d_head=12, sharing="K=V", n_entries=4)
TABLE = cells(HOLED)
BOUNDARIES = [boundary(HOLED, name, X, Y) for name in ("QKV", "K=V")]


def accepted(figure):
    """Return the figure as Plotly reads it; it is plain JSON without NaN."""
    return go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def heatmaps(figure, colored=True):
    """Return the traces of cells, those with colours of the scale or the grey ones."""
    traces = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    return [trace for trace in traces if ("coloraxis" in trace) == colored]


@pytest.mark.parametrize("measure", ["accuracy", "steps_to_threshold", "solved"])
@pytest.mark.parametrize(("x", "y"), [(X, Y), (Y, X)])
def test_plotly_accepts_phase_diagrams(x, y, measure):
    """Plotly accepts every measure, also with the axes exchanged."""
    figure = plot_phase(TABLE, x, y, measure, BOUNDARIES)
    assert accepted(figure).layout.height == figure["layout"]["height"]


def test_there_is_a_panel_for_each_variant():
    """With its title, in the colour of the variant, and all on one scale."""
    figure = plot_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    titles = [note["text"] for note in figure["layout"]["annotations"]]
    assert [Sharing.QKV.value in titles[0], Sharing.K_V.value in titles[1]] == [True, True]
    assert COLORS[Sharing.K_V] in titles[1]
    assert len(heatmaps(figure)) == 2
    assert (figure["layout"]["coloraxis"]["cmin"], figure["layout"]["coloraxis"]["cmax"]) == (0, 1)


def test_cells_show_the_measure_and_the_index_of_their_row():
    """The page opens the cell that was clicked."""
    for trace, sharing in zip(heatmaps(plot_phase(TABLE, X, Y)), ("QKV", "K=V"), strict=True):
        for i, entries in enumerate(trace["y"]):
            for j, width in enumerate(trace["x"]):
                row = trace["customdata"][i][j]
                if row is not None:
                    cell = TABLE.loc[row]
                    assert (cell[X], cell[Y], cell["sharing"]) == (width, entries, sharing)
                    value = trace["z"][i][j]
                    assert value is None or value == pytest.approx(cell["accuracy"], abs=1e-4)


def test_cells_that_were_not_run_are_blank():
    """They have neither colour nor text."""
    trace = heatmaps(plot_phase(TABLE, X, Y))[0]
    i, j = trace["y"].index(8), trace["x"].index(4)
    assert [trace[key][i][j] for key in ("z", "hovertext", "customdata")] == [None] * 3


def test_values_that_no_cell_has_yet_keep_their_place():
    """The diagram of a sweep that is being trained does not change its axes."""
    table = TABLE[TABLE[X] <= 3]
    trace = heatmaps(plot_phase(table, X, Y, values={X: WIDTHS, Y: ENTRIES}))[0]
    assert trace["x"] == list(WIDTHS)


def test_failed_cells_are_crossed():
    """The cross says why; a cell that was not run has none."""
    crosses = [t for t in plot_phase(TABLE, X, Y)["data"] if t.get("mode") == "markers"]
    assert [(trace["x"], trace["y"]) for trace in crosses] == [([12], [4])]
    assert "d_head: got 12, allowed less &lt;than&gt; that" in crosses[0]["hovertext"][0]
    assert TABLE.loc[crosses[0]["customdata"][0], "error"] is not None


def test_cells_in_which_no_seed_reached_the_threshold_are_grey():
    """They have no number of steps, but they were run."""
    figure = plot_phase(TABLE, X, Y, "steps_to_threshold")
    grey = heatmaps(figure, colored=False)[0]
    column = grey["x"].index(1)
    assert [line[column] for line in grey["z"]] == [0.0] * len(ENTRIES)
    assert [line[grey["x"].index(16)] for line in grey["z"]] == [None] * len(ENTRIES)


def test_the_key_explains_only_what_is_drawn():
    """Lines, grey, crossed and blank cells are named where the diagram has them."""
    n_cells = len(WIDTHS) * len(ENTRIES)
    assert phase_key(cells(WHOLE), n_cells) == ""
    key = phase_key(TABLE, n_cells, "steps_to_threshold", BOUNDARIES)
    assert re.findall(r"(\w+|×):", key) == ["Grey", "×", "Blank"]
    assert key.startswith("On the line, half of the seeds reach 99%")


def test_the_key_names_failures_beyond_the_band():
    """They would be overlooked otherwise: a wide head that fails is rare."""
    text = "Some seeds fail beyond the band, too."
    n_cells = len(WIDTHS) * len(ENTRIES)
    assert text not in phase_key(TABLE, n_cells, "accuracy", BOUNDARIES)
    unlucky = TABLE.copy()
    wide = unlucky.index[(unlucky[X] == WIDTHS[-1]) & (unlucky["n_seeds"] > 0)][0]
    unlucky.loc[wide, "n_solved"] -= 1
    assert text in phase_key(unlucky, n_cells, "accuracy", BOUNDARIES)


def test_a_chosen_cell_has_a_ring():
    """The ring lies in the panel of its variant, at the values of its axes."""
    figure = plot_phase(TABLE, X, Y)
    row = TABLE[(TABLE["sharing"] == "K=V") & (TABLE[X] == 2) & (TABLE[Y] == 4)]
    *before, dark, pale = with_mark(figure, row.index[0])["data"]
    assert before == figure["data"]
    (cells_of_variant,) = {
        (trace["xaxis"], trace["yaxis"])
        for trace in before
        if trace["type"] == "heatmap" and any(row.index[0] in line for line in trace["customdata"])
    }
    for ring in (dark, pale):
        assert (ring["x"], ring["y"]) == ([2], [4])
        assert (ring["xaxis"], ring["yaxis"]) == cells_of_variant
    assert with_mark(figure, -1) == figure


def test_boundaries_lie_where_they_are():
    """In the panel of their variant, from the lowest edge to the highest."""
    figure = plot_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    white = [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]
    assert [trace["xaxis"] for trace in white] == ["x", "x2"]
    assert white[0]["x"][1:-1] == pytest.approx(BOUNDARIES[0].half)
    assert white[0]["y"][1:-1] == list(ENTRIES)
    assert white[0]["y"][0] == pytest.approx(2 / math.sqrt(2))


def test_boundaries_end_where_they_were_not_found():
    """Rows without one divide the line."""
    result = made_sweep(lambda sharing, point: float(point[X] >= 3 and point[Y] != 4))
    found = boundary(result, "QKV", X, Y)
    figure = plot_phase(cells(result), X, Y, "accuracy", [found])
    white = [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]
    assert [len(trace["x"]) for trace in white] == [3, 4]


def test_boundaries_of_other_axes_are_not_drawn():
    """Their numbers would be read on the wrong axis."""
    n_traces = len(plot_phase(TABLE, Y, X)["data"])
    assert len(plot_phase(TABLE, Y, X, "accuracy", BOUNDARIES)["data"]) == n_traces


@pytest.mark.parametrize(("columns", "rows"), [(5, 1), (2, 3), (1, 5)])
def test_panels_wrap(columns, rows):
    """Panels of one row have equal heights, and none overlaps another."""
    every = ("QKV", "Q=K", "K=V", "Q=V", "Q=K=V")
    table = cells(made_sweep(lambda sharing, point: 1.0, sharing=every))
    figure = plot_phase(table, X, Y, columns=columns)
    heights = {
        tuple(np.round(axis["domain"], 4))
        for name, axis in figure["layout"].items()
        if name.startswith("yaxis")
    }
    assert len(heights) == rows
    ordered = sorted(heights)
    assert all(a[1] < b[0] for a, b in pairwise(ordered))


def test_a_sweep_with_one_axis_is_one_row_of_cells():
    """Its boundary is an upright line."""
    result = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})
    found = boundary(result, "QKV", X)
    figure = plot_phase(cells(result), X, None, "accuracy", [found])
    accepted(figure)
    assert len(heatmaps(figure)[0]["z"]) == 1
    white = next(t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff")
    assert len(set(white["x"])) == 1


def test_axes_of_texts_and_numbers_with_zero_have_equal_distances():
    """They have no logarithm; a boundary is drawn between the values."""
    result = made_sweep(
        lambda sharing, point: float(point["d_mlp"] >= 16),
        axes={"d_mlp": (0, 8, 16, 32), "positions": ("none", "learned")},
    )
    found = boundary(result, "QKV", "d_mlp", "positions")
    figure = plot_phase(cells(result), "d_mlp", "positions", "accuracy", [found])
    accepted(figure)
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "8", "16", "32"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["none", "learned"]
    white = [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]
    assert len(white) == 2  # texts are not connected
    assert 1 < white[0]["x"][0] < 2


def test_labels_of_ticks_do_not_overlap():
    """Powers of two come first, where there is no room for all."""
    labels = GridAxis("d_head", WIDTHS).layout(160)["ticktext"]
    assert labels == ["1", "2", "", "4", "", "8", "", "16"]
    assert GridAxis("d_head", WIDTHS).layout(1000)["ticktext"] == [str(w) for w in WIDTHS]


def test_a_phase_diagram_of_nothing_is_empty():
    """A sweep that has just begun has no cells."""
    accepted(plot_phase(TABLE[:0], X, Y, values={X: WIDTHS, Y: ENTRIES}))
    accepted(plot_phase(TABLE[:0], X, Y, "steps_to_threshold"))
    assert "Nothing has been trained" in describe_phase(TABLE[:0], X, Y)


def test_a_phase_diagram_is_described():
    """Each variant with its range, its solved cells and its boundary."""
    text = describe_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    assert text.startswith("Accuracy by Head width and Entries. QKV: 31 cells, 0% to 100%, ")
    assert "all seeds solve 23 of them, boundary at Head width 2.5 to 2.5" in text


def test_the_text_of_a_cell_has_all_its_numbers():
    """One line each."""
    row = TABLE[(TABLE[X] == 16) & (TABLE["sharing"] == "K=V")][:1]
    assert cell_texts(row, [X, Y])[0].split("<br>") == [
        "<b>K=V</b>",
        "Head width 16, Entries 2",
        "accuracy 100%",
        "5 of 5 seeds solve it, after 202 steps on average",
        "learning rate 0.005",
        "Attention parameters 640",
        "Parameters of the whole model 1,640",
        "KV-cache floats per token 32",
        "Multiply-adds per token 1,600",
    ]


@pytest.mark.parametrize("measure", ["accuracy", "steps_to_threshold", "solved"])
def test_slices_have_a_line_for_each_variant(measure):
    """Sorted along the axis; failed cells are left out."""
    table = slice_at(TABLE, {Y: 4})
    figure = plot_slice(table, X, measure)
    accepted(figure)
    assert len(figure["data"]) == 2
    assert len(figure["data"][0]["x"]) == len(WIDTHS)
    assert len(figure["data"][1]["x"]) == len(WIDTHS) - 1
    assert figure["data"][0]["x"] == sorted(figure["data"][0]["x"])
    assert (
        figure["data"][1]["customdata"]
        == table.index[(table["sharing"] == "K=V") & (table["n_seeds"] > 0)].tolist()
    )


def test_a_slice_along_texts_is_drawn():
    """In the order of the sweep."""
    result = made_sweep(lambda *_: 1.0, axes={"positions": ("none", "learned")})
    figure = plot_slice(cells(result), "positions")
    accepted(figure)
    assert describe_slice(cells(result), "positions") == (
        "Accuracy by Positions. QKV none: 100%, learned: 100%; K=V none: 100%, learned: 100%."
    )


def test_slices_without_a_number_are_described():
    """No seed reached the threshold."""
    table = cells(made_sweep(lambda *_: 0.0, axes={X: (2, 4)}))
    accepted(plot_slice(table, X, "steps_to_threshold"))
    assert describe_slice(table, X, "steps_to_threshold") == (
        "Steps to 99% by Head width. QKV none; K=V none."
    )


@pytest.mark.parametrize("measure", ["accuracy", "steps_to_threshold"])
@pytest.mark.parametrize("y", [Y, None])
def test_plotly_accepts_differences(measure, y):
    """Over two axes and one."""
    result = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS}) if y is None else HOLED
    accepted(plot_difference(difference(result, "K=V", "QKV"), X, y, ("K=V", "QKV"), measure))


def test_numbers_stand_where_the_interval_excludes_zero():
    """They are those of the cells that are marked in the table."""
    table = difference(HOLED, "K=V", "QKV")
    figure = plot_difference(table, X, Y, ("K=V", "QKV"))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}


def test_the_scale_of_differences_is_symmetric():
    """No difference has the colour of the page."""
    table = difference(HOLED, "K=V", "QKV")
    axis = plot_difference(table, X, Y, ("K=V", "QKV"))["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1


@pytest.mark.parametrize(
    ("value", "measure", "text"),
    [
        (0.123, "accuracy", "+12"),
        (-0.5, "accuracy", "−50"),
        (-0.001, "accuracy", "0"),
        (1.0, "steps_to_threshold", "×2.0"),
        (-2.0, "steps_to_threshold", "×0.25"),
        (math.nan, "accuracy", "–"),
    ],
)
def test_differences_as_texts(value, measure, text):
    """Points with their sign, ratios of steps."""
    assert difference_text(value, measure) == text


def test_differences_are_described():
    """How many cells are clear, and for which variant."""
    text = describe_difference(difference(HOLED, "K=V", "QKV"), X, Y, ("K=V", "QKV"))
    assert text == (
        "Accuracy, K=V minus QKV, by Head width and Entries. 30 cells, −100 to 0; it is clearly "
        "higher for K=V in 0 of them, and for QKV in 7."
    )
    empty = difference(HOLED, "Q=V", "QKV")
    assert describe_difference(empty, X, Y, ("Q=V", "QKV")).endswith("No cell has both.")
