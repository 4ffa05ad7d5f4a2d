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
from finished import finished
from kinds import KINDS, every_task, tiny
from plotted import unpacked

from attnkit.analysis import attention_map
from attnkit.analysis.attention_map import MOST_COLUMNS, MOST_ROWS, example_of, map_layout_of
from attnkit.analysis.custom_phone_book import NOT_IN_BOOK, ask, read_book
from attnkit.analysis.responses import Answers, Example, VariantAnswers
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import layer_specs_of
from attnkit.figures import board as boards
from attnkit.figures.board import attention_maps, board, planned_board
from attnkit.figures.curves import plot_attention_measures, plot_metric
from attnkit.figures.diagram import variant_diagram
from attnkit.figures.example import HEIGHT, WIDTH, example_cells, thumbnail
from attnkit.figures.panels import MAX_POINTS
from attnkit.tasks import NOTHING, TASKS
from attnkit.training import train
from attnkit.training.statistics import mean_interval
from attnkit.ui.lab.custom_phone_book import answers_table
from attnkit.variants import CATALOGUE, Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import colors_of
from attnkit.variants.sharing import Sharing

FIVE = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]


@cache
def trained(task):
    """Two steps of a task, evaluated twice."""
    return train(tiny(task, sharing=FIVE, steps=2, evaluate_every=1), "cpu").snapshot


@pytest.fixture(scope="module", params=every_task.args[1])
def snapshot(request):
    """A task of every kind, hardly trained; all tasks with `--long`."""
    return (trained if request.param in KINDS else load_example)(request.param)


def means(figure):
    """The hoverable traces: the measured means."""
    return [trace for trace in figure["data"] if "hovertemplate" in trace]


def test_curves_show_the_history(snapshot):
    """One mean line per sharing, in its colour; long histories are thinned for display only."""
    go.Figure(plot_attention_measures(snapshot))
    colors = list(colors_of(snapshot.experiment.sharing))
    for metric in ("accuracy", "loss"):
        figure = plot_metric(snapshot, metric)
        go.Figure(figure)
        values, lines = snapshot.per_sharing(snapshot.history[metric]), means(figure)
        assert [line["line"]["color"] for line in lines] == colors
        if len(values) <= MAX_POINTS:
            for i, line in enumerate(lines):
                mean = mean_interval(values[:, i]).mean
                np.testing.assert_allclose(unpacked(line["y"]["bdata"]), mean, rtol=1e-5)
    n = 1000
    history = {name: np.resize(v, (n, v.shape[1])) for name, v in snapshot.history.items()}
    line = means(plot_metric(replace(snapshot, eval_steps=np.arange(n), history=history)))[0]
    x, y = (unpacked(line[axis]["bdata"]) for axis in "xy")
    assert (len(y), x[-1]) == (MAX_POINTS, n - 1)
    both = plot_metric(snapshot, "accuracy", snapshot)
    assert len(both["data"]) == len(plot_metric(snapshot)["data"]) + len(colors)


def test_lines_beside_curves_are_drawn_where_they_hold():
    """The plateau of symmetric sharings, the loss to beat, the turn of the task."""
    directed, text, turned = map(trained, ("directed", "language", "transfer"))
    two_heads = replace(directed, experiment=directed.experiment.replace(n_heads=2))
    for snapshot, n_levels, n_turns in ((directed, 2, 0), (two_heads, 0, 0), (turned, 0, 5)):
        shapes = plot_metric(snapshot)["layout"]["shapes"]
        assert [shape["line"]["dash"] for shape in shapes].count("longdashdot") == n_levels
        upright = [shape["x0"] for shape in shapes if "domain" not in shape["xref"]]
        assert upright[:5] == [1] * n_turns
    levels = plot_metric(text, "loss")["layout"]["shapes"]
    assert [level["y0"] for level in levels] == [text.experiment.task.loss_to_beat] * 5


def cells_of(text):
    """The weights of a map's packed cells."""
    return np.frombuffer(base64.b64decode(text), np.uint8) / 255


