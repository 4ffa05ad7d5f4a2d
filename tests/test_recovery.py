"""What is tied after training and trained on, and what a head is worth: plans, findings, tables."""

import csv
from dataclasses import replace
from functools import cache

import numpy as np
import plotly.graph_objects as go
import pytest
from finished import finished
from kinds import tiny
from plotted import unpacked

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.recovery import curve_table, recovery_of, repeats, tied_variant, train_on
from attnkit.figures.heads import Ablation, ablations_of, heads_csv, heads_table, overall_finding
from attnkit.figures.recovery import plot_recovery
from attnkit.figures.ties import TieOption, next_way, ways_csv, ways_of, ways_table
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import Training, train
from attnkit.training.recorder import Recorder

KEEP_K = "QKV tie=K=V tie_by=keep_K"
MOST = 20_000


def further(text=KEEP_K, seed=0, most=MOST, variant="QKV", **given):
    """What is trained on after a small run."""
    return train_on(tiny("directed", **{"steps": 40, **given}), seed, variant, text, most)


@cache
def inspected(view, kind, *sharing, **given):
    """Return what a view finds in the film of a small run's first seed."""
    training = Training(tiny(kind, **{**given, "sharing": sharing, "n_seeds": 1}))
    recorder = Recorder(training)
    while not training.finished:
        training.advance(recorder.n_steps_left or 1)
        recorder.record_frame()
    return inspect(recorder.film, Inspection(view))


def rows_of(text):
    """The rows of a CSV text."""
    return list(csv.DictReader(text.splitlines()))


# What is trained


def test_a_run_is_trained_twice_as_long_beside_itself_untied():
    """Tied where it ended, or halfway; with its own warm-up and at most five of its seeds."""
    run = tiny("reverse", steps=40)
    experiment = train_on(run, 0, "QKV", KEEP_K, MOST)
    assert [variant.value for variant in experiment.sharing] == ["QKV", KEEP_K]
    assert experiment.task == run.task
    assert run.training.warm_up > 0
    for step in range(8):
        rates = {e.training.learning_rate_factor(step) for e in (run, experiment)}
        assert len(rates) == 1, step
    for most, steps, step in [(MOST, 80, 40), (60, 60, 40), (49, 49, 24), (40, 40, 20)]:
        experiment = further(most=most)
        tied_at = experiment.tie_step(tied_variant(experiment))
        assert (experiment.training.steps, tied_at) == (steps, step)
    for schedule in ("constant", "cosine"):
        experiment = further(schedule=schedule)
        assert experiment.training.schedule == "constant"
        assert repeats(tiny("directed", schedule=schedule), experiment) == (schedule == "constant")
    training = further(steps=4000, evaluate_every=1).training
    assert (training.steps, training.evaluate_every) == (8000, 2)
    for n_seeds, seed, seeds in [(1, 3, [3]), (9, 4, [4, 5, 6, 7, 8]), (9, 11, [7, 8, 9, 10, 11])]:
        assert list(further(seed=seed, n_seeds=n_seeds, first_seed=3).seeds) == seeds
    with pytest.raises(ValueError, match="untie nothing"):
        further("Q=K tie=K=V", variant="Q=K")
    with pytest.raises(InvalidExperiment, match="at most"):
        further(evaluate_every=100)


def test_widths_that_made_costs_equal_stay():
    """The variant is computed as it was in the run."""
    run = tiny("directed", sharing=["QKV", "Q=K"], equal="parameters")
    experiment = train_on(run, 0, "Q=K", "Q=K tie=Q=K=V", MOST)
    assert experiment.equal == "nothing"
    width = run.wiring("Q=K").sizes.d_head
    assert width != run.size.d_head
    assert {experiment.wiring(v, v.stages[0]).sizes.d_head for v in experiment.sharing} == {width}


