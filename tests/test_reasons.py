"""Reasons: which numbers of a run give which sentence, and which one a page tells first."""

import dataclasses
import re

import numpy as np
import pytest
from finished import finished
from kinds import KINDS, tiny
from own_modules import Gated, Linear
from reasoned import (
    CYCLE,
    FALLING,
    FLAT,
    NAN,
    Q_K,
    RISES,
    SOLVED,
    changed,
    check,
    looking,
    own_relations,
    report,
    rising,
)

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.reasons import headline, marked_pair, reason
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.variants import Variant
from attnkit.variants.module import variant as variant_of

# Reasons that attention shows


def test_mirrored_scores_are_told_with_both_of_the_pair():
    """Every condition is needed; the plateau of seven numbers is 0.57."""
    whole = report()
    assert reason(whole, Variant("QKV"), 0) is None  # which solves the task
    check(
        "mirrored",
        "Ada’s boss is Ben, Ben’s boss is Cem. Q=K scores Ada→Ben and Ben→Ada the same (2.00), "
        "because Q and K share a matrix. Asked for Ben’s boss, it mixes up Cem and Ada: 50% right.",
        whole,
    )
    assert reason(whole, Q_K, 0).page == "asymmetry"
    history = {name: np.append(values, values[-1:], 0) for name, values in whole.history.items()}
    for values in history.values():
        values[-1, 1] = NAN
    steps = np.append(whole.eval_steps, whole.eval_steps[-1] + 2)
    later = dataclasses.replace(whole, history=history, eval_steps=steps)
    assert reason(later, Q_K, 0) == reason(whole, Q_K, 0)
    pattern, scores = whole.probe.pattern.copy(), whole.probe.scores.copy()
    pattern[:, :, :, 1, 0] = 0.1 * pattern[:, :, :, 1, 2]
    scores[:, :, :, 1, 0] += 0.05
    by_attention = "Q=K gives 45% of its attention to the right entry and 44% to the mirrored one"
    for words, given in (
        ("share a matrix. So it guesses: 50% right.", {"pattern": pattern}),
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
        {"accuracy": (1.0, NAN)},
        {"wrong": (0.0, NAN)},  # a task without reversed entries
    ):
        check("not mirrored", "", report(**given))


def test_symmetric_scores_on_own_relations_are_the_reason_up_to_their_limit():
    """Every condition is needed; the page that draws it is Asymmetry, also if it is not known."""
    whole = own_relations()
    task = whole.experiment.task
    limit, share = (f"{value:.0%}" for value in (task.plateau, task.direction.contested))
    told = (
        f"Q=K scores both directions alike, so {share} of the questions have a second entry as "
        f"good as the right one. At most about {limit} can then be right: it has 55%, QKV 100%."
    )
    check("alike in table", told, whole)
    check("alike in table", "scores both directions almost alike, so", own_relations(error=0.03))
    assert reason(whole, Q_K, 0).page == "asymmetry"
    for below, advice in (
        (0.0, ""),
        (0.09, ""),
        (0.11, "Why it stays far below that is not known."),
    ):
        assert reason(own_relations(task.plateau - below), Q_K, 0).advice == advice
    for given in (
        {"accuracy": task.plateau + 0.06},  # above the limit
        {"other": 0.89},  # QKV has not learnt it either
        {"error": 0.2},  # scores differ with the direction
        {"sharing": ["Q=K self_mask", "Q=K"]},  # nothing to compare with
        {"n_layers": 2},  # a way around
        {"learn": "by_heart", "sharing": ["QKV", "Q=K"]},
    ):
        check("not alike in table", "", own_relations(**given))
    unknown = reason(own_relations(task.plateau + 0.2), Q_K, 0)
    assert (unknown.kind, unknown.page) == ("unknown", "asymmetry")


def test_the_reason_of_a_module_has_the_page_that_draws_it():
    """Asymmetry if it returns its scores, and none otherwise; Attention leaves it out."""
    for module, page in ((Linear, "asymmetry"), (Gated, "")):
        snapshot = rising([SOLVED], [FLAT], sharing=["QKV", variant_of(module)])
        found = reason(snapshot, snapshot.experiment.sharing[1], 0)
        assert (found.kind, found.page) == ("unknown", page)
    assert reason(rising([FLAT]), Q_K, 0).page == "attention"


