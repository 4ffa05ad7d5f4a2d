"""Predict first: nothing gives the answer away before a guess, and the guess is judged."""

import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from idle import link_of, open_page
from visiting import SMALL, job_of, press, said, show, turn_to, visit, visit_small, watch

from attnkit.analysis.reasons import headline, reason
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.experiment.links import GROUPS
from attnkit.service.jobs import Watcher
from attnkit.training.summary import finding, solved_variants
from attnkit.ui.lab.guess import NONE, correction, key_of_guess, outcome
from attnkit.ui.page_tools import PROJECTOR
from attnkit.variants import Variant

EXAMPLE = load_example("directed")

RESULTS = {
    "capacity": "needs the widest heads",
    "runs": "kept",
    "variants": "variants reach",
    "guide": "Compare Q=K with",
    "questions": "does not tell a relation",
}
"""Words of results on pages, without the quiet mode."""


def on_pages(test):
    """Mark a test that draws pages and trains on them."""
    return pytest.mark.server(pytest.mark.usefixtures("pages_service")(test))


def guess_group(tab):
    """The control with which one guesses, if it is there."""
    return [group for group in tab.button_group if (group.key or "").startswith("guess_")]


def guess(tab, *variants):
    """Choose what will solve the task."""
    (pills,) = guess_group(tab)
    pills.set_value(list(variants))
    return show(tab)


@on_pages
def test_a_quiet_link_shows_no_result_on_any_page_and_waits_for_a_guess():
    """The finished example of the defaults stays hidden, also if a page's own address is opened."""
    assert finding(EXAMPLE) in said(visit())
    tab = visit(quiet="1")
    assert finding(EXAMPLE) not in said(tab)
    assert guess_group(tab)
    assert [tab.button(key=key).disabled for key in ("train", "step")] == [True, True]
    assert tab.button(key="train").label == "Guess first"
    assert not tab.warning
    for page, result in RESULTS.items():
        assert result in said(open_page(page))
        for quiet in (turn_to(tab, page), open_page(page, quiet="1")):
            assert result not in said(quiet), page
            assert link_of(quiet)["quiet"] == "1"
    turn_to(tab, "attention")  # nor do those that look inside
    assert tab.info
    assert "train_here" not in [button.key for button in tab.button]


@on_pages
def test_a_guess_can_be_changed_until_train_and_is_judged_in_the_end():
    """A class sees how a known result is learnt, and the switch takes a run off the screen."""
    tab = visit_small(steps="20")
    link = {"v": "1", **tab.query_params}
    known = job_of(watch(press(tab, "train"), lambda job: job.over)).id
    for quiet in (True, False):
        tab.toggle(key="quiet_mode").set_value(quiet)
        assert (job_of(show(tab)) is None) == quiet
    assert job_of(tab).id == known
    for of_class in ({"hide": "task,settings,buttons"}, {"quiet": "1"}):
        tab = visit(**link, **of_class)
        assert job_of(tab) is None
        if "quiet" in of_class:
            assert not guess(tab, "QKV").button(key="train").disabled
            tab = guess(tab, NONE)
        tab = watch(press(tab, "train"), lambda job: job.over)
        assert job_of(tab).id != known
    assert "Your guess was right." in said(tab)
    assert not guess_group(tab)


def codes_of(tab):
    """Return the code of a class on the page of its lesson, and the code of its teacher."""
    page = next(link.proto.url for link in tab.get("link_button") if "class=" in link.proto.url)
    return [tab.code[0].value.rpartition("=")[2], page.rpartition("=")[2]]


def told(tab):
    """Return what stands above the bars of a class, without Markdown escapes."""
    texts = (bar.proto.text for bar in tab.get("progress"))
    return [text.replace("\\", "").replace("\u2060", "") for text in texts if text]


@on_pages
def test_a_teacher_keeps_the_class_of_a_lesson_until_another_is_begun():
    """Also if the page of the lesson is loaded again; a second class needs a button of its own."""
    tab = open_page("guide", lesson="1_two_spaces")
    first = codes_of(press(tab, "begin_class"))
    assert "begin_class" not in [button.key for button in tab.button]
    assert codes_of(show(tab)) == first
    with patch("attnkit.ui.lab.classroom.watcher", lambda: Watcher("", tab.session_state.visitor)):
        assert codes_of(open_page("guide", lesson="1_two_spaces")) == first
        other = open_page("guide", lesson="2_expressiveness")
        assert "begin_class" in [button.key for button in other.button]
    assert not {*codes_of(press(tab, "begin_another"))} & {*first}