@pytest.mark.parametrize("kind", ["directed", "transfer"])
def test_what_is_lost_at_once_is_what_the_trained_on_run_falls_to(kind):
    """The law of the page: the run repeats itself, then is tied; both ways give one number."""
    found = inspected("ties", kind, "QKV", steps=40)
    way = next(way for way in ways_of(found) if way.text == KEEP_K)
    run = tiny(kind, sharing=["QKV"], steps=40, n_seeds=1)
    recovery = recovery_of(train(train_on(run, 0, way.variant, way.text, MOST), "cpu").snapshot)
    assert recovery.step == 40
    assert recovery.before.mean == pytest.approx(way.before, abs=1e-6)
    assert recovery.at_once.mean == pytest.approx(way.at_once, abs=1e-6)


# What came of it


def snapshot_of(tied, status="finished", untied=1.0, before=(0.1, 0.6), **given):
    """A run with these accuracies after tying, by evaluation or by evaluation and seed."""
    tied = np.array(tied, float).reshape(len(tied), -1)
    start = np.array(before)[:, None] + np.zeros((2, tied.shape[1]))
    accuracy = [np.vstack([start, untied + 0 * tied]), np.vstack([start, tied])]
    experiment = further(n_seeds=tied.shape[1], evaluate_every=20, **given)
    snapshot = finished(experiment, np.stack(accuracy, 1))
    steps = np.arange(len(accuracy[0])) * 20
    snapshot.__dict__.update(status=status, eval_steps=steps, step=int(steps[-1]))
    return snapshot


def told(*tied, **given):
    """Return what is found in a run."""
    return recovery_of(snapshot_of(tied, **given))


RUNNING = {"status": "running"}
ABLE_LATER = {"untied": np.array([[0.2], [0.9]]), "before": (0.1, 0.1)}
FOUND = [
    (
        [[0.2, 0.2], [1, 0.5], [1, 0.995]],
        {},
        "Tied at step 40: 100% → 20% at once. Back with every seed after 20 to 40 steps. "
        "40 steps later it has 99% [97 to 100%], untied 100%.",
        "K=V is back at 99% (mean of 2 seeds).",
    ),
    ([[0.2, 0.2], [0.3, 1]], {}, "Back with 1 of 2 seeds after 20 steps.", "is not back: 65%"),
    ([0.2], RUNNING, "Tied at step 40: 100% → 20% at once.", ""),
    ([0.2, 0.3], RUNNING, "Not back yet. 20 steps", "After 20 more steps, K=V has 30%, the same"),
    ([0.2, 0.6, 1], {}, "Back after 40 steps.", "With 40 more steps, K=V is back at 100%."),
    ([0.2, 1, 0.7], {}, "Back after 20 steps.", "K=V is not back: 70%, against 100% untied."),
    ([1, 1, 0.995], {}, "so nothing was lost", "K=V stays at 99%."),
    ([0.995, 1, 1], {}, "so at most one point was lost", "K=V stays at 100%."),
    ([1, 1, 0.7], {}, "so nothing was lost", "K=V has fallen to 70%, against 100% untied."),
    (
        [0.2, 0.8],
        ABLE_LATER,
        "20% → 20%, so nothing was lost. 20 steps",
        "80%, the same model untied 90",
    ),
    ([0.2, 0.6, np.nan], {}, "40 steps later it has diverged", "K=V has diverged."),
]


def test_a_fall_and_a_recovery_are_told():
    """With the range over seeds where they differ; nothing before it is tied."""
    for tied, given, finding, outcome in FOUND:
        found = told(*tied, **given)
        assert finding in found.finding, tied
        assert outcome in found.outcome(), tied
        assert bool(found.outcome()) == (len(tied) > 1), tied
        last, untied = np.mean(tied[-1]), np.ravel(given.get("untied", 1.0)) - 0.01
        assert (found.came_back, found.caught_up) == (last >= untied[0], last >= untied[-1]), tied
    early = snapshot_of([0.2])
    early.__dict__.update(eval_steps=np.array([0, 10, 20]))
    assert recovery_of(early) is None


