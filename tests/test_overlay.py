"""Curves of several experiments over each other."""

import numpy as np
import plotly.graph_objects as go
import pytest
from finished import THREE_SEEDS, finished, letters, one_variant
from kinds import tiny
from plotted import unpacked

from attnkit.analysis.comparison import LETTERS
from attnkit.figures.overlay import INK, STYLES, plot_overlay, style_of
from attnkit.figures.panels import MAX_POINTS
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, FURTHER

QKV, Q_K = Variant("QKV"), Variant("Q=K")


def lines(figure):
    """The traces that speak when pointed at: the means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


def test_every_experiment_with_a_variant_has_a_line_in_its_panel():
    """Panels are variants; letters, colours and dashes are experiments, of which no two are alike.

    No colour is that of a variant.
    """
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


def test_the_legend_names_letters_and_the_level_that_all_share():
    """Chance is told if it is the same for all; else none is drawn."""
    first, other = one_variant(THREE_SEEDS), one_variant(THREE_SEEDS, kind="reverse")
    chance = f"chance {percent(first.experiment.task.chance)}"
    alone, both = (
        plot_overlay(letters(*some), [], "accuracy")["layout"]["meta"]["legend"]
        for some in ((first,), (first, other))
    )
    assert [entry["text"] for entry in alone] == ["A name A", chance]
    assert [entry["text"] for entry in both] == ["A name A", "B name B"]
