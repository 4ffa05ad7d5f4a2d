"""Figures: Plotly accepts them, they show what was measured, and they say so in words."""

import base64
import dataclasses
import re
import xml.etree.ElementTree as ET
from functools import cache

import numpy as np
import plotly.graph_objects as go
import pytest

from attnkit.analysis.attention_map import (
    MOST_COLUMNS,
    MOST_ROWS,
    axes_of,
    example_of,
    map_layout_of,
    telling_layer,
)
from attnkit.analysis.custom_phone_book import NOT_IN_BOOK, ask, read_book
from attnkit.analysis.responses import Answers, Example, VariantAnswers
from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import layer_specs_of
from attnkit.figures.answers import answers_table
from attnkit.figures.curves import (
    accuracy_legend,
    loss_legend,
    measures_legend,
    plot_accuracy,
    plot_attention_measures,
    plot_loss,
)
from attnkit.figures.diagram import _DRAWN, _NOTES, _spread, variant_diagram
from attnkit.figures.example import example_cells
from attnkit.figures.maps import attention_maps
from attnkit.figures.panels import MAX_POINTS
from attnkit.figures.thumbnail import HEIGHT, WIDTH, thumbnail
from attnkit.tasks import NOTHING, TASKS, Label
from attnkit.training import train
from attnkit.training.statistics import mean_interval
from attnkit.variants import CATALOGUE, OPTIONS, Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import COLORS, FURTHER, REFERENCE, colors_of
from attnkit.variants.sharing import Sharing


@cache
def trained(task):
    """Two steps of every task, evaluated twice."""
    small = {"steps": 2, "n_seeds": 2, "evaluate_every": 1, "batch_size": 16, "n_eval": 16}
    if TASKS[task]().earlier is not None:
        small["earlier_steps"] = 1
    if Experiment(task=task).training.n_train:
        small["n_train"] = 16
    return train(Experiment(task=task, **small), "cpu").snapshot


@pytest.fixture(scope="module", params=list(TASKS))
def snapshot(request):
    """Every task, hardly trained."""
    return trained(request.param)


def unpacked(values):
    """The numbers of a packed array."""
    return np.frombuffer(base64.b64decode(values["bdata"]), np.float32)


