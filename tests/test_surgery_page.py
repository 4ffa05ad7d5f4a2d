"""The page that operates on trained models: without a browser, and in a real Chromium.

Heads are switched off, matrices are tied and trained on, and keys and values are mixed.
"""

import csv
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
from playwright.sync_api import expect
from test_filming import fail
from test_inspection_page import filmed, small_link, turn_to, visit_at, watch_film
from visiting import PATIENCE, UNENDING, drawn, plain_text, press, show, visit, watch

from attnkit.figures.tying import tying_results
from attnkit.service.server import server_settings
from attnkit.service.service import Refused, TrainingService
from attnkit.ui import inspection as inspection_page
from attnkit.ui.service import training_service
from attnkit.variants import Variant

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

LONG = 120_000  # milliseconds; a shared machine may be slow, and waiting ends with the condition

WIDER = """() => [...document.querySelectorAll('[data-testid=stMain] *')]
  .filter((node) => node.getBoundingClientRect().right > window.innerWidth + 1)
  .map((node) => node.tagName + '.' + node.className).slice(0, 5)"""


def operated(**params):
    """The page of a small run that has been trained for it."""
    return watch_film(visit_at("surgery", **small_link(**params)))


def concluded(tab):
    """The conclusion, the first text of the page after the run and its link."""
    return next(text for text in map(plain_text, tab.markdown) if CONCLUSION.search(text))


CONCLUSION = re.compile(r"^Tying | little to lose | cannot be tied |nothing is left to tie")


def said(tab):
    """All that is said, without the backslashes that keep Markdown away."""
    kinds = (tab.markdown, tab.caption, tab.info, tab.warning, tab.error)
    return "\n".join(plain_text(element) for kind in kinds for element in kind)


def about(tab, variant, tying):
    """Whether the conclusion is about tying a variant; a model near chance has little to lose."""
    words = concluded(tab)
    return words.startswith((f"Tying {tying} ", f"{variant} has little to lose yet"))


def keys(tab):
    """Of the live components."""
    return {element.key for element in tab.get("bidi_component")}


def choose(tab, **wanted):
    """Choose by the beginning of a control's key."""
    for name, value in wanted.items():
        (control,) = [c for c in tab.button_group if (c.key or "").startswith(f"cut_{name}")]
        control.set_value(value)
        show(tab)
    return tab


def watch_operation(tab):
    """Wait until what is trained on has ended, then draw the page."""
    deadline = time.monotonic() + PATIENCE
    while not (job := tab.session_state["operation"].job).over:
        assert time.monotonic() < deadline, f"still waiting: {job.state}"
        training_service().wait(job.id, job.version, deadline - time.monotonic())
    return show(tab)


def mark_of(tab):
    """Return α and the accuracy of the chosen mixture, as the figure marks them."""
    (mark,) = [t for t in drawn(tab, "mixtures")["figure"]["data"] if t.get("mode") == "markers"]
    return mark["x"], mark["y"]


def test_a_visitor_who_comes_here_first_sees_all_operations(monkeypatch):
    """A press trains a seed for it; nothing is trained on yet.

    The chosen way is marked among all of that variant and told. The slider of mixtures begins at
    the average and computes nothing; what was chosen holds when the page is left. A refusal is told
    once.
    """
    tab = operated()
    text = said(tab)
    assert "Trained for 40 steps, seed" in text
    assert "A head can go if accuracy falls by at most 1 percentage point without it." in text
    assert about(tab, "QKV", "W_Q and W_K to their average")
    assert "Can it come back? “Train on” repeats the training with 1 seed" in text
    assert re.search("Without its only head|have learnt nothing yet", text)
    assert "Reported, not measured here" in text
    assert {"ways_table", "heads_table", "mixtures"} <= keys(tab)
    assert "recovery" not in keys(tab)
    assert len(tab.get("download_button")) == 3

    tab = choose(tab, tie="K=V", by="keep W_K")
    assert about(tab, "QKV", "W_K and W_V by keeping W_K")
    table = drawn(tab, "ways_table")["diagram"]
    assert table.count("<tr") == 13
    assert "▸ keep W_K" in table
    assert about(choose(tab, tie="Q=K"), "QKV", "W_Q and W_K by keeping W_K")
    tab = choose(tab, tie="Q=V")  # which has no W_K to keep
    assert about(tab, "QKV", "W_Q and W_V to their average")
    tab = choose(tab, variant="Q=K")
    assert about(tab, "Q=K", "W_Q, W_K and W_V to their average")
    assert drawn(tab, "ways_table")["diagram"].count("<tr") == 3

    assert mark_of(tab)[0] == [0.5]
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "inspect", lambda *given: asked.append(given))
        tab.select_slider(key="tying_alpha").set_value(1.0)
        tab = show(tab)
    assert mark_of(tab)[0] == [1.0]
    assert "α = 1 (keep W_K): " in said(tab)
    assert asked == []
    tab = turn_to(turn_to(tab, "attention"), "surgery")
    assert tab.select_slider(key="tying_alpha").value == 1.0
    assert mark_of(tab)[0] == [1.0]

    def refuse(*_, **__):
        raise Refused("12 experiments wait already")

    monkeypatch.setattr(TrainingService, "submit", refuse)
    tab = press(tab, "train_on")
    assert "Not taken: 12 experiments wait already." in said(tab)
    assert "Not taken" not in said(show(tab))


