"""Conditions of reasons: every one is needed, and holds from its limit on."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny
from reasoned import FALLING, FLAT, Q_K, RISES, SOLVED, changed, check, looking, report, rising

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.reasons import kinds, named_query
from attnkit.analysis.reasons.run import Run
from attnkit.experiment import Experiment
from attnkit.tasks import NOTHING
from attnkit.variants import Variant

GUESS = np.full((5, 1, 1), np.log(7))
BUMP = np.array([1, 2, 3, 2.8, 1.3])[:, None, None] * np.log(7)
N = tiny("phonebook").task.n_ctx


def low(step=None, loss=BUMP, **given):
    """Q=K has learnt nothing after all steps or some; QKV solves the task."""
    given = {"sharing": ["QKV", "Q=K"], **given}
    losses = np.concatenate([loss / 10, loss], 1)
    snapshot = rising([SOLVED], [[0, 0.1, 0.1, 0.1, 0.1]], loss=losses, **given)
    return snapshot if step is None else stopped(snapshot, step)


def stopped(snapshot, step):
    """The snapshot of a run that still trains, whose last evaluation is at this step."""
    steps = np.linspace(0, step, len(snapshot.eval_steps)).astype(np.int64)
    return dataclasses.replace(snapshot, eval_steps=steps, step=step, status="running")


def questions(share=0.97):
    """Questions, and they alone, give this share of their attention to questions."""
    pattern = np.zeros((N, N))
    pattern[5:] = np.array([(1 - share) / 5] * 5 + [share / 5] * 5)
    pattern[:5, :5] = 0.2
    return rising([[0.1] * 5], pattern=pattern)


def known(accuracy, new=0.6):
    """A run with this accuracy on the examples that it was trained on."""
    return changed(rising([[0, new, new, new, new]]), training_accuracy=[accuracy])


def hops():
    """A run that answers one group of questions."""
    ended = finished(Experiment(task="k_hop", sharing=["Q=K"], n_seeds=1), [[[0.5]]] * 3)
    return dataclasses.replace(ended, slice_accuracy=np.array([[0.98, 0.2]], np.float32))


NARROW = {"sharing": ["QKV", "K=V"], "d_head": 4}
SLOW = [0, 0.58, 0.59, 0.595, 0.6]
"""Accuracies that rise by less than what counts as learning."""

CASES = {
    "too_fast": low(learning_rate=0.02, loss=GUESS),
    "mirrored": report(),
    "finds_itself": looking(0.7),
    "looks_elsewhere": questions(),
    "narrow": rising([SOLVED], [RISES], **NARROW),
    "other_seeds": rising([FLAT, SOLVED]),
    "worse_than_guesses": low(),
    "guesses": rising([FLAT], loss=GUESS),
    "memorised": known(0.97),
    "solves_in_part": hops(),
    "learns": rising([RISES]),
    "unknown": rising([FLAT]),
}


def run_of(snapshot, seed=0):
    """The run of the last variant."""
    return Run(snapshot, snapshot.experiment.sharing[-1], seed)


@pytest.mark.parametrize("name", CASES)
def test_no_kind_is_reported_of_an_evaluation_that_does_not_count(name, monkeypatch):
    """Such as one of an earlier task, or from before the variant was tied."""
    run, explain = run_of(CASES[name]), getattr(kinds, name)
    assert explain(run) is not None
    monkeypatch.setattr(Run, "counts", False)
    assert explain(run) is None


def test_reasons_wait_for_steps_and_for_half_of_them_where_they_blame_the_rate():
    """A run diverges at step 0 at the earliest; after one step, it is trained."""
    ended = finished(tiny("phonebook", sharing=["QKV"], n_seeds=1), [[[0.0]]] * 3)
    assert kinds.failed(run_of(ended)).kind == "failed"
    assert kinds.failed(run_of(dataclasses.replace(ended, step=0))) is None
    lost = finished(tiny("phonebook", sharing=["Q=K"], n_seeds=1), [[[0.1]]] * 2, diverged_at=[[0]])
    assert "by step 0" in kinds.diverged(run_of(lost)).sentence
    assert kinds.not_trained(run_of(dataclasses.replace(lost, step=1))) is None
    for name in ("too_fast", "worse_than_guesses"):
        explain, total = getattr(kinds, name), CASES[name].experiment.training.steps
        for step, told in ((0.3, False), (0.5, True)):
            stop = stopped(CASES[name], round(step * total))
            assert (explain(run_of(stop)) is not None) == told, (name, step)


def test_a_rate_is_too_fast_only_above_the_default_and_if_nothing_is_learnt():
    """The advice names the default."""
    fast = CASES["too_fast"]
    assert "lower the learning rate" in kinds.too_fast(run_of(fast)).advice
    assert kinds.too_fast(run_of(low(loss=GUESS))) is None
    learnt = rising([SOLVED], [FLAT], sharing=["QKV", "Q=K"], learning_rate=0.02)
    assert kinds.too_fast(run_of(learnt)) is None
    assert "may be too high" in kinds.unknown(run_of(learnt)).advice


def test_attention_is_measured_where_there_is_an_answer_and_a_pattern():
    """Rows without an answer or a target are left out; without any row there is no reason."""
    nowhere = np.full(5, NOTHING)
    for name, explain in (
        ("finds_itself", kinds.finds_itself),
        ("looks_elsewhere", kinds.looks_elsewhere),
    ):
        whole = CASES[name]
        for probe in (
            {"target": nowhere},
            {"labels": nowhere},
            {"pattern": np.zeros((*whole.probe.pattern.shape[:2], 0, 0), np.float16)},
        ):
            assert explain(run_of(changed(whole, probe))) is None, (name, list(probe))
    mirrored = changed(CASES["mirrored"], {"pattern": np.zeros((2, 1, 0, 0, 0), np.float16)})
    assert "of its attention to the right entry" in kinds.mirrored(run_of(mirrored)).sentence
    labels = np.array([1, 1, NOTHING, NOTHING, NOTHING])
    others = looking(0.7)
    others.probe.pattern[1, 0, 0, 2:] = 0.2
    assert kinds.finds_itself(run_of(others)) is None
    assert "give 70%" in kinds.finds_itself(run_of(changed(others, {"labels": labels}))).sentence
    asked = questions()
    asked.probe.pattern[0, 0, 0, 7:] = 0.1
    assert kinds.looks_elsewhere(run_of(asked)) is None
    told = kinds.looks_elsewhere(run_of(changed(asked, {"labels": labels}))).sentence
    assert "97% of their attention to questions and 3% to the entries" in told
    check("finds itself", "50% of their attention to themselves and 20%", looking(0.5, 0.2))
    check("finds itself", "and 1% to the right token", looking(0.7, 0.012))


def test_mirrored_scores_need_a_share_of_attention_and_name_a_shared_matrix_only_if_there_is_one():
    """Equal shares of four other entries are a quarter each; scores may differ and read alike."""
    check("mirrored", "", report(right=(0.97, 0.3), wrong=(0.0, 0.3)))
    check("mirrored", "almost the same (both 2.00), because", report(error=(1.5, 0.03)))
    even = report((0.5, 0.5), (0.45, 0.45), (0.44, 0.44), (0, 0))
    assert "because" not in kinds.mirrored(Run(even, Variant("QKV"), 0)).sentence
    assert "because" in kinds.mirrored(Run(even, Q_K, 0)).sentence
    skew = changed(report(), score_symmetry=[0.0, -1.0])
    assert kinds.mirrored(run_of(skew)) is None


def test_losses_decide_where_accuracies_do_not():
    """A loss that falls counts as learning below that of guessing only."""
    narrow = rising([SOLVED], [SLOW], loss=np.repeat(FALLING, 2, 1), **NARROW)
    check("narrow head", "learns slowly", narrow, "K=V")
    falls = rising([SOLVED], [[*SLOW[:3], 0.6, 0.59]], loss=np.repeat(FALLING, 2, 1), **NARROW)
    check("not narrow head", "", falls, "K=V")
    check("not narrow head", "", rising([SOLVED], [SLOW], **NARROW), "K=V")
    check("not narrow head", "", rising([RISES], sharing=["K=V"], d_head=4), "K=V")
    check("chance", "", rising([FLAT], loss=1.015 * GUESS))
    check("not memorised", "", known(0.75))
    above = FALLING - FALLING[-1] + np.log(7)
    for loss in (above, above + 1):
        assert kinds.learns(run_of(rising([FLAT], loss=loss))) is None
    text = rising([RISES], loss=FALLING + 0.7, kind="language")
    assert "loss 2.60 at step 6" in kinds.learns(run_of(text)).sentence
    assert kinds.unknown(run_of(text)) is None


def test_limits_are_where_they_are_documented():
    """A little beyond each of them, a reason is given, or is not."""
    check("finds itself", "", looking(0.7, n_others=2))
    check("memorised", "", known(0.97, 0.86))
    check("early", "", rising([[0, 0.6, 0.6, 0.6, 0.64]]))
    check("not chance", "", rising([FLAT], loss=0.97 * GUESS))
    check("optimiser", "worse than guessing", low(loss=1.15 * BUMP / BUMP[-1] * np.log(7)))


def test_an_unknown_reason_compares_with_plain_qkv_where_that_is_better():
    """Attention to the right token is told where it is known."""
    given = {"sharing": ["QKV", "Q=K"]}
    known_mass = changed(rising([SOLVED], [FLAT], **given), mass_on_target=[0.9, 0.02])
    told = "Q=K has 60% right and gives 2% of its attention to the right token; QKV has 100%"
    for snapshot, sentence in (
        (known_mass, f"{told} and gives 90%."),
        (rising([SOLVED], [FLAT], **given), "Q=K has 60% right; QKV has 100%."),
        (rising([FLAT], [FLAT], **given), "Q=K has 60% right."),
        (rising([SOLVED], [FLAT], sharing=["Q=K", "K=V"]), "K=V has 60% right."),
        (changed(rising([FLAT]), mass_on_target=[0.02]), told.partition(";")[0] + "."),
    ):
        assert kinds.unknown(run_of(snapshot)).sentence == sentence
    alone = rising([FLAT], sharing=["QKV"])
    assert run_of(alone).reference() is None


def test_a_reason_names_its_seed_where_it_is_about_one_of_several():
    """Solved tasks and failed trainings are about all seeds."""
    one, two = rising([FLAT]), rising([FLAT, FLAT])
    for snapshot, seeds in ((one, ""), (two, " (seed 0)")):
        found = kinds.unknown(run_of(snapshot))
        words = found.in_words(snapshot.experiment, 0)
        assert words == f"Q=K has 60% right{seeds}. We do not know why."
        solved = dataclasses.replace(found, kind="solved").in_words(snapshot.experiment, 0)
        assert "seed" not in solved


def test_a_run_is_compared_with_its_last_evaluation_within_three_quarters_of_its_steps():
    """Only runs that count are compared, and the newest is never compared with itself."""
    run = run_of(rising([RISES]))
    assert run.earlier_evaluation == 3
    transfer = tiny("transfer", sharing=["Q=K"], n_seeds=1, steps=16, earlier_steps=8)
    late = run_of(finished(transfer, [[[0.1]]] * 9))
    assert late.snapshot.eval_steps[late.earlier_evaluation] == 14
    assert run_of(finished(transfer, [[[0.1]]] * 2)).earlier_evaluation is None
    assert run_of(finished(tiny("phonebook", n_seeds=1), [[[0.1]] * 5])).earlier_evaluation is None


def test_the_named_query_is_the_second_of_the_pair_if_it_has_an_answer():
    """Maps mark the pair from the first query on; sentences speak of the second."""
    snapshot = report()
    task, example = snapshot.experiment.task, example_of(snapshot)
    assert named_query(task, example) == 1
    labels = example.labels.copy()
    labels[1] = NOTHING
    assert named_query(task, dataclasses.replace(example, labels=labels)) is None
    nothing = dataclasses.replace(example, target=np.full(5, NOTHING))
    assert named_query(task, nothing) is None