def means(figure):
    """The hoverable traces: the measured means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


@pytest.mark.parametrize("plot", [plot_accuracy, plot_attention_measures, plot_loss])
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
    directed = trained("directed")
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
    assert len(measures_legend(trained("directed"))) == 3
    assert len(measures_legend(trained("mutual"))) == 2


def test_single_seed_has_no_band(snapshot):
    """One seed has no interval: the band is empty, and the label gives none."""
    experiment = snapshot.experiment.replace(n_seeds=1)
    history = {name: snapshot.per_sharing(v)[..., 0] for name, v in snapshot.history.items()}
    single = dataclasses.replace(snapshot, experiment=experiment, history=history)
    figure = plot_accuracy(single)
    assert all(len(unpacked(trace["x"])) == 0 for trace in figure["data"] if trace.get("fill"))
    assert set(means(figure)[0]["text"]) == {""}


def cells_of(maps, panel):
    """The weights of a panel, (row, column)."""
    shape = (len(maps["rows"]), len(maps["columns"]))
    return np.frombuffer(base64.b64decode(panel["cells"]), np.uint8).reshape(shape) / 255


def test_maps_show_the_pattern_of_the_chosen_seed(snapshot):
    """In every layer: rows are who asks, columns who is looked at, what is not shown is summed."""
    experiment, probe = snapshot.experiment, snapshot.probe
    for layer, place in enumerate(experiment.layer_specs):
        maps = attention_maps(snapshot, 1, layer, None)
        frame = map_layout_of(experiment.task, place, example_of(snapshot))
        for panel, sharing in zip(maps["panels"], experiment.sharing, strict=True):
            run = experiment.runs.index((sharing, 1))
            pattern = probe.pattern[run, layer].astype(float).mean(0)[frame.rows]
            cells = cells_of(maps, panel)
            shown = cells[:, :-1] if frame.rest else cells
            np.testing.assert_allclose(shown, pattern[:, frame.columns], atol=0.004)
            np.testing.assert_allclose(cells.sum(1), 1, atol=0.07)  # of as many rounded bytes
            asked = probe.labels != NOTHING
            right = (probe.answers[run] == probe.labels)[asked]
            assert panel["summary"] == f"{right.sum()} of {len(right)} right"


def test_maps_have_a_row_for_everyone_who_is_asked(snapshot):
    """And for nobody else, where anybody is; not too many, which is said."""
    experiment, probe = snapshot.experiment, snapshot.probe
    task = experiment.task
    layer = telling_layer(experiment.layer_specs)
    maps = attention_maps(snapshot, 0, layer, None)
    n_asked = int((probe.labels != NOTHING).sum())
    assert len(maps["rows"]) == min(n_asked, MOST_ROWS)
    assert len(maps["columns"]) <= MOST_COLUMNS + 1
    assert all(right is not None for right in maps["panels"][0]["right"])
    assert bool(maps["cut"]) == (n_asked > MOST_ROWS or task.n_ctx > MOST_COLUMNS)
    longest = max(len(answer) for panel in maps["panels"] for answer in panel["answers"])
    assert longest <= maps["answer_letters"]
    assert len(maps["columns"]) == len(maps["column_titles"])


def test_maps_outline_where_the_answer_stands(snapshot):
    """The column of the target, or nothing where there is no such single token."""
    experiment, probe = snapshot.experiment, snapshot.probe
    layer = telling_layer(experiment.layer_specs)
    frame = map_layout_of(experiment.task, experiment.layer_specs[layer], example_of(snapshot))
    maps = attention_maps(snapshot, 0, layer, None)
    for name, positions in (("target", probe.target), ("reverse", probe.reverse)):
        for column, answer in zip(maps[name], frame.answers, strict=True):
            if column >= 0:
                assert frame.columns[column] == positions[answer]
            else:
                assert positions[answer] == NOTHING or positions[answer] not in frame.columns


def test_layers_of_an_encoder_ask_nothing():
    """Rows are the encoder's own tokens, and there is nothing to be right about."""
    snapshot = trained("dictionary")
    task, places = snapshot.experiment.task, snapshot.experiment.layer_specs
    maps = attention_maps(snapshot, 0, [place.kind for place in places].index("encoder"))
    assert len(maps["rows"]) == len(maps["columns"]) == task.n_source
    assert set(maps["panels"][0]["right"]) == {None}
    assert set(maps["target"]) == {NOTHING}
    assert places[telling_layer(places)].kind == "cross"


def test_long_examples_keep_the_columns_that_hold_answers():
    """The others are those nearest to the end, and the rest is one more column."""
    task = TASKS["mqar"](length=128, n_pairs=16)
    place = layer_specs_of(Experiment(task="mqar").size, task)[-1]
    labels = np.full(task.n_ctx - task.answers_from, NOTHING)
    labels[-20:] = 3
    target = np.where(labels >= 0, 1 + np.arange(len(labels)) % 16, NOTHING)
    example = Example(np.zeros((task.n_ctx, 1), int), labels, target, np.full_like(target, -1))
    frame = map_layout_of(task, place, example)
    assert len(frame.rows) == MOST_ROWS
    assert frame.rows[-1] == task.n_ctx - 1
    assert {int(target[answer]) for answer in frame.answers} <= set(frame.columns)
    assert frame.rest
    assert frame.cut


def test_map_of_all_heads_is_their_mean():
    """Head None averages."""
    snapshot = trained("directed")
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
    snapshot = trained("directed")
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
    snapshot = trained("directed")
    probe = dataclasses.replace(snapshot.probe, pattern=-snapshot.probe.pattern)
    panel = attention_maps(dataclasses.replace(snapshot, probe=probe), 0)["panels"][0]
    assert set(base64.b64decode(panel["cells"])) == {0}


