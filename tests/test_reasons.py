"""Reasons: every row of their tables is said of some results, and only where its claims hold."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from finished import finished
from kinds import KINDS, tiny
from own_modules import Gated, Linear

from attnkit.analysis import reasons
from attnkit.analysis.attention_map import example_of, marked_pair, named_query
from attnkit.analysis.reasons import headline, reason
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.foundation.words import Sentence
from attnkit.tasks import NOTHING, TASKS
from attnkit.training import Training
from attnkit.training.summary import measures_finding, percent
from attnkit.variants import Variant
from attnkit.variants.module import variant as variant_of

NAN = np.nan
FIVE = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
RELATIONS = "\n".join(f"P{i}\tboss\tP{(i - 1) // 3}" for i in range(1, 40))
CONTRADICTING = "\n".join(f"N{i % 12}\tV{i % 8}" for i in range(20))
SETTINGS = [
    {"kind": "directed", "sharing": FIVE, "n_seeds": 1, "d_head": 4},
    {"kind": "directed", "sharing": ["QKV", "Q=K", "Q=K=V"], "learning_rate": 0.02},
    {"kind": "directed", "sharing": ["QKV", "Q=K skew=4", "Q=K n_heads=2"], "d_head": 8},
    {"kind": "dual_role", "sharing": ["QKV", "Q=K"], "n_seeds": 1},
    {"kind": "relations", "data": RELATIONS, "sharing": ["QKV", "Q=K"], "n_seeds": 1},
    {"kind": "phonebook", "sharing": ["QKV", "K=V", "Q=V"], "n_seeds": 3, "d_head": 4},
    {"kind": "k_hop", "sharing": ["Q=K"], "n_seeds": 2},
    {"kind": "reverse", "sharing": ["QKV", "Q=V"]},
    {"kind": "language", "sharing": ["K=V"]},
    {"kind": "pairs", "data": CONTRADICTING, "learn": "by_heart", "sharing": ["QKV", "Q=K"]},
    {"kind": "transfer", "sharing": ["QKV", "Q=K"], "steps": 16, "earlier_steps": 15},
]
CURVES = [
    [0, 1, 1, 1, 1],
    [0, 0.6, 0.6, 0.6, 0.6],
    [0, 0.3, 0.4, 0.5, 0.6],
    [0, 0.5, 0.5, 0.5, 0.5],
]
CURVES += [[0.1, 0.1, 0.1, 0.1, 0.1], [0, 0.97, 0.97, 0.97, 0.97], [0, 0.58, 0.59, 0.595, 0.6]]
LOSSES = [[1, 1, 1, 1, 1], [1, 0.8, 0.7, 0.6, 0.5], [1, 2, 3, 2.8, 1.3], [0.9, 0.5, 0.3, 0.3, 0.3]]


@cache
def base(index):
    """Return the snapshot before the first step of an experiment with one of the settings."""
    given = dict(SETTINGS[index])
    kind = given.pop("kind")
    if kind in KINDS:
        return Training(tiny(kind, **given), "cpu").snapshot()
    short = {"steps": 8, "evaluate_every": 2, "batch_size": 16, "n_eval": 16}
    return Training(Experiment(task=kind, **short, **given), "cpu").snapshot()


def drawn(seed):
    """Return a snapshot with histories and an example's attention that are drawn at random."""
    rng = np.random.default_rng(seed)
    start = base(seed % len(SETTINGS))
    experiment, probe, n = start.experiment, start.probe, start.experiment.n_runs

    def each(*options):
        return np.array([options[rng.integers(len(options))] for _ in range(n)], float)

    solved = rng.random(n) < (np.array([v == "QKV" for v, _ in experiment.runs]) * 0.8)
    curves = np.where(solved[:, None], CURVES[0], each(*CURVES)).T
    losses = np.log(experiment.task.n_classes) * each(*LOSSES).T
    losses[:, curves[-1] > 0.9] = 0.1
    diverged = rng.random(n) < 0.05
    shape = (len(experiment.sharing), experiment.n_seeds)
    curves[2:, diverged] = losses[2:, diverged] = NAN
    over = finished(
        experiment,
        curves.reshape(5, *shape),
        losses.reshape(5, *shape),
        np.where(diverged, 4, -1),
    )
    masses = each((0.97, 0), (0.45, 0.44), (0.45, 0.44), (0.002, 0.1), (NAN, NAN)).T
    last = {"mass_on_target": masses[0], "mass_on_reverse": masses[1]}
    last |= {"training_accuracy": each(0.97, 0.6, NAN, 0.6), "score_symmetry": each(1, 1, 0)}
    last["symmetry_error"] = each(0, 0, 0.03, 1.5)
    history = dict(over.history)
    for name, values in last.items():
        history[name] = np.tile(values, (5, 1)).astype(np.float32)
    size, first = experiment.task.n_ctx, experiment.task.answers_from
    pattern = rng.dirichlet(np.full(size, 0.5), (*probe.pattern.shape[:3], size))
    look = rng.integers(4)
    if look == 0:
        pattern = 0.1 * pattern + 0.9 * np.eye(size)
    elif look == 1:
        pattern[..., :first] *= 0.01
        pattern /= pattern.sum(-1, keepdims=True)
    pattern[np.isnan(probe.pattern)] = NAN  # heads that a variant lacks
    scores = probe.scores
    if scores is not None:
        scores = rng.normal(0, 3, scores.shape)
        scores = scores + np.swapaxes(scores, -1, -2) + each(0, 1)[0] * 0.05 * rng.normal(size=size)
    if rng.random() < 0.1:
        scores = None
    steps = over.eval_steps
    untrained = rng.random() < 0.05
    slices = np.where(rng.random(over.slice_accuracy.shape) < 0.5, 0.98, 0.2)
    slices[curves[-1] > 0.9] = 0.98
    return replace(
        over,
        status="running" if rng.random() < 0.3 else "finished",
        step=0 if untrained else int(steps[-1]),
        history=history,
        slice_accuracy=np.where(rng.random() < 0.3, slices, NAN * slices).astype(np.float32),
        probe=replace(probe, pattern=pattern.astype(np.float16), scores=scores),
    )