def test_what_is_tied_is_trained_on_and_told():
    """In a job beside the film, with the same seeds; its result is kept, and opens in the Lab.

    All seeds of the run are mixed, whichever the page looks into. What was trained on is not
    trained again, and another run takes it off the page.
    """
    link = small_link(n_seeds="2")
    tab = watch_film(visit_at("surgery", **link))
    text = said(tab)
    assert {"mixtures", "repairs_table"} <= keys(tab)
    mean = "Mean of 2 seeds, with 95% intervals, 16 held-out examples each, after step 40"
    assert mean in text
    assert "they cost no parameters and no cache" in text
    assert "CKA of keys and values: 0." in text
    assert drawn(tab, "repairs_table")["diagram"].count("<tr>") == 6
    tab = choose(tab, tie="K=V", by="keep W_V")
    assert "repeats the training with 2 seeds, ties it at step 40 and trains 40 more steps" in said(
        tab
    )
    assert tab.button(key="train_on").proto.type == "primary"
    tab = watch_operation(press(tab, "train_on"))
    job = tab.session_state["operation"].job
    assert [v.value for v in job.experiment.sharing] == ["QKV", "QKV tie=K=V tie_by=keep_V"]
    assert job.kept
    assert "With 40 more steps, K=V " in concluded(tab)
    assert "K=V, keep W_V. Trained: step 80 of 80" in said(tab).replace("*", "")
    assert "Tied at step 40: " in said(tab)
    assert "40 steps later" in said(tab)
    assert "40 steps later" in drawn(tab, "recovery")["alt"]
    assert "repeats the training with" not in said(tab)  # it has been done
    assert tab.button(key="train_on").proto.type == "secondary"  # the next way is the invitation
    assert len(tab.get("download_button")) == 4
    links = {link.proto.label: link.proto.query_string for link in tab.get("page_link")}
    assert "tie" in links["Open it in the Lab"]
    assert tab.session_state["operation"].job_id == job.id
    assert press(tab, "train_on").session_state["operation"].job_id == job.id
    seed = int(link["first_seed"])
    tab.selectbox(key=f"inspected_seed_{seed}_2").set_value(seed + 1)
    tab = watch_film(show(tab))
    assert "Mean of 2 seeds" in said(tab)
    assert "recovery" in keys(tab)
    tab.query_params.clear()
    tab.query_params.update(small_link())
    tab = watch(press(turn_to(tab, "lab"), "train"), lambda job: job.over)
    assert "recovery" not in keys(turn_to(tab, "surgery"))


def test_the_next_way_is_an_invitation():
    """It chooses the way, about which the page claims nothing that was not measured."""
    tab = watch_operation(press(choose(operated(), tie="K=V"), "train_on"))
    caught_up = tab.session_state["operation"].recovery(Variant("QKV tie=K=V")).caught_up
    (button,) = [button for button in tab.button if button.key == "try_next"]
    way = button.label.removeprefix("Try ")
    assert way.startswith(("Q=K, ", "Q=K=V, ") if caught_up else "Q=V, ")
    tie, how = way.split(", ")
    assert f"Does {tie} ({how}) come back" in said(tab)
    tab = press(tab, "try_next")
    assert [tab.session_state[f"last_cut_{name}"] for name in ("tie", "by")] == [tie, how]
    assert f"▸ {how}" in drawn(tab, "ways_table")["diagram"]
    assert "more step" not in concluded(tab)
    assert "try_next" not in {button.key for button in tab.button}
    tab = watch_operation(press(tab, "train_on"))
    assert len(tab.session_state["operation"].ended) == 2
    assert "| Tied | Before | At once | Later | Never tied | Steps |" in said(tab)


