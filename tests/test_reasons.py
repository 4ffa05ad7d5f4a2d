"""Reasons: which numbers of a run give which kind of sentence, and which a page tells first."""

import re
from dataclasses import replace

import numpy as np
import pytest
from finished import finished
from kinds import KINDS, tiny
from own_modules import Gated, Linear

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.reasons import headline, kinds, marked_pair, named_query, reason
from attnkit.analysis.reasons.run import Run
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import NOTHING, TASKS
from attnkit.training import Training
from attnkit.training.summary import measures_finding
from attnkit.variants import Variant
from attnkit.variants.module import variant as variant_of

Q_K, NAN, BOTH = Variant("Q=K"), np.nan, {"sharing": ["QKV", "Q=K"]}
CYCLE = [1, 2, 3, 4, 0]  # the index of each entry's boss
RISES, FLAT, SOLVED = [0, 0.3, 0.4, 0.5, 0.6], [0, 0.6, 0.6, 0.6, 0.6], [0, 1, 1, 1, 1]
SLOW = [0, 0.58, 0.59, 0.595, 0.6]  # less than what counts as learning
FALLING = np.array([3, 2.4, 2.0, 1.9, 1.8])[:, None, None]
GUESS = np.full((5, 1, 1), np.log(7))
BUMP = np.array([1, 2, 3, 2.8, 1.3])[:, None, None] * np.log(7)
LEVELS = np.array([0, 0.99, 0.99, 1, 1])[:, None, None]  # shares of the last accuracy


def changed(snapshot, probe=None, **last):
    """Return the snapshot with other arrays in its probe and other last values of metrics."""
    history = dict(snapshot.history)
    for name, by_variant in last.items():
        history[name] = history[name].copy()
        history[name][-1] = np.repeat(by_variant, snapshot.experiment.n_seeds)
    return replace(snapshot, history=history, probe=replace(snapshot.probe, **(probe or {})))


def report(accuracy=(1.0, 0.5), right=(0.97, 0.45), wrong=(0.0, 0.44), error=(1.5, 0.0), **given):
    """Return a snapshot on who reports to whom, with five entries; QKV alone solves it.

    For each variant: its last accuracy, attention on the boss and on the reversed entry, and
    symmetry error; QKV scores 9 and 2 for these. Others are settings, or arrays of the probe.
    """
    other = {name: given.pop(name) for name in ("pattern", "scores") if name in given}
    experiment = tiny("directed", **{**BOTH, "n_seeds": 1, **given})
    scores = np.zeros((2, 1, experiment.n_heads, 5, 5))
    for i, target in enumerate(CYCLE):
        scores[:, 0, :, i, target] = np.array([9, 2 + i / 4])[:, None]
        scores[:, 0, :, target, i] = np.array([2, 2 + i / 4])[:, None]
    masked = np.exp(scores - 1e5 * np.eye(5))
    probe = {
        "tokens": np.array([[i, 11 + CYCLE[i], 22 + i] for i in range(5)]),
        "labels": np.array(CYCLE),
        "target": np.array(CYCLE),
        "reverse": np.argsort(CYCLE),
        "scores": scores.astype(np.float16),
        "pattern": (masked / masked.sum(-1, keepdims=True)).astype(np.float16),
    }
    metrics = {"mass_on_target": right, "mass_on_reverse": wrong, "symmetry_error": error}
    symmetry = [1.0 if own < 0.1 else 0.0 for own in error]
    whole = finished(experiment, LEVELS * np.array(accuracy)[:, None])
    return changed(whole, probe | other, score_symmetry=symmetry, **metrics)


