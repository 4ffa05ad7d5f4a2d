"""Reasons: each is told only if the run's own numbers show it."""

import dataclasses
import re

import numpy as np
import pytest
from finished import finished
from kinds import KINDS, tiny

from attnkit.analysis.reasons import headline, marked_pair, reason
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.variants import Variant

Q_K, QKV = Variant("Q=K"), Variant("QKV")
CYCLE = [1, 2, 3, 4, 0]
"""Entry i of the book reports to entry CYCLE[i]."""


def with_metrics(snapshot, **last):
    """The snapshot with other last values of metrics, one for each variant."""
    history = dict(snapshot.history)
    for name, by_variant in last.items():
        values = history[name].copy()
        values[-1] = np.repeat(by_variant, snapshot.experiment.n_seeds)
        history[name] = values
    return dataclasses.replace(snapshot, history=history)


def with_probe(snapshot, **arrays):
    """The snapshot with other arrays of its example."""
    return dataclasses.replace(snapshot, probe=dataclasses.replace(snapshot.probe, **arrays))


def report(accuracy=(1.0, 0.5), right=(0.97, 0.45), wrong=(0.0, 0.44), error=(1.5, 0.0), **given):
    """Who reports to whom, of five, after training: QKV solves it and Q=K does not.

    The scores of both are 2 between neighbours on the cycle, and 9 on the way that QKV finds.
    """
    experiment = tiny("directed", **{"sharing": ["QKV", "Q=K"], "n_seeds": 1, **given})
    n_heads = experiment.n_heads
    levels = np.repeat(np.array(accuracy), experiment.n_seeds).reshape(2, -1)
    rows = np.stack([levels * share for share in (0, 0.99, 0.99, 1, 1)])
    base = finished(experiment, rows)
    tokens = np.array([[i, 11 + CYCLE[i], 22 + i] for i in range(5)])
    scores = np.zeros((2, 1, 1, 5, 5))
    for i, target in enumerate(CYCLE):
        scores[:, 0, 0, i, target] = [9, 2 + i / 4]
        scores[:, 0, 0, target, i] = [2, 2 + i / 4]
    scores = scores.repeat(n_heads, 2).repeat(experiment.n_seeds, 0)
    masked = np.exp(scores - 1e5 * np.eye(5))
    base = with_probe(
        base,
        tokens=tokens,
        labels=np.array(CYCLE),
        target=np.array(CYCLE),
        reverse=np.argsort(CYCLE),
        scores=scores.astype(np.float16),
        pattern=(masked / masked.sum(-1, keepdims=True)).astype(np.float16),
    )
    symmetry = [1.0 if own < 0.1 else 0.0 for own in error]
    return with_metrics(
        base,
        mass_on_target=right,
        mass_on_reverse=wrong,
        symmetry_error=error,
        score_symmetry=symmetry,
    )


# Mirrored scores


def test_mirrored_scores_are_told_with_both_of_the_pair():
    """The first pair, what its second asks for, and the accuracy."""
    found = reason(report(), Q_K, 0)
    assert (found.variant, found.kind, found.page) == (Q_K, "mirrored", "asymmetry")
    assert found.sentence == (
        "Ada’s boss is Ben, Ben’s boss is Cem. Q=K scores Ada→Ben and Ben→Ada the same (2.00), "
        "because Q and K share a matrix. Asked for Ben’s boss, it mixes up Cem and Ada: 50% right."
    )


def test_who_is_not_diverted_on_the_example_is_not_said_to_be():
    """The example may be an exception: the sentence says what the accuracy shows."""
    snapshot = report()
    pattern = snapshot.probe.pattern.copy()
    pattern[:, :, :, 1, 0] = 0.1 * pattern[:, :, :, 1, 2]
    sentence = reason(with_probe(snapshot, pattern=pattern), Q_K, 0).sentence
    assert sentence.endswith("share a matrix. So it guesses: 50% right.")