def test_maps_show_the_pattern_of_the_chosen_seed(snapshot):
    """In every layer: rows are who asks, columns who is looked at, what is not shown is summed."""
    experiment, probe, example = snapshot.experiment, snapshot.probe, example_of(snapshot)
    task, asked = experiment.task, probe.labels != NOTHING
    for layer, spec in enumerate(experiment.layer_specs):
        maps, frame = attention_maps(snapshot, 1, layer, None), map_layout_of(task, spec, example)
        shape = len(maps["rows"]), len(maps["columns"])
        for panel, sharing in zip(maps["panels"], experiment.sharing, strict=True):
            run = experiment.runs.index((sharing, 1))
            pattern = probe.pattern[run, layer].astype(float).mean(0)[frame.rows]
            cells = cells_of(panel["cells"]).reshape(shape)
            shown = cells[:, :-1] if frame.rest else cells
            np.testing.assert_allclose(shown, pattern[:, frame.columns], atol=0.004)
            np.testing.assert_allclose(cells.sum(1), 1, atol=0.07)  # of as many rounded bytes
            right = (probe.answers[run] == probe.labels)[asked]
            assert panel["summary"] == f"{right.sum()} of {len(right)} right"
        for name, positions in (("target", probe.target), ("reverse", probe.reverse)):
            for column, answer in zip(maps[name], frame.answers, strict=True):
                shown = NOTHING if column < 0 else frame.columns[column]
                wanted = NOTHING if answer < 0 else positions[answer]
                assert shown == wanted or wanted not in frame.columns
        if layer == attention_map.telling_layer(experiment.layer_specs):
            assert shape[0] == min(asked.sum(), MOST_ROWS)
            assert shape[1] == len(maps["column_titles"]) <= MOST_COLUMNS + 1
            assert None not in maps["panels"][0]["right"]
            assert bool(maps["cut"]) == (asked.sum() > MOST_ROWS or task.n_ctx > MOST_COLUMNS)
        elif spec.kind == "encoder":  # which asks nothing: there is nothing to be right about
            assert {*maps["panels"][0]["right"], *maps["target"]} == {None, NOTHING}


def test_long_examples_keep_the_columns_that_hold_answers():
    """The others are those nearest to the end, the rest is one more column, and all is counted."""
    task = TASKS["mqar"](length=128, n_pairs=16)
    place = layer_specs_of(Experiment(task="mqar").size, task)[-1]
    labels = np.full(task.n_ctx - task.answers_from, NOTHING)
    labels[-20:] = 3
    target = np.where(labels >= 0, 1 + np.arange(len(labels)) % 16, NOTHING)
    example = Example(np.zeros((task.n_ctx, 1), int), labels, target, np.full_like(target, -1))
    frame = map_layout_of(task, place, example)
    assert (len(frame.rows), frame.rows[-1]) == (MOST_ROWS, task.n_ctx - 1)
    assert {int(target[answer]) for answer in frame.answers} <= set(frame.columns)
    assert (frame.rest, frame.cut) == (True, True)


def test_a_map_of_all_heads_is_their_mean_without_those_that_a_variant_lacks():
    """NaN stands for a missing head in the snapshot, and its panel says so."""
    snapshot = trained("directed")
    probe, sharing = snapshot.probe, [*FIVE[:-1], "QKV n_heads=2"]
    other = probe.pattern[..., ::-1].copy()
    other[: -snapshot.experiment.n_seeds] = np.nan
    experiment = snapshot.experiment.replace(sharing=sharing, n_heads=1)
    both = replace(probe, pattern=np.concatenate([probe.pattern, other], axis=2))
    two = replace(snapshot, experiment=experiment, probe=both)
    first, second, mean = (attention_maps(two, 0, 0, head)["panels"] for head in (0, 1, None))
    assert [bool(panel["lacking"]) for panel in second] == [True] * 4 + [False]
    assert [panel["cells"] for panel in mean[:4]] == [panel["cells"] for panel in first[:4]]
    one, other, middle = (cells_of(panels[4]["cells"]) for panels in (first, second, mean))
    np.testing.assert_allclose(middle, (one + other) / 2, atol=1 / 255)


