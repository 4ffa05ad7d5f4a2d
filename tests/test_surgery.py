"""Trained models that are changed: heads off, matrices tied and trained on, and rescues."""

import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from filming import experiment_of, film_of, reference_of
from finished import finished
from hypothesis import given
from hypothesis import strategies as st
from kinds import tiny
from plotted import unpacked

from attnkit.analysis import rescue
from attnkit.analysis.inspection import surgery
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.rescue import Outcome, changes_of, effect_sentences, untied, verdict_on
from attnkit.analysis.tying import curve_table, recovery_of, tied_variant, train_on
from attnkit.experiment import Experiment
from attnkit.figures.heads import Ablation, ablations_of, heads_csv, heads_table, overall_finding
from attnkit.figures.ties import (
    TieOption,
    plot_recovery,
    ways_csv,
    ways_of,
    ways_table,
)
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import metrics
from attnkit.training.cohort import Cohort
from attnkit.training.data import held_out_examples
from attnkit.training.loops import record
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, translucent

# Heads off, matrices tied at once

CPU = torch.device("cpu")


def ways_in(film, variant="QKV"):
    """Return the ways to tie one variant of a film."""
    return [way for way in ways_of(inspect(film, Inspection("ties"))) if way.variant == variant]


def accuracy_without(film, place, layers, heads):
    """Return the accuracy by the formula if these heads' rows of W_O are zero."""
    examples = held_out_examples(film.experiment, film.experiment.seeds, CPU)
    reference, _, own = reference_of(film, place, -1)
    own = dict(own)
    for layer in layers:
        by_head = own[f"{layer}.W_O"].unflatten(0, (reference.n_heads, -1)).clone()
        by_head[heads] = 0.0
        own[f"{layer}.W_O"] = by_head.flatten(0, 1)
    logits = reference.logits(own, examples.tokens[0])
    return float(metrics.accuracy(logits[None], examples.labels))


SIZES = {
    "directed": {"n_heads": 2, "n_layers": 2, "d_mlp": 17},
    "dictionary": {"n_heads": 2},
    "swap": {"blocks": "standard", "d_mlp": 8},
}


@pytest.mark.parametrize("task", SIZES)
def test_a_head_that_is_switched_off_has_no_rows_in_w_o(task):
    """Heads are switched off one at a time, all of a layer, and all of the model."""
    settings = SIZES[task]
    film = film_of(task, ("QKV", "Q=K=V", "MQA n_heads=4"), **settings, n_eval=128)
    found = inspect(film, Inspection("heads"))
    layers, everyone = range(len(film.experiment.layer_specs)), slice(None)
    for place, variant in enumerate(film.experiment.sharing):
        heads = range(film.experiment.wiring(variant).sizes.n_heads)
        for name, values in {
            "head": [[accuracy_without(film, place, [i], head) for head in heads] for i in layers],
            "layer": [accuracy_without(film, place, [i], everyone) for i in layers],
            "none": [accuracy_without(film, place, layers, everyone)],
        }.items():
            np.testing.assert_allclose(found.fixed[f"{place}.{name}"], values, atol=1e-6)


def test_the_whole_has_the_accuracy_of_the_lab(monkeypatch):
    """It is that of the last frame; of many examples the first are answered, which is said."""
    film = record(experiment_of("transfer", n_eval=64))
    for seen in map(film.at, film.steps):
        for view, name in (("heads", "accuracy_whole"), ("ties", "untied")):
            found = inspect(seen, Inspection(view))
            assert (found.header["n_examples"], found.header["step"]) == (64, seen.steps[0])
            expected = seen.metric("accuracy")[0].astype("f4")
            np.testing.assert_array_equal(found.fixed[name], expected)
            np.testing.assert_array_equal(found.framed["accuracy"][0], expected)
    monkeypatch.setattr(surgery, "MOST_EXAMPLES", 16)
    assert inspect(film, Inspection("heads")).header["n_examples"] == 16


