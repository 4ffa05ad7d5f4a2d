"""What is tied after training and trained on, and what a head is worth: plans, findings, tables."""

import base64
import csv
import io
from dataclasses import replace
from functools import cache

import numpy as np
import plotly.graph_objects as go
import pytest
from finished import finished
from kinds import tiny

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.recovery import curve_table, recovery_of, repeats, tied_variant, train_on
from attnkit.figures.heads import Ablation, ablations_of, heads_csv, heads_table, overall_finding
from attnkit.figures.recovery import plot_recovery, recovery_legend
from attnkit.figures.ties import Way, next_way, ways_csv, ways_of, ways_table
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import Training, train
from attnkit.training.camera import Camera

KEEP_K = "QKV tie=K=V tie_by=keep_K"

MOST = 20_000


def further(text=KEEP_K, seed=0, most=MOST, variant="QKV", **given):
    """What is trained on after a small run."""
    return train_on(tiny("directed", **{"steps": 40, **given}), seed, variant, text, most)


@cache
def filmed(kind, **given):
    """The film of a small run's first seed, to its end."""
    training = Training(tiny(kind, **{**given, "n_seeds": 1}))
    camera = Camera(training)
    while not training.finished:
        training.advance(camera.n_steps_left or 1)
        camera.shoot()
    return camera.film


def inspected(view, kind, **given):
    """What a view finds in it."""
    return inspect(filmed(kind, **given), Inspection(view))


# What is trained


def test_it_is_trained_twice_as_long_and_tied_where_the_run_ended():
    """Beside itself untied, with all other settings."""
    experiment = further()
    tied = tied_variant(experiment)
    assert [variant.value for variant in experiment.sharing] == ["QKV", KEEP_K]
    assert experiment.training.steps == 80
    assert experiment.tie_step(tied) == 40
    assert experiment.task == tiny("directed").task


def test_warm_up_takes_as_many_steps_as_before():
    """Its share is one of more steps."""
    run = tiny("reverse", steps=40)
    experiment = train_on(run, 0, "QKV", "QKV tie=K=V", MOST)
    shares = [
        e.training.learning_rate_factor(step) for step in range(40) for e in (run, experiment)
    ]
    assert run.training.warm_up > 0
    assert shares[::2][:8] == shares[1::2][:8]


def test_a_rate_that_has_fallen_to_zero_is_kept_constant_instead():
    """Which is another run from the start, and is told so."""
    constant, cosine = (tiny("directed", schedule=name) for name in ("constant", "cosine"))
    plans = [train_on(run, 0, "QKV", KEEP_K, MOST) for run in (constant, cosine)]
    assert [plan.training.schedule for plan in plans] == ["constant", "constant"]
    assert repeats(constant, plans[0])
    assert not repeats(cosine, plans[1])


@pytest.mark.parametrize(("most", "steps", "step"), [(60, 60, 40), (49, 49, 24), (40, 40, 20)])
def test_fewer_steps_are_taken_where_no_more_are_allowed(most, steps, step):
    """Tied where the run ended as long as it can be trained on a while, else halfway."""
    experiment = further(most=most)
    assert experiment.training.steps == steps
    assert experiment.tie_step(tied_variant(experiment)) == step


@pytest.mark.parametrize(
    ("n_seeds", "seed", "seeds"),
    [(1, 3, range(3, 4)), (4, 5, range(3, 7)), (9, 4, range(4, 9)), (9, 11, range(7, 12))],
)
def test_at_most_five_seeds_of_the_run_are_taken_the_chosen_one_among_them(n_seeds, seed, seeds):
    """As many as the run has."""
    assert further(seed=seed, n_seeds=n_seeds, first_seed=3).seeds == seeds


def test_widths_that_made_costs_equal_stay():
    """The variant is computed as it was in the run."""
    run = tiny("directed", sharing=["QKV", "Q=K"], equal="parameters")
    experiment = train_on(run, 0, "Q=K", "Q=K tie=Q=K=V", MOST)
    assert experiment.equal == "nothing"
    width = run.wiring("Q=K").sizes.d_head
    assert width != run.size.d_head
    assert {experiment.wiring(v, v.stages[0]).sizes.d_head for v in experiment.sharing} == {width}


