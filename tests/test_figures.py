"""Figures: Plotly accepts them, they show what was measured, and they say so in words."""

import base64
import dataclasses
import xml.etree.ElementTree as ET

import numpy as np
import plotly.graph_objects as go
import pytest

from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.figures.curves import (
    MAX_POINTS,
    accuracy_legend,
    measures_legend,
    plot_accuracy,
    plot_attention_measures,
)
from attnkit.figures.diagram import _DRAWN, _NOTES, variant_diagram
from attnkit.figures.maps import attention_maps
from attnkit.figures.palette import COLORS, colors_of
from attnkit.sharing import Sharing
from attnkit.statistics import mean_interval
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS, Variant
from attnkit.variants.catalogue import second_line_of, title_of


@pytest.fixture(scope="module", params=list(TASKS))
def snapshot(request):
    """Every task's shipped example."""
    return load_example(request.param)


def unpacked(values):
    """The numbers of a packed array."""
    return np.frombuffer(base64.b64decode(values["bdata"]), np.float32)


def means(figure):
    """The hoverable traces: the measured means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


@pytest.mark.parametrize("plot", [plot_accuracy, plot_attention_measures])
def test_plotly_accepts_every_figure(snapshot, plot):
    """Plain dictionaries are valid figures."""
    go.Figure(plot(snapshot))


def test_accuracy_means_are_those_of_the_history(snapshot):
    """One mean line per sharing, in its colour, with the measured values."""
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])
    lines = means(plot_accuracy(snapshot))
    assert [line["line"]["color"] for line in lines] == [
        COLORS[sharing] for sharing in snapshot.experiment.sharing
    ]
    for i, line in enumerate(lines):
        np.testing.assert_allclose(unpacked(line["y"]), mean_interval(accuracy[:, i]).mean)


def test_long_histories_are_thinned_for_display_only(snapshot):
    """A curve has a bounded number of points, the last one kept, and the history stays whole."""
    n = 1000
    history = {name: np.resize(v, (n, v.shape[1])) for name, v in snapshot.history.items()}
    long = dataclasses.replace(snapshot, eval_steps=np.arange(n), history=history)
    line = means(plot_accuracy(long))[0]
    assert len(unpacked(line["y"])) == MAX_POINTS
    assert unpacked(line["x"])[-1] == n - 1
    assert len(long.history["accuracy"]) == n


def test_plateau_is_drawn_only_where_it_holds():
    """Only symmetric sharings on the bare directed relation have the line and its legend."""
    directed = load_example("directed")
    dashes = [t["line"].get("dash") for t in plot_accuracy(directed)["data"]]
    assert dashes.count("longdashdot") == 2
    two_heads = dataclasses.replace(directed, experiment=directed.experiment.replace(n_heads=2))
    dashes = [t["line"].get("dash") for t in plot_accuracy(two_heads)["data"]]
    assert "longdashdot" not in dashes
    assert "longdashdot" not in {entry["dash"] for entry in accuracy_legend(two_heads, None)}


def test_previous_experiment_is_drawn_behind(snapshot):
    """A previous experiment adds one line per common sharing, before the new one's."""
    without, with_previous = plot_accuracy(snapshot), plot_accuracy(snapshot, snapshot)
    assert len(with_previous["data"]) == len(without["data"]) + 5
    assert {"dash": "previous", "text": "previous experiment"} in accuracy_legend(
        snapshot, snapshot
    )


def test_legend_leaves_out_what_the_task_has_not():
    """The reversed entry is in the legend of the directed relation only."""
    assert len(measures_legend(load_example("directed"))) == 3
    assert len(measures_legend(load_example("mutual"))) == 2


def test_single_seed_has_no_band(snapshot):
    """One seed has no interval: the band is empty, and the label gives none."""
    experiment = snapshot.experiment.replace(n_seeds=1)
    history = {name: snapshot.per_sharing(v)[..., 0] for name, v in snapshot.history.items()}
    single = dataclasses.replace(snapshot, experiment=experiment, history=history)
    figure = plot_accuracy(single)
    assert all(len(unpacked(trace["x"])) == 0 for trace in figure["data"] if trace.get("fill"))
    assert set(means(figure)[0]["text"]) == {""}