def test_a_run_beside_finished_ones_is_told_by_its_own_last_evaluation():
    """A variant that was added later has been evaluated less often than the others."""
    whole = report()
    history = {name: np.append(values, values[-1:], 0) for name, values in whole.history.items()}
    for values in history.values():
        values[-1, 1] = np.nan
    steps = np.append(whole.eval_steps, whole.eval_steps[-1] + 2)
    later = dataclasses.replace(whole, history=history, eval_steps=steps)
    assert reason(later, Q_K, 0) == reason(whole, Q_K, 0)


def test_a_variant_that_solves_the_task_has_no_reason():
    """QKV's scores are no mirror, and it is right."""
    assert reason(report(), QKV, 0) is None


@pytest.mark.parametrize(
    "given",
    [
        {"error": (1.5, 0.2)},  # scores differ with the direction
        {"error": (1.5, np.nan)},  # attention of one side to another has no direction
        {"wrong": (0.0, 0.38)},  # the right entry has more
        {"right": (0.97, 0.28), "wrong": (0.0, 0.28)},  # hardly more than equal shares
        {"accuracy": (1.0, 0.64)},  # better than picking one of the two, as with several heads
        {"accuracy": (1.0, 0.3)},  # worse: something else is wrong, too
        {"accuracy": (1.0, 1.0)},  # right nevertheless
        {"accuracy": (1.0, np.nan)},
        {"wrong": (0.0, np.nan)},  # a task without reversed entries
    ],
)
def test_what_is_not_quite_a_mirror_is_not_told_as_one(given):
    """Each condition by itself; the plateau of seven numbers is 0.57."""
    found = reason(report(**given), Q_K, 0)
    assert found is None or found.kind != "mirrored"


def test_scores_that_differ_a_little_are_told_as_almost_alike():
    """With relative positions on a book, positions say nothing and scores are no exact mirror."""
    snapshot = report(error=(1.5, 0.03))
    scores = snapshot.probe.scores.copy()
    scores[:, :, :, 1, 0] += 0.05
    found = reason(with_probe(snapshot, scores=scores), Q_K, 0)
    assert "Ada→Ben and Ben→Ada almost the same (2.00 and 2.05)" in found.sentence


def test_without_recorded_scores_the_attention_is_told():
    """Results of earlier versions have no scores."""
    found = reason(with_probe(report(), scores=None), Q_K, 0)
    assert found.kind == "mirrored"
    assert found.sentence == (
        "Q=K gives 45% of its attention to the right entry and 44% to the mirrored one, so it "
        "guesses: 50% right."
    )


def test_of_several_heads_the_attention_is_told():
    """A pair has as many scores as there are heads."""
    found = reason(report(n_heads=2), Q_K, 0)
    assert "gives 45% of its attention" in found.sentence


# The marked pair


def test_the_marked_pair_is_a_query_and_what_it_should_look_at():
    """The other way round is the mirror."""
    snapshot = report()
    assert marked_pair(snapshot) == (0, 1)
    assert snapshot.probe.target[0] == 1
    assert snapshot.probe.reverse[1] == 0


def test_the_marked_pair_depends_on_the_example_alone():
    """It stays while models learn, whatever they look at; only entries that are asked count."""
    snapshot = report()
    for seed in range(5):
        pattern = np.random.default_rng(seed).random(snapshot.probe.pattern.shape)
        other = with_metrics(snapshot, symmetry_error=(0, 0), score_symmetry=(1, 1))
        assert marked_pair(with_probe(other, pattern=pattern.astype(np.float16))) == (0, 1)
    labels = snapshot.probe.labels.copy()
    labels[0] = -1
    assert marked_pair(with_probe(snapshot, labels=labels)) == (1, 2)


def test_a_task_without_direction_has_no_marked_pair():
    """Nobody asks for the asker."""
    experiment = Experiment(task="phonebook", n_seeds=1)
    assert marked_pair(finished(experiment, [[[0.5]] * 5])) is None


# A token that finds itself