def test_what_is_no_experiment_is_refused_and_evaluations_are_not_too_many():
    """In the words of whoever refuses; so many steps ask for rarer evaluations."""
    with pytest.raises(ValueError, match="untie nothing"):
        further("Q=K tie=K=V", variant="Q=K")
    with pytest.raises(InvalidExperiment, match="at most"):
        further(evaluate_every=100)
    training = further(steps=4000, evaluate_every=1).training
    assert (training.steps, training.evaluate_every) == (8000, 2)


def test_what_is_lost_at_once_is_what_the_trained_on_run_falls_to():
    """The law of the page: the run repeats itself, then is tied; both ways give one number."""
    for kind in ("directed", "transfer"):
        found = inspected("ties", kind, sharing=("QKV",), steps=40)
        way = next(way for way in ways_of(found) if way.text == KEEP_K)
        run = tiny(kind, sharing=["QKV"], steps=40, n_seeds=1)
        recovery = recovery_of(train(train_on(run, 0, way.variant, way.text, MOST), "cpu").snapshot)
        assert recovery.step == 40
        assert recovery.before.mean == pytest.approx(way.before, abs=1e-6)
        assert recovery.at_once.mean == pytest.approx(way.at_once, abs=1e-6)


# What came of it


def told(untied, tied, status="finished", **given):
    """The finding after accuracies by evaluation and seed, tied at the third of five or so."""
    n_seeds = np.shape(tied)[-1]
    experiment = further(n_seeds=n_seeds, evaluate_every=20, **given)
    accuracy = np.stack([untied, tied], 1)
    snapshot = finished(experiment, accuracy)
    snapshot.__dict__.update(
        status=status, eval_steps=np.arange(len(tied)) * 20, step=(len(tied) - 1) * 20
    )
    return recovery_of(snapshot), snapshot


def test_a_fall_and_a_recovery_are_told():
    """With the range over seeds; limits only where seeds differ."""
    untied = [[0.1, 0.1], [0.6, 0.6], [1, 1], [1, 1], [1, 1]]
    tied = [[0.1, 0.1], [0.6, 0.6], [0.2, 0.2], [1, 0.5], [1, 0.995]]
    assert told(untied, tied)[0].finding == (
        "Tied at step 40: 100% → 20% at once. Back with every seed after 20 to 40 steps. "
        "40 steps later it has 99% [97 to 100%], untied 100%."
    )


@pytest.mark.parametrize(
    ("last", "status", "expected"),
    [
        ([0.3, 0.3], "finished", "Not back. 20 steps later it has 30%, untied 100%."),
        ([0.3, 0.3], "running", "Not back yet. 20 steps later it has 30%, untied 100%."),
        ([0.3, 1.0], "finished", "Back with 1 of 2 seeds after 20 steps."),
        ([np.nan, np.nan], "finished", "Not back. 20 steps later it has diverged"),
    ],
)
def test_what_does_not_come_back_is_told(last, status, expected):
    """All of it, or some seeds."""
    before = [[0.1, 0.1], [0.6, 0.6]]
    ones = [[1, 1], [1, 1]]
    found, _ = told([*before, *ones], [*before, [0.2, 0.2], last], status)
    assert expected in found.finding