def test_every_way_to_tie_is_tried():
    """These are all coarser sharings, by the average or any matrix that would be tied."""
    tied, first = "QKV tie=K=V", ("average", "keep_Q", "keep_K")
    film, every = film_of(sharing=("QKV", "Q=K", "K=V", "Q=K=V", tied)), []
    for tie in ("Q=K", "K=V", "Q=V", "Q=K=V"):
        every += [(tie, by) for by in ("average", *(f"keep_{r}" for r in tie.replace("=", "")))]
    for variant, expected in {
        "QKV": every,
        "Q=K": [("Q=K=V", by) for by in ("average", "keep_Q", "keep_V")],
        "K=V": [("Q=K=V", by) for by in first],
        "Q=K=V": [],
        tied: [("Q=K=V", by) for by in first],
    }.items():
        assert [(way.tie, way.by) for way in ways_in(film, variant)] == expected
    assert len(ways_in(film.at(0), tied)) == len(every)
    assert {way.text for way in ways_in(film, tied)} == {""}  # is tied in training already
    for way in ways_in(film):
        assert len(Variant(way.text).stages) == 2
        assert ("tie_by" in Variant(way.text).given) == (way.by != "average")


@pytest.mark.parametrize("variant", ["QKV", "K=V", "MQA n_heads=2", "QKV diff", "K=V scaled"])
def test_tying_at_once_is_what_training_does_when_it_ties(variant):
    """The text that is told trains to the same weights, and is evaluated with this accuracy."""
    settings = {"n_eval": 128, "n_heads": 2, "learning_rate": 0.05}
    film = record(experiment_of("directed", sharing=[variant], **settings))
    ways = [way for way in ways_in(film.at(2), film.experiment.sharing[0]) if not way.refusal]
    for way in ways:
        cohort = Cohort(experiment_of("directed", sharing=[way.text], **settings), [0], CPU)
        cohort.advance(2)
        assert cohort.experiment.tie_step(way.text) == cohort.evaluations[-1].step == 2
        assert way.at_once == np.float32(cohort.evaluations[-1].metrics["accuracy"][0])
    assert len({way.at_once for way in ways}) > (len(ways) > 3)


def test_what_cannot_be_tied_says_why():
    """It has no accuracy; widths of equal costs are no reason."""
    for variant, tie, reason in (
        ("QKV d_k=3 d_v=10", "K=V", "1 × 3 .* 1 × 10"),
        ("QKV K=I d_head=m/h", "Q=K", "no matrix"),
        ("QKV kv_rank=m/4", "Q=K", "[.]$"),
    ):
        film = film_of(sharing=(variant,))
        refused = [way for way in ways_in(film, film.experiment.sharing[0]) if way.tie == tie]
        assert refused
        assert all(re.search(reason, way.refusal) and np.isnan(way.at_once) for way in refused)
    film = film_of(sharing=("QKV", "K=V"), equal="parameters")
    assert film.experiment.adjusted("K=V").changes
    assert not any(way.refusal for text in ("QKV", "K=V") for way in ways_in(film, text))


# What is trained on

KEEP_K = "QKV tie=K=V tie_by=keep_K"
MOST = 20_000


def further(text=KEEP_K, seed=0, most=MOST, variant="QKV", **given):
    """Return the experiment in which a small run is tied and trained on."""
    return train_on(tiny("directed", **{"steps": 40, **given}), seed, variant, text, most)


def test_a_run_is_trained_twice_as_long_beside_itself_untied():
    """It is tied where it ended, or halfway, with its warm-up, widths and at most five seeds."""
    run = tiny("reverse", steps=40)
    experiment = train_on(run, 0, "QKV", KEEP_K, MOST)
    assert [variant.value for variant in experiment.sharing] == ["QKV", KEEP_K]
    assert (experiment.task, run.training.warm_up > 0) == (run.task, True)
    for step in range(8):
        assert len({e.training.learning_rate_factor(step) for e in (run, experiment)}) == 1
    for most, steps, step in [(MOST, 80, 40), (60, 60, 40), (49, 49, 24), (40, 40, 20)]:
        experiment = further(most=most)
        tied_at = experiment.tie_step(tied_variant(experiment))
        assert (experiment.training.steps, tied_at) == (steps, step)
        assert experiment.training.schedule == "constant"
    for n_seeds, seed, seeds in [(1, 3, [3]), (9, 4, [4, 5, 6, 7, 8]), (9, 11, [7, 8, 9, 10, 11])]:
        assert list(further(seed=seed, n_seeds=n_seeds, first_seed=3).seeds) == seeds
    with pytest.raises(ValueError, match="untie nothing"):
        further("Q=K tie=K=V", variant="Q=K")
    with pytest.raises(InvalidExperiment, match="at most"):
        further(evaluate_every=100)
    run = tiny("directed", sharing=["QKV", "Q=K"], equal="parameters")
    experiment = train_on(run, 0, "Q=K", "Q=K tie=Q=K=V", MOST)
    widths = {experiment.wiring(v, v.stages[0]).sizes.d_head for v in experiment.sharing}
    assert widths == {run.wiring("Q=K").sizes.d_head} != {run.size.d_head}


