"""Figures of real models' heads: Plotly accepts them, they show the table, they say it in words."""

import json
import math
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from made_atlas import READER, TOYS, WRITER, heads_of, made_atlas, made_toys
from pandas import concat

from attnkit.figures.atlas import (
    atlas_panels,
    correlation,
    describe_depth,
    describe_scatter,
    plot_depth,
    plot_distribution,
    plot_scatter,
    relative_depth,
)
from attnkit.figures.groups import (
    counted,
    describe_groups,
    describe_lacking,
    groups_of,
    number_text,
    two_models,
)
from attnkit.figures.portrait import (
    describe_angles,
    describe_spectra,
    describe_split,
    energy_of,
    parts_of,
    plot_angles,
    plot_spectra,
    plot_split,
    random_squares,
)
from attnkit.realmodels.measures import MEASURES
from attnkit.variants.palette import BLUE_RED, COLORS, REFERENCE
from attnkit.variants.sharing import Sharing

OVERLAP, COSINE = MEASURES["overlap_qk"], MEASURES["cos_qk"]


@pytest.fixture(scope="module")
def heads():
    """Every head of both models."""
    return heads_of(made_atlas().table)


@pytest.fixture(scope="module")
def all_heads(heads):
    """And those of our own models."""
    return concat([heads, heads_of(made_toys())], ignore_index=True)


@pytest.fixture(scope="module", params=[(READER, "encoder"), (WRITER, "causal")])
def portrait(request):
    """A head of each model, as it stands in it, and the width of its stream."""
    model, kind = request.param
    return made_atlas().portrait(model, kind, 1, 2), 13 if model == READER else 17


def test_numbers_are_told_as_one_reads_them():
    """A true minus, few digits, a dash for none, and no sign of what rounds to nothing."""
    told = {-0.0512: "−0.051", 0.25: "0.25", 12.34: "12.3", 0.0: "0.00", -0.0001: "0.000"}
    assert {value: number_text(value) for value in told} == told
    assert number_text(math.nan) == "–"


# groups


def test_groups_are_kinds_of_models_in_the_order_of_the_table(heads):
    """With all their heads; a group without the measure is left out, as where nothing was run."""
    groups = groups_of(heads, "cos_qk")
    assert [(g.model, g.kind, len(g.values)) for g in groups] == [
        (READER, "encoder", 10),
        (WRITER, "causal", 18),
        (WRITER, "cross", 3),
    ]
    assert groups[0].color != groups[1].color == groups[2].color
    assert len({g.symbol for g in groups}) == 3
    assert groups_of(heads, "act_cka_qk") == []
    assert describe_groups([], "CKA").startswith("CKA: 0 heads")
    causal = heads[heads["kind"] == "causal"]  # three query heads share a key and value head
    for measure, n in {"cos_kv": 6, "norm_v": 6, "rank_k": 6, "cos_qk": 18, "rank_qk": 18}.items():
        assert len(counted(causal, measure, once=True)) == n, measure
        assert len(counted(causal, measure, once=False)) == 18, measure
    reader, causal, _ = groups_of(heads, "overlap_qk")
    assert reader.random[0] == pytest.approx(3 / 13, abs=0.02)
    assert causal.random[0] == pytest.approx(4 / 17, abs=0.02)


def test_our_own_models_are_grouped_by_variant(all_heads):
    """In the colour of its sharing, which no real model has, and hollow."""
    own = {g.model: g for g in groups_of(all_heads, "symmetry") if g.is_toy}
    assert set(own) == {"toy QKV", "toy Q=K"}
    assert own["toy Q=K"].color == COLORS[Sharing.Q_K]
    assert own["toy Q=K"].symbol.endswith("-open")
    real = [g for g in groups_of(all_heads, "symmetry") if not g.is_toy]
    assert not {g.color for g in real} & set(COLORS.values())
    assert not any(g.symbol.endswith("-open") for g in real)
    assert own["toy Q=K"].median == pytest.approx(1)
    assert TOYS[1] in own["toy Q=K"].tips("Symmetry")[0]


