"""Figures of evidence: Plotly accepts them, they show the seeds as they are, and say so."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from plotted import accepted
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.record import load_shipped
from attnkit.evidence.tuning import Tuned
from attnkit.figures.differences import describe_differences, plot_differences
from attnkit.figures.evidence import describe_evidence, plot_evidence
from attnkit.figures.learning import describe_learning, plot_learning
from attnkit.training.statistics import mean_interval, median_interval
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

QKV, Q_K = np.array([[90, 92, 94, 96, 98, 100, 100], [50, 51, 52, 53, 54, 55, 96]]) / 100
LOSS_QKV, LOSS_Q_K = np.linspace(0.2, 0.32, 7), np.array([0.9, 0.8] * 4)[:7]

CLAIM = small_claim(
    arms=(arm("QKV", task="dual_role"), arm("Q=K", task="dual_role")),
    statements=(
        worse("Q=K", "QKV"),
        better("QKV", "Q=K", 0.3, measure="loss"),
        Statement("QKV is good", "QKV is not good", "QKV", measure="loss", low=-1, high=0.5),
    ),
    n_seeds=7,
)


def made(claim=CLAIM, only=("QKV", "Q=K"), accuracy=Q_K, loss=LOSS_Q_K):
    """Return evidence that nobody trained, with other values of Q=K."""
    scores = {
        "QKV": {"accuracy": QKV[None], "loss": LOSS_QKV[None]},
        "Q=K": {"accuracy": accuracy[None], "loss": loss[None]},
    }
    evidence = made_up(CLAIM, MadeUp(), first_seed=3)
    tuned = {name: Tuned(0.005) for name in scores}
    return replace(evidence, claim=claim, scores={name: scores[name] for name in only}, tuned=tuned)


def texts_of(figure):
    """Return the labels of the lines of a figure of learning, in one line each."""
    labels = [one for one in figure["layout"]["annotations"] if one.get("showarrow", True)]
    return [one["text"].replace("<br>", " ") for one in labels]


def names_in(figure):
    """Return the names beside the rows."""
    return figure["layout"]["yaxis"]["ticktext"]


def marks(figure):
    """Return the traces of seeds and those of means."""
    traces = {False: [], True: []}
    for trace in figure["data"]:
        traces[trace["marker"]["size"] > 10].append(trace)
    return traces[False], traces[True]


LONG = {**TINY, "up_to": 8}
MARRIED = {**TINY, "task": "mutual", "n_entries": 6}
SLOW = small_claim(
    arms=(arm("Q=K", **LONG), arm("QKV", **LONG)),
    statements=(worse("Q=K", "QKV", 2, measure="steps_to_solve", at=8),),
)


def test_every_registered_claim_can_be_drawn():
    """It can be drawn whatever its arms, measures and regions are; Plotly accepts all values."""
    for evidence in load_shipped().values():
        rows, differences = plot_evidence(evidence), plot_differences(evidence)
        learning = plot_learning(evidence)
        with about(evidence.claim):
            shown = len(evidence.scores) - len(evidence.rivals)
            assert len(rows["layout"]["yaxis"]["tickvals"]) == shown
            assert len(differences["layout"]["annotations"]) == len(evidence.statements)
            long = {one.name for one in evidence.arms.values() if one.up_to > 1}
            assert (learning is not None) == bool(long & {*evidence.scores})
            course = plot_learning(evidence, evidence.claim.statements[0])
            for figure in (rows, differences, learning, course):
                accepted(figure)


def test_a_row_is_an_arm_with_its_seeds_their_average_and_interval():
    """In the order of the claim, though the record has another; the mean of losses alone."""
    figure = plot_evidence(made(only=("Q=K", "QKV")))
    assert [name.partition("<br>")[0] for name in names_in(figure)] == ["QKV", "Q=K"]
    seeds, means = marks(figure)
    for place, (trace, mark, values) in enumerate(zip(seeds, means, (QKV, Q_K), strict=True)):
        np.testing.assert_allclose(trace["x"], 100 * values)
        assert np.all(np.abs(np.array(trace["y"]) - place) < 0.5)
        interval = median_interval(100 * values)
        (x,), bar = mark["x"], mark["error_x"]
        assert x == pytest.approx(float(interval.mean))
        assert x - bar["arrayminus"][0] == pytest.approx(max(0, float(interval.low)))
        assert x + bar["array"][0] == pytest.approx(min(100, float(interval.high)))
    colors = [mark["marker"]["color"] for mark in means]
    assert colors == [COLORS[Sharing.QKV], COLORS[Sharing.Q_K]]
    assert seeds[1]["hovertext"][0].split("<br>")[:2] == ["Q=K", "seed 3: 50%"]
    assert "0.005" in seeds[1]["hovertext"][0]
    chance = 100 * CLAIM.arms[0].experiment.task.chance
    drawn = figure["layout"]
    assert {shape["x0"] for shape in drawn["shapes"] if shape["type"] == "line"} == {chance}
    assert drawn["annotations"][0]["text"] == f"chance {chance:.3g}%"
    loss = plot_evidence(made(), "loss")  # in nats, all of them inside the axis, without chance
    assert loss["layout"]["annotations"] == []
    assert marks(loss)[0][0]["x"] == pytest.approx(LOSS_QKV)
    assert marks(loss)[1][0]["x"] == pytest.approx([float(mean_interval(LOSS_QKV).mean)])
    assert "QKV: mean 0.260 nats [" in describe_evidence(made(), "loss")
    assert "QKV: median 96% [90% to 100%], 7 seeds" in describe_evidence(made())
    assert "4 of 7" in names_in(figure)[0]


def test_diverged_seeds_and_what_is_missing_are_left_out_and_told():
    """A measure that an arm has not, and of a run that goes on: an arm, all seeds, all but one."""
    lost = np.array([np.nan, 0.5, np.nan, 0.5, 0.5, 0.5, 0.5])
    evidence = made(accuracy=lost, loss=lost)
    figure = plot_evidence(evidence)
    seeds, _ = marks(figure)
    assert names_in(figure)[1] == "Q=K<br>2 diverged"
    assert seeds[1]["x"] == [50.0] * 5
    assert "seed 4:" in seeds[1]["hovertext"][0]
    assert "2 diverged" in describe_evidence(evidence)
    assert "diverged with 2 of 7" in describe_differences(evidence)
    nothing = np.full(7, np.nan)
    untied = made(accuracy=nothing)  # who is never tied has no accuracy when tied
    assert names_in(plot_evidence(untied))[1] == "Q=K"
    assert "Q=K: no value." in describe_evidence(untied)
    hostile = arm("K=V", "<b>bold</b>", task="dual_role")  # Plotly reads some tags in its texts
    claim = replace(CLAIM, arms=(*CLAIM.arms, hostile))
    named = replace(made(claim), scores={"<b>bold</b>": {"accuracy": QKV[None]}})
    assert names_in(plot_evidence(named))[0].startswith("&lt;b&gt;bold&lt;/b&gt;<br>")
    for values, plot in itertools.product(
        (nothing, np.array([0.5, *nothing[1:]])), (plot_evidence, plot_differences)
    ):
        figure = accepted(plot(made(accuracy=values, loss=values)))
        assert not any(np.isnan(trace["x"]).any() for trace in figure["data"])
        accepted(plot(made(only=())))


def test_differences_are_those_of_the_pairs_beside_the_region_of_the_statement():
    """Filled where it holds. An open side ends where the axis does, which has the own unit."""
    figure = plot_differences(made())
    seeds, means = marks(figure)
    expected = 100 * (Q_K - QKV)
    np.testing.assert_allclose(seeds[0]["x"], expected)
    assert seeds[0]["marker"]["symbol"] == ["circle"] * 6 + ["circle-open"]
    assert means[0]["x"][0] == pytest.approx(np.median(expected))
    layout = figure["layout"]
    heading = layout["annotations"][0]["text"].replace("<br>", " ")
    for told in (heading, describe_differences(made())):
        assert CLAIM.statements[0].text in told
        assert "worse with 6 of 7 seeds" in told
    assert "held" in describe_differences(made())
    assert layout["xaxis2"]["title"]["text"].endswith("in nats")
    regions = [shape for shape in layout["shapes"] if shape["type"] == "rect"][1::2]
    low, _ = layout["xaxis2"]["range"]
    ends = [(layout["xaxis"]["range"][0], -5), (low, -0.3), (-1, 0.5)]
    assert [(one["x0"], one["x1"]) for one in regions] == [pytest.approx(end) for end in ends]


def test_runs_that_never_solve_their_task_are_counted_and_stand_at_the_edge():
    """Arms stand at the steps at which they are read; differences of steps are in doublings."""
    claim = replace(SLOW, statements=(worse("Q=K", "QKV", at=8),))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.9]))
    assert set(marks(plot_evidence(evidence))[0][0]["x"]) == {90.0}
    assert "Q=K, 48 steps: median 90%, 17 seeds" in describe_evidence(evidence)
    assert set(np.round(marks(plot_differences(evidence))[0][0]["x"], 6)) == {-10.0}
    evidence = made_up(SLOW)
    for name, values in (("Q=K", [np.inf] * 5 + [5.0] * 12), ("QKV", [3.0] * 17)):
        evidence.scores[name]["steps_to_solve"] = np.tile(values, (4, 1))
    figure, differences = accepted(plot_evidence(evidence)), accepted(plot_differences(evidence))
    assert names_in(figure)[0] == "Q=K<br>48 steps<br>5 unsolved"
    assert "median 32 steps, 12 seeds, 5 unsolved" in describe_evidence(evidence)
    (pairs,), medians = marks(differences)
    assert medians[0]["x"] == [2.0]
    assert pairs["marker"]["symbol"].count("triangle-right") == 5
    assert pairs["hovertext"][0].endswith("+∞ doublings")


def test_learning_is_drawn_for_long_arms_and_those_they_are_compared_with():
    """Arms that nothing long is compared with are left out; without long arms there is none."""
    figure = plot_learning(made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5)))
    assert texts_of(figure) == ["QKV", *(f"Q=K, 96 steps, {one} rate" for one in SCHEDULES)]
    assert plot_learning(made_up(small_claim(), MadeUp(QKV=1.0, Q_K=1.0))) is None
    married = (
        arm(text, f"{text}, married", **{**MARRIED, "up_to": 8, "steps": 9})
        for text in ("Q=K", "QKV")
    )
    statements = (worse("Q=K", "QKV", at=8), worse("Q=K, married", "QKV, married", at=8))
    evidence = made_up(small_claim(arms=(*SLOW.arms, *married), statements=statements))
    layout = plot_learning(evidence)["layout"]
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]
    assert [s["x0"] for s in layout["shapes"] if s["x0"] == s["x1"]] == [6, 9]  # base steps
    assert "Q=K, married: mean accuracy" in describe_learning(evidence)
    figure = plot_learning(made_up(SLOW, MadeUp(QKV=1.0, Q_K=[0.1, 0.4, 0.5, 0.9])))
    assert figure["layout"]["xaxis"]["type"] == "log"
    first = next(trace for trace in figure["data"] if trace["mode"] == "markers")
    assert first["x"] == [6, 12, 24, 48]
    assert first["y"] == pytest.approx([10, 40, 50, 90])


def test_learning_on_text_is_the_loss_with_the_line_to_beat():
    """The line of the bigram model is drawn, and named."""
    text = {"task": "language", "steps": 8, "up_to": 4}
    claim = small_claim(
        arms=(arm("K=V", **text), arm("QKV", **text)),
        statements=(no_worse("K=V", "QKV", measure="loss", at=4),),
    )
    evidence = made_up(claim, MadeUp(QKV=-1.0, K_V=[-2.0, -1.5, -1.2]))
    layout = plot_learning(evidence)["layout"]
    to_beat = claim.arms[0].experiment.task.loss_to_beat
    assert [one["y0"] for one in layout["shapes"] if one["y0"] == one["y1"]] == [to_beat]
    assert any(f"model {to_beat:.2f}" in one["text"] for one in layout["annotations"])
    told = describe_learning(evidence)
    for loss, steps in ((3.0, 8), (2.5, 16), (2.2, 32)):
        assert f"{loss:.2f} nats after {steps} steps" in told


def test_the_course_is_one_small_panel_of_the_main_statement():
    """Arms that nothing is compared with, other tasks and confirming arms are left out."""
    arms = (*small_claim().arms, arm("Q=K", "Q=K, married", **MARRIED))
    statements = (worse("Q=K", "QKV", unable=True), worse("Q=K, married", "QKV"))
    evidence = made_up(small_claim(arms=arms, statements=statements), MadeUp(QKV=1.0, Q_K=0.5))
    figure = plot_learning(evidence, statements[0])
    assert texts_of(figure) == ["Q=K", "QKV"]
    assert figure["layout"]["height"] < plot_learning(evidence)["layout"]["height"]
    told = describe_learning(evidence, statements[0])
    assert ("Q=K: mean accuracy 50%" in told, "96 steps" in told) == (True, False)
    assert plot_learning(replace(evidence, curves={}), statements[0]) is None  # an older record
    assert texts_of(plot_learning(evidence, statements[1])) == ["Q=K, married"]