def snapshot_of(tied, status="finished", untied=1.0, before=(0.1, 0.6), **given):
    """Return a run with these accuracies after tying, by evaluation or evaluation and seed."""
    tied = np.array(tied, float).reshape(len(tied), -1)
    start = np.array(before)[:, None] + 0 * tied[0]
    accuracy = [np.vstack([start, after + 0 * tied]) for after in (untied, tied)]
    experiment = further(n_seeds=tied.shape[1], evaluate_every=20, **given)
    steps = np.arange(2 + len(tied)) * 20
    snapshot = finished(experiment, np.stack(accuracy, 1))
    return replace(snapshot, status=status, eval_steps=steps, step=int(steps[-1]))


@pytest.mark.parametrize(
    ("tied", "settings", "finding"),
    [  # accuracies since it was tied
        ([[0.2, 0.2], [1, 0.5], [1, 0.995]], {}, "every seed after 20 to 40"),
        ([[0.2, 0.2], [0.3, 1]], {}, r"1 of 2 seeds after 20 steps\. 20 steps later it has 65%"),
        ([0.2], {"status": "running"}, "→ 20% at once.$"),
        ([0.2, 0.3], {"status": "running"}, r"Not back yet\. 20 .* 30%, untied 100%"),
        ([0.2, 0.6, 1], {}, "Back after 40 steps"),
        ([0.2, 1, 0.7], {}, "Back after 20 steps.* 70%, untied 100%"),
        ([0.2, 0.3, 0.3], {}, r"Not back\. "),
        ([1, 1, 0.995], {}, "nothing was lost"),
        ([0.2, 0.6, np.nan], {}, "has diverged"),
    ],
)
def test_a_fall_and_a_recovery_are_told(tied, settings, finding):
    """Seeds that differ have a range; nothing is told before the run is tied."""
    snapshot = snapshot_of(tied, **settings)
    assert re.search(finding, recovery_of(snapshot).finding)
    assert recovery_of(replace(snapshot, eval_steps=snapshot.eval_steps * 0)) is None


def test_the_figure_shows_both_and_where_it_is_tied_and_the_table_every_evaluation():
    """The curves are means over seeds; Plotly accepts the figure."""
    snapshot = snapshot_of([[0.2, 0.4], [0.6, 0.8]], text="QKV tie=Q=K")
    figure = go.Figure(plot_recovery(snapshot))
    named = {trace.hovertemplate.split()[0]: trace for trace in figure.data if trace.hovertemplate}
    assert [one.x0 for one in figure.layout.shapes if one.x0 == one.x1] == [40]
    for name, means in {"tied": [0.1, 0.6, 0.3, 0.7], "untied": [0.1, 0.6, 1, 1]}.items():
        np.testing.assert_allclose(unpacked(named[name].y["bdata"]), means, rtol=1e-6)
    table = pd.read_csv(io.StringIO(curve_table(snapshot)))
    found = table.loc[11, ["step", "sharing", "seed", "accuracy", "loss"]].tolist()
    assert (len(table), found) == (4 * 4, [40, "QKV tie=Q=K", 1, 0.4, 0.6])


# All ways at once


def way(tie="Q=K", by="average", before=1.0, at_once=0.39, **other):
    """Return a way to tie QKV."""
    values = {"variant": "QKV", "text": f"QKV tie={tie}", "refusal": "", **other}
    return TieOption(tie=tie, by=by, before=before, at_once=at_once, **values)


SHARES = st.floats(0, 1)


@given(before=SHARES, at_once=SHARES, chance=SHARES)
def test_what_tying_costs_is_the_difference_of_the_percentages_shown(before, at_once, chance):
    """Near chance nothing can be lost; a difference below one point is called so."""
    told = way(before=before, at_once=at_once).conclusion("QKV", chance)
    shown = [int(number) for number in re.findall(r"(\d+)%", told)]
    if before < chance + 0.05:
        assert (told.startswith("QKV has little to lose"), len(shown)) == (True, 3)
    elif found := re.search(r"(costs|raises) QKV .*?(\d+) points? at once", told):
        points = int(found[2]) if found[1] == "costs" else -int(found[2])
        assert (shown[0] - shown[1], points != 0) == (points, True)
    else:
        assert re.search("nothing at once|less than one point", told)
        assert abs(before - at_once) < 0.02
    tie = "W_Q and W_K to their average"
    assert (tie in told) == (before >= chance + 0.05)