def test_beside_a_film_that_grows_training_on_can_be_stopped():
    """Numbers are of the newest moment, and mixtures wait for the end: they are measured once."""
    tab = press(visit(**small_link(**UNENDING)), "train")
    tab = turn_to(watch(tab, lambda job: job.step > 100), "surgery")
    film = tab.session_state["lab"].filmed_id
    try:
        text = said(tab)
        assert "of 20000. Numbers are of the newest moment." in text
        assert "held-out examples after step" in text
        assert "The mixtures appear when the training has ended." in text
        tab = press(tab, "train_on")
        assert tab.button(key="train_on").disabled
        assert tab.session_state["operation"].job.active
        tab = watch_operation(press(tab, "stop_trained_on"))
        assert tab.session_state["operation"].job.state == "stopped"
        assert "Stopped" in said(tab)
        assert not tab.button(key="train_on").disabled
    finally:
        training_service().stop(film)


def test_what_cannot_be_trained_on_says_why():
    """Evaluations that are too rare to tie it in between."""
    tab = operated(evaluate_every="1000", steps="400")
    assert tab.button(key="train_on").disabled
    assert "It cannot be trained on. " in said(tab)
    assert "1000 is not allowed. Allowed: at most 400" in said(tab)
    assert "evaluate_every" not in said(tab)


def test_a_copy_that_takes_no_more_steps_ties_it_halfway(monkeypatch):
    """And says when."""
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "40")
    server_settings.cache_clear()
    assert "with 1 seed, ties it at step 20 and trains 20 more steps" in said(operated())


def test_what_cannot_be_tied_or_mixed_says_so():
    """Heads are switched off all the same; of several variants those that can be are offered."""
    tab = operated(sharing="Q=K=V")
    assert "nothing is left to tie" in said(tab)
    assert "None of these models can be tied in this way." in said(tab)
    assert "Q=K=V: W_Q, W_K and W_V are not separate matrices." in said(tab)
    assert {"heads_table"} == keys(tab) - {"plotly_js"}
    tab = operated(sharing="QKV,Q=K,RoPE", d_head="4")
    assert "Q=K: W_Q, W_K and W_V are not separate matrices." in said(tab)
    (control,) = [c for c in tab.button_group if (c.key or "").startswith("tying_variant")]
    assert control.options == ["QKV", "RoPE"]
    first = drawn(tab, "repairs_table")
    control.set_value(control.proto.options[1].content)
    assert drawn(show(tab), "repairs_table") != first


@pytest.mark.parametrize(
    ("params", "places"),
    [
        ({"n_heads": "2", "n_layers": "2"}, ["Layer 1", "Layer 2"]),
        ({"task": "dictionary", "n_words": "5", "n_vocab": "11"}, ["Encoder 1", "Cross 1"]),
    ],
)
def test_every_layer_and_head_stands_in_the_table(params, places):
    """Also of an encoder and a decoder."""
    link = small_link(**params)
    if "task" in params:
        link = {k: v for k, v in link.items() if k not in ("n_entries", "n_names", "n_values")}
    tab = watch_film(visit_at("surgery", **link))
    table = drawn(tab, "heads_table")["diagram"]
    assert all(place in table for place in places)
    assert "its only head" not in said(tab)


def test_a_film_that_is_gone_is_had_back(monkeypatch):
    """It trains again, and the page looks on until there are numbers."""
    tab = watch(press(visit(**small_link()), "train"), lambda job: job.over)
    first, timers = tab.session_state["lab"].job_id, []
    inspect, fragment = TrainingService.inspect, st.fragment

    def inspect_one_that_is_gone(self, job_id, *asked):
        if job_id != first:
            return inspect(self, job_id, *asked)
        with self._changed:
            self._queue.filmless.add(job_id)
        return None

    def timed(area, *, run_every=None):
        timers.append(run_every)
        return fragment(area, run_every=run_every)

    monkeypatch.setattr(TrainingService, "inspect", inspect_one_that_is_gone)
    monkeypatch.setattr(st, "fragment", timed)
    tab = turn_to(tab, "surgery")
    assert filmed(tab).id != first
    assert any(timers) or "held-out examples after step" in said(tab)  # it may have ended by now
    assert about(watch_film(tab), "QKV", "W_Q and W_K to their average")


