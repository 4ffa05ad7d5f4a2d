"""Figures of evidence: Plotly accepts them, and they show the seeds as they are."""

import dataclasses

import numpy as np
import plotly.graph_objects as go
import pytest

from attnkit.claims import CLAIMS
from attnkit.claims.base import Claim, Statement, arm, better, worse
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Tuned
from attnkit.figures.evidence import (
    describe_differences,
    describe_evidence,
    plot_differences,
    plot_evidence,
)
from attnkit.figures.palette import COLORS
from attnkit.sharing import Sharing
from attnkit.statistics import mean_interval

N_SEEDS = 7

ACCURACY = {
    "QKV": np.array([0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.0]),
    "Q=K": np.array([0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.96]),
}

LOSS = {
    "QKV": np.array([0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.32]),
    "Q=K": np.array([0.9, 0.8, 0.9, 0.8, 0.9, 0.8, 0.9]),
}

CLAIM = Claim(
    id="made_up",
    title="Made up",
    question="Is it?",
    source="nobody",
    says="It is.",
    prediction="Supported.",
    expected="supported",
    arms=(arm("QKV", task="dual_role"), arm("Q=K", task="dual_role")),
    statements=(
        worse("Q=K", "QKV"),
        better("QKV", "Q=K", 0.3, measure="loss"),
        Statement("The loss of QKV is small", "QKV", measure="loss", low=-1, high=0.5),
    ),
)


def made(accuracy=ACCURACY, loss=LOSS, **changes):
    """Evidence that nobody trained."""
    scores = {name: {"accuracy": accuracy[name], "loss": loss[name]} for name in accuracy}
    evidence = Evidence(
        claim=CLAIM,
        version="0.1.0",
        hash=CLAIM.hash,
        quick=False,
        seeds=tuple(range(3, 3 + N_SEEDS)),
        scores=scores,
        tuned={name: Tuned(0.005, {0.0025: 0.8, 0.005: 0.9}) for name in scores},
        experiments=(),
        model_steps=1,
        seconds=1.0,
    )
    return dataclasses.replace(evidence, **changes)


def marks(figure):
    """The traces of seeds and those of means."""
    large = [trace["marker"]["size"] > 10 for trace in figure["data"]]
    seeds = [trace for trace, is_mean in zip(figure["data"], large, strict=True) if not is_mean]
    return seeds, [trace for trace, is_mean in zip(figure["data"], large, strict=True) if is_mean]


@pytest.mark.parametrize("plot", [plot_evidence, plot_differences])
def test_plotly_accepts_it(plot):
    """Every name and every value is one of its schema."""
    go.Figure(plot(made()))


@pytest.mark.parametrize("claim", list(CLAIMS.values()), ids=lambda claim: claim.id)
def test_every_registered_claim_can_be_drawn(claim):
    """Whatever its arms, measures and regions are."""
    arms = (*claim.arms, *claim.sure()[0])
    measures = {"accuracy", *(statement.measure for statement in claim.statements)}
    scores = {one.name: {m: np.full(N_SEEDS, 0.5) for m in measures} for one in arms}
    evidence = made(claim=claim, scores=scores)
    rows = plot_evidence(evidence)["layout"]["yaxis"]["tickvals"]
    headings = plot_differences(evidence)["layout"]["annotations"]
    assert len(rows) == len(arms)
    assert len(headings) == len(evidence.statements)


def test_a_row_is_an_arm_in_the_order_of_the_claim():
    """Though the record has another."""
    evidence = made(dict(reversed(ACCURACY.items())))
    assert plot_evidence(evidence)["layout"]["yaxis"]["ticktext"] == ["QKV", "Q=K"]


def test_dots_are_the_scores_in_percent():
    """One for every seed, in its arm's row."""
    seeds, _ = marks(plot_evidence(made()))
    for place, (trace, values) in enumerate(zip(seeds, ACCURACY.values(), strict=True)):
        np.testing.assert_allclose(trace["x"], 100 * values)
        assert np.all(np.abs(np.array(trace["y"]) - place) < 0.5)


def test_the_mark_is_the_mean_and_the_bar_student_s_interval():
    """No further than 100%."""
    _, means = marks(plot_evidence(made()))
    for trace, values in zip(means, ACCURACY.values(), strict=True):
        interval = mean_interval(100 * values)
        (x,), bar = trace["x"], trace["error_x"]
        assert x == pytest.approx(float(interval.mean))
        assert x - bar["arrayminus"][0] == pytest.approx(max(0, float(interval.low)))
        assert x + bar["array"][0] == pytest.approx(min(100, float(interval.high)))


def test_colour_and_symbol_are_of_the_sharing():
    """Two sharings differ in both."""
    _, (first, second) = marks(plot_evidence(made()))
    assert first["marker"]["color"] == COLORS[Sharing.QKV]
    assert second["marker"]["color"] == COLORS[Sharing.Q_K]
    assert first["marker"]["symbol"] != second["marker"]["symbol"]


def test_pointing_at_a_dot_tells_seed_value_and_learning_rate():
    """Of the arm that it belongs to."""
    seeds, _ = marks(plot_evidence(made()))
    assert seeds[1]["hovertext"][0] == "Q=K<br>seed 3: 50.0%<br>learning rate 0.005"


def test_chance_is_drawn_for_accuracies_only():
    """Where the task has it."""
    chance = 100 * CLAIM.arms[0].experiment.task.chance
    drawn = plot_evidence(made())["layout"]
    assert {shape["x0"] for shape in drawn["shapes"] if shape["type"] == "line"} == {chance}
    assert drawn["annotations"][0]["text"] == f"chance {chance:.3g}%"
    assert "annotations" not in plot_evidence(made(), "loss")["layout"]