def own_relations(accuracy=0.55, other=1.0, error=0.0, **given):
    """Return a snapshot of QKV and Q=K on bosses, most of whom have several reports."""
    rows = "\n".join(f"P{i}\tboss\tP{(i - 1) // 3}" for i in range(1, 40))
    settings = {**BOTH, "n_seeds": 1, "steps": 8, **given}
    experiment = Experiment(task="relations", data=rows, **settings)
    last = {"symmetry_error": (1.5, error), "score_symmetry": (0.0, 1.0)}
    whole = finished(experiment, LEVELS * np.array([[other], [accuracy]]))
    return changed(whole, mass_on_target=(0.9, 0.2), **last)


def looking(itself, right=0.1, accuracy=0.4, n_others=0):
    """Return `report` where tokens of Q=K look at themselves, but the first few at another one."""
    pattern = report().probe.pattern.copy()
    pattern[1] = (1 - itself - right) / 3
    at = np.arange(5)
    pattern[1, :, :, at, at], pattern[1, :, :, at, CYCLE] = itself, right
    for i in range(n_others):
        pattern[1, :, :, i] = 0.04
        pattern[1, :, :, i, (i + 2) % 5] = 0.84
    return report((1.0, accuracy), wrong=(0.0, 0.1), pattern=pattern)


def rising(*curves, loss=None, kind="phonebook", pattern=None, **given):
    """Return a snapshot from curves of accuracy, for every variant one for each seed."""
    rows = np.array(curves, float).transpose(2, 0, 1)
    experiment = tiny(kind, **{"n_seeds": rows.shape[2], "sharing": ["Q=K"], **given})
    snapshot = finished(experiment, rows, np.ones_like(rows) if loss is None else loss)
    shares = np.full_like(snapshot.probe.pattern, 1 / experiment.task.n_ctx)
    return changed(snapshot, {"pattern": shares if pattern is None else shares * 0 + pattern})


def low(accuracy=0.1, loss=BUMP, **given):
    """Return a snapshot in which Q=K has learnt little, and QKV solves the task."""
    losses = np.concatenate([loss / 10, loss], 1)
    return rising([SOLVED], [[0, *[accuracy] * 4]], loss=losses, **{**BOTH, **given})


def questions(share=0.97, accuracy=0.1):
    """Return a snapshot in which questions give this share of their attention to questions."""
    n_ctx = tiny("phonebook").task.n_ctx
    pattern = np.zeros((n_ctx, n_ctx))
    pattern[5:] = np.array([(1 - share) / 5] * 5 + [share / 5] * 5)
    pattern[:5, :5] = 0.2
    return rising([[accuracy] * 5], pattern=pattern)


def run_of(snapshot, seed=0):
    """Return the run of the last variant."""
    return Run(snapshot, snapshot.experiment.sharing[-1], seed)


def check(kind, words, snapshot, seed=0):
    """Hold the reason of the last variant against its kind, or "not" and a kind, and words.

    No kind is reported of an evaluation that does not count, such as one of an earlier task.
    """
    variant = snapshot.experiment.sharing[-1]
    found = reason(snapshot, variant, seed)
    given = (found and found.kind, found and found.sentence)
    if kind.startswith("not "):
        assert given[0] != kind.removeprefix("not "), given
        return
    assert given[0] == kind, (kind, words, given)
    assert all(word in given[1] for word in words.split(" | ")), (words, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "counts", False)
        other = reason(snapshot, variant, seed)
    assert (other and other.kind) != kind or kind == "diverged" or snapshot.step == 0, other


