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


def test_plotly_accepts_every_figure_of_every_measure():
    """Also with the axes exchanged, over one axis, and of nothing."""
    line = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})
    for measure in ("accuracy", "steps_to_threshold", "solved"):
        for x, y in ((X, Y), (Y, X)):
            accepted(plot_phase(TABLE, x, y, measure, BOUNDARIES))
        accepted(plot_phase(TABLE[:0], X, Y, measure, values={X: WIDTHS, Y: ENTRIES}))
        accepted(plot_slice(slice_at(TABLE, {Y: 4}), X, measure))
    for result, y in ((HOLED, Y), (line, None)):
        for measure in ("accuracy", "steps_to_threshold"):
            table = difference(result, "K=V", "QKV")
            accepted(plot_difference(table, X, y, ("K=V", "QKV"), measure))
    assert "Nothing has been trained" in describe_phase(TABLE[:0], X, Y)


def edges(figure):
    """Return the lines of boundaries."""
    return [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]


def test_there_is_a_panel_for_each_variant():
    """With its title, in the colour of the variant, and all on one scale."""
    figure = plot_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    first, second, *_ = (note["text"] for note in figure["layout"]["annotations"])
    assert Sharing.QKV.value in first
    assert Sharing.K_V.value in second
    assert COLORS[Sharing.K_V] in second
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
    """They have neither colour nor text; cells that ran without a number of steps are grey."""
    trace = heatmaps(plot_phase(TABLE, X, Y))[0]
    i, j = trace["y"].index(8), trace["x"].index(4)
    assert [trace[key][i][j] for key in ("z", "hovertext", "customdata")] == [None] * 3
    narrow = plot_phase(TABLE[TABLE[X] <= 3], X, Y, values={X: WIDTHS, Y: ENTRIES})
    assert heatmaps(narrow)[0]["x"] == list(WIDTHS)
    figure = plot_phase(TABLE, X, Y, "steps_to_threshold")
    grey = heatmaps(figure, colored=False)[0]
    column = grey["x"].index(1)
    assert [line[column] for line in grey["z"]] == [0.0] * len(ENTRIES)
    assert [line[grey["x"].index(16)] for line in grey["z"]] == [None] * len(ENTRIES)


def test_failed_cells_are_crossed():
    """The cross says why; a cell that was not run has none."""
    crosses = [t for t in plot_phase(TABLE, X, Y)["data"] if t.get("mode") == "markers"]
    assert [(trace["x"], trace["y"]) for trace in crosses] == [([12], [4])]
    assert "d_head: got 12, allowed less &lt;than&gt; that" in crosses[0]["hovertext"][0]
    assert TABLE.loc[crosses[0]["customdata"][0], "error"] is not None


def test_the_key_explains_only_what_is_drawn():
    """Lines, grey, crossed and blank cells are named where the diagram has them."""
    n_cells = len(WIDTHS) * len(ENTRIES)
    assert phase_key(cells(WHOLE), n_cells) == ""
    key = phase_key(TABLE, n_cells, "steps_to_threshold", BOUNDARIES)
    assert re.findall(r"(\w+|×):", key) == ["Grey", "×", "Blank"]
    assert key.startswith("On the line, half of the seeds reach 99%")
    text = "Some seeds fail beyond the band, too."  # a wide head that fails is rare
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
    """They end where none was found, in the panel of their variant; other axes have none."""
    figure = plot_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    white = edges(figure)
    assert [trace["xaxis"] for trace in white] == ["x", "x2"]
    assert white[0]["x"][1:-1] == pytest.approx(BOUNDARIES[0].half)
    assert white[0]["y"][1:-1] == list(ENTRIES)
    assert white[0]["y"][0] == pytest.approx(2 / math.sqrt(2))
    result = made_sweep(lambda sharing, point: float(point[X] >= 3 and point[Y] != 4))
    found = boundary(result, "QKV", X, Y)
    assert [len(trace["x"]) for trace in edges(plot_phase(cells(result), X, Y, "accuracy", [found]))
            ] == [3, 4]  # fmt: skip
    assert edges(plot_phase(TABLE, Y, X, "accuracy", BOUNDARIES)) == []


def test_panels_wrap():
    """Panels of one row have equal heights, and none overlaps another."""
    every = ("QKV", "Q=K", "K=V", "Q=V", "Q=K=V")
    table = cells(made_sweep(lambda sharing, point: 1.0, sharing=every))
    for columns, rows in ((5, 1), (2, 3), (1, 5)):
        layout = plot_phase(table, X, Y, columns=columns)["layout"]
        heights = {
            tuple(np.round(axis["domain"], 4))
            for name, axis in layout.items()
            if name.startswith("yaxis")
        }
        assert len(heights) == rows
        assert all(a[1] < b[0] for a, b in pairwise(sorted(heights)))