def on_itself(itself, right, accuracy=0.4, **given):
    """Q=K on who reports to whom, with this attention of every token to itself and the right one.

    The attention that is left goes to the other three tokens.
    """
    snapshot = report(accuracy=(1.0, accuracy), wrong=(0.0, 0.1), **given)
    pattern = snapshot.probe.pattern.copy()
    pattern[1] = (1 - itself - right) / 3
    for i, target in enumerate(CYCLE):
        pattern[1, :, :, i, i], pattern[1, :, :, i, target] = itself, right
    return with_probe(snapshot, pattern=pattern)


def test_tokens_that_look_at_themselves_are_told():
    """With both shares of attention."""
    found = reason(on_itself(0.7, 0.1), Q_K, 0)
    assert (found.variant, found.kind, found.page) == (Q_K, "finds itself", "attention")
    assert found.sentence == (
        "Q=K finds itself: here, tokens give 70% of their attention to themselves and 10% to "
        "the right token."
    )


def test_a_share_that_rounds_to_nothing_is_told_as_under_one_percent():
    """Attention is never quite 0."""
    found = reason(on_itself(0.7, 0.004), Q_K, 0)
    assert found.sentence.endswith("and under 1% to the right token.")


@pytest.mark.parametrize(
    ("itself", "right", "accuracy"),
    [
        (0.28, 0.1, 0.4),  # little of it, though more than any other
        (0.5, 0.45, 0.4),  # as much on the right token, as in runs that solve a task
        (0.7, 0.1, 0.92),  # nearly all is right nevertheless
        (0.7, 0.1, np.nan),
    ],
)
def test_tokens_that_also_look_elsewhere_do_not_find_themselves(itself, right, accuracy):
    """Each condition by itself."""
    found = reason(on_itself(itself, right, accuracy), Q_K, 0)
    assert found is None or found.kind != "finds itself"


def test_few_tokens_that_look_at_themselves_are_not_the_reason():
    """Two of five have the large share that the mean shows."""
    snapshot = on_itself(0.9, 0.02)
    pattern = snapshot.probe.pattern.copy()
    for i in range(3):
        pattern[1, :, :, i] = 0.04
        pattern[1, :, :, i, (i + 2) % 5] = 0.84
    assert reason(with_probe(snapshot, pattern=pattern), Q_K, 0) is None


def test_where_the_answer_is_the_token_itself_nothing_is_wrong():
    """On the list that is copied every token has to look at itself."""
    experiment = tiny("reverse", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[0.3]], [[0.3]], [[0.3]]])
    n = experiment.task.n_ctx
    pattern = np.broadcast_to(np.eye(n), snapshot.probe.pattern.shape).astype(np.float16)
    itself = with_probe(snapshot, pattern=pattern, target=np.arange(n))
    assert reason(itself, Q_K, 0) is None
    others = with_probe(snapshot, pattern=pattern, target=np.arange(n)[::-1])
    assert reason(others, Q_K, 0).kind == "finds itself"


# Questions that look at each other


@pytest.mark.parametrize(
    ("entries", "accuracy", "told"),
    [(0.03, 0.1, True), (0.001, 0.1, True), (0.2, 0.1, False), (0.03, 0.92, False)],
)
def test_questions_that_look_at_each_other_are_told(entries, accuracy, told):
    """With the share of attention that all entries together have."""
    experiment = tiny("phonebook", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[accuracy]]] * 3)
    pattern = snapshot.probe.pattern.copy()
    pattern[..., :5], pattern[..., 5:] = entries / 5, (1 - entries) / 5
    found = reason(with_probe(snapshot, pattern=pattern), Q_K, 0)
    assert (found is not None) == told
    if told:
        shares = "97% of their attention to questions and 3%"
        if entries < 0.01:
            shares = "99% of their attention to questions and under 1%"
        assert found.kind == "looks elsewhere"
        assert found.sentence == (
            f"Q=K: here, questions give {shares} to the entries that hold the answers."
        )


def test_where_entries_ask_themselves_there_is_no_elsewhere():
    """Who reports to whom has no questions besides the entries."""
    pattern = np.full_like(report().probe.pattern, 0.2)
    found = reason(with_probe(report(accuracy=(1.0, 0.3)), pattern=pattern), Q_K, 0)
    assert found is None


# A narrow head


