"""Predict first: nothing gives the answer away before a guess, and the guess is judged."""

from dataclasses import replace

import numpy as np
import pytest
from idle import DASHBOARD, PATIENCE
from streamlit.testing.v1 import AppTest
from visiting import SMALL, job_of, plain_text, press, show, visit, visit_small, watch

from attnkit.analysis.reasons import headline, reason
from attnkit.experiment import Experiment
from attnkit.training.summary import finding, solved_variants
from attnkit.ui.guess import NONE, Guess, correction, outcome
from attnkit.ui.task_examples import shipped_example
from attnkit.variants import Variant

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def said(tab):
    """All sentences of the page."""
    kinds = (tab.markdown, tab.caption, tab.info, tab.warning)
    return "\n".join(plain_text(element) for kind in kinds for element in kind)


def unescaped(text):
    """Return a text without the characters that keep Markdown away."""
    return text.replace("\\", "").replace("\u2060", "")


def guess_group(tab):
    """The control with which one guesses, if it is there."""
    return [group for group in tab.button_group if (group.key or "").startswith("guess_")]


def guess(tab, *variants):
    """Choose what will solve the task."""
    (pills,) = guess_group(tab)
    pills.set_value(list(variants))
    return show(tab)


def test_a_quiet_link_shows_no_result_and_waits_for_a_guess():
    """The finished example of the defaults stays hidden."""
    found = finding(shipped_example("directed"))
    assert found in said(visit())
    tab = visit(quiet="1")
    assert found not in said(tab)
    assert "Untrained: curves and attention maps appear here." in said(tab)
    assert "Which of them will solve this" in guess_group(tab)[0].label
    assert tab.button(key="train").disabled
    assert tab.button(key="train").label == "Guess first"
    assert "Not trained yet. Guess, then press **Train**. It takes about" in said(tab)
    assert tab.button(key="step").disabled
    assert tab.query_params["quiet"] == "1"
    assert not tab.warning


def test_a_guess_can_be_changed_until_train_and_is_judged_in_the_end():
    """The last one counts."""
    tab = guess(visit_small(quiet="1", steps="20"), "QKV")
    assert not tab.button(key="train").disabled
    assert tab.button(key="train").label == "Train"
    tab = guess(tab, NONE)
    tab = watch(press(tab, "train"), lambda job: job.over)
    assert "Your guess was right." in said(tab)
    assert not guess_group(tab)
    tab = guess(visit_small(quiet="1", steps="20"), "QKV", "Q=K")
    tab = watch(press(tab, "train"), lambda job: job.over)
    assert "Your guess was wrong.** You named QKV and Q=K; none of them solves it." in said(tab)


@pytest.mark.parametrize(
    ("named", "solved", "told"),
    [
        (["K=V"], ["QKV", "K=V", "Q=V"], "You named K=V; QKV and Q=V solve it, too."),
        (["QKV", "Q=K"], ["QKV"], "You named QKV and Q=K; Q=K does not solve it."),
        (["Q=K"], ["QKV"], "You named Q=K, which does not solve it; QKV solves it."),
        (
            ["QKV", "Q=K", "Q=K=V"],
            ["QKV", "K=V"],
            "You named QKV, Q=K and Q=K=V; Q=K and Q=K=V do not solve it; K=V solves it, too.",
        ),
        ([], ["QKV", "K=V"], "You named none of them; QKV and K=V solve it."),
        (["QKV"], [], "You named QKV; none of them solves it."),
    ],
)
def test_what_a_wrong_guess_lacks_is_told(named, solved, told):
    """Variants that were named and fail, and those that solve it and were not named."""
    experiment = shipped_example("directed").experiment
    assert correction(named, solved, experiment) == told


def test_a_wrong_guess_about_losses_is_told():
    """A guess about a task with a loss to beat is judged by that loss."""
    experiment = Experiment(task="language")
    simple = experiment.task.simple_model
    assert correction(["Q=K"], ["QKV"], experiment) == (
        f"You named Q=K, which does not have a lower loss than {simple}; "
        f"QKV has a lower loss than {simple}."
    )