def test_mirrored_scores_are_told_with_both_of_the_pair():
    """Every condition is needed; the plateau of seven numbers is 0.57."""
    whole = report()
    assert reason(whole, Variant("QKV"), 0) is None  # which solves the task
    assert reason(whole, Q_K, 0).page == "asymmetry"
    pattern, scores = whole.probe.pattern.copy(), whole.probe.scores.copy()
    pattern[:, :, :, 1, 0] = 0.1 * pattern[:, :, :, 1, 2]
    scores[:, :, :, 1, 0] += 0.05
    by_attention = "Q=K gives 45% | 44% to the mirrored"
    for words, given in (
        ("Ada→Ben and Ben→Ada the same (2.00) | mixes up Cem and Ada | 50% right", {}),
        ("So it guesses: 50%", {"pattern": pattern}),
        ("almost the same (2.00 and 2.05)", {"scores": scores, "error": (1.5, 0.03)}),
        (by_attention, {"scores": None}),  # as in results of earlier versions
        (by_attention, {"n_heads": 2}),  # which have a score each
    ):
        check("mirrored", words, report(**given))
    for given in (
        {"error": (1.5, 0.2)},  # scores differ with the direction
        {"error": (1.5, NAN)},  # attention of one side to another has no direction
        {"wrong": (0.0, 0.38)},  # the right entry has more
        {"right": (0.97, 0.28), "wrong": (0.0, 0.28)},  # hardly more than equal shares
        {"accuracy": (1.0, 0.64)},  # better than picking one of the two, as with several heads
        {"accuracy": (1.0, 0.3)},  # worse: something else is wrong, too
        {"wrong": (0.0, NAN)},  # a task without reversed entries
    ):
        check("not mirrored", "", report(**given))
    check("not mirrored", "", changed(whole, score_symmetry=[0.0, -1.0]))


def test_means_and_the_pair_of_an_example_are_those_of_the_arrays():
    """A pair needs an entry that holds the answer."""
    snapshot, nothing = report((1, 0.5), (0.97, 0.4), (0.0, 0.44)), NOTHING
    told = re.findall(r"\d\.\d\d", measures_finding(snapshot))
    assert told == ["0.50", "0.00", "0.97", "0.40", "0.00", "0.44"]
    task, example = snapshot.experiment.task, example_of(snapshot)
    for labels, pair, named in (
        (CYCLE, (0, 1), 1),
        ([nothing, *CYCLE[1:]], (1, 2), 2),
        ([1, nothing, 3, 4, 0], (0, 1), None),  # sentences speak of the second entry's question
        ([nothing] * 5, None, None),
    ):
        other = replace(example, labels=np.array(labels))
        assert (marked_pair(task, other), named_query(task, other)) == (pair, named)
    assert not re.search(r"–|: \.", measures_finding(rising([FLAT])))  # nothing is known


def test_symmetric_scores_on_own_relations_are_the_reason_up_to_their_limit():
    """Every condition is needed; a page draws it, also if it is not known or a module's scores."""
    task = own_relations().experiment.task
    limit, share = (f"{value:.0%}" for value in (task.plateau, task.direction.contested))
    told = f"alike, so {share} | about {limit} | has 55%, QKV 100%"
    check("alike in table", told, own_relations())
    check("alike in table", "almost alike, so", own_relations(error=0.03))
    for below, advice in ((0.09, False), (0.11, True)):
        assert bool(reason(own_relations(task.plateau - below), Q_K, 0).advice) is advice
    for given in (
        {"accuracy": task.plateau + 0.06},  # above the limit
        {"other": 0.89},  # QKV has not learnt it either
        {"error": 0.2},  # scores differ with the direction
        {"n_layers": 2},  # a way around
        {"learn": "by_heart", **BOTH},
    ):
        check("not alike in table", "", own_relations(**given))
    assert reason(own_relations(task.plateau + 0.2), Q_K, 0).page == "asymmetry"
    assert reason(rising([FLAT]), Q_K, 0).page == "attention"
    for module, page in ((Linear, "asymmetry"), (Gated, "")):
        snapshot = rising([SOLVED], [FLAT], sharing=["QKV", variant_of(module)])
        assert kinds.unknown(run_of(snapshot)).page == page