@pytest.mark.parametrize(
    ("tied", "status", "expected"),
    [
        ([0.2, 0.6, 1.0], "finished", "With 40 more steps, K=V is back at 100%."),
        ([0.2, 0.6, 1.0], "running", "After 40 more steps, K=V has 100%, the same model untied"),
        ([0.2, 0.6, 0.7], "finished", "K=V is not back: 70%, against 100% untied."),
        ([0.2, 1.0, 0.7], "finished", "K=V is not back: 70%, against 100% untied."),
        ([0.995, 1.0, 1.0], "finished", "K=V stays at 100%."),
        ([1.0, 1.0, 0.7], "finished", "K=V has fallen to 70%, against 100% untied."),
        ([0.2, 0.6, np.nan], "finished", "With 40 more steps, K=V has diverged."),
        ([0.2], "running", ""),
    ],
)
def test_the_outcome_is_told_in_a_sentence(tied, status, expected):
    """The page's conclusion says whether what was lost is back, and nothing before any step."""
    before, ones = [[0.1], [0.6]], [[1.0]] * len(tied)
    found, _ = told([*before, *ones], [*before, *([value] for value in tied)], status)
    outcome = found.outcome()
    assert outcome.endswith(expected) if "With" in expected else expected in outcome
    assert bool(outcome) == (len(tied) > 1)


def test_the_outcome_of_a_model_that_still_learns_is_not_called_a_recovery():
    """Also of several seeds, whose number is told."""
    early = [[0.1, 0.1], [0.1, 0.1], [0.2, 0.2]]
    found, _ = told([*early, [0.9, 0.9]], [*early, [0.8, 0.9]])
    assert found.outcome() == (
        "With 20 more steps, K=V reaches 85%, the same model untied 90% (mean of 2 seeds)."
    )
    assert found.came_back
    assert not found.caught_up


def test_the_outcome_names_other_sharings_that_ended_the_other_way():
    """Only if all their trials did, after as many steps."""
    before, ones = [[0.1], [0.6]], [[1.0]] * 3
    back, _ = told([*before, *ones], [*before, [0.2], [0.6], [1]])
    lost = [
        told([*before, *ones], [*before, [0.2], [0.3], [0.3]], text=f"QKV tie=Q=K{by}")[0]
        for by in ("", " tie_by=keep_K")
    ]
    assert (
        back.outcome(lost) == "With 40 more steps, K=V is back at 100%; Q=K is worse than before."
    )
    assert lost[0].outcome([back]) == (
        "With 40 more steps, Q=K is not back: 30%, against 100% untied; K=V is as good as before."
    )
    assert back.outcome([back, replace(lost[0], steps_since=20)]).endswith("at 100%.")
    assert back.outcome([lost[0], replace(lost[1], now=back.now)]).endswith("at 100%.")


def way(tie="Q=K", by="average", before=1.0, at_once=0.39, **other):
    """A way to tie QKV."""
    values = {"variant": "QKV", "text": f"QKV tie={tie}", "refusal": "", **other}
    return Way(tie=tie, by=by, before=before, at_once=at_once, **values)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (way(), "Tying W_Q and W_K to their average costs QKV 61 points at once: 100% → 39%."),
        (
            way("Q=K=V", "keep_V", at_once=0.99),
            "Tying W_Q, W_K and W_V by keeping W_V costs QKV 1 point at once: 100% → 99%.",
        ),
        (
            way(at_once=1.0),
            "Tying W_Q and W_K to their average costs QKV nothing at once: it stays at 100%.",
        ),
        (
            way(before=0.981, at_once=0.984),
            "Tying W_Q and W_K to their average changes QKV by less than one point at once: "
            "it stays at 98%.",
        ),
        (
            way(before=0.5, at_once=0.6),
            "Tying W_Q and W_K to their average raises QKV by 10 points at once: 50% → 60%.",
        ),
        (
            way(before=0.2, at_once=0.15),
            "QKV has little to lose yet: it is near chance (17%), with 20% before tying and 15% "
            "after.",
        ),
    ],
)
def test_what_tying_costs_is_told_in_a_sentence(one, expected):
    """Points are those between the percentages on screen."""
    assert one.conclusion("QKV", 0.17) == expected