def rising(*curves, loss=None, kind="phonebook", last_steps=8, **given):
    """A finished experiment from one curve of accuracy for each variant and seed."""
    rows = np.array(curves, float).transpose(2, 0, 1)
    experiment = tiny(kind, **{"n_seeds": rows.shape[2], "steps": last_steps, **given})
    loss = np.ones_like(rows) if loss is None else loss
    snapshot = finished(experiment, rows, loss)
    shares = np.full_like(snapshot.probe.pattern, 1 / experiment.task.n_ctx)
    return with_probe(snapshot, pattern=shares)


RISES, FLAT, SOLVED = [0, 0.3, 0.4, 0.5, 0.6], [0, 0.6, 0.6, 0.6, 0.6], [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("sharing", "role"), [("K=V", "both key and value"), ("Q=V", "both query and value")]
)
def test_a_narrow_head_with_tied_values_learns_slowly(sharing, role):
    """It says how wide the head is, and how far QKV is at the same step."""
    snapshot = rising([SOLVED], [RISES], sharing=["QKV", sharing], d_head=4)
    found = reason(snapshot, Variant(sharing), 0)
    assert (found.kind, found.page) == ("narrow head", "questions")
    assert found.sentence == (
        f"{sharing} learns slowly: the 4 numbers of a head are {role}: 60% right at step 8, "
        "QKV 100%."
    )
    assert "cannot" not in found.sentence


@pytest.mark.parametrize(
    ("curves", "given"),
    [
        (([SOLVED], [RISES]), {"d_head": 9}),  # wide enough
        (([SOLVED], [RISES]), {"sharing": ["QKV", "Q=K"]}),  # values are not tied
        (([SOLVED], [RISES]), {"sharing": ["Q=K", "Q=K=V"]}),  # slow at every width
        (([SOLVED], [RISES]), {"sharing": ["QKV d_head=8", "K=V"]}),  # differs in width, too
        (([SOLVED], [FLAT]), {}),  # it does not learn
        (([SOLVED], [[0, 0.1, 0.15, 0.2, 0.24]]), {}),  # no better than the number of any entry
        (([[0, 0.3, 0.5, 0.6, 0.65]], [RISES]), {}),  # QKV is no faster
        (([[*SOLVED[:4], np.nan]], [RISES]), {}),  # QKV diverged
    ],
)
def test_what_is_slow_for_another_reason_is_not_told_as_narrow(curves, given):
    """Each condition by itself."""
    given = {"sharing": ["QKV", "K=V"], "d_head": 4, **given}
    snapshot = rising(*curves, **given)
    found = reason(snapshot, snapshot.experiment.sharing[1], 0)
    assert found is None or found.kind != "narrow head"


# The optimiser


def test_other_seeds_that_solve_the_task_are_counted():
    """The sharing is no obstacle; loss and accuracy of this seed stay."""
    snapshot = rising([SOLVED, FLAT, SOLVED], sharing=["Q=K"])
    found = reason(snapshot, Q_K, 1)
    assert found.kind == "optimiser"
    assert found.sentence == (
        "Q=K solves it with 2 of 3 seeds; this seed has 60% right, and only its random numbers "
        "differ."
    )
    assert reason(snapshot, Q_K, 0) is None


@pytest.mark.parametrize(
    "curves",
    [
        [FLAT, FLAT, FLAT],  # no seed solves it
        [SOLVED, RISES, SOLVED],  # this one is on its way
        [SOLVED, [0, 0.96, 0.96, 0.96, 0.96], SOLVED],  # nearly there
        [[0, 1, 1, 1, 0.5], FLAT, FLAT],  # the other has lost it again
    ],
)
def test_other_seeds_are_told_only_of_one_that_is_stuck(curves):
    """Each condition by itself."""
    found = reason(rising(curves, sharing=["Q=K"]), Q_K, 1)
    assert found is None or found.kind != "optimiser"