def test_a_wrong_guess_is_followed_by_the_reason_of_a_variant_that_was_named():
    """A reason that the page shows anyway, as the run's headline, is not told twice."""
    snapshot = shipped_example("directed")
    own = outcome(Guess(snapshot.experiment, ("Q=K=V",)), snapshot)
    assert reason(snapshot, Variant("Q=K=V"), 0).sentence.removesuffix(".") in unescaped(own)
    assert "(seed 0)." in unescaped(own)
    shown = headline(snapshot, 0).sentence.removesuffix(".")
    for named, judged in (("Q=K", "wrong"), ("QKV", "partly right")):
        told = unescaped(outcome(Guess(snapshot.experiment, (named,)), snapshot))
        assert judged in told
        assert shown not in told
    solved = tuple(variant.value for variant in solved_variants(snapshot))
    assert outcome(Guess(snapshot.experiment, solved), snapshot) == "**Your guess was right.**"


def test_a_class_sees_how_a_known_result_is_learnt():
    """It is not shown at once, neither when the link is opened nor when Train is pressed."""
    known = visit_small(steps="20")
    link = {"v": "1", **known.query_params}
    known = watch(press(known, "train"), lambda job: job.over)
    for of_class in ({"hide": "task,settings,buttons"}, {"quiet": "1"}):
        tab = visit(**link, **of_class)
        assert job_of(tab) is None
        if "quiet" in of_class:
            tab = guess(tab, NONE)
        tab = watch(press(tab, "train"), lambda job: job.over)
        assert job_of(tab).id != job_of(known).id
    assert "Your guess was right." in said(tab)


@pytest.mark.parametrize(
    ("page", "result"),
    [
        ("capacity", "needs the widest heads"),
        ("runs", "kept"),
        ("variants", "variants reach"),
        ("guide", "Compare Q=K with"),
        ("questions", "need two matrices"),
    ],
)
def test_no_page_gives_a_result_away_before_the_first_guess(page, result):
    """Also if its own address is opened, or opened anew; without the quiet mode it is there."""

    def opened(**params):
        tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE).switch_page(f"pages/{page}.py")
        tab.query_params.update(params)
        return show(tab)

    assert result in said(opened())
    tab = opened(quiet="1")
    assert result not in said(tab)
    assert tab.query_params["quiet"] in ("1", ["1"])


def test_pages_keep_quiet_after_a_quiet_lab():
    """The guess comes before those that look inside, too."""
    tab = visit(quiet="1")
    assert "variants reach" not in said(show(tab.switch_page("pages/variants.py")))
    assert tab.query_params["quiet"] in ("1", ["1"])
    show(tab.switch_page("pages/attention.py"))
    assert "Guess in the Lab" in tab.info[0].value
    assert not [button for button in tab.button if button.key == "train_here"]


def test_the_switch_takes_a_finished_run_off_the_screen_and_back():
    """It is not lost."""
    tab = watch(press(visit_small(steps="20"), "train"), lambda job: job.over)
    run = job_of(tab).id
    tab.toggle(key="quiet_mode").set_value(True)
    tab = show(tab)
    assert job_of(tab) is None
    tab.toggle(key="quiet_mode").set_value(False)
    assert job_of(show(tab)).id == run


def test_what_is_solved_is_what_the_finding_says():
    """With every seed, or by a loss below that of the simple model."""
    snapshot = shipped_example("directed")
    names = [variant.value for variant in solved_variants(snapshot)]
    assert f"Solved by all 5 seeds: {', '.join(names)}. Not solved" in finding(snapshot)
    never = {**snapshot.history, "accuracy": np.zeros_like(snapshot.history["accuracy"])}
    assert solved_variants(replace(snapshot, history=never)) == []


def test_a_guess_holds_on_other_seeds_only():
    """Another setting asks another question."""
    experiment = shipped_example("directed").experiment
    own = Guess(experiment, ("QKV",))
    assert own.is_about(experiment.replace(first_seed=5))
    assert not own.is_about(experiment.replace(d_head=int(SMALL["d_head"])))
    assert own.is_right({"QKV"})
    assert Guess(experiment, (NONE,)).is_right(set())
    assert not Guess(experiment, ()).is_about(experiment)