def test_drawings_of_an_example_show_who_asks_its_target_and_the_answer(snapshot):
    """A thumbnail within its frame, and a table of all tokens with the right answers."""
    task, example = snapshot.experiment.task, example_of(snapshot)
    svg = ET.fromstring(thumbnail(task, example))
    assert svg.attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"
    for box in svg.findall("rect"):
        assert 0 <= float(box.attrib["x"]) <= WIDTH - float(box.attrib["width"])
    kinds = [node.attrib.get("class") for node in svg]
    assert {"ak-asks", "ak-answer"} <= set(kinds)
    points = bool((example.target[example.labels != NOTHING] != NOTHING).any())
    assert ("ak-arc" in kinds) == ("ak-held" in kinds) == points
    cells = example_cells(task, example)["cells"]
    expected = [(False, "", -1)] * task.answers_from
    for label, target in zip(example.labels, example.target, strict=True):
        asked = label != NOTHING
        expected.append((True, task.answer_text(int(label)), target) if asked else (False, "", -1))
    assert [(cell["asked"], cell["answer"], cell["target"]) for cell in cells] == expected


def test_answers_to_a_book_are_told_in_the_words_that_were_typed():
    """The person's own numbers, right or wrong, agreement of seeds, refusals; all escaped."""
    experiment = Experiment(task="phonebook", sharing=["QKV", "Q=K", "K=V"], n_seeds=2)
    book = read_book("<b>Ada</b> 31\nBen 14\nCem 25", experiment.task)
    question, pattern = ask(book, "Ben", experiment.task), np.full((2, 1, 3, 3), 1 / 3, np.float32)
    answered = (
        VariantAnswers("", np.array([[kind] * 3 for kind in classes]), pattern)
        for classes in ([1, 1], [2, 9])  # by two seeds
    )
    refused = VariantAnswers("Not <i>this</i>.", np.zeros((0, 0), int), np.zeros((0, 0, 0, 0)))
    answers = Answers(7, [*answered, refused])
    html = answers_table(experiment, book, question, answers, None, 0)
    ET.fromstring(html)
    assert "<b>Ada" not in html
    assert "Not &lt;i&gt;this&lt;/i&gt;." in html
    rows = [re.sub("<[^>]*>", "", row) for row in html.split("<tr>")[2:]]
    assert "14 ✓ 2 of 2" in rows[0]
    assert "25 ✗ 1 of 2" in rows[1]
    assert NOT_IN_BOOK[:20] in answers_table(experiment, book, question, answers, 1, 0)


def drawing(text):
    """The diagram of a variant, parsed, and its wiring."""
    variant = Variant(text)
    wiring = Experiment(task="phonebook", sharing=[variant]).wiring(variant)
    return ET.fromstring(variant_diagram(variant, wiring, "#0072B2")), wiring


def test_diagrams_show_every_matrix_within_their_frame():
    """A box for each matrix, a circle for each role, nothing outside, no two boxes touch."""
    for name in [*(named.name for named in CATALOGUE.values()), *map(str, Sharing)]:
        svg, wiring = drawing(name)
        sides = ("x", "y", "width")
        spots = [[float(box.attrib[one]) for one in sides] for box in svg.findall("rect")]
        assert len(spots) == len({v.weight for v in wiring.vectors.values()} - {None}), name
        assert len(svg.findall("circle")) == 3, name
        _, _, width, height = map(float, svg.attrib["viewBox"].split())
        assert all(0 <= x <= width - w and 0 <= y <= height - 18 for x, y, w in spots), name
        for (x, y, w), (other_x, other_y, _) in combinations(spots, 2):
            assert abs(x - other_x) >= w or abs(y - other_y) >= 18, name


def test_diagrams_show_what_a_word_does():
    """As a sign or in small text, and in the label; names stand above text forms."""
    for text, shown, said in (
        ("Q=K=V=I O=I d_head=m/h", ["x", "no output matrix"], "no matrix"),
        ("QKV n_heads=4 kv_heads=1", ["×4", "×1"], "Q ×4, K ×1, V ×1"),
        ("QKV query_mlp=m/2 d_head=m/h", ["Q half x, half MLP"], "Q made from"),
        ("K=V shared_half", ["&"], "K made from V"),
        ("Q=K skew=2", ["⇄"], "negated"),
        ("K=V positions=rope rotate_values", ["output rotated back"], "values rotated"),
        ("Q=K unit_key self_mask", ["|1|", "self-mask"], "length 1"),
        ("QKV d_k=d/2 diff", ["×2 d4", "×1 d8", "two maps, subtracted"], "Q ×2 d4"),
        ("QKV kv_every=2", ["K, V every 2nd layer"], "every 2nd layer"),
        ("QKV temperature=2", ["scores / 2"], "scores / 2"),
    ):
        svg, _ = drawing(text)
        texts = ["".join(node.itertext()) for node in svg.iter() if node.tag.endswith("text")]
        assert set(shown) <= set(texts), text
        assert said in svg.attrib["aria-label"]
    variant = Variant("Q=K unit_key self_mask")
    assert (title_of(variant), second_line_of(variant)) == ("Reformer", variant.value)
    assert len(set(colors_of([Variant(f"Q=K temperature={i}") for i in range(1, 7)]))) == 6