def holds(snapshot, run, found):
    """Return whether the claims of a sentence hold, from the arrays of the snapshot."""
    variant, seed = snapshot.experiment.runs[run]
    last = {name: float(snapshot.latest(name)[run]) for name in snapshot.history}
    accuracy, loss = (snapshot.history[name][:, run] for name in ("accuracy", "loss"))
    guess, text = np.log(snapshot.experiment.task.n_classes), found.sentence
    own = [k for k, (v, _) in enumerate(snapshot.experiment.runs) if v == variant]
    solved = np.isfinite(snapshot.steps_to_threshold())[own] & (
        snapshot.latest("accuracy")[own] >= 0.99
    )
    numbers = re.findall(r"\d+\.\d\d\b", text)
    at = dict(zip(map(str, snapshot.eval_steps), zip(accuracy, loss, strict=True), strict=True))
    steps = (
        [at[step] for step in re.findall(r"at step (\d+)", text)]
        if found.kind != "diverged"
        else []
    )
    alike = last["symmetry_error"] <= 0.1 and last["score_symmetry"] > 0
    probe, first = snapshot.probe, snapshot.experiment.task.answers_from
    attention = np.nanmean(probe.pattern[run, -1].astype(float), 0)
    asked = np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    looking = attention[first + asked]
    itself = looking[np.arange(len(asked)), first + asked][probe.target[asked] != first + asked]
    runs = snapshot.experiment.runs
    plain = snapshot.latest("accuracy")[runs.index((Variant("QKV"), seed))] if "QKV" in text else 0
    claims = {
        "failed": lambda: not (snapshot.latest("accuracy") > 0.65).any(),
        "diverged": lambda: np.isnan(loss[-1]) and "step 4" in text,
        "not trained": lambda: snapshot.step == 0,
        "too fast": lambda: last["accuracy"] < 0.5 and "0.02" in text and "0.005" in found.advice,
        "mirrored": lambda: alike and abs(last["mass_on_target"] - last["mass_on_reverse"]) < 0.05,
        "alike in table": lambda: alike and f"QKV {percent(plain)}" in text,
        "finds itself": lambda: f"give {percent(itself.mean())} of" in text,
        "looks elsewhere": lambda: f"give {percent(looking[:, first:].sum(1).mean())} of" in text,
        "narrow head": lambda: accuracy[-1] > accuracy[-2] and f"QKV {percent(plain)}" in text,
        "this seed": lambda: f"{solved.sum()} of {len(own)} seeds" in text and not solved[seed],
        "worse than guesses": lambda: numbers == [f"{loss[-1]:.2f}", f"{guess:.2f}"],
        "chance": lambda: loss[-1] == pytest.approx(guess, rel=0.02),
        "memorised": lambda: last["training_accuracy"] > last["accuracy"],
        "learning": lambda: steps[0] != steps[1] and (
            numbers == [f"{step[1]:.2f}" for step in steps]
            if "loss" in text
            else re.findall(r"\d+%", text) == [percent(step[0]) for step in steps]
        ),
        "part": lambda: "98%" in text and "20%" in text,
        "contradictions": lambda: "than about 60% can" in text and last["accuracy"] >= 0.57,
        "unknown": lambda: last["accuracy"] < 0.95 and snapshot.status != "running",
    }  # fmt: skip
    shown = found.kind in ("failed", "diverged", "worse than guesses", "chance", "part")
    shown |= found.kind in ("finds itself", "looks elsewhere") or "loss" in text
    return claims[found.kind]() and (shown or percent(last["accuracy"]) in text)