def test_maps_show_the_pattern_of_the_chosen_seed(snapshot):
    """Cells are the probe's attention, as bytes; what falls on questions is one last column."""
    maps = attention_maps(snapshot, seed=3)
    task, experiment = snapshot.experiment.task, snapshot.experiment
    rows, columns = len(maps["rows"]), len(maps["columns"])
    for panel, sharing in zip(maps["panels"], experiment.sharing, strict=True):
        run = experiment.runs.index((sharing, 3))
        pattern = snapshot.probe.pattern[run, 0, 0][task.answers_from :]
        cells = np.frombuffer(base64.b64decode(panel["cells"]), np.uint8).reshape(rows, columns)
        n_entries = task.answers_from or task.n_ctx
        np.testing.assert_allclose(cells[:, :n_entries] / 255, pattern[:, :n_entries], atol=0.003)
        np.testing.assert_allclose(cells.sum(1) / 255, 1, atol=0.02)
        right = snapshot.probe.answers[run] == snapshot.probe.labels
        assert panel["summary"] == f"{right.sum()} of {len(right)} right"


def test_map_of_all_heads_is_their_mean():
    """Head None averages."""
    snapshot = load_example("directed")
    probe = snapshot.probe
    two = np.concatenate([probe.pattern, probe.pattern[..., ::-1]], axis=2)
    doubled = dataclasses.replace(
        snapshot,
        experiment=snapshot.experiment.replace(n_heads=2),
        probe=dataclasses.replace(probe, pattern=two),
    )
    cells = [attention_maps(doubled, 0, 0, head)["panels"][0]["cells"] for head in (0, 1, None)]
    first, second, mean = (np.frombuffer(base64.b64decode(c), np.uint8).astype(int) for c in cells)
    assert np.abs((first + second) / 2 - mean).max() <= 1


def test_a_head_that_a_variant_lacks_is_told_and_left_out_of_the_mean():
    """NaN stands for it in the snapshot."""
    snapshot = load_example("directed")
    probe = snapshot.probe
    experiment = snapshot.experiment.replace(
        sharing=["QKV", "Q=K", "K=V", "Q=V", "QKV n_heads=2"], n_heads=1
    )
    missing = np.full_like(probe.pattern, np.nan)
    missing[-experiment.n_seeds :] = probe.pattern[-experiment.n_seeds :]
    padded = dataclasses.replace(
        snapshot,
        experiment=experiment,
        probe=dataclasses.replace(probe, pattern=np.concatenate([probe.pattern, missing], axis=2)),
    )
    first, second, mean = (attention_maps(padded, 0, 0, head)["panels"] for head in (0, 1, None))
    assert [panel["lacking"] for panel in second] == ["It has 1 head only."] * 4 + [""]
    assert [panel["cells"] for panel in mean] == [panel["cells"] for panel in first]


def test_weights_below_zero_are_drawn_as_zero():
    """A difference of two patterns has some."""
    snapshot = load_example("directed")
    probe = dataclasses.replace(snapshot.probe, pattern=-snapshot.probe.pattern)
    panel = attention_maps(dataclasses.replace(snapshot, probe=probe), 0)["panels"][0]
    assert set(base64.b64decode(panel["cells"])) == {0}


def drawing(text, task="phonebook", **settings):
    """The diagram of a variant, parsed."""
    variant = Variant(text)
    experiment = Experiment(task=task, sharing=[variant], **settings)
    return ET.fromstring(variant_diagram(variant, experiment.wiring(variant), "#0072B2"))


def texts(svg):
    """All that is written in a drawing."""
    return ["".join(node.itertext()) for node in svg.iter() if node.tag.endswith("text")]