def on_board(snapshot, experiment=None, **more):
    """The board of a snapshot's first seed."""
    experiment = experiment or snapshot.experiment
    return board(snapshot, experiment, snapshot.experiment.seeds[0], **more)


def test_the_board_has_means_with_their_limits_over_all_seeds():
    """Every column has the evaluations of its own variant; a new one is empty until it trains."""
    example, variant = load_example("directed"), tiny("directed", sharing=["QKV"], n_seeds=1)
    shown = on_board(example, previous=finished(variant, [[[0.1]], [[0.7]]]))
    accuracy = mean_interval(example.per_sharing(example.history["accuracy"]))
    assert unpacked(shown["steps"]).tolist() == example.eval_steps.tolist()
    for i, column in enumerate(shown["columns"]):
        found = {name: unpacked(column["curve"][name]) for name in ("mean", "low", "previous")}
        low, previous = accuracy.low[:, i].clip(0, 1), [] if i else [0.1, 0.7]
        for name, expected in (("mean", accuracy.mean[:, i]), ("low", low), ("previous", previous)):
            np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=f"{i} {name}")
        assert len(unpacked(column["curve"]["runs"])) == 5 * len(example.eval_steps)
    assert unpacked(shown["previous_steps"]).tolist() == [0, 8]
    text = on_board(load_example("language"), layer=1, head=None)
    assert (text["quantity"], text["top"] > 2.46) == ("loss", True)
    other = example.experiment.replace(sharing=[*example.experiment.sharing, "QKV kv_heads=1"])
    columns = on_board(example, other)["columns"]
    assert [one["value"] for one in columns] == ["100%", "49%", "100%", "100%", "48%", "–"]
    planned = planned_board(example.experiment)
    assert planned.keys() == shown.keys()
    assert planned["columns"][0].keys() == shown["columns"][0].keys()
    assert all(column["curve"] is None for column in planned["columns"])


def test_the_marked_pair_and_its_mirror_are_told_with_their_scores(monkeypatch):
    """By row, column, name and score; nothing where no pair is known or in the frame."""
    example = load_example("directed")
    scores = np.resize(np.arange(7, dtype=np.float16), example.probe.pattern.shape)
    scores[5:10] = 1.357  # the five seeds of Q=K
    snapshot = replace(example, probe=replace(example.probe, scores=scores))
    mark = {"row": 0, "column": 4, "mirror_row": 4, "mirror_column": 0}
    for found, expected in ((None, None), ((0, 99), None), ((0, 4), mark)):
        monkeypatch.setattr(boards, "marked_pair", lambda *_, found=found: found)
        shown = on_board(snapshot)
        assert shown["mark"] == expected
    names, (first, second) = shown["maps"]["columns"], shown["columns"][:2]
    pair, mirror = f"{names[0]}→{names[4]}", f"{names[4]}→{names[0]}"
    told = [{"text": f"{name} 1.36", "same": True} for name in (pair, mirror)]
    assert second["scores"] == told
    own = [f"{pair} {scores[0, 0, 0, 0, 4]:.2f}", f"{mirror} {scores[0, 0, 0, 4, 0]:.2f}"]
    assert [score["text"] for score in first["scores"]] == own


def test_what_has_no_number_is_said():
    """An undefined asymmetry is not drawn as 0, and diverged runs leave gaps in the mean."""
    two, nan = tiny("directed", sharing="QKV", n_seeds=2), np.nan
    rows = [[[0.1, 0.2]], [[0.3, nan]], [[nan, nan]]]
    column = on_board(finished(two, rows, diverged_at=[[20, 10]]))["columns"][0]
    assert (column["value"], column["note"]) == ("–", "2 of 2 diverged")
    assert np.isnan(unpacked(column["curve"]["mean"])).tolist() == [False, False, True]
    assert column["asymmetry_value"] == "not defined here"
    assert np.isnan(unpacked(column["asymmetry"]["mean"])).all()