def test_the_marked_pair_depends_on_the_example_alone():
    """A query and its target, whose reversed entry is the query; none without reversed entries."""
    snapshot = report()
    example = example_of(snapshot)
    labels = np.array([-1, *CYCLE[1:]])
    assert marked_pair(snapshot.experiment.task, example) == (0, 1)
    later = dataclasses.replace(example, labels=labels)
    assert marked_pair(snapshot.experiment.task, later) == (1, 2)
    book = rising([FLAT])
    assert marked_pair(book.experiment.task, example_of(book)) is None


def test_tokens_that_look_at_themselves_or_at_questions_are_told():
    """Every condition is needed; a share that rounds to nothing is under 1%."""
    n = tiny("reverse").task.n_ctx
    copied = rising([FLAT], kind="reverse", pattern=np.eye(n))
    towards = "of their attention to themselves and"
    asked = "of their attention to questions and"

    def questions(entries, accuracy=0.1):
        pattern = np.array([entries / 5] * 5 + [(1 - entries) / 5] * 5)
        return rising([[accuracy] * 5], pattern=pattern)

    for kind, words, snapshot in (
        ("finds itself", f"tokens give 70% {towards} 10% to the right token.", looking(0.7)),
        ("finds itself", f"{towards} under 1% to the right token.", looking(0.7, 0.004)),
        ("not finds itself", "little, though more than any other", looking(0.28)),
        ("not finds itself", "as much on the right token", looking(0.5, 0.45)),
        ("not finds itself", "nearly all right", looking(0.7, accuracy=0.92)),
        ("not finds itself", "diverged", looking(0.7, accuracy=NAN)),
        ("unknown", "", looking(0.9, 0.02, n_others=3)),  # two of five tokens are too few
        ("unknown", "", changed(copied, {"target": np.arange(n)})),  # as it has to
        ("finds itself", "", changed(copied, {"target": np.arange(n)[::-1]})),
        ("looks elsewhere", f"questions give 97% {asked} 3% to the entries", questions(0.03)),
        ("looks elsewhere", f"questions give 99% {asked} under 1% to", questions(0.001)),
        ("not looks elsewhere", "", questions(0.2)),
        ("not looks elsewhere", "", questions(0.03, 0.92)),
        ("unknown", "", report((1.0, 0.3), pattern=np.full((2, 1, 1, 5, 5), 0.2))),  # no others
    ):
        check(kind, words, snapshot)


# Reasons that curves show


def test_a_narrow_head_with_tied_values_learns_slowly():
    """The sentence has the width of a head and QKV's accuracy; every condition is needed."""
    for name, roles in (("K=V", "key"), ("Q=V", "query")):
        told = f"{name} learns slowly: the 4 numbers of a head are both {roles} and value"
        snapshot = rising([SOLVED], [RISES], sharing=["QKV", name], d_head=4)
        check("narrow head", f"{told}: 60% right at step 8, QKV 100%.", snapshot, name)
    for first, second, changes in (
        (SOLVED, RISES, {"d_head": 9}),  # wide enough
        (SOLVED, RISES, {"sharing": ["QKV", "Q=K"]}),  # values are not tied
        (SOLVED, RISES, {"sharing": ["Q=K", "Q=K=V"]}),  # slow at every width
        (SOLVED, RISES, {"sharing": ["QKV d_head=8", "K=V"]}),  # differs in width, too
        (SOLVED, FLAT, {}),  # it does not learn
        (SOLVED, [0, 0.1, 0.15, 0.2, 0.24], {}),  # no better than the number of any entry
        ([0, 0.3, 0.5, 0.6, 0.65], RISES, {}),  # QKV is no faster
        ([*SOLVED[:4], NAN], RISES, {}),  # QKV diverged
    ):
        snapshot = rising([first], [second], **{"sharing": ["QKV", "K=V"], "d_head": 4, **changes})
        check("not narrow head", "", snapshot, snapshot.experiment.sharing[1])


def test_seeds_that_fail_where_others_do_not_are_told():
    """Every condition is needed."""
    snapshot = rising([SOLVED, FLAT, SOLVED])
    check("optimiser", "solves it with 2 of 3 seeds, but here it has 60% right.", snapshot, seed=1)
    assert reason(snapshot, Q_K, 0) is None
    for curves in (
        [FLAT, FLAT, FLAT],  # no seed solves it
        [SOLVED, RISES, SOLVED],  # this one is on its way
        [SOLVED, [0, 0.96, 0.96, 0.96, 0.96], SOLVED],  # nearly there
        [[0, 1, 1, 1, 0.5], FLAT, FLAT],  # the other has lost it again
    ):
        check("not optimiser", "", rising(curves), seed=1)