def test_a_failure_is_told_and_can_be_tried_again():
    """It is not called a run that has not begun."""
    tab = operated()
    failed = filmed(tab).id
    fail(training_service(), failed)
    text = said(show(tab))
    assert "Nothing is trained." in text
    assert "Training failed: not enough memory." in text
    assert "There is no trained model yet" not in text
    assert "The training has failed, so there is no model to tie." in text
    assert "mixtures" not in keys(tab)
    tab = watch_film(press(tab, "again_ties"))
    assert filmed(tab).id != failed
    assert about(tab, "QKV", "W_Q and W_K to their average")


def test_a_training_process_that_is_busy_is_asked_again_only_by_the_visitor(monkeypatch):
    """The text stays, and every request may take long."""
    tab = operated()
    asked, inspect = [], TrainingService.inspect

    def busy(self, job_id, inspection, *given):
        if inspection.view != "tying":
            return inspect(self, job_id, inspection, *given)
        asked.append(job_id)
        return "The training process is busy"

    monkeypatch.setattr(TrainingService, "inspect", busy)
    monkeypatch.setattr(inspection_page, "_CACHE", inspection_page._Blobs(2**20))
    for _ in range(2):
        tab = show(tab)
        assert "The training process is busy." in said(tab)
        assert len(asked) == 1
    monkeypatch.setattr(TrainingService, "inspect", inspect)
    tab = press(tab, "again_tying")
    assert "mixtures" in keys(tab)
    assert "The training process is busy." not in said(tab)


def test_runs_that_have_diverged_have_one_sentence(monkeypatch):
    """Neither a table nor a figure of numbers that are none."""

    def lost(inspected):
        (result,), refusals = tying_results(inspected)
        arrays = {name: np.full_like(array, np.nan) for name, array in result.arrays.items()}
        return [replace(result, **arrays)], refusals

    monkeypatch.setattr("attnkit.ui.tying.tying_results", lost)
    tab = operated()
    text = said(tab)
    assert "All runs have diverged, so nothing can be tied." in text
    assert "CKA of keys" not in text
    assert not {"mixtures", "repairs_table"} & keys(tab)


@pytest.mark.browser
def test_tied_trained_on_and_taken_away_in_a_browser(visitors, address):
    """By keyboard: move α, choose, train on, see the curve grow on one node; nothing is cut."""
    link = "&".join(f"{name}={value}" for name, value in small_link(steps="400").items())
    page = visitors.arrive(1440, 1400)
    page.goto(f"{address}/surgery?{link}")
    page.locator(".st-key-train_here button").click()
    expect(page.locator(".st-key-ways_table caption")).to_have_count(4)
    expect(page.locator(".ak-heads tbody")).to_have_count(2)
    expect(page.get_by_text("Trained for 400 steps")).to_be_visible()
    page.locator(".st-key-tying_alpha input[type=range]").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".st-key-tying_chosen")).to_have_text(re.compile(r"^α = 0\.6: \d+%"))
    mixtures = page.locator(".st-key-mixtures [role=img]")
    expect(mixtures).to_have_attribute("aria-label", re.compile(r"α = 0\.6: "))
    page.get_by_role("radio", name="K=V", exact=True).last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ak-ways tr[aria-current]")).to_contain_text("average")
    conclusion = page.locator(".st-key-conclusion")
    expect(conclusion).to_contain_text(
        re.compile("Tying W_K and W_V to their average|little to lose")
    )
    beside = [page.locator(f".st-key-{key} button") for key in ("train_on", "ways_csv")]
    assert len({button.bounding_box()["y"] for button in beside}) == 1
    beside[0].focus()
    page.keyboard.press("Enter")
    plot = page.locator(".st-key-recovery .ak-plot[data-draws]")
    plot.evaluate("node => node.dataset.mine = 'yes'")
    expect(page.locator(".st-key-recovery_csv")).to_be_visible()
    expect(plot).to_have_attribute("data-mine", "yes")
    expect(plot).to_have_attribute("data-step", "800")
    expect(conclusion).to_contain_text("With 400 more steps, K=V")
    expect(page.locator(".st-key-try_next button")).to_be_visible()
    finding = page.locator(".st-key-recovery_finding").inner_text()
    assert finding in page.locator(".st-key-recovery [role=img]").get_attribute("aria-label")
    for key, header in (
        ("ways_csv", "by"),
        ("tying_csv", "alpha"),
        ("heads_csv", "head_off"),
        ("recovery_csv", "seed"),
    ):
        with page.expect_download() as download:
            page.locator(f".st-key-{key} button").click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert header in next(csv.reader(text.splitlines()))
    page.set_viewport_size({"width": 640, "height": 1400})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(plot).to_be_visible()
        page.wait_for_function(f"({WIDER})().length === 0")  # figures follow the window
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    visitors.leave(page)