def test_every_way_has_its_row_and_the_chosen_one_is_marked():
    """A way that is impossible says why; its number is missing, not zero."""
    ways = ways_in(film_of())
    html = ways_table(ways, ways[4], 0.17)
    assert (html.count("<tr"), html.count('aria-current="true"')) == (13, 1)
    assert "keep W_K" in html.split('aria-current="true"')[1].split("</th>")[0]
    refused = replace(ways[0], refusal="No <way>.", at_once=np.nan)
    rows = pd.read_csv(io.StringIO(ways_csv([*ways[:3], refused])))
    assert rows["by"].tolist() == ["average", "keep_Q", "keep_K", "average"]
    np.testing.assert_allclose(rows["accuracy_at_once"][[0, 3]], [ways[0].at_once, np.nan])
    table = ways_table([refused], refused, 0.17).split("</table>")[0]
    assert ("No &lt;way&gt;." in table, "%" in table) == (True, False)


# Heads


def ablation(*head, whole=1.0, none=0.1):
    """Return a variant in which a layer without its heads is as good as without the worst."""
    head = np.array(head, np.float32)
    places = tuple(f"Layer {i + 1}" for i in range(len(head)))
    return Ablation("QKV", "#0072B2", places, whole, none, head, head.min(1))


def test_what_heads_are_worth_is_told():
    """The sentences say which head matters most, and which can go."""
    one, two, free = ablation([0.1]), ablation([0.3, 0.9]), ablation([1, 1])
    for found, expected in (
        (one.finding, "Without its head: 100% → 10%"),
        (ablation([0.3], [1]).finding, "needs layer 1 most: .* alone: layer 2[.]"),
        (ablation([0.3, 1, 1], [1, 1, 0.5]).finding, "layer 1, head 1 most: .* 4 of 6 can go"),
        (free.finding, "No head .* 100% with all, at least 100%"),
        (ablation([0.1, 0.1], whole=0.1).finding, "nothing yet: 10% with them, 10% without"),
        (overall_finding([two, free]), "QKV .* head 1: 100% → 30%. 2 of the 4 heads"),
        (overall_finding([two, one]), "QKV .* only head: 100% → 10%. None of the 2"),
        (overall_finding([free]), "each of the 2"),
    ):
        assert re.search(expected, found), found


@pytest.mark.parametrize("kind", ["reverse", "dictionary"])
def test_every_head_of_every_layer_has_its_row_for_taking_away(kind):
    """This holds for tasks with one side and with two, and for one head and more."""
    settings = {"sharing": ("QKV", "K=V"), "n_heads": 2 if kind == "reverse" else 1}
    found = ablations_of(inspect(film_of(kind, **settings), Inspection("heads")))
    html = heads_table(found)
    n_layers, n_heads = found[0].without_head.shape
    assert html.count("<tbody>") == 2
    assert all((place in html) == (n_layers > 1) for place in found[0].layers)
    rows = pd.read_csv(io.StringIO(heads_csv(found)))
    assert len(rows) == 2 * (1 + n_layers * (n_heads + 1) + 1)
    assert rows["accuracy"][0] == pytest.approx(found[0].accuracy)
    assert " &lt;b&gt;x</th>" in heads_table([replace(found[0], name="<b>x")])
    html = heads_table([ablation([0.3, 0.9]), ablation([0.1])])  # the more is lost, the darker
    shade = translucent(REFERENCE, round((1 - 0.3) / (1 - 0.1) * 0.55, 3))
    assert ("Layer" in html, html.count(shade), html.count("ak-gap")) == (False, 2, 1)


# What rescues symmetric scores

FIVE = np.array([0.5, 0.48, 0.52, 0.49, 0.51])


def directed(sharing=("QKV", "Q=K", "K=V", "Q=V", "Q=K=V"), **settings):
    """Return an experiment on the directed relation, with all five columns by default."""
    return Experiment(task="directed", sharing=sharing, **settings)