def test_loss_is_drawn_with_the_loss_to_beat():
    """A dotted line at its height, and what it is."""
    snapshot = trained("language")
    to_beat = snapshot.experiment.task.loss_to_beat
    dotted = [t for t in plot_loss(snapshot)["data"] if t["line"].get("dash") == "dot"]
    assert len(dotted) == 5
    np.testing.assert_allclose(unpacked(dotted[0]["y"]), to_beat, rtol=1e-6)
    assert {"dash": "dot", "text": f"a bigram model {to_beat:.2f}"} in loss_legend(snapshot, None)
    loss = snapshot.per_sharing(snapshot.history["loss"])
    for i, line in enumerate(means(plot_loss(snapshot))):
        np.testing.assert_allclose(unpacked(line["y"]), loss[:, i].mean(-1), rtol=1e-5)


def test_the_step_at_which_the_question_changes_is_marked():
    """Upright in every panel of every figure; elsewhere nowhere."""

    def upright(figure):
        return [t for t in figure["data"] if len(set(unpacked(t["x"]).tolist())) == 1]

    for plot in (plot_accuracy, plot_attention_measures):
        marks = [t for t in upright(plot(trained("transfer"))) if "hovertemplate" not in t]
        assert [unpacked(t["x"])[0] for t in marks[:5]] == [1] * 5
    assert not upright(plot_accuracy(trained("directed")))
    assert any("vertical" in entry["text"] for entry in accuracy_legend(trained("transfer"), None))


def test_a_thumbnail_shows_an_asking_token_its_target_and_the_answer(snapshot):
    """Valid SVG within its frame, for every task, with all that people read in it escaped."""
    task, example = snapshot.experiment.task, example_of(snapshot)
    svg = ET.fromstring(thumbnail(task, example))
    assert svg.attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"
    for box in svg.findall("rect"):
        assert float(box.attrib["x"]) >= 0
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= WIDTH
    kinds = [node.attrib.get("class") for node in svg]
    assert "ak-asks" in kinds
    assert "ak-answer" in kinds
    points = bool((example.target[example.labels != NOTHING] != NOTHING).any())
    assert ("ak-arc" in kinds) == ("ak-held" in kinds) == points


def test_a_thumbnail_escapes_labels():
    """Characters of a text are not markup."""
    task = TASKS["language"]()
    characters = [task.answer_text(i) for i in range(task.n_classes)]
    tokens = np.full((task.n_ctx, 1), characters.index("<"))
    nothing = np.full(task.n_ctx, NOTHING)
    example = Example(tokens, np.full(task.n_ctx, characters.index("&")), nothing, nothing)
    svg = ET.fromstring(thumbnail(task, example))
    assert {"<", "&"} <= set(texts(svg))


def test_example_cells_are_the_table_of_the_docstrings(snapshot):
    """Token, right answer where something is asked, and where it stands."""
    task, example = snapshot.experiment.task, example_of(snapshot)
    cells = example_cells(task, example)["cells"]
    assert len(cells) == task.n_ctx
    assert not any(cell["asked"] for cell in cells[: task.answers_from])
    for cell, label, target in zip(
        cells[task.answers_from :], example.labels, example.target, strict=True
    ):
        assert cell["asked"] == (label != NOTHING)
        if cell["asked"]:
            assert cell["answer"] == task.answer_text(int(label))
            assert cell["target"] == target
        else:
            assert (cell["answer"], cell["target"]) == ("", NOTHING)


def model_answers(classes, attention, refusal=""):
    """One variant's answers to a book of three, of two seeds."""
    answers = np.array([[kind] * 3 for kind in classes])
    weights = np.broadcast_to(np.array(attention, np.float32), (len(classes), 1, 3, 3))
    return VariantAnswers(refusal, answers, weights)