def test_tokens_that_look_at_themselves_or_at_questions_are_told():
    """Every condition is needed; a share that rounds to nothing is under 1%."""
    n = tiny("reverse").task.n_ctx
    copied = rising([FLAT], kind="reverse", pattern=np.eye(n))
    for kind, words, snapshot in (
        ("finds itself", "give 70% | to themselves and 10%", looking(0.7)),
        ("finds itself", "to themselves and under 1%", looking(0.7, 0.004)),
        ("finds itself", "", looking(0.7, n_others=2)),
        ("not finds itself", "", looking(0.28)),  # little, though more than any other
        ("not finds itself", "", looking(0.5, 0.45)),  # as much on the right token
        ("not finds itself", "", looking(0.7, accuracy=0.92)),  # nearly all right
        ("unknown", "", looking(0.9, 0.02, n_others=3)),  # two of five tokens are too few
        ("unknown", "", changed(copied, {"target": np.arange(n)})),  # as it has to
        ("finds itself", "", changed(copied, {"target": np.arange(n)[::-1]})),
        ("looks elsewhere", "give 97% | to questions and 3% to the entries", questions()),
        ("looks elsewhere", "give 99% | to questions and under 1% to", questions(0.999)),
        ("not looks elsewhere", "", questions(0.8)),
        ("not looks elsewhere", "", questions(0.97, 0.92)),
    ):
        check(kind, words, snapshot)
    labels = np.array([1, 1, NOTHING, NOTHING, NOTHING])  # rows without an answer do not count
    cases = ((looking(0.7), kinds.finds_itself), (questions(), kinds.looks_elsewhere))
    for whole, explain in cases:
        assert explain(run_of(changed(whole, {"target": np.full(5, NOTHING)}))) is None
        other = whole.probe.pattern.copy()
        other[-1, 0, 0, -3:] = 1 / other.shape[-1]
        for answers, is_told in ((whole.probe.labels, False), (labels, True)):
            spoilt = run_of(changed(whole, {"pattern": other, "labels": answers}))
            assert (explain(spoilt) is not None) is is_told


def test_a_narrow_head_with_tied_values_learns_slowly():
    """The sentence has the width of a head and QKV's accuracy; every condition is needed."""
    narrow = {"sharing": ["QKV", "K=V"], "d_head": 4}
    for name, roles in (("K=V", "key"), ("Q=V", "query")):
        snapshot = rising([SOLVED], [RISES], sharing=["QKV", name], d_head=4)
        told = f"{name} learns slowly: the 4 | both {roles} and value | 60% | step 8, QKV 100%"
        check("narrow head", told, snapshot)
    falls = np.repeat(FALLING, 2, 1)  # a loss counts where the accuracy does not fall
    check("narrow head", "", rising([SOLVED], [SLOW], loss=falls, **narrow))
    for curves, changes in (
        ([SOLVED, RISES], {"d_head": 9}),  # wide enough
        ([SOLVED, RISES], {"sharing": ["QKV", "Q=K"]}),  # values are not tied
        ([SOLVED, RISES], {"sharing": ["Q=K", "Q=K=V"]}),  # slow at every width
        ([SOLVED, RISES], {"sharing": ["QKV d_head=8", "K=V"]}),  # differs in width, too
        ([SOLVED, FLAT], {}),  # it does not learn
        ([SOLVED, SLOW], {}),
        ([SOLVED, [*SLOW[:4], 0.59]], {"loss": falls}),  # the accuracy falls
        ([SOLVED, [0, 0.1, 0.15, 0.2, 0.24]], {}),  # no better than the number of any entry
        ([[0, 0.3, 0.5, 0.6, 0.65], RISES], {}),  # QKV is no faster
    ):
        check("not narrow head", "", rising(*([one] for one in curves), **{**narrow, **changes}))