def test_looks_stay_where_groups_are_left_out(heads):
    """A group looks the same in the scatter, also if a group before it lacks a measure."""
    some = heads.assign(cos_qk=heads["cos_qk"].where(heads["model"] != READER))
    drawn = plot_scatter(some, OVERLAP, COSINE)["data"]
    groups = groups_of(heads, "overlap_qk")[1:]
    looks = [(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in drawn]
    assert looks == [(group.color, group.symbol) for group in groups]


# the grid


def test_a_cell_is_a_head(heads):
    """Rows are layers, columns heads."""
    found = heads.sample(frac=1, random_state=7)
    panels = {(p["model"], p["kind"]): p for p in atlas_panels(found, COSINE)["panels"]}
    panel = panels[WRITER, "causal"]
    assert panel["layers"] == [0, 1, 2]
    assert panel["heads"] == list(range(6))
    (row,) = heads_of(heads, model=WRITER, kind="causal", layer=2, head=5).itertuples()
    assert panel["values"][2][5] == pytest.approx(row.cos_qk, rel=1e-3)


def test_colours_end_where_most_real_heads_are(heads, all_heads):
    """Zero is in the middle of signed measures; outliers and our own models do not count."""
    signed, shares = atlas_panels(heads, COSINE), atlas_panels(heads, OVERLAP)
    assert signed["low"] == -signed["high"]
    assert (shares["low"], shares["signed"]) == (0, False)
    assert atlas_panels(all_heads, COSINE)["high"] == signed["high"]
    ours = all_heads[all_heads["family"] == "toy"]
    assert atlas_panels(ours, COSINE)["high"] == pytest.approx(1, abs=0.01)
    level = heads.assign(cos_qk=np.linspace(0, 0.5, len(heads)), cos_qk_random_sd=0.01)
    level.loc[level.index[0], "cos_qk"] = -0.97
    panels = atlas_panels(level, COSINE)
    assert panels["high"] == pytest.approx(level["cos_qk"].abs().quantile(0.98))
    assert panels["high"] < 0.97
    assert panels["beyond"]
    assert panels["panels"][0]["values"][0][0] == -0.97
    calm = heads.assign(cos_qk=0.001, cos_qk_random_sd=np.linspace(0.01, 0.07, len(heads)))
    panels = atlas_panels(calm, COSINE)
    assert panels["high"] == pytest.approx(0.14)  # twice the largest deviation of chance
    assert not panels["beyond"]


def test_heads_below_chance_are_marked(heads):
    """By more than two deviations of their own."""
    made = heads.assign(cos_qk=-0.05, cos_qk_random=0.0, cos_qk_random_sd=0.03)
    made.loc[made.index[3], "cos_qk_random_sd"] = 0.01
    made.loc[made.index[4], "cos_qk_random_sd"] = math.nan
    panels = atlas_panels(made, COSINE)["panels"]
    assert panels[0]["below"] == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


def test_models_and_kinds_without_a_measure_are_named(all_heads):
    """Our own small models in one; nothing is said where nothing lacks."""
    assert describe_lacking(all_heads, COSINE) == ""
    activations = MEASURES["act_cka_qk"]
    some = all_heads.assign(act_cka_qk=all_heads["cos_qk"].where(all_heads["model"] != READER))
    assert describe_lacking(some, activations) == f"Not measured: {READER}, which was not run."
    ours = all_heads.assign(act_cka_qk=all_heads["cos_qk"].where(all_heads["family"] != "toy"))
    assert describe_lacking(ours, activations) == (
        "Not measured: the toy models, which were not run."
    )
    crossed = all_heads.assign(cos_qk=all_heads["cos_qk"].where(all_heads["kind"] != "cross"))
    assert describe_lacking(crossed, COSINE) == f"Not defined: {WRITER} (cross)."


def test_what_goes_to_the_browser_is_json_and_says_its_finding(heads):
    """JSON knows no NaN; every panel and all together tell numbers and the random level."""
    broken = heads.copy()
    broken.loc[broken.index[3], "cos_qk"] = math.nan
    panels = atlas_panels(broken, COSINE)
    json.dumps(panels, allow_nan=False)
    assert panels["panels"][0]["values"][0][3] is None
    for text in (panels["alt"], *(panel["alt"] for panel in panels["panels"])):
        assert re.search(r"median −?\d", text)
    assert "random" in panels["alt"]


# strips


def test_every_head_is_a_dot_in_its_row(heads):
    """With its median, beside the random level."""
    groups = groups_of(heads, "overlap_qk")
    figure = plot_distribution(groups, OVERLAP)
    go.Figure(figure)
    assert plot_distribution(groups, OVERLAP) == figure
    dots, medians = figure["data"][::2], figure["data"][1::2]
    for y, (group, row, mark) in enumerate(zip(groups, dots, medians, strict=True)):
        assert row["x"] == pytest.approx(group.values, rel=1e-3)
        assert all(abs(place - y) < 0.5 for place in row["y"])
        assert mark["x"] == [np.median(group.values)]
        band = [s for s in figure["layout"]["shapes"] if s["y0"] == y - 0.46]
        assert {s["type"] for s in band} == {"rect", "line"}
        (level,) = [s["x0"] for s in band if s["type"] == "line"]
        assert level == group.random[0]


# two measures


def test_a_scatter_has_a_dot_for_every_head_with_both(heads):
    """And says how the two go together."""
    some = heads.copy()
    some.loc[some.index[0], "overlap_qk"] = math.nan
    figure = plot_scatter(some, OVERLAP, COSINE)
    go.Figure(figure)
    assert [len(trace["x"]) for trace in figure["data"]] == [9, 18, 3]
    assert figure["data"][0]["y"] == pytest.approx(some["cos_qk"].iloc[1:10], rel=1e-3)
    told = describe_scatter(some, OVERLAP, COSINE)
    assert math.isnan(correlation(np.ones(5), np.arange(5.0)))
    assert correlation(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1)
    assert (
        number_text(correlation(some["overlap_qk"].iloc[1:10], some["cos_qk"].iloc[1:10])) in told
    )


def test_random_levels_that_differ_have_the_colours_of_their_models(all_heads):
    """One grey line where they do not; our own models have none."""
    figure = plot_scatter(all_heads, MEASURES["rank_q"], COSINE)
    colors = {trace["marker"]["color"] for trace in figure["data"][:3]}
    across = [s for s in figure["layout"]["shapes"] if "xref" not in s]
    level = [s for s in figure["layout"]["shapes"] if "xref" in s]
    assert {s["line"]["color"] for s in across} == colors
    assert [s["line"]["color"] for s in level] == [REFERENCE]


# depth


def test_two_models_are_compared_by_their_medians(heads):
    """Causal layers come first; the figure has both, and the words have the difference."""
    a, b, cross = groups_of(heads, "overlap_qk")
    alike = plot_depth(b, cross, OVERLAP)  # one model's kinds have the same colour elsewhere
    assert len({trace["marker"]["color"] for trace in alike["data"]}) == 2
    figure = plot_depth(a, b, OVERLAP)
    go.Figure(figure)
    assert sorted(set(relative_depth(b.heads))) == [0, 0.5, 1]
    assert set(relative_depth(cross.heads)) == {0}  # a single layer is the first
    layers = figure["data"][3]
    middle = heads_of(heads, model=WRITER, kind="causal", layer=1)["overlap_qk"].median()
    assert layers["y"][1] == pytest.approx(middle, rel=1e-3)
    assert f"difference {number_text(b.median - a.median)}" in describe_depth(a, b, OVERLAP)
    reader, causal, cross = groups_of(heads, "cos_qk")
    assert two_models([reader, causal, cross]) == (causal, reader)
    assert two_models([causal, cross]) == (causal, cross)
    assert two_models([reader]) == (reader, reader)


# a head from close by


def test_the_two_parts_are_the_matrix(portrait):
    """One is the same in both directions, the other turns its sign."""
    drawn, _ = portrait
    symmetric, skew = parts_of(drawn)
    assert symmetric + skew == pytest.approx(drawn.matrix)
    assert symmetric == pytest.approx(symmetric.T)
    assert skew == pytest.approx(-skew.T)
    figure = plot_split(drawn)
    go.Figure(figure)
    assert np.array(figure["data"][1]["z"]) == pytest.approx(skew, rel=1e-2, abs=1e-6)
    assert figure["data"][0]["zmax"] == -figure["data"][1]["zmin"]


def test_the_share_of_the_symmetric_part_is_the_head_s_symmetry(portrait):
    """(1 + s) / 2 of the energy, out of the table; it is told in whole percent."""
    for row in heads_of(made_atlas().table, kind="causal").itertuples():
        drawn = made_atlas().portrait(row.model, row.kind, row.layer, row.head)
        assert energy_of(drawn) == pytest.approx((1 + row.symmetry) / 2, abs=1e-4)
    drawn, _ = portrait
    assert describe_split(drawn).startswith(f"{100 * energy_of(drawn):.0f}% of the energy")
    assert "(chance 50%)" in plot_split(drawn)["layout"]["annotations"][0]["text"]


def test_spectra_are_those_of_the_portrait(portrait):
    """Three panels on one scale; eigenvalues above and below 0 differ in colour."""
    drawn, _ = portrait
    figure = plot_spectra(drawn)
    go.Figure(figure)
    shown = [drawn.singular, drawn.symmetric, drawn.skew]
    for trace, values in zip(figure["data"], shown, strict=True):
        assert trace["y"] == pytest.approx(values, rel=1e-2, abs=1e-6)
    colors = figure["data"][1]["marker"]["color"]
    for value, color in zip(drawn.symmetric, colors, strict=True):
        assert color == (BLUE_RED[-1] if value > 0 else BLUE_RED[0])
    assert number_text(float(drawn.symmetric.max())) in describe_spectra(drawn)


def test_angles_stand_beside_those_of_random_subspaces(portrait):
    """Three pairs and chance, largest first, and their means in words."""
    drawn, d_model = portrait
    figure = plot_angles(drawn, d_model)
    go.Figure(figure)
    assert len(figure["data"]) == 4
    assert len({trace["line"]["dash"] for trace in figure["data"]}) == 4
    assert not {trace["line"]["color"] for trace in figure["data"]} & set(COLORS.values())
    for trace in figure["data"]:
        assert all(np.diff(trace["y"]) <= 1e-6)
        assert list(trace["x"]) == list(range(1, len(trace["y"]) + 1))
    assert random_squares(97, 23).mean() == pytest.approx(23 / 97, abs=0.03)
    mean = (drawn.angles["kv"] ** 2).mean()
    assert f"K and V {number_text(float(mean))}" in describe_angles(drawn, d_model)