def test_a_sweep_with_one_axis_is_one_row_of_cells():
    """Its boundary is an upright line."""
    result = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})
    found = boundary(result, "QKV", X)
    figure = plot_phase(cells(result), X, None, "accuracy", [found])
    accepted(figure)
    assert len(heatmaps(figure)[0]["z"]) == 1
    (white,) = edges(figure)
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
    white = edges(figure)
    assert len(white) == 2  # texts are not connected
    assert 1 < white[0]["x"][0] < 2


def test_labels_of_ticks_do_not_overlap():
    """Powers of two come first, where there is no room for all."""
    labels = GridAxis("d_head", WIDTHS).layout(160)["ticktext"]
    assert labels == ["1", "2", "", "4", "", "8", "", "16"]
    assert GridAxis("d_head", WIDTHS).layout(1000)["ticktext"] == [str(w) for w in WIDTHS]


def test_a_phase_diagram_is_described():
    """Each variant with its range, its solved cells and its boundary."""
    text = describe_phase(TABLE, X, Y, "accuracy", BOUNDARIES)
    assert text.startswith("Accuracy by Head width and Entries. QKV: 31 cells, 0% to 100%, ")
    assert "all seeds solve 23 of them, boundary at Head width 2.5 to 2.5" in text


def test_the_text_of_a_cell_has_its_numbers():
    """One line each: place, accuracy, seeds, and costs of the cell."""
    row = TABLE[(TABLE[X] == 16) & (TABLE["sharing"] == "K=V")][:1]
    lines = cell_texts(row, [X, Y])[0].split("<br>")
    assert lines[:3] == ["<b>K=V</b>", "Head width 16, Entries 2", "accuracy 100%"]
    assert "5 of 5 seeds solve it, after 202 steps on average" in lines
    assert "KV-cache floats per token 32" in lines


def test_slices_have_a_line_for_each_variant():
    """Sorted along the axis; failed cells are left out."""
    table = slice_at(TABLE, {Y: 4})
    for measure in ("accuracy", "steps_to_threshold", "solved"):
        first, second = plot_slice(table, X, measure)["data"]
        assert (len(first["x"]), len(second["x"])) == (len(WIDTHS), len(WIDTHS) - 1)
        assert first["x"] == sorted(first["x"])
        drawn = table.index[(table["sharing"] == "K=V") & (table["n_seeds"] > 0)]
        assert second["customdata"] == drawn.tolist()


def test_slices_along_texts_and_without_a_number_are_described():
    """Texts are in the order of the sweep; no seed may have reached the threshold."""
    result = made_sweep(lambda *_: 1.0, axes={"positions": ("none", "learned")})
    accepted(plot_slice(cells(result), "positions"))
    assert describe_slice(cells(result), "positions") == (
        "Accuracy by Positions. QKV none: 100%, learned: 100%; K=V none: 100%, learned: 100%."
    )
    table = cells(made_sweep(lambda *_: 0.0, axes={X: (2, 4)}))
    accepted(plot_slice(table, X, "steps_to_threshold"))
    assert describe_slice(table, X, "steps_to_threshold") == (
        "Steps to 99% by Head width. QKV none; K=V none."
    )


def test_numbers_stand_where_the_interval_excludes_zero():
    """They are those of the cells that are marked in the table."""
    table = difference(HOLED, "K=V", "QKV")
    figure = plot_difference(table, X, Y, ("K=V", "QKV"))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}


def test_differences_as_texts():
    """Points with their sign, ratios of steps, on a scale without the colour of the page."""
    told = {0.123: "+12", -0.5: "−50", -0.001: "0", math.nan: "–"}
    assert [difference_text(value, "accuracy") for value in told] == list(told.values())
    assert difference_text(1.0, "steps_to_threshold") == "×2.0"
    assert difference_text(-2.0, "steps_to_threshold") == "×0.25"
    table = difference(HOLED, "K=V", "QKV")
    axis = plot_difference(table, X, Y, ("K=V", "QKV"))["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1


def test_differences_are_described():
    """How many cells are clear, and for which variant."""
    text = describe_difference(difference(HOLED, "K=V", "QKV"), X, Y, ("K=V", "QKV"))
    assert text == (
        "Accuracy, K=V minus QKV, by Head width and Entries. 30 cells, −100 to 0; it is clearly "
        "higher for K=V in 0 of them, and for QKV in 7."
    )
    empty = difference(HOLED, "Q=V", "QKV")
    assert describe_difference(empty, X, Y, ("Q=V", "QKV")).endswith("No cell has both.")