def test_the_next_way_is_of_the_other_kind():
    """After a recovery one with symmetric scores that loses much, else one that loses little."""
    ways = [
        way("Q=K", at_once=0.4),
        way("Q=K", "keep_K", at_once=0.3),
        way("Q=K=V", at_once=0.35),
        way("K=V", at_once=0.7),
        way("K=V", "keep_K", at_once=0.6),
        way("Q=V", at_once=0.8, text=""),
        way("Q=V", "keep_Q", at_once=0.9, refusal="No."),
        way("K=V", at_once=0.95, variant="MQA"),
    ]
    assert next_way(ways, ways[3], True, set()) == ways[1]
    assert next_way(ways, ways[3], True, {"Q=K, keep W_K"}) == ways[2]
    assert next_way(ways, ways[3], True, {"Q=K, average"}) == ways[2]
    assert next_way(ways, ways[0], False, set()) == ways[3]
    assert next_way(ways, ways[0], False, {"K=V, average", "K=V, keep W_K"}) is None
    assert next_way(ways, ways[2], True, set()) == ways[1]


def test_nothing_is_told_of_tying_before_it_happens():
    """There is nothing to tell yet; at that very step only the fall."""
    early = [[0.1], [0.6]]
    assert told(early, early, "running")[0] is None
    found, _ = told([*early, [1]], [*early, [0.25]], "running")
    assert found.finding == "Tied at step 40: 100% → 25% at once."


def test_tying_that_costs_nothing_is_told():
    """It need not come back."""
    ones = [[1], [1], [1], [0.995]]
    assert "nothing was lost" in told(ones, ones)[0].finding


def test_the_figure_shows_both_and_where_it_is_tied():
    """Plotly takes it; the legend names every line."""
    rising = np.linspace(0, 1, 5)[:, None] + np.zeros((5, 3))
    _, snapshot = told(rising, rising, text="QKV tie=Q=K")
    figure = go.Figure(plot_recovery(snapshot))
    across = [np.frombuffer(base64.b64decode(trace.x["bdata"]), "f4") for trace in figure.data]
    assert [x[0] for x in across if len(x) == 2 and x[0] == x[1]] == [40]
    hovered = [trace.hovertemplate for trace in figure.data if trace.hovertemplate]
    assert [text.split()[0] for text in hovered] == ["untied", "tied"]
    assert "tied at step 40" in recovery_legend(snapshot)[0]["text"]


def test_curves_are_taken_away_as_a_table():
    """Every evaluation of every run."""
    _, snapshot = told([[0.1, 0.2]] * 3, [[0.1, 0.2]] * 3)
    rows = list(csv.DictReader(io.StringIO(curve_table(snapshot))))
    assert len(rows) == 3 * 4
    assert rows[3] == {
        "step": "0",
        "sharing": KEEP_K,
        "seed": "1",
        "accuracy": str(np.float32(0.2)),
        "loss": str(np.float32(0.8)),
        "asymmetry": str(snapshot.asymmetry[0, 3]),
    }


# All ways at once


def test_every_way_has_its_row_and_the_chosen_one_is_marked():
    """In a table that screen readers take for one."""
    ways = [w for w in ways_of(inspected("ties", "directed", sharing=("QKV",))) if w.variant]
    html = ways_table(ways, ways[4], 0.17)
    assert html.count("<tr") == len(ways) == 13
    assert html.count('aria-current="true"') == 1
    assert "keep W_K" in html.split('aria-current="true"')[1].split("</th>")[0]
    assert "chance 17%" in html
    rows = list(csv.DictReader(io.StringIO(ways_csv(ways))))
    assert [row["by"] for row in rows[:3]] == ["average", "keep_Q", "keep_K"]
    assert float(rows[0]["accuracy_at_once"]) == pytest.approx(ways[0].at_once)


def test_a_way_that_is_impossible_says_why():
    """In the table and in the sentence; its number is missing, not zero."""
    found = inspected("ties", "directed", sharing=("QKV d_v=5",))
    refused = next(way for way in ways_of(found) if way.refusal)
    assert refused.conclusion("QKV", 0.17) == (
        f"QKV cannot be tied to {refused.tie} in this way. {refused.refusal}"
    )
    html = ways_table([refused], refused, 0.17)
    assert "%" not in html.split("</table>")[0]
    (row,) = csv.DictReader(io.StringIO(ways_csv([refused])))
    assert row["accuracy_at_once"] == ""