def test_the_outcome_names_other_sharings_that_ended_the_other_way():
    """Only if all their trials did, after as many steps."""
    back = told(0.2, 0.6, 1)
    lost = [told(0.2, 0.3, 0.3, text=f"QKV tie=Q=K{by}") for by in ("", " tie_by=keep_K")]
    with_40 = "With 40 more steps, "
    assert back.outcome(lost) == f"{with_40}K=V is back at 100%; Q=K is worse than before."
    assert lost[0].outcome([back]) == (
        f"{with_40}Q=K is not back: 30%, against 100% untied; K=V is as good as before."
    )
    assert back.outcome([back, replace(lost[0], steps_since=20)]).endswith("at 100%.")
    assert back.outcome([lost[0], replace(lost[1], now=back.now)]).endswith("at 100%.")


def test_the_figure_shows_both_and_where_it_is_tied_and_the_table_every_evaluation():
    """Plotly takes it; the legend names every line."""
    snapshot = snapshot_of([[0.2, 0.4], [0.6, 0.8]], text="QKV tie=Q=K")
    figure, curves = go.Figure(plot_recovery(snapshot)), {}
    for trace in figure.data:
        if trace.hovertemplate:
            y = unpacked(trace.y["bdata"])
            curves[trace.hovertemplate.split()[0]] = y
    assert [one.x0 for one in figure.layout.shapes if one.x0 == one.x1] == [40]
    np.testing.assert_allclose(curves["tied"], [0.1, 0.6, 0.3, 0.7], rtol=1e-6)
    np.testing.assert_allclose(curves["untied"], [0.1, 0.6, 1, 1], rtol=1e-6)
    assert "tied at step 40" in figure.layout.meta["legend"][0]["text"]
    rows = rows_of(curve_table(snapshot))
    assert len(rows) == 4 * 4
    found = [rows[11][name] for name in ("step", "sharing", "seed", "accuracy", "loss")]
    expected = np.float32(0.4), np.float32(0.6)
    assert found == ["40", "QKV tie=Q=K", "1", *map(str, expected)]


# All ways at once


def way(tie="Q=K", by="average", before=1.0, at_once=0.39, **other):
    """A way to tie QKV."""
    values = {"variant": "QKV", "text": f"QKV tie={tie}", "refusal": "", **other}
    return TieOption(tie=tie, by=by, before=before, at_once=at_once, **values)


COSTS = [
    (1, 0.39, "Tying W_Q and W_K to their average costs QKV 61 points at once: 100% → 39%."),
    (1, 1, "costs QKV nothing at once: it stays at 100%."),
    (0.981, 0.984, "changes QKV by less than one point at once: it stays at 98%."),
    (0.5, 0.6, "raises QKV by 10 points at once: 50% → 60%."),
    (0.2, 0.15, "it is near chance (17%), with 20% before tying and 15% after."),
]


def test_what_tying_costs_is_told_in_a_sentence():
    """Points are those between the percentages on screen."""
    for before, at_once, expected in COSTS:
        assert way(before=before, at_once=at_once).conclusion("QKV", 0.17).endswith(expected)
    kept = "Tying W_Q, W_K and W_V by keeping W_V costs QKV 1 point at once: 100% → 99%."
    assert way("Q=K=V", "keep_V", at_once=0.99).conclusion("QKV", 0.17) == kept
    assert way(refusal="No.").conclusion("QKV", 0.17).endswith("tied to Q=K in this way. No.")


def test_the_next_way_is_of_the_other_kind():
    """After a recovery one with symmetric scores that loses much, else one that loses little."""
    ways = [
        *(way("Q=K", by, at_once=at) for by, at in (("average", 0.4), ("keep_K", 0.3))),
        way("Q=K=V", at_once=0.35),
        *(way("K=V", by, at_once=at) for by, at in (("average", 0.7), ("keep_K", 0.6))),
        way("Q=V", at_once=0.8, text=""),
        way("Q=V", "keep_Q", at_once=0.9, refusal="No."),
        way("K=V", at_once=0.95, variant="MQA"),
    ]
    for chosen, tried, expected in [(3, (), 1), (3, ("Q=K, keep W_K",), 2), (2, (), 1)]:
        assert next_way(ways, ways[chosen], True, set(tried)) == ways[expected]
    assert next_way(ways, ways[0], False, set()) == ways[3]
    assert next_way(ways, ways[0], False, {"K=V, average", "K=V, keep W_K"}) is None