def test_answers_to_a_book_are_told_in_the_words_that_were_typed():
    """The person's own numbers, right or wrong, agreement of seeds, refusals; all escaped."""
    experiment = Experiment(task="phonebook", sharing=["QKV", "Q=K", "K=V"], n_seeds=2)
    book = read_book("<b>Ada</b> 31\nBen 14\nCem 25", experiment.task)
    question = ask(book, "Ben", experiment.task)
    refused = VariantAnswers("Not <i>this</i>.", np.zeros((0, 0), int), np.zeros((0, 0, 0, 0)))
    answers = Answers(
        7, [model_answers([1, 1], [0, 1, 0]), model_answers([2, 9], [0.5, 0.5, 0]), refused]
    )
    html = answers_table(experiment, book, question, answers, None, 0)
    ET.fromstring(html)
    assert "<b>Ada" not in html
    assert "&lt;b&gt;Ada&lt;/b&gt;" in html
    assert "Not &lt;i&gt;this&lt;/i&gt;." in html
    rows = [re.sub("<[^>]*>", "", row) for row in html.split("<tr>")[2:]]
    assert "14 ✓ 2 of 2" in rows[0]
    assert "25 ✗ 1 of 2" in rows[1]
    second = answers_table(experiment, book, question, answers, 1, 0)
    assert f"{NOT_IN_BOOK[:20]}" in second


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
    spots = [[float(box.attrib[name]) for name in ("x", "y", "width")] for box in boxes]
    assert all(0 <= x <= width - broad and 0 <= y <= height - 18 for x, y, broad in spots)
    assert all(
        abs(x - other_x) >= broad or abs(y - other_y) >= 18
        for i, (x, y, broad) in enumerate(spots)
        for other_x, other_y, _ in spots[:i]
    )


@pytest.mark.parametrize("wanted", [[20.0, 40.0], [80.0, 100.0], [90.0, 95.0, 100.0]])
def test_boxes_that_would_touch_are_moved_apart_within_the_drawing(wanted):
    """At either edge the others make room."""
    centres = np.array(_spread(wanted))
    assert centres.min() >= 15
    assert centres.max() <= 120 - 15
    assert np.diff(centres).min() >= 30


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
        ("K=V shared_half", ["&"], "K made from V and a vector that all heads share"),
        ("QKV exclusive", ["output ⊥ own value"], "output ⊥ own value"),
        ("Q=K skew=2", ["⇄"], "a part of the key exchanged and negated"),
        ("K=V positions=rope rotate_values", ["output rotated back"], "values rotated by position"),
        ("Q=K signed", ["±D"], "keys times factors of both signs"),
        ("Q=K unit_key self_mask", ["|1|", "self-mask"], "keys of length 1"),
        ("Q=K positions=rope", ["↻"], "rotated by position"),
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


def test_every_sharing_has_its_own_colour():
    """The palette is a file, which a new sharing may be missing in."""
    assert set(COLORS) == set(Sharing)
    assert len({*COLORS.values(), *FURTHER, REFERENCE}) == len(COLORS) + len(FURTHER) + 1


@pytest.mark.parametrize(
    ("query_index", "told"), [(0, "1 to 16"), (15, "1 to 16"), (17, "17 to 20"), (None, "5 to 20")]
)
def test_the_rows_that_are_shown_are_counted(query_index, told):
    """The note names the first and the last row of the shown page, whichever page it is."""
    task = TASKS["mqar"](length=128, n_pairs=16)
    place = layer_specs_of(Experiment(task="mqar").size, task)[-1]
    labels = np.full(task.n_ctx - task.answers_from, NOTHING)
    labels[-20:] = 3
    nothing = np.full_like(labels, NOTHING)
    example = Example(np.zeros((task.n_ctx, 1), int), labels, nothing, nothing)
    layout = map_layout_of(task, place, example, query_index)
    note = axes_of([Label("a", "a", "a")] * task.n_ctx, layout, example)["cut"]
    assert note.startswith(f"Shown are queries {told} of 20 and 32 of ")