def test_a_run_that_diverged_is_told_with_its_step_and_rate():
    """Its numbers are missing, so nothing else is said."""
    rows = [[[0.1], [0.1]], [[0.5], [np.nan]], [[1.0], [np.nan]]]
    experiment = tiny("phonebook", sharing=["QKV", "Q=K learning_rate=0.5"], n_seeds=1)
    snapshot = finished(experiment, rows, diverged_at=[[-1], [4]])
    variant = experiment.sharing[1]
    found = reason(snapshot, variant, 0)
    assert (found.variant, found.kind) == (variant, "diverged")
    assert "diverged by step 4: its loss is not a finite number any more." in found.sentence
    assert found.sentence.endswith("Try a learning rate below 0.5.")
    assert headline(snapshot, 0) == found


# Chance, parts, examples known by heart


def test_a_loss_of_equal_guesses_is_told():
    """The logarithm of the number of answers, 7 here."""
    loss = np.full((5, 1, 1), np.log(7))
    found = reason(rising([FLAT], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert found.kind == "chance"
    assert found.sentence == (
        "Q=K has learned nothing yet: its loss of 1.95 is that of guessing among 7 answers."
    )
    for other in (0.9, 1.1):
        assert reason(rising([FLAT], loss=other * loss, sharing=["Q=K"]), Q_K, 0) is None


@pytest.mark.parametrize(
    ("accuracy", "share", "told"), [(0.1, 1.3, True), (0.1, 1.05, False), (0.5, 1.3, False)]
)
def test_a_loss_above_that_of_guesses_is_told_with_the_learning_rate(accuracy, share, told):
    """It counts only where hardly an answer is right: confident models may have it, too."""
    loss = np.array([1, 2, 3, 2.8, 1])[:, None, None] * share * np.log(7)
    given = {"sharing": ["Q=K"], "learning_rate": 1.0}
    found = reason(rising([[0, *[accuracy] * 4]], loss=loss, **given), Q_K, 0)
    assert (found is not None) == told
    if told:
        assert found.kind == "optimiser"
        assert found.sentence == (
            "Q=K does worse than guessing at a learning rate of 1: its loss is 2.53, that of "
            "guesses 1.95."
        )


@pytest.mark.parametrize(
    ("known", "new", "told"),
    [(0.97, 0.6, True), (0.65, 0.6, False), (0.97, 0.92, False), (np.nan, 0.6, False)],
)
def test_examples_known_by_heart_are_told(known, new, told):
    """Much better on those than on new ones; where all are new, there is no such accuracy."""
    snapshot = rising([[0, new, new, new, new]], sharing=["Q=K"])
    found = reason(with_metrics(snapshot, training_accuracy=[known]), Q_K, 0)
    assert (found is not None) == told
    if told:
        assert found.sentence == (
            "Q=K has 97% right on examples that it was trained on, but only 60% on new ones."
        )


@pytest.mark.parametrize(
    ("best", "worst", "told"), [(0.98, 0.2, True), (0.98, 0.7, False), (0.8, 0.2, False)]
)
def test_groups_of_questions_that_fail_are_told(best, worst, told):
    """One is answered and another is not."""
    experiment = Experiment(task="k_hop", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[0.5]], [[0.5]], [[0.5]]])
    shares = np.array([[best, worst]], np.float32)
    found = reason(dataclasses.replace(snapshot, slice_accuracy=shares), Q_K, 0)
    assert (found is not None) == told
    if told:
        assert found.sentence == ("Q=K answers only some questions. Hops “1”: 98% right, “2”: 20%.")


# Not yet trained


def test_a_curve_that_still_rises_is_told_with_two_of_its_points():
    """While it trains, and when it has ended."""
    snapshot = rising([RISES], sharing=["Q=K"])
    ended = reason(snapshot, Q_K, 0)
    assert ended.kind == "early"
    assert ended.sentence == (
        "Q=K was still learning when training ended: 50% right at step 6, 60% at step 8."
    )
    running = reason(dataclasses.replace(snapshot, status="running"), Q_K, 0)
    assert running.sentence == "Q=K is still learning: 50% right at step 6, 60% at step 8."