# Heads


def ablation(head, whole=1.0, none=0.1):
    """Of a made-up variant; a layer without all its heads is as good as the worst of them."""
    head = np.array(head, np.float32)
    places = tuple(f"Layer {i + 1}" for i in range(len(head)))
    return Ablation("QKV", "#0072B2", places, whole, none, head, head.min(1))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (ablation([[0.1]]), "Without its head: 100% → 10%."),
        (ablation([[0.3, 0.9]]), "It needs head 1 most: 100% → 30% without. None can go."),
        (ablation([[0.3, 1.0]]), "It needs head 1 most: 100% → 30% without. Can go alone: head 2."),
        (
            ablation([[0.3], [1.0]]),
            "It needs layer 1 most: 100% → 30% without. Can go alone: layer 2.",
        ),
        (
            ablation([[0.3, 1, 1], [1, 1, 0.5]]),
            "It needs layer 1, head 1 most: 100% → 30% without. 4 of 6 can go, one at a time.",
        ),
        (ablation([[1, 1]]), "No head matters alone: 100% with all, at least 100% without one."),
        (ablation([[0.1, 0.1]], 0.1), "Its heads do nothing yet: 10% with them, 10% without."),
    ],
)
def test_what_heads_are_worth_is_told(one, expected):
    """Which matters most, which can go."""
    assert one.finding == expected


@pytest.mark.parametrize(
    ("all_of_them", "expected"),
    [
        ([ablation([[0.1]])] * 2, "Without its only head, QKV falls most: 100% → 10%."),
        ([ablation([[0.1]])], "Without its only head, QKV falls: 100% → 10%."),
        (
            [ablation([[0.3, 0.9]]), ablation([[1, 1]])],
            "QKV loses most without head 1: 100% → 30%. 2 of the 4 heads",
        ),
        (
            [ablation([[0.3, 0.9]]), ablation([[0.1]])],
            "QKV loses most without its only head: 100% → 10%. None of the 2 heads can go",
        ),
        ([ablation([[0.3, 0.9]])], "None of the 2 heads can go"),
        ([ablation([[1, 1]])], "each of the 2 can go, one at a time"),
        ([ablation([[0.1, 0.1]], 0.1)], "The heads have learnt nothing yet"),
        ([ablation([[0.1]], 0.1)], "The heads have learnt nothing yet"),
    ],
)
def test_what_holds_for_all_variants_is_told_first(all_of_them, expected):
    """In one or two sentences."""
    assert expected in overall_finding(all_of_them)


@pytest.mark.parametrize("kind", ["reverse", "dictionary"])
def test_every_head_of_every_layer_has_its_row_for_taking_away(kind):
    """Of tasks with one side and with two, of one head and of more."""
    found = ablations_of(inspected("heads", kind, sharing=("QKV", "K=V")))
    html = heads_table(found)
    n_layers, n_heads = found[0].without_head.shape
    assert html.count("<tbody>") == 2
    for place in found[0].layers:
        assert (place in html) == (n_layers > 1)
    rows = list(csv.DictReader(io.StringIO(heads_csv(found))))
    assert len(rows) == 2 * (1 + n_layers * (n_heads + 1) + 1)
    assert float(rows[0]["accuracy"]) == found[0].accuracy


def test_what_is_lost_colours_the_table_and_names_are_no_markup():
    """Nothing where nothing is lost, most where all is."""
    html = heads_table([replace(ablation([[1.0, 0.55, 0.1]]), name="<b>x")])
    strengths = [float(part.split(")")[0].split(",")[-1]) for part in html.split("rgba(")[1:4]]
    assert strengths == sorted(strengths)
    assert strengths[0] == 0 < strengths[1] == strengths[2] / 2
    assert " &lt;b&gt;x</th>" in html