def test_a_run_that_diverged_is_told_with_its_step_and_rate():
    """The sentence has the step of divergence and the learning rate to go below."""
    experiment = tiny("phonebook", sharing=["QKV", "Q=K learning_rate=0.5"], n_seeds=1)
    rows = [[[0.1], [0.1]], [[0.5], [NAN]], [[1.0], [NAN]]]
    snapshot = finished(experiment, rows, diverged_at=[[-1], [4]])
    found = reason(snapshot, experiment.sharing[1], 0)
    assert "diverged by step 4: its loss is not a finite number any more." in found.sentence
    assert (found.kind, found.advice) == ("diverged", "Try a learning rate below 0.5.")
    assert headline(snapshot, 0) == found


def test_other_kinds_are_told_by_losses_and_accuracies():
    """Guesses, worse than guesses, known by heart, one group of questions, too few steps."""
    guess = np.full((5, 1, 1), np.log(7))
    bump = np.array([1, 2, 3, 2.8, 1])[:, None, None] * np.log(7)
    worse = "worse than guessing at a learning rate of 0.005: its loss is 2.53, that of guesses"
    heart = "97% right on examples that it was trained on, but only 60% on new ones."
    ended = "was still learning when training ended:"
    hops = finished(Experiment(task="k_hop", sharing=["Q=K"], n_seeds=1), [[[0.5]]] * 3)
    running = dataclasses.replace(rising([RISES]), status="running")
    text = rising([FLAT], loss=FALLING + 0.7, kind="language")
    transfer = finished(
        tiny("transfer", sharing=["Q=K"], n_seeds=1, steps=16, earlier_steps=15),
        [[[0.1]], [[0.3]], [[0.5]]],
    )
    early = dataclasses.replace(
        transfer, eval_steps=np.array([0, 6, 12]), step=12, status="running"
    )

    def low(accuracy, share):
        return rising([[0, *[accuracy] * 4]], loss=share * bump)

    def known(accuracy, new=0.6):
        return changed(rising([[0, new, new, new, new]]), training_accuracy=[accuracy])

    def part(*shares):
        return dataclasses.replace(hops, slice_accuracy=np.array([shares], np.float32))

    for kind, words, snapshot in (
        ("chance", "its loss of 1.95 is that of guessing among 7", rising([FLAT], loss=guess)),
        ("unknown", "", rising([FLAT], loss=0.9 * guess)),
        ("unknown", "", rising([FLAT], loss=1.1 * guess)),
        ("optimiser", worse, low(0.1, 1.3)),
        ("not optimiser", "", low(0.1, 1.05)),
        ("not optimiser", "", low(0.5, 1.3)),  # confident models may have it, too
        ("memorised", heart, known(0.97)),
        ("not memorised", "", known(0.65)),
        ("not memorised", "", known(0.97, 0.92)),
        ("not memorised", "", known(NAN)),
        ("part", "Hops “1”: 98% right, “2”: 20%.", part(0.98, 0.2)),
        ("not part", "", part(0.98, 0.7)),
        ("not part", "", part(0.8, 0.2)),
        ("early", f"Q=K {ended} 50% right at step 6, 60% at step 8.", rising([RISES])),
        ("early", "Q=K is still learning: 50% right at step 6, 60% at step 8.", running),
        ("early", f"{ended} loss 1.90 at step 6, 1.80 at step 8.", rising([FLAT], loss=FALLING)),
        ("early", f"{ended} loss 2.60 at step 6, 2.50 at step 8.", text),
        ("unknown", "", rising([FLAT], loss=FALLING / 10)),
        ("unknown", "", rising([[*FLAT[:4], 0.5]], loss=FALLING)),  # the accuracy falls
        ("unknown", "", rising([FLAT])),
        ("unknown", "", rising([[0, 0.6, 0.6, 0.6, 0.62]])),  # within the scatter
        ("not early", "", rising([[0, 0.6, 0.8, 0.9, 0.96]])),  # nearly there
        ("early", "Q=K is not trained yet: 50% right.", dataclasses.replace(report(), step=0)),
        ("not early", "", early),  # a rise during the earlier task does not count
    ):
        check(kind, words, snapshot)


# The headline