def test_where_the_accuracy_waits_the_loss_tells_that_a_run_learns():
    """It falls on new examples before answers change, but not where they become worse."""
    loss = np.array([3, 2.4, 2.0, 1.9, 1.8])[:, None, None]
    found = reason(rising([FLAT], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert found.sentence.endswith("ended: loss 1.90 at step 6, 1.80 at step 8.")
    slower = reason(rising([FLAT], loss=loss / 10, sharing=["Q=K"]), Q_K, 0)
    worse = reason(rising([[*FLAT[:4], 0.5]], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert slower is None
    assert worse is None


@pytest.mark.parametrize("curve", [FLAT, [0, 0.6, 0.6, 0.6, 0.62], [0, 0.6, 0.8, 0.9, 0.96]])
def test_a_curve_that_has_stopped_or_is_nearly_there_is_not(curve):
    """A little more within the scatter is no rise."""
    assert reason(rising([curve], sharing=["Q=K"]), Q_K, 0) is None


def test_where_the_loss_is_the_measure_it_is_told():
    """The accuracy over single characters says little."""
    loss = np.array([4, 3, 2.8, 2.6, 2.5])[:, None, None]
    snapshot = rising([FLAT], loss=loss, kind="language", sharing=["Q=K"])
    assert reason(snapshot, Q_K, 0).sentence == (
        "Q=K was still learning when training ended: loss 2.60 at step 6, 2.50 at step 8."
    )


def test_before_the_first_step_nothing_is_explained():
    """Only the untrained accuracy is told, whatever the other numbers are."""
    snapshot = dataclasses.replace(report(), step=0)
    assert reason(snapshot, Q_K, 0).sentence == "Q=K is not trained yet: 50% right."


def test_evaluations_of_an_earlier_task_or_form_do_not_count():
    """Names and numbers are learned first, or a variant is tied later."""
    experiment = tiny("transfer", sharing=["Q=K"], n_seeds=1, steps=16, earlier_steps=15)
    snapshot = dataclasses.replace(
        finished(experiment, [[[0.1]], [[0.3]], [[0.5]]]),
        eval_steps=np.array([0, 6, 12]),
        step=12,
        status="running",
    )
    assert reason(snapshot, Q_K, 0) is None


# The headline


def test_the_headline_is_the_reason_of_the_variant_that_fails():
    """QKV has none."""
    assert headline(report(), 0) == reason(report(), Q_K, 0)


def test_the_clearest_kind_comes_first_and_then_the_first_column():
    """Mirrored scores before a curve that rises; of two that are mirrored the first."""
    snapshot = report(sharing=["Q=K", "Q=K=V"], accuracy=(0.5, 0.45), right=(0.45, 0.45))
    snapshot = with_metrics(
        snapshot, mass_on_reverse=(0.44, 0.44), symmetry_error=(0, 0), score_symmetry=(1, 1)
    )
    assert headline(snapshot, 0).variant == Q_K
    only_one = with_metrics(snapshot, symmetry_error=(1, 0))
    assert headline(only_one, 0).variant == "Q=K=V"


def test_of_curves_that_rise_the_lowest_is_named():
    """They cross each other, so the first column would say little."""
    higher = [0.1, *RISES[1:4], 0.7]
    snapshot = rising([higher], [RISES], [higher], sharing=["QKV", "Q=K", "K=V"], d_head=16)
    assert headline(snapshot, 0) == reason(snapshot, Q_K, 0)


@pytest.mark.parametrize(
    ("sharing", "told"),
    [
        (["QKV"], "QKV solves it."),
        (["QKV", "Q=K"], "Both solve it, even with one matrix for queries and keys."),
        (["QKV", "K=V"], "Both solve it, even with one matrix for keys and values."),
        (
            ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"],
            "All five solve it, even with one matrix for queries, keys and values.",
        ),
        (["QKV", "Q=K=V d_head=8"], "Both solve it."),  # other things differ, too
    ],
)
def test_a_solved_task_says_how_few_matrices_are_enough(sharing, told):
    """With the fewest of all that solve it with every seed."""
    snapshot = rising(*[[SOLVED, SOLVED]] * len(sharing), sharing=sharing)
    found = headline(snapshot, 0)
    assert (found.kind, found.sentence) == ("solved", told)


def test_a_task_that_is_nearly_solved_is_told_with_its_lowest_accuracy():
    """No curve has three evaluations at 99%."""
    near = [0, 0.96, 0.97, 0.98, 0.98]
    snapshot = rising([SOLVED], [near], sharing=["QKV", "Q=K"])
    assert headline(snapshot, 0).sentence == (
        "Both have at least 98% right, even with one matrix for queries and keys."
    )


def test_another_seed_that_fails_is_told_where_this_one_does_not():
    """So nobody takes one seed for all."""
    snapshot = rising([SOLVED, SOLVED], [SOLVED, FLAT], sharing=["QKV", "Q=K"])
    found = headline(snapshot, 0)
    assert (found.variant, found.kind) == (Q_K, "other seeds")
    assert found.sentence == "Both solve it with seed 0; with seed 1, Q=K has 60% right."


def test_another_seed_that_diverged_is_told_too():
    """Its accuracy is missing."""
    rows = [[[0.0, 0.0]], [[1.0, 1.0]], [[1.0, 1.0]], [[1.0, np.nan]]]
    experiment = tiny("phonebook", sharing=["Q=K"], n_seeds=2)
    snapshot = finished(experiment, rows, diverged_at=[[-1, 8]])
    assert headline(snapshot, 1).kind == "diverged"
    assert headline(snapshot, 0).sentence == "Q=K solves it with seed 0; with seed 1, Q=K diverged."


def test_what_is_not_known_is_not_told():
    """Accuracy has stopped at 60%, and no number says why."""
    snapshot = rising([SOLVED], [FLAT], sharing=["QKV", "Q=K"])
    assert headline(snapshot, 0) is None


# All of it


@pytest.mark.parametrize("task", TASKS)
def test_every_shipped_example_has_sentences_for_people(task):
    """Short sentences, without a word that says never, about the variant that they name."""
    snapshot = load_example(task)
    experiment = snapshot.experiment
    found = [reason(snapshot, v, seed) for v in experiment.sharing for seed in experiment.seeds]
    found += [headline(snapshot, seed) for seed in experiment.seeds]
    for each in filter(None, found):
        assert max(len(part.split()) for part in each.sentence.split(". ")) <= 20
        most = 36 if each.kind == "mirrored" else 26  # readers need to know who reports to whom
        assert len(each.sentence.split()) <= most
        assert not re.search("cannot|never|nan|inf", each.sentence)
        assert each.page in ("attention", "asymmetry", "questions")
        assert each.variant in experiment.sharing


def test_the_default_example_says_why_shared_queries_and_keys_fail():
    """The sentence of the first screen: two entries of the example, and their two equal scores."""
    snapshot = load_example("directed")
    found = headline(snapshot, 0)
    one, other = marked_pair(snapshot)
    run = snapshot.experiment.runs.index((Q_K, 0))
    scores = snapshot.probe.scores[run, -1, 0]
    names = [label.short for label in snapshot.experiment.task.label(snapshot.probe.tokens)]
    assert (found.variant, found.kind) == (Q_K, "mirrored")
    pair, mirror = f"{names[one]}→{names[other]}", f"{names[other]}→{names[one]}"
    assert f"{pair} and {mirror} the same ({scores[one, other]:.2f})" in found.sentence
    assert f"{scores[one, other]:.2f}" == f"{scores[other, one]:.2f}"
    assert all(reason(snapshot, Variant(v), 0) is None for v in ("QKV", "K=V", "Q=V"))


@pytest.mark.parametrize("kind", KINDS)
def test_reasons_of_a_run_that_has_hardly_begun(kind):
    """No snapshot makes a reason raise an error."""
    training = Training(tiny(kind, n_seeds=1), "cpu")
    for _ in range(3):
        snapshot = training.snapshot()
        for variant in snapshot.experiment.sharing:
            reason(snapshot, variant, 0)
        headline(snapshot, 0)
        marked_pair(snapshot)
        training.advance(3)
