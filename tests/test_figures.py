"""Figures: Plotly accepts them, they show what was measured, and they say so in words."""

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest
from kinds import KINDS, every_task, tiny

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
from attnkit.examples import load_example
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
from attnkit.figures.diagram import variant_diagram
from attnkit.figures.example import example_cells
from attnkit.figures.maps import attention_maps
from attnkit.figures.panels import MAX_POINTS
from attnkit.figures.thumbnail import HEIGHT, WIDTH, thumbnail
from attnkit.tasks import NOTHING, TASKS, Label
from attnkit.training import train
from attnkit.training.statistics import mean_interval
from attnkit.variants import CATALOGUE, Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import COLORS, FURTHER, REFERENCE, colors_of
from attnkit.variants.sharing import Sharing


@cache
def trained(task):
    """Two steps of a task, evaluated twice."""
    return train(tiny(task, sharing=FIVE, steps=2, evaluate_every=1), "cpu").snapshot


FIVE = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]


@pytest.fixture(scope="module", params=every_task.args[1])
def snapshot(request):
    """A task of every kind, hardly trained; all tasks with `--long`."""
    if request.param not in KINDS:
        return load_example(request.param)
    return trained(request.param)


def unpacked(values):
    """The numbers of a packed array."""
    return np.frombuffer(base64.b64decode(values["bdata"]), np.float32)