def test_seeds_that_fail_where_others_do_not_or_diverge_are_told():
    """With the step of divergence and the learning rate to go below; every condition is needed."""
    snapshot = rising([SOLVED, FLAT, SOLVED])
    check("optimiser", "with 2 of 3 seeds | 60% right", snapshot, seed=1)
    assert reason(snapshot, Q_K, 0) is None
    for curves in (
        [FLAT, FLAT, FLAT],  # no seed solves it
        [SOLVED, RISES, SOLVED],  # this one is on its way
        [SOLVED, [0, 0.96, 0.96, 0.96, 0.96], SOLVED],  # nearly there
        [[0, 1, 1, 1, 0.5], FLAT, FLAT],  # the other has lost it again
    ):
        check("not optimiser", "", rising(curves), seed=1)
    experiment = tiny("phonebook", sharing=["QKV", "Q=K learning_rate=0.5"], n_seeds=1)
    rows = [[[0.1], [0.1]], *[[[0.5], [NAN]]] * 2]
    snapshot = finished(experiment, rows, diverged_at=[[-1], [4]])
    check("diverged", "diverged by step 4", snapshot)
    assert "below 0.5" in headline(snapshot, 0).advice


def test_other_kinds_are_told_by_losses_and_accuracies():
    """Guesses, worse than guesses, known by heart, one group of questions, too few steps."""

    def known(accuracy, new=0.6):
        return changed(rising([[0, new, new, new, new]]), training_accuracy=[accuracy])

    def at(*steps):
        return replace(rising([RISES]), eval_steps=np.array(steps))

    def hops(*shares):
        ended = finished(Experiment(task="k_hop", sharing=["Q=K"], n_seeds=1), [[[0.5]]] * 3)
        return replace(ended, slice_accuracy=np.array([shares], np.float32))

    above = FALLING - FALLING[-1] + np.log(7)
    text = rising([RISES], loss=FALLING + 0.7, kind="language")
    transfer = finished(
        tiny("transfer", sharing=["Q=K"], n_seeds=1, steps=16, earlier_steps=15),
        [[[0.1]], [[0.3]], [[0.5]]],
    )
    early = replace(transfer, eval_steps=np.array([0, 6, 12]), step=12, status="running")
    for kind, words, snapshot in (
        ("chance", "loss of 1.95 | among 7", rising([FLAT], loss=GUESS)),
        ("not chance", "", rising([FLAT], loss=0.97 * GUESS)),
        ("unknown", "", rising([FLAT], loss=1.1 * GUESS)),
        ("optimiser", "0.005 | loss is 2.53, that of guesses 1.95", low()),
        ("optimiser", "", low(loss=1.15 * BUMP / BUMP[-1] * np.log(7))),
        ("not optimiser", "", low(loss=1.05 * BUMP / BUMP[-1] * np.log(7))),
        ("not optimiser", "", low(0.5)),  # confident models may have it, too
        ("memorised", "97% | only 60%", known(0.97)),
        ("memorised", "", known(0.97, 0.86)),
        ("not memorised", "", known(0.75)),
        ("part", "“1”: 98% right, “2”: 20%.", hops(0.98, 0.2)),
        ("not part", "", hops(0.98, 0.7)),
        ("not part", "", hops(0.8, 0.2)),
        ("early", "50% right at step 6, 60% at step 8", rising([RISES])),
        ("early", "40% right at step 40, 60% at step 80", at(0, 20, 40, 61, 80)),
        ("early", "40% right at step 60", at(40, 50, 60, 75, 80)),  # from the first that counts
        ("not early", "", at(8, 8, 8, 8, 8)),
        ("early", "loss 1.90 at step 6, 1.80 at step 8", rising([FLAT], loss=FALLING)),
        ("early", "loss 2.60 at step 6, 2.50 at step 8", text),
        ("not early", "", rising([FLAT], loss=above)),  # a loss that falls, but is that of guesses
        ("unknown", "", rising([FLAT], loss=FALLING / 10)),
        ("unknown", "", rising([[*FLAT[:4], 0.5]], loss=FALLING)),  # the accuracy falls
        ("unknown", "", rising([[0, 0.6, 0.6, 0.6, 0.62]])),  # within the scatter
        ("early", "", rising([[0, 0.6, 0.6, 0.6, 0.64]])),
        ("not early", "", rising([[0, 0.6, 0.8, 0.9, 0.96]])),  # nearly there
        ("early", "not trained yet: 50%", replace(report(), step=0)),
        ("not early", "", early),  # a rise during the earlier task does not count
        ("too fast", "0.02 | 10% right", low(learning_rate=0.02, loss=GUESS)),
        ("not too fast", "", low(loss=GUESS)),
        ("unknown", "", rising([SOLVED], [FLAT], learning_rate=0.02, **BOTH)),
    ):
        check(kind, words, snapshot)
    fast = low(learning_rate=0.02, loss=GUESS)
    assert "0.005: lower the" in reason(fast, Q_K, 0).advice
    # not before the first step, nor before half of them where a rate is to blame
    for explain, case in ((kinds.too_fast, fast), (kinds.worse_than_guesses, low())):
        for share, told in ((0.3, False), (0.5, True)):
            steps = np.linspace(0, round(share * 8), 5).astype(np.int64)
            stop = replace(case, eval_steps=steps, step=steps[-1], status="running")
            assert (explain(run_of(stop)) is not None) == told, share


