"""Figures of sweeps: phase diagrams, slices and differences."""

import math
import re
from itertools import pairwise, product

import numpy as np
import pytest
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, made_sweep, without
from test_capacity import WHOLE, X, Y, accepted

from attnkit.analysis.boundary import boundary
from attnkit.analysis.capacity import (
    cells,
    difference,
    slice_at,
)
from attnkit.figures.capacity import (
    describe_phase,
    describe_slice,
    phase_key,
    plot_phase,
    plot_slice,
    with_mark,
)
from attnkit.figures.gaps import describe_difference, difference_text, plot_difference
from attnkit.figures.grid import GridAxis, cell_texts
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

STEPS = "steps_to_threshold"
ALL = {X: WIDTHS, Y: ENTRIES}
GAPPY = failed(without(WHOLE, d_head=4, n_entries=8), d_head=12, sharing="K=V", n_entries=4)
CELLS = cells(GAPPY)
BOUNDARIES = [boundary(GAPPY, name, X, Y) for name in ("QKV", "K=V")]
LINE = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})


def heatmaps(figure, colored=True):
    """Return the traces of cells, those with colours of the scale or the grey ones."""
    traces = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    return [trace for trace in traces if ("coloraxis" in trace) == colored]


def edges(figure):
    """Return the lines of boundaries."""
    return [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]


def test_every_cell_stands_in_the_panel_of_its_variant_with_its_value():
    """And with the index of its row, by which the page opens the cell that was clicked."""
    for measure, (x, y) in product(("accuracy", STEPS, "solved"), ((X, Y), (Y, X))):
        figure = accepted(plot_phase(CELLS, x, y, measure, BOUNDARIES))
        shown = {}
        for trace, sharing in zip(heatmaps(figure), ("QKV", "K=V"), strict=True):
            for (i, upwards), (j, across) in product(enumerate(trace["y"]), enumerate(trace["x"])):
                row = trace["customdata"][i][j]
                if row is not None:
                    cell = CELLS.loc[row]
                    assert (cell[x], cell[y], cell["sharing"]) == (across, upwards, sharing)
                    shown[row] = trace["z"][i][j]
        expected = CELLS[measure].reindex(list(shown)).to_numpy(float)
        found = np.array(list(shown.values()), float)
        assert (np.isnan(found) == np.isnan(expected)).all()
        if measure != STEPS:
            assert found == pytest.approx(expected, abs=1e-4, nan_ok=True)
            scale = figure["layout"]["coloraxis"]
            assert (scale["cmin"], scale["cmax"]) == (0, 1)
        assert len(shown) == len(CELLS)
    narrow = plot_phase(CELLS[CELLS[X] <= 3], X, Y, values=ALL)
    assert heatmaps(narrow)[0]["x"] == list(WIDTHS)
    grey = heatmaps(plot_phase(CELLS, X, Y, STEPS), colored=False)[0]
    assert [line[grey["x"].index(1)] for line in grey["z"]] == [0.0] * len(ENTRIES)
    assert [line[grey["x"].index(16)] for line in grey["z"]] == [None] * len(ENTRIES)


def test_panels_are_named_and_wrap():
    """In the colour of the variant; panels of one row have equal heights, and none overlaps."""
    _, second, *_ = (note["text"] for note in plot_phase(CELLS, X, Y)["layout"]["annotations"])
    assert COLORS[Sharing.K_V] in second
    assert Sharing.K_V.value in second
    table = cells(made_sweep(lambda *_: 1.0, sharing=[sharing.value for sharing in Sharing]))
    for columns, rows in ((5, 1), (2, 3)):
        layout = plot_phase(table, X, Y, columns=columns)["layout"]
        axes = [axis for name, axis in layout.items() if name.startswith("yaxis")]
        heights = {tuple(np.round(axis["domain"], 4)) for axis in axes}
        assert len(heights) == rows
        assert all(a[1] < b[0] for a, b in pairwise(sorted(heights)))


def test_marks_are_drawn_where_they_are_and_the_key_explains_only_those():
    """A cross says why a cell failed; one that was not run has none. A chosen cell has a ring."""
    figure, n_cells = plot_phase(CELLS, X, Y), len(WIDTHS) * len(ENTRIES)
    (cross,) = [t for t in figure["data"] if t.get("mode") == "markers"]
    assert (cross["x"], cross["y"]) == ([12], [4])
    assert "d_head: got 12, allowed less &lt;than&gt; that" in cross["hovertext"][0]
    assert CELLS.loc[cross["customdata"][0], "error"] is not None
    assert phase_key(cells(WHOLE), n_cells) == ""
    key = phase_key(CELLS, n_cells, STEPS, BOUNDARIES)
    assert re.findall(r"(\w+|×):", key) == ["Grey", "×", "Blank"]
    assert key.startswith("On the line, half of the seeds reach 99%")
    unlucky = CELLS.copy()  # a wide head that fails is rare
    unlucky.loc[(CELLS[X] == WIDTHS[-1]) & (CELLS["n_seeds"] > 0), "n_solved"] -= 1
    for table, is_told in ((CELLS, False), (unlucky, True)):
        key = phase_key(table, n_cells, "accuracy", BOUNDARIES)
        assert ("Some seeds fail beyond the band, too." in key) == is_told
    index = CELLS.index[(CELLS["sharing"] == "K=V") & (CELLS[X] == 2) & (CELLS[Y] == 4)][0]
    *before, dark, pale = with_mark(figure, index)["data"]
    assert before == figure["data"]
    panel = heatmaps(figure)[1]
    for ring in (dark, pale):
        place = [ring[key] for key in ("x", "y", "xaxis", "yaxis")]
        assert place == [[2], [4], panel["xaxis"], panel["yaxis"]]
    assert with_mark(figure, -1) == figure


