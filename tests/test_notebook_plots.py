"""Interactive figures of notebooks: they are those of the pages, and wrong options are named."""

import re
from itertools import product

import pytest
from made_atlas import made_atlas
from small_claims import small_claim
from test_notebook_cards import a_head, many_variants

import attnkit as ak
from attnkit.claims import CLAIMS
from attnkit.evidence.record import load_shipped
from attnkit.examples import load_example
from attnkit.figures.panels import Figure
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.shipped import load_atlas

KINDS = ("accuracy", "loss", "attention", "scores", "asymmetry")


def drawn(figure) -> Figure:
    """Return a figure as plain values, after Plotly has checked it."""
    return figure.to_plotly_json()


def test_every_kind_of_figure_is_drawn_for_every_kind_of_task():
    """A figure has a panel per variant; scores are refused where none were recorded."""
    for task, kind in product(("directed", "translation", "language", "transfer"), KINDS):
        snapshot = load_example(task)
        if kind == "scores" and snapshot.probe.scores is None:
            with pytest.raises(ValueError, match="this result has no scores"):
                snapshot.plot(kind)
            continue
        layout = drawn(snapshot.plot(kind))["layout"]
        axes = [name for name in layout if name.startswith("xaxis")]
        assert len(axes) == len(snapshot.experiment.sharing)
        assert snapshot.experiment.task.title in layout["title"]["text"]


def test_many_variants_stand_in_rows():
    """At most five panels side by side; none leaves the figure."""
    snapshot = many_variants()
    for kind in ("accuracy", "attention"):
        layout = drawn(snapshot.plot(kind))["layout"]
        domains = [layout[name]["domain"] for name in layout if name.startswith("xaxis")]
        assert len({tuple(domain) for domain in domains}) == 5
        assert layout["height"] > 2000
        ends = [end for name in layout if "axis" in name for end in layout[name].get("domain", ())]
        assert 0 <= min(ends) <= max(ends) <= 1


def test_seed_layer_and_head_choose_the_map():
    """Each has another map, the mean of heads too; frames and circles mark that of a relation."""
    snapshot = load_example("translation")
    options = [{}, {"seed": 1}, {"layer": 0}, {"head": 1}, {"head": "mean"}]
    maps = [str(drawn(snapshot.plot("attention", **one))["data"][0]["z"]) for one in options]
    assert len(set(maps)) == len(maps)
    figure = drawn(load_example("directed").plot("attention"))
    shapes = {shape["type"] for shape in figure["layout"]["shapes"]}
    circles = [trace for trace in figure["data"] if trace["type"] == "scatter"]
    assert shapes == {"rect"}
    assert {trace["marker"]["symbol"] for trace in circles} == {"circle-open"}
    assert len(circles[0]["x"]) == len(circles[0]["y"]) > 0


def test_wrong_options_are_named():
    """The message has the field, the value and what is allowed."""
    for options, message in (
        ({"kind": "acuracy"}, "kind: got 'acuracy', allowed accuracy, loss, attention, scores,"),
        ({"kind": 3}, "kind: got 3, allowed accuracy"),
        ({"theme": "pink"}, "theme: got 'pink', allowed light, dark or None"),
        ({"kind": "loss", "seed": 1}, "seed: got 1, allowed options theme"),
        ({"kind": "attention", "seed": 9}, "seed: got 9, allowed 0 to 4"),
        ({"kind": "attention", "layer": 1}, "layer: got 1, allowed 0"),
        ({"kind": "attention", "head": True}, 'head: got True, allowed 0 or "mean"'),
        ({"kind": "attention", "sead": 1}, "allowed options theme, seed, layer, head (did you"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            load_example("directed").plot(**options)


def test_themes_change_the_colour_of_texts_only():
    """Backgrounds stay transparent, so that a figure suits its notebook."""
    figures = [drawn(load_example("directed").plot(theme=one)) for one in (None, "light", "dark")]
    assert len({figure["layout"]["font"]["color"] for figure in figures}) == 3
    assert {figure["layout"]["paper_bgcolor"] for figure in figures} == {"rgba(0,0,0,0)"}
    result = ak.Result(load_example("directed"), [])  # a result draws what its snapshot does
    assert drawn(result.plot()) == drawn(load_example("directed").plot("accuracy"))


def test_claims_and_records_have_figures():
    """A claim draws its shipped record; without one, or without long runs, it says so."""
    record = load_shipped()["one_matrix"]
    for kind in ("scores", "differences", "learning"):
        assert drawn(record.plot(kind)) == drawn(CLAIMS["one_matrix"].plot(kind))
    short = next(r for r in load_shipped().values() if all(arm.up_to == 1 for arm in r.claim.arms))
    with pytest.raises(ValueError, match="this claim has no long runs"):
        short.plot("learning")
    with pytest.raises(ValueError, match="claim: got 'unmeasured', allowed one whose record ships"):
        small_claim("unmeasured").plot()


def test_atlases_and_heads_have_figures():
    """Measures by model, two measures, and three figures of one head."""
    atlas = load_atlas()
    assert drawn(atlas.plot(measure="symmetry"))["data"]
    assert drawn(atlas.plot("scatter", x="overlap_kv", y="symmetry"))["data"]
    head = a_head(atlas)
    titles = {
        drawn(head.plot(kind))["layout"]["title"]["text"] for kind in ("split", "spectra", "angles")
    }
    assert len(titles) == 3
    with pytest.raises(ValueError, match=r"measure: got 'symetry', .*mean symmetry"):
        atlas.plot(measure="symetry")
    with pytest.raises(ValueError, match=r"allowed one whose portrait was kept"):
        a_head(Atlas(made_atlas().table)).plot()