@on_pages
def test_a_class_sees_how_many_guessed_what_beside_the_result():
    """Each visitor counts once, with the last guess; other classes and settings do not count."""
    begun, codes = open_page("guide", lesson="1_two_spaces"), []
    for button in ("begin_class", "begin_another"):
        codes += codes_of(press(begun, button))
    link = {**SMALL, "steps": "20", "first_seed": "0"}
    pupil, pupils_page, other, _ = ({"class": code} for code in codes)
    anna, bert, other = (visit(**link, **one) for one in (pupil, pupil, other))
    teacher = visit(**link, **pupils_page)
    guess(anna, "Q=K")
    for tab in (anna, bert, visit(**{**link, "d_head": "5"}, **pupil)):
        guess(tab, "QKV")
    guess(bert, "QKV", NONE)  # then only the last one holds
    guess(other, "Q=K")
    assert teacher.code[0].value.endswith(f"?class={codes[0]}")
    assert [PROJECTOR in tab.session_state for tab in (teacher, anna)] == [True, False]
    assert "**2** have guessed" in said(show(teacher))
    assert not teacher.get("progress")[1:]
    teacher.toggle(key="show_guesses").set_value(True)
    counts = ["QKV: 1 of 2", "Q=K: 0 of 2", f"{NONE}: 1 of 2"]
    assert told(show(teacher)) == counts
    for tab in (teacher, bert):
        tab = watch(press(tab, "train"), lambda job: job.over)
        assert "**1 of 2 in your class guessed right.**" in said(tab)
        judged = zip(counts, ("✗ wrong", "✗ wrong", "✓ right"), strict=True)
        assert told(tab) == [f"{count} {one}" for count, one in judged]
    press(bert, "train")  # until it ends, and then, what it will be is known and stays
    assert "**1 of 2 in your class guessed right.**" in said(bert)
    guess(visit(**link, **pupil), NONE)  # too late
    assert told(show(teacher))[0].startswith("QKV: 1 of 2")
    anew = visit(**link, **pupils_page)  # as if it were loaded again
    assert told(anew) == counts
    anew.session_state["share"] = True  # as a browser opens it
    assert codes[0] in [one.value.rpartition("=")[2] for one in show(anew).code]


@on_pages
def test_a_class_that_is_not_there_is_told_and_gives_no_result_away():
    """A message says so, whatever the code is, and the visitor may guess alone."""
    for code in ("", "zzzzz", "<b>*x*</b>", "\u202e\x00" * 40):
        tab = visit(**{"class": code})
        before = [one.type for one in tab.main if one.type in ("alert", "warning", "button_group")]
        assert before == ["warning", "button_group"]  # only the guess, below the message
        assert set(link_of(tab)["hide"].split(",")) == set(GROUPS)
        tab.session_state["share"] = True
        assert not show(tab).multiselect  # a class makes no links for a class
        assert finding(EXAMPLE) not in said(tab)
        assert not guess(tab, "QKV").button(key="train").disabled


def test_what_a_wrong_guess_lacks_is_told():
    """Variants that were named and fail, and those that solve it and were not named."""
    text = Experiment(task="language")
    for named, solved, experiment, words in (
        ("K=V", "QKV K=V Q=V", EXAMPLE.experiment, "named K=V; QKV and Q=V solve"),
        ("QKV Q=K", "QKV", EXAMPLE.experiment, "named QKV and Q=K; Q=K does not"),
        ("Q=K", "QKV", EXAMPLE.experiment, "named Q=K, which does not .*; QKV solves"),
        ("QKV Q=K Q=K=V", "QKV K=V", EXAMPLE.experiment, "Q=K and Q=K=V do not .*; K=V solves"),
        ("", "QKV K=V", EXAMPLE.experiment, "named none .*; QKV and K=V solve"),
        ("QKV", "", EXAMPLE.experiment, "named QKV; none of"),
        ("Q=K", "QKV", text, f"{text.task.simple_model}; QKV .* than {text.task.simple_model}"),
    ):
        assert re.search(words, correction(named.split(), solved.split(), experiment))


def test_a_wrong_guess_is_followed_by_the_reason_of_a_variant_that_was_named():
    """A reason that the page shows anyway, as the run's headline, is not told twice."""

    def told_for(*named):
        told = outcome(named, EXAMPLE)
        return told.replace("\\", "").replace("\u2060", "")  # which keep Markdown away

    own = told_for("Q=K=V")
    assert reason(EXAMPLE, Variant("Q=K=V"), 0).sentence.removesuffix(".") in own
    assert "(seed 0)." in own
    shown = headline(EXAMPLE, 0).sentence.removesuffix(".")
    for named, judged in (("Q=K", "wrong"), ("QKV", "partly right")):
        assert judged in told_for(named)
        assert shown not in told_for(named)
    solved = [variant.value for variant in solved_variants(EXAMPLE)]
    assert solved == ["QKV", "K=V", "Q=V"]
    assert "was right" in told_for(*solved)
    assert ", ".join(solved) in finding(EXAMPLE)
    never = {**EXAMPLE.history, "accuracy": np.zeros_like(EXAMPLE.history["accuracy"])}
    unsolved = replace(EXAMPLE, history=never)
    assert solved_variants(unsolved) == []
    assert "was right" in outcome([NONE], unsolved)


def test_a_guess_holds_on_other_seeds_only():
    """Another setting asks another question."""
    experiment = EXAMPLE.experiment
    assert key_of_guess(experiment.replace(first_seed=5)) == key_of_guess(experiment)
    assert key_of_guess(experiment.replace(d_head=6)) != key_of_guess(experiment)