def test_boundaries_lie_where_they_are():
    """They end where none was found, in the panel of their variant; other axes have none."""
    white = edges(plot_phase(CELLS, X, Y, "accuracy", BOUNDARIES))
    assert [trace["xaxis"] for trace in white] == ["x", "x2"]
    assert white[0]["x"][1:-1] == pytest.approx(BOUNDARIES[0].half)
    assert white[0]["y"][1:-1] == list(ENTRIES)
    assert white[0]["y"][0] == pytest.approx(2 / math.sqrt(2))
    assert edges(plot_phase(CELLS, Y, X, "accuracy", BOUNDARIES)) == []

    def drawn(result, x, y):
        found = boundary(result, "QKV", x, y)
        return accepted(plot_phase(cells(result), x, y, "accuracy", [found]))

    broken = made_sweep(lambda sharing, point: float(point[X] >= 3 and point[Y] != 4))
    assert [len(trace["x"]) for trace in edges(drawn(broken, X, Y))] == [3, 4]
    (alone,) = edges(drawn(LINE, X, None))
    assert len(set(alone["x"])) == 1
    axes = {"d_mlp": (0, 8, 16, 32), "positions": ("none", "learned")}
    texts = made_sweep(lambda sharing, point: float(point["d_mlp"] >= 16), axes=axes)
    figure = drawn(texts, "d_mlp", "positions")
    ticks = [figure["layout"][axis]["ticktext"] for axis in ("xaxis", "yaxis")]
    assert ticks == [["0", "8", "16", "32"], ["none", "learned"]]
    assert len(edges(figure)) == 2
    assert 1 < edges(figure)[0]["x"][0] < 2


def test_a_phase_diagram_and_its_cells_are_told_in_words():
    """Each variant with its range, its solved cells and its boundary; a cell with its numbers."""
    text = describe_phase(CELLS, X, Y, "accuracy", BOUNDARIES)
    assert text.startswith("Accuracy by Head width and Entries. QKV: 31 cells, 0% to 100%, ")
    assert "all seeds solve 23 of them, boundary at Head width 2.5 to 2.5" in text
    accepted(plot_phase(CELLS[:0], X, Y, values=ALL))
    assert "Nothing has been trained" in describe_phase(CELLS[:0], X, Y)
    row = CELLS[(CELLS[X] == 16) & (CELLS["sharing"] == "K=V")][:1]
    lines = cell_texts(row, [X, Y])[0].split("<br>")
    assert lines[:3] == ["<b>K=V</b>", "Head width 16, Entries 2", "accuracy 100%"]
    for told in ("5 of 5 seeds solve it, after 202 steps on average", "floats per token 32"):
        assert any(told in line for line in lines)
    labels = GridAxis("d_head", WIDTHS).axis(160).texts  # without room for all
    assert labels == ["1", "2", "", "4", "", "8", "", "16"]


def test_slices_have_a_line_for_each_variant():
    """Along the axis, or texts in the order of the sweep; failed cells are left out."""
    table = slice_at(CELLS, {Y: 4})
    for measure in ("accuracy", STEPS, "solved"):
        lines = accepted(plot_slice(table, X, measure))["data"]
        for trace, sharing in zip(lines, ("QKV", "K=V"), strict=True):
            rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)].sort_values(X)
            assert trace["customdata"] == rows.index.tolist()
            assert trace["x"] == sorted(trace["x"])
            shown = np.array(trace["y"], float)
            assert shown == pytest.approx(rows[measure].to_numpy(float), nan_ok=True)
    never = cells(made_sweep(lambda *_: 0.0, axes={"positions": ("none", "learned")}))
    for measure, told in (
        ("accuracy", "Accuracy by Positions. QKV none: 0%, learned: 0%; K=V none: 0%, learned: 0%"),
        (STEPS, "Steps to 99% by Positions. QKV none; K=V none"),
    ):
        accepted(plot_slice(never, "positions", measure))
        assert describe_slice(never, "positions", measure) == f"{told}."


def test_differences_have_numbers_where_the_interval_excludes_zero():
    """They are those of the table; zero is in the middle of the scale. Words count clear cells."""
    table = difference(GAPPY, "K=V", "QKV")
    accepted(plot_difference(difference(LINE, "K=V", "QKV"), X, None, ("K=V", "QKV"), STEPS))
    figure = accepted(plot_difference(table, X, Y, ("K=V", "QKV")))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}
    tips = [tip for line in heatmaps(figure)[0]["hovertext"] for tip in line if tip]
    assert {tip.rpartition("<br>")[2] for tip in tips} == {"5 pairs of seeds"}
    assert sum("−100 points (95% interval −100 to −100)" in tip for tip in tips) == len(marked)
    axis = figure["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1
    told = {0.123: "+12", -0.5: "−50", -0.001: "0", math.nan: "–"}
    assert [difference_text(value, "accuracy") for value in told] == list(told.values())
    assert [difference_text(value, STEPS) for value in (1.0, -2.0)] == ["×2.0", "×0.25"]
    assert describe_difference(table, X, Y, ("K=V", "QKV")) == (
        "Accuracy, K=V minus QKV, by Head width and Entries. 30 cells, −100 to 0; it is clearly "
        "higher for K=V in 0 of them, and for QKV in 7."
    )
    empty = difference(GAPPY, "Q=V", "QKV")
    assert describe_difference(empty, X, Y, ("Q=V", "QKV")).endswith("No cell has both.")