def test_the_clearest_kind_comes_first_then_the_first_column_or_the_lowest_curve():
    """Mirrored variants go before one that still rises; a solved task has no reason but a count."""
    assert headline(report(), 0) == reason(report(), Q_K, 0)
    two = report((0.5, 0.45), (0.45, 0.45), (0.44, 0.44), (0, 0), sharing=["Q=K", "Q=K=V"])
    assert headline(two, 0).variant == Q_K
    assert headline(changed(two, symmetry_error=(1, 0)), 0).variant == "Q=K=V"
    higher = [0.1, *RISES[1:4], 0.7]
    curves = rising([higher], [RISES], [higher], sharing=["QKV", "Q=K", "K=V"], d_head=16)
    assert headline(curves, 0) == reason(curves, Q_K, 0)
    stuck = changed(rising([SOLVED], [FLAT], **BOTH), mass_on_target=[0.9, 0.02])
    found = headline(stuck, 0)
    assert (found.variant, found.kind) == (Q_K, "unknown")
    assert headline(replace(stuck, status="running"), 0) is None
    assert re.findall(r"\d+%", found.sentence) == ["60%", "2%", "100%", "90%"]
    four = ["QKV", "Q=K", "K=V", "Q=V"]
    for told, sharing, curves in (
        ("QKV solves it.", ["QKV"], [[SOLVED] * 2]),
        ("Both | for queries and keys.", four[:2], [[SOLVED] * 2] * 2),
        ("All 5 | for queries, keys and values.", [*four, "Q=K=V"], [[SOLVED] * 2] * 5),
        ("Both | at least 98% | even with one", four[:2], [[SOLVED], [[0, *[0.98] * 4]]]),
        ("Both | with seed 0; with seed 1, Q=K has 60%", four[:2], [[SOLVED] * 2, [SOLVED, FLAT]]),
    ):
        found = headline(rising(*curves, sharing=sharing), 0)
        assert found.kind == ("other seeds" if "seed 1" in told else "solved")
        assert all(part in found.sentence for part in told.split(" | ")), found.sentence


def test_shipped_examples_and_first_steps_have_reasons_in_few_words():
    """A sentence has few words, also of a run that has only begun."""
    trainings = [Training(tiny(kind, n_seeds=1), "cpu") for kind in KINDS]
    for snapshot in (*map(load_example, TASKS), *(one.snapshot() for one in trainings)):
        experiment = snapshot.experiment
        found = [reason(snapshot, variant, seed) for variant, seed in experiment.runs]
        for each in filter(None, found + [headline(snapshot, seed) for seed in experiment.seeds]):
            assert max(len(part.split()) for part in each.sentence.split(". ")) <= 20, each