def test_losses_are_shown_as_they_are():
    """In nats, all of them inside the axis."""
    figure = plot_evidence(made(), "loss")
    low, high = figure["layout"]["xaxis"]["range"]
    seeds, _ = marks(figure)
    assert seeds[0]["x"] == LOSS["QKV"].tolist()
    assert low < 0.2
    assert high > 0.9
    assert "nats" in figure["layout"]["xaxis"]["title"]["text"]


def test_diverged_seeds_are_left_out_and_told():
    """In the arm's label and in words."""
    lost = np.array([np.nan, 0.5, np.nan, 0.5, 0.5, 0.5, 0.5])
    evidence = made({**ACCURACY, "Q=K": lost}, {**LOSS, "Q=K": lost})
    figure = plot_evidence(evidence)
    seeds, _ = marks(figure)
    assert figure["layout"]["yaxis"]["ticktext"][1] == "Q=K<br>2 diverged"
    assert seeds[1]["x"] == [50.0] * 5
    assert seeds[1]["hovertext"][0].startswith("Q=K<br>seed 4:")
    assert "2 diverged" in describe_evidence(evidence)
    assert "2 diverged" in describe_differences(evidence)


def test_an_arm_without_the_measure_has_not_diverged():
    """Who is never tied has no accuracy when tied."""
    evidence = made({**ACCURACY, "Q=K": np.full(N_SEEDS, np.nan)})
    assert plot_evidence(evidence)["layout"]["yaxis"]["ticktext"][1] == "Q=K"
    assert "Q=K: no value." in describe_evidence(evidence)


def test_what_is_missing_is_left_out():
    """Of a run that goes on: an arm, all seeds of one, all but one."""
    nothing = np.full(N_SEEDS, np.nan)
    one = np.array([0.5, *nothing[1:]])
    without = made({"QKV": ACCURACY["QKV"]})
    assert plot_evidence(without)["layout"]["yaxis"]["ticktext"] == ["QKV"]
    assert len(plot_differences(without)["layout"]["annotations"]) == 1
    for values in (nothing, one):
        evidence = made({**ACCURACY, "Q=K": values}, {**LOSS, "Q=K": values})
        for plot in (plot_evidence, plot_differences):
            figure = go.Figure(plot(evidence)).to_dict()
            assert not any(np.isnan(trace["x"]).any() for trace in figure["data"])
    go.Figure(plot_differences(made({})))
    go.Figure(plot_evidence(made({})))


def test_no_mark_stands_on_another_statement_s_row():
    """Pairs, mean and region of a statement are on one strip under its words."""
    figure = plot_differences(made())
    regions = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect"][1::2]
    seeds, means = marks(figure)
    for region, pairs, mean in zip(regions, seeds, means, strict=True):
        assert region["yref"] == pairs["yaxis"] == mean["yaxis"]
        assert all(region["y0"] < y < region["y1"] for y in (*pairs["y"], *mean["y"]))


def test_units_have_panels_of_their_own():
    """Points are not drawn on an axis of nats."""
    layout = plot_differences(made())["layout"]
    assert layout["xaxis"]["title"]["text"] == "difference in points"
    assert layout["xaxis2"]["title"]["text"] == "difference in nats"
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]


def test_differences_are_those_of_the_pairs():
    """Filled where the statement holds."""
    seeds, means = marks(plot_differences(made()))
    expected = 100 * (ACCURACY["Q=K"] - ACCURACY["QKV"])
    np.testing.assert_allclose(seeds[0]["x"], expected)
    assert seeds[0]["marker"]["symbol"] == ["circle"] * 6 + ["circle-open"]
    assert means[0]["x"][0] == pytest.approx(expected.mean())
    assert "6 of 7 pairs" in plot_differences(made())["layout"]["annotations"][0]["text"]


def test_the_region_goes_from_its_limits_to_the_end_of_the_axis():
    """An open side ends where the axis does."""
    layout = plot_differences(made())["layout"]
    regions = [shape for shape in layout["shapes"] if shape["type"] == "rect"][1::2]
    low, high = layout["xaxis2"]["range"]
    assert regions[0]["x0"] == layout["xaxis"]["range"][0]
    assert regions[0]["x1"] == pytest.approx(-5)
    assert (regions[1]["x0"], regions[1]["x1"]) == (low, pytest.approx(-0.3))
    assert (regions[2]["x0"], regions[2]["x1"]) == (pytest.approx(-1), pytest.approx(0.5))
    assert low < -1 < 0.5 < high


def test_words_tell_what_figures_show():
    """Means, limits, pairs and verdicts."""
    words = describe_evidence(made())
    assert "QKV: mean 95.7%" in words
    assert "7 seeds" in words
    told = describe_differences(made())
    assert "Q=K is worse than QKV by more than 5 points: inconclusive: it holds in 6 of 7" in told


def test_a_name_is_no_markup():
    """Plotly reads some tags in its texts."""
    hostile = arm("K=V", "<b>bold</b>", task="dual_role")
    claim = dataclasses.replace(CLAIM, arms=(*CLAIM.arms, hostile))
    scores = {"<b>bold</b>": {"accuracy": ACCURACY["QKV"]}}
    figure = plot_evidence(made(claim=claim, scores=scores))
    assert figure["layout"]["yaxis"]["ticktext"] == ["&lt;b&gt;bold&lt;/b&gt;"]