def test_the_clearest_kind_comes_first_then_the_first_column_or_the_lowest_curve():
    """Mirrored variants go before one that still rises; rising curves cross each other."""
    assert headline(report(), 0) == reason(report(), Q_K, 0)
    two = report((0.5, 0.45), (0.45, 0.45), (0.44, 0.44), (0, 0), sharing=["Q=K", "Q=K=V"])
    assert headline(two, 0).variant == Q_K
    assert headline(changed(two, symmetry_error=(1, 0)), 0).variant == "Q=K=V"
    higher = [0.1, *RISES[1:4], 0.7]
    curves = rising([higher], [RISES], [higher], sharing=["QKV", "Q=K", "K=V"], d_head=16)
    assert headline(curves, 0) == reason(curves, Q_K, 0)
    stuck = rising([SOLVED], [FLAT], sharing=["QKV", "Q=K"])
    assert (headline(stuck, 0).variant, headline(stuck, 0).kind) == (Q_K, "unknown")
    assert "do not know" in headline(stuck, 0).advice
    assert headline(dataclasses.replace(stuck, status="running"), 0) is None


def test_a_solved_task_says_how_few_matrices_are_enough():
    """With every seed; else the seed that fails is named, also if it diverged."""
    near, two, four = [0, 0.96, 0.97, 0.98, 0.98], ["QKV", "Q=K"], ["QKV", "Q=K", "K=V", "Q=V"]
    solved, even, failing = [SOLVED, SOLVED], "even with one matrix for", [SOLVED, FLAT]
    both = "Both variants solve it"
    for told, sharing, curves in (
        ("QKV solves it.", ["QKV"], [solved]),
        (f"{both}, {even} queries and keys.", two, [solved, solved]),
        (f"{both}, {even} keys and values.", ["QKV", "K=V"], [solved, solved]),
        (f"All 5 variants solve it, {even}", [*four, "Q=K=V"], [solved] * 5),
        (f"{both}.", ["QKV", "Q=K=V d_head=8"], [solved, solved]),  # differs in more
        ("Both variants have at least 98% right, even with one", two, [[SOLVED], [near]]),
        (f"{both} with seed 0; with seed 1, Q=K has 60% right.", two, [solved, failing]),
    ):
        found = headline(rising(*curves, sharing=sharing), 0)
        assert found.kind == ("other seeds" if "seed 1" in told else "solved")
        assert found.sentence.startswith(told)
    rows = [[[0.0, 0.0]], [[1.0, 1.0]], [[1.0, 1.0]], [[1.0, NAN]]]
    experiment = tiny("phonebook", sharing=["Q=K"], n_seeds=2)
    snapshot = finished(experiment, rows, diverged_at=[[-1, 8]])
    assert headline(snapshot, 1).kind == "diverged"
    assert headline(snapshot, 0).sentence == "Q=K solves it with seed 0; with seed 1, Q=K diverged."


def test_every_shipped_example_has_sentences_for_people():
    """They are short, without absolute words; that of the first screen has its equal scores."""
    for task in TASKS:
        snapshot = load_example(task)
        experiment = snapshot.experiment
        found = [reason(snapshot, v, seed) for v in experiment.sharing for seed in experiment.seeds]
        found += [headline(snapshot, seed) for seed in experiment.seeds]
        for each in filter(None, found):
            assert max(len(part.split()) for part in each.sentence.split(". ")) <= 20, task
            most = 36 if each.kind == "mirrored" else 26  # readers need to know who reports to whom
            assert len(each.sentence.split()) <= most, task
            assert not re.search("cannot|never|nan|inf", each.sentence)
    snapshot = load_example("directed")
    one, other = marked_pair(snapshot.experiment.task, example_of(snapshot))
    scores = snapshot.probe.scores[snapshot.experiment.runs.index((Q_K, 0)), -1, 0]
    names = [label.short for label in snapshot.experiment.task.label(snapshot.probe.tokens)]
    pair, mirror = f"{names[one]}→{names[other]}", f"{names[other]}→{names[one]}"
    told = f"{pair} and {mirror} the same ({scores[one, other]:.2f})"
    assert told in headline(snapshot, 0).sentence
    assert all(reason(snapshot, Variant(v), 0) is None for v in ("QKV", "K=V", "Q=V"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_snapshot_of_the_first_steps_makes_a_reason_fail(kind):
    """Reasons and headlines can be computed at every step, whatever is not known yet."""
    training = Training(tiny(kind, n_seeds=1), "cpu")
    for _ in range(3):
        snapshot = training.snapshot()
        for variant in snapshot.experiment.sharing:
            reason(snapshot, variant, 0)
        headline(snapshot, 0)
        training.advance(3)