def means(figure):
    """The hoverable traces: the measured means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


def test_curves_show_the_history(snapshot):
    """One mean line per sharing, in its colour; long histories are thinned for display only."""
    for plot in (plot_accuracy, plot_attention_measures, plot_loss):
        go.Figure(plot(snapshot))
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])
    lines = means(plot_accuracy(snapshot))
    colors = colors_of(snapshot.experiment.sharing)
    assert [line["line"]["color"] for line in lines] == list(colors)
    for i, line in enumerate(lines):
        expected = mean_interval(accuracy[:, i]).mean
        if len(expected) <= MAX_POINTS:
            np.testing.assert_allclose(unpacked(line["y"]), expected)
    n = 1000
    history = {name: np.resize(v, (n, v.shape[1])) for name, v in snapshot.history.items()}
    line = means(plot_accuracy(replace(snapshot, eval_steps=np.arange(n), history=history)))[0]
    assert len(unpacked(line["y"])) == MAX_POINTS
    assert unpacked(line["x"])[-1] == n - 1
    both = plot_accuracy(snapshot, snapshot)
    assert len(both["data"]) == len(plot_accuracy(snapshot)["data"]) + len(lines)
    assert {"dash": "previous", "text": "previous experiment"} in accuracy_legend(
        snapshot, snapshot
    )


def test_plateau_is_drawn_only_where_it_holds():
    """Only symmetric sharings on the bare directed relation have the line and its legend."""
    directed = trained("directed")
    dashes = [t["line"].get("dash") for t in plot_accuracy(directed)["data"]]
    assert dashes.count("longdashdot") == 2
    two_heads = replace(directed, experiment=directed.experiment.replace(n_heads=2))
    dashes = [t["line"].get("dash") for t in plot_accuracy(two_heads)["data"]]
    assert "longdashdot" not in dashes
    assert "longdashdot" not in {entry["dash"] for entry in accuracy_legend(two_heads, None)}
    assert len(measures_legend(trained("directed"))) == 3
    assert len(measures_legend(trained("phonebook"))) == 2


def test_single_seed_has_no_band():
    """One seed has no interval: the band is empty, and the label gives none."""
    figure = plot_accuracy(train(tiny("directed", n_seeds=1, steps=2), "cpu").snapshot)
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
    """Not too many, which is said, with an outline where the answer stands."""
    experiment, probe = snapshot.experiment, snapshot.probe
    task, layer = experiment.task, telling_layer(experiment.layer_specs)
    maps = attention_maps(snapshot, 0, layer, None)
    n_asked = int((probe.labels != NOTHING).sum())
    assert len(maps["rows"]) == min(n_asked, MOST_ROWS)
    assert len(maps["columns"]) == len(maps["column_titles"]) <= MOST_COLUMNS + 1
    assert all(right is not None for right in maps["panels"][0]["right"])
    assert bool(maps["cut"]) == (n_asked > MOST_ROWS or task.n_ctx > MOST_COLUMNS)
    longest = max(len(answer) for panel in maps["panels"] for answer in panel["answers"])
    assert longest <= maps["answer_letters"]
    frame = map_layout_of(task, experiment.layer_specs[layer], example_of(snapshot))
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
    """The others are those nearest to the end, the rest is one more column, and all is counted."""
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
    nowhere = replace(example, target=np.full_like(target, NOTHING))
    for query_index, told in ((0, "1 to 16"), (15, "1 to 16"), (17, "17 to 20"), (None, "5 to 20")):
        layout = map_layout_of(task, place, nowhere, query_index)
        note = axes_of([Label("a", "a", "a")] * task.n_ctx, layout, nowhere)["cut"]
        assert note.startswith(f"Shown are queries {told} of 20 and 32 of ")


def test_map_of_all_heads_is_their_mean():
    """Head None averages."""
    snapshot = trained("directed")
    probe = snapshot.probe
    two = np.concatenate([probe.pattern, probe.pattern[..., ::-1]], axis=2)
    doubled = replace(
        snapshot,
        experiment=snapshot.experiment.replace(n_heads=2),
        probe=replace(probe, pattern=two),
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
    padded = replace(
        snapshot,
        experiment=experiment,
        probe=replace(probe, pattern=np.concatenate([probe.pattern, missing], axis=2)),
    )
    first, second, mean = (attention_maps(padded, 0, 0, head)["panels"] for head in (0, 1, None))
    assert [panel["lacking"] for panel in second] == ["It has 1 head only."] * 4 + [""]
    assert [panel["cells"] for panel in mean] == [panel["cells"] for panel in first]


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


def test_diagrams_show_every_matrix_within_their_frame():
    """A box for each matrix, a circle for each role, nothing outside, no two boxes touch."""
    for name in [*(named.name for named in CATALOGUE.values()), *map(str, Sharing)]:
        variant, svg = Variant(name), drawing(name)
        wiring = Experiment(task="phonebook", sharing=[variant]).wiring(variant)
        boxes = svg.findall("rect")
        assert len(boxes) == len({v.weight for v in wiring.vectors.values()} - {None}), name
        assert len(svg.findall("circle")) == 3, name
        _, _, width, height = map(float, svg.attrib["viewBox"].split())
        spots = [[float(box.attrib[one]) for one in ("x", "y", "width")] for box in boxes]
        assert all(0 <= x <= width - w and 0 <= y <= height - 18 for x, y, w in spots), name
        for (x, y, w), (other_x, other_y, _) in combinations(spots, 2):
            assert abs(x - other_x) >= w or abs(y - other_y) >= 18, name
    for sharing in Sharing:
        svg = drawing(sharing)
        assert len(svg.findall("path")) == 3
        assert sharing.value in svg.attrib["aria-label"]
        assert texts(svg) == ["W"] * sharing.n_matrices + ["Q", "K", "V"]


def test_diagrams_show_what_a_word_does():
    """As a sign or in small text, and in the label."""
    for text, shown, said in (
        ("QKV V=I d_head=m/h", ["x"], "V is the token itself"),
        ("Q=K=V=I O=I d_head=m/h", ["x", "no output matrix"], "no matrix"),
        ("QKV n_heads=4 kv_heads=1", ["×4", "×1"], "Q ×4, K ×1, V ×1"),
        ("QKV n_heads=4", ["4 heads"], "4 heads"),
        ("QKV d_k=d/2", ["d4", "d8"], "Q d4, K d4, V d8"),
        ("QKV keyless", [], "K made from V"),
        ("K=V shared_half", ["&"], "K made from V and a vector that all heads share"),
        ("Q=K skew=2", ["⇄"], "a part of the key exchanged and negated"),
        ("K=V positions=rope rotate_values", ["output rotated back"], "values rotated by position"),
        ("Q=K unit_key self_mask", ["|1|", "self-mask"], "keys of length 1"),
        ("QKV d_k=d/2 diff", ["two maps, subtracted"], "two maps, subtracted"),
        ("QKV kv_every=2", ["K, V every 2nd layer"], "every 2nd layer"),
        ("QKV temperature=2", ["scores / 2"], "scores / 2"),
    ):
        svg = drawing(text)
        assert set(shown) <= set(texts(svg)), text
        assert said in svg.attrib["aria-label"]


def test_variants_are_told_apart_by_title_and_colour():
    """Names stand above text forms; every sharing and every column has a colour of its own."""
    assert title_of(Variant("Q=K")) == "Q=K"
    assert second_line_of(Variant("Q=K")) == ""
    assert title_of(Variant("Q=K unit_key self_mask")) == "Reformer"
    assert second_line_of(Variant("Reformer")) == "Q=K unit_key self_mask"
    assert title_of(Variant("Q=K temperature=3")) == "Q=K temperature=3"
    assert set(COLORS) == set(Sharing)
    assert len({*COLORS.values(), *FURTHER, REFERENCE}) == len(COLORS) + len(FURTHER) + 1
    assert len(set(colors_of([Variant(f"Q=K temperature={i}") for i in range(1, 7)]))) == 6