def test_each_change_differs_in_one_setting_and_is_offered_where_it_is_none_yet():
    """Columns that must be symmetric by their wiring stay, and one beside them."""
    texts = ["QKV", "Q=K", "Q=K=V", "Q=K positions=rope", "Q=K unit_key"]
    found = rescue.symmetric_variants(directed(sharing=texts))
    assert {variant.value for variant in found} == {"Q=K", "Q=K=V", "Q=K positions=rope"}
    before, changes = directed().settings(), changes_of(directed())
    labels = ["4 heads", "2 layers", "an MLP of 128", "a model width of 64", "1,800 steps"]
    assert [change.label for change in changes] == labels
    for change in changes:
        after = change.experiment.settings()
        assert {n for n in after if after[n] != before[n]} == {"sharing", change.setting}
        assert after["sharing"] == ["QKV", "Q=K", "Q=K=V"]
    large = directed(n_heads=4, n_layers=4, d_model=512, d_mlp=64, self_mask=False)
    assert [one.setting for one in changes_of(large)] == ["n_heads", "steps", "self_mask"]
    change = changes_of(directed(sharing=["Q=K", "Q=V"]))[-1]  # whose untied column is not there
    assert (change.setting, *change.experiment.sharing) == ("sharing", "QKV", "Q=K", "Q=V")
    assert untied(Variant("Q=K=V positions=rope")) == "K=V positions=rope"
    assert untied(Variant("Q=K signed")) is untied(Variant("QKV")) is None


def outcome(experiment, **accuracy):
    """Return made-up accuracies, in which the variants are named without their equals signs."""
    named = {"QKV": np.ones(5), "Q_K": FIVE, "Q_V": np.zeros(5)} | accuracy
    return Outcome(experiment, {v: named[v.value.replace("=", "_")] for v in experiment.sharing})


def test_verdicts_go_by_differences_seed_by_seed():
    """A gain must be sure and large, and is a rescue near the goal; one seed is never sure."""
    for after, verdict in (
        (FIVE + 0.47, "rescued"),
        (FIVE + 0.3, "partly rescued"),
        (FIVE + 0.01, "no real difference"),
        (FIVE - 0.2, "worse"),
        (FIVE + np.array([0.5, -0.4, 0.4, -0.3, 0.2]), "not sure with so few seeds"),
        (FIVE * np.nan, "diverged"),
        (np.array([1.0, 0.97, np.nan, 0.98, 1.0]), "rescued"),
        (np.array([1.0, *[np.nan] * 4]), "not sure with one seed"),
    ):
        assert verdict_on(FIVE, after, 1.0) == verdict, after
    assert verdict_on(FIVE * np.nan, FIVE, 1.0) == "nothing to compare, since seeds diverged"


def test_the_goal_is_the_better_of_what_other_columns_had_before_and_after():
    """To be as bad as a column that collapsed is no rescue; intervals and seeds are told."""
    experiment = directed(sharing=["QKV", "Q=K"])
    change = changes_of(experiment)[0]
    for free_before, free_after, goal in (
        (1.0, 0.52, 1.0),
        (0.55, 0.52, 0.55),
        (0.52, 0.9, 0.9),
        (np.nan, 0.52, 0.52),
        (np.nan, np.nan, 1.0),
    ):
        before = outcome(experiment, QKV=np.full(5, free_before), Q_K=FIVE - 0.04)
        after = outcome(change.experiment, QKV=np.full(5, free_after), Q_K=FIVE)
        assert rescue.goal_of(before, after) == pytest.approx(goal)
        (sentence,) = effect_sentences(before, after, change.setting)
        verdict = "partly rescued" if goal > 0.55 else "rescued"
        assert re.match(f"Q=K: 46% .* 1 head → 50% .* 4 heads.*: {verdict}[.]$", sentence)
    for q_k, told in (
        (FIVE + 0.28, r"→ 78% .* 76 to 80%, 5 seeds\): partly rescued"),
        (np.append(FIVE[:4] + 0.28, np.nan), r"→ 78% .* 5 seeds, 1 diverged\): partly rescued"),
    ):
        after = outcome(change.experiment, Q_K=q_k)
        (sentence,) = effect_sentences(outcome(experiment), after, change.setting)
        assert re.match(f"Q=K: 50% with 1 head {told}", sentence), sentence
    tied = directed(sharing=["Q=K", "Q=V"])  # untied, another column stands for it
    change = changes_of(tied)[-1]
    (told,) = effect_sentences(outcome(tied), outcome(change.experiment), change.setting)
    assert re.match(r"Q=K: 50% → 100% .*\(QKV\).* rescued", told)