@pytest.mark.parametrize("sharing", list(Sharing))
def test_diagram_draws_one_box_per_matrix_and_one_line_per_role(sharing):
    """What is tied can be counted in the drawing, and is said in its label."""
    svg = drawing(sharing)
    assert len(svg.findall("rect")) == sharing.n_matrices
    assert len(svg.findall("path")) == len(svg.findall("circle")) == 3
    assert sharing.value in svg.attrib["aria-label"]
    assert texts(svg) == ["W"] * sharing.n_matrices + ["Q", "K", "V"]


@pytest.mark.parametrize("named", CATALOGUE.values(), ids=lambda named: named.name)
def test_diagram_shows_every_matrix_of_the_catalogue_within_its_frame(named):
    """A box for each, a circle for each role, nothing outside, no two boxes on each other."""
    svg = drawing(named.variant)
    wiring = Experiment(task="phonebook", sharing=[named.variant]).wiring(named.variant)
    boxes = svg.findall("rect")
    assert len(boxes) == len({v.weight for v in wiring.vectors.values()} - {None})
    assert len(svg.findall("circle")) == 3
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    spots = [(float(box.attrib["x"]), float(box.attrib["y"])) for box in boxes]
    assert all(0 <= x <= width - 30 and 0 <= y <= height - 18 for x, y in spots)
    assert all(
        abs(x - other_x) >= 30 or abs(y - other_y) >= 18
        for i, (x, y) in enumerate(spots)
        for other_x, other_y in spots[:i]
    )


@pytest.mark.parametrize(
    ("text", "shown", "said"),
    [
        ("QKV V=I d_head=m/h", ["x"], "V is the token itself"),
        ("Q=K=V=I O=I d_head=m/h", ["x", "no output matrix"], "no matrix"),
        ("QKV n_heads=4 kv_heads=1", ["×4", "×1"], "Q ×4, K ×1, V ×1"),
        ("QKV n_heads=4", ["4 heads"], "4 heads"),
        ("QKV d_k=d/2", ["d4", "d8"], "Q d4, K d4, V d8"),
        ("QKV kv_rank=m/4", [], "K made from a narrow vector"),
        ("QKV keyless", [], "K made from V"),
        ("Q=K signed", ["±D"], "keys times factors of both signs"),
        ("Q=K unit_key self_mask", ["|1|", "self-mask"], "keys of length 1"),
        ("Q=K positions=rope", ["↻"], "turned by position"),
        ("QKV d_k=d/2 diff", ["two maps, subtracted"], "two maps, subtracted"),
        ("QKV tie=K=V", ["untied at first"], "untied at first"),
        ("QKV kv_every=2", ["K, V every 2nd layer"], "every 2nd layer"),
    ],
)
def test_diagram_shows_what_a_word_does(text, shown, said):
    """As a sign or in small text, and in the label."""
    svg = drawing(text)
    assert set(shown) <= set(texts(svg))
    assert said in svg.attrib["aria-label"]


def test_chained_matrices_stand_in_rows():
    """A narrow vector above the keys and values that are read out of it."""
    rows = [float(box.attrib["y"]) for box in drawing("QKV kv_rank=m/4").findall("rect")]
    assert sorted(map(rows.count, set(rows))) == [1, 3]


def test_an_unknown_word_is_written_as_it_is_typed():
    """Somebody's own option needs no drawing code."""
    assert "scores / 2" in texts(drawing("QKV temperature=2"))
    known = {*_DRAWN, *_NOTES}
    assert known <= OPTIONS.keys() | {"rope"}


def test_titles_are_names_and_text_forms_stand_below():
    """A plain sharing is called by its text form, another one by its name if it has one."""
    assert title_of(Variant("Q=K")) == "Q=K"
    assert second_line_of(Variant("Q=K")) == ""
    assert title_of(Variant("Q=K unit_key self_mask")) == "Reformer"
    assert second_line_of(Variant("Reformer")) == "Q=K unit_key self_mask"
    assert title_of(Variant("Q=K temperature=3")) == "Q=K temperature=3"


def test_colours_are_distinct():
    """One colour per sharing, and others for six columns of which none is plain."""
    assert len(set(COLORS.values())) == len(Sharing)
    composed = [Variant(f"Q=K temperature={i}") for i in range(1, 7)]
    assert len(set(colors_of(composed))) == 6