def test_every_sentence_is_said_of_some_result_and_only_where_its_claims_hold(monkeypatch):
    """A solved run has none; a headline is the clearest; an earlier task does not count."""
    said, fill = Counter(), Sentence.fill

    def counting(row, *args):
        said[row.text] += 1
        return fill(row, *args)

    monkeypatch.setattr(Sentence, "fill", counting)
    order = list(dict.fromkeys(row.kind for row in reasons.KINDS))
    for number in range(2000, 2990):
        snapshot = drawn(number)
        counted, solved = snapshot.counted()[-1], snapshot.latest("accuracy") == 1
        of_runs = {}
        for run, (variant, seed) in enumerate(snapshot.experiment.runs):
            found = of_runs[variant, seed] = reason(snapshot, variant, seed)
            assert found is None or holds(snapshot, run, found), (number, found)
            assert not (found and solved[run] and snapshot.step)
            assert not found or counted[run] or found.kind in reasons.OF_EVERY_EVALUATION
            assert found is None or "{" not in found.sentence + found.advice
        for seed in snapshot.experiment.seeds:
            here = [found for (_, s), found in of_runs.items() if s == seed and found]
            first = headline(snapshot, seed)
            if here:
                assert first in here
                assert order.index(first.kind) == min(order.index(each.kind) for each in here)
            assert here or first is None or first.kind in ("solved", "other seeds")
    rows = [
        *reasons.KINDS,
        *(
            row
            for table in (reasons.ADVICE, reasons.PARTS)
            for rows in table.values()
            for row in rows
        ),
    ]
    assert {row.text for row in rows} - said.keys() == set()


def ended(*curves, kind="phonebook", **given):
    """Return a finished snapshot from curves of accuracy, for every variant one for each seed."""
    rows = np.array(curves, float).transpose(2, 0, 1)
    experiment = tiny(kind, **{"n_seeds": rows.shape[2], "sharing": ["Q=K"], **given})
    return finished(experiment, rows, diverged_at=np.where(np.isnan(rows[-1]), 4, -1))


SOLVED, FLAT, RISES = CURVES[:3]