def test_every_way_has_its_row_and_the_chosen_one_is_marked():
    """One that is impossible says why; its number is missing, not zero."""
    ways = ways_of(inspected("ties", "directed", "QKV"))
    html = ways_table(ways, ways[4], 0.17)
    assert html.count("<tr") == len(ways) == 13
    assert html.count('aria-current="true"') == 1
    assert "keep W_K" in html.split('aria-current="true"')[1].split("</th>")[0]
    assert "chance 17%" in html
    rows = rows_of(ways_csv(ways))
    assert [row["by"] for row in rows[:3]] == ["average", "keep_Q", "keep_K"]
    assert float(rows[0]["accuracy_at_once"]) == pytest.approx(ways[0].at_once)
    refused = next(w for w in ways_of(inspected("ties", "directed", "QKV d_v=5")) if w.refusal)
    table = ways_table([refused], refused, 0.17).split("</table>")[0]
    assert refused.refusal in table
    assert "%" not in table
    assert rows_of(ways_csv([refused]))[0]["accuracy_at_once"] == ""


# Heads


def ablation(*head, whole=1.0, none=0.1):
    """Of a made-up variant; a layer without all its heads is as good as the worst of them."""
    head = np.array(head, np.float32)
    places = tuple(f"Layer {i + 1}" for i in range(len(head)))
    return Ablation("QKV", "#0072B2", places, whole, none, head, head.min(1))


ONE, TWO, FREE = ablation([0.1]), ablation([0.3, 0.9]), ablation([1, 1])
IDLE = ablation([0.1, 0.1], whole=0.1)
WORTH = [
    (ONE, "Without its head: 100% → 10%."),
    (TWO, "It needs head 1 most: 100% → 30% without. None can go."),
    (ablation([0.3, 1]), "It needs head 1 most: 100% → 30% without. Can go alone: head 2."),
    (ablation([0.3], [1]), "It needs layer 1 most: 100% → 30% without. Can go alone: layer 2."),
    (
        ablation([0.3, 1, 1], [1, 1, 0.5]),
        "It needs layer 1, head 1 most: 100% → 30% without. 4 of 6 can go, one at a time.",
    ),
    (FREE, "No head matters alone: 100% with all, at least 100% without one."),
    (IDLE, "Its heads do nothing yet: 10% with them, 10% without."),
]
TOGETHER = [
    ([ONE] * 2, "Without its only head, QKV falls most: 100% → 10%."),
    ([ONE], "Without its only head, QKV falls: 100% → 10%."),
    ([TWO, FREE], "QKV loses most without head 1: 100% → 30%. 2 of the 4 heads"),
    ([TWO, ONE], "QKV loses most without its only head: 100% → 10%. None of the 2 heads can go"),
    ([FREE], "each of the 2 can go, one at a time"),
    ([IDLE, ablation([0.1], whole=0.1)], "The heads have learnt nothing yet"),
]


def test_what_heads_are_worth_is_told():
    """Which matters most, which can go; what holds for all variants in one or two sentences."""
    for one, expected in WORTH:
        assert one.finding == expected
    for ablations, expected in TOGETHER:
        assert expected in overall_finding(ablations)


@pytest.mark.parametrize("kind", ["reverse", "dictionary"])
def test_every_head_of_every_layer_has_its_row_for_taking_away(kind):
    """Of tasks with one side and with two, of one head and of more."""
    found = ablations_of(inspected("heads", kind, "QKV", "K=V"))
    html = heads_table(found)
    n_layers, n_heads = found[0].without_head.shape
    assert html.count("<tbody>") == 2
    assert all((place in html) == (n_layers > 1) for place in found[0].layers)
    rows = rows_of(heads_csv(found))
    assert len(rows) == 2 * (1 + n_layers * (n_heads + 1) + 1)
    assert float(rows[0]["accuracy"]) == found[0].accuracy
    assert " &lt;b&gt;x</th>" in heads_table([replace(found[0], name="<b>x")])