def test_the_headline_is_of_the_lowest_curve_or_counts_the_matrices():
    """If all variants solve the task, or nearly do, at least with one seed, there is no reason."""
    higher = [0.1, *RISES[1:4], 0.7]
    curves = ended([higher], [RISES], [higher], sharing=["QKV", "Q=K", "K=V"], d_head=16)
    assert headline(curves, 0) == reason(curves, Variant("Q=K"), 0)
    nearly, lost = [0, *[0.98] * 4], [0, 0.6, 0.6, NAN, NAN]
    for told, sharing, curves in (
        ("QKV solves it.", ["QKV"], [[SOLVED] * 2]),
        ("Both | for queries and keys.", FIVE[:2], [[SOLVED] * 2] * 2),
        ("All 5 | for queries, keys and values.", FIVE, [[SOLVED] * 2] * 5),
        ("QKV has at least 98% right.", ["QKV"], [[nearly]]),
        ("Both | at least 98% | even with one", FIVE[:2], [[SOLVED], [nearly]]),
        ("Both | with seed 0; with seed 1, Q=K has 60%", FIVE[:2], [[SOLVED] * 2, [SOLVED, FLAT]]),
        ("QKV | with seed 0; with seed 1, QKV diverged", ["QKV"], [[SOLVED, lost]]),
    ):
        found = headline(ended(*curves, sharing=sharing), 0)
        assert found.kind == ("other seeds" if "seed 1" in told else "solved")
        assert all(part in found.sentence for part in told.split(" | ")), found.sentence


def test_heads_are_narrow_and_runs_are_early_up_to_an_edge():
    """A head of 8 is narrow; at half of the steps, a run is no longer early."""
    for d_head, kind in ((8, "narrow head"), (9, "learning")):
        curves = ended([SOLVED], [RISES], sharing=["QKV", "K=V"], d_head=d_head)
        assert reason(curves, Variant("K=V"), 0).kind == kind
    curves = ended([[0.1] * 5], learning_rate=0.02)
    half = int(curves.eval_steps[-1])
    for steps, kind in ((2 * half, "too fast"), (2 * half + 1, "unknown")):
        longer = replace(curves, experiment=curves.experiment.replace(steps=steps))
        assert reason(longer, Variant("Q=K"), 0).kind == kind


def test_a_sentence_names_the_seed_and_a_page_that_shows_the_variant():
    """Attention does not show what a module computes, and Asymmetry needs its scores."""
    for module, page in ((Linear, "asymmetry"), (Gated, "")):
        snapshot = ended([SOLVED], [FLAT], sharing=["QKV", variant_of(module)])
        last = reason(snapshot, snapshot.experiment.sharing[-1], 0)
        assert last.page == page
    snapshot = ended([SOLVED] * 2, [FLAT, SOLVED], sharing=["QKV", "Q=K"])
    found = reason(snapshot, Variant("Q=K"), 0)
    assert found.page == "attention"
    assert "60% right (seed 0). Seeds" in found.in_words(snapshot.experiment, 0)


def test_the_marked_pair_needs_an_entry_that_holds_the_answer():
    """Sentences speak of the second entry's question."""
    task, example = base(0).experiment.task, example_of(base(0))
    cycle, nothing = [1, 2, 3, 4, 0], NOTHING
    for labels, pair, named in (
        (cycle, (0, 1), 1),
        ([nothing, *cycle[1:]], (1, 2), 2),
        ([1, nothing, 3, 4, 0], (0, 1), None),
        ([nothing] * 5, None, None),
    ):
        target, reverse = np.array(cycle), np.argsort(cycle)
        other = replace(example, labels=np.array(labels), target=target, reverse=reverse)
        assert (marked_pair(task, other), named_query(task, other)) == (pair, named)
    assert not re.search(r"–|: \.", measures_finding(ended([FLAT])))  # nothing is known


def test_shipped_examples_and_first_steps_have_reasons_in_few_words():
    """A sentence has few words, also of a run that has only begun."""
    trainings = [Training(tiny(kind, n_seeds=1), "cpu") for kind in KINDS]
    for snapshot in (*map(load_example, TASKS), *(one.snapshot() for one in trainings)):
        experiment = snapshot.experiment
        found = [reason(snapshot, variant, seed) for variant, seed in experiment.runs]
        for each in filter(None, found + [headline(snapshot, seed) for seed in experiment.seeds]):
            assert max(len(part.split()) for part in each.sentence.split(". ")) <= 20, each
