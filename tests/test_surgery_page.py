"""Pages that change trained models: Surgery, and “What rescues it?” on the page Asymmetry."""

import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from browsing import downloaded
from playwright.sync_api import expect
from test_filming import fail
from test_inspection_page import filmed, small_link, visit_at, watch_film
from visiting import UNENDING, drawn, plain_text, press, said, show, turn_to, visit, watch
from waiting import wait_until

from attnkit.experiment.experiment import from_params
from attnkit.figures.tying import tying_results
from attnkit.service.server import server_settings
from attnkit.service.service import Refused, TrainingService
from attnkit.training import train
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

FIGURES = {"ways_table", "heads_table", "mixtures"}

CONCLUSION = re.compile(r"^Tying | little to lose | cannot be tied |nothing is left to tie")


def operated(**params):
    """The page of a small run that has been trained for it."""
    return watch_film(visit_at("surgery", **small_link(**params)))


def trained(**link):
    """The dashboard after a small run was trained in the Lab."""
    return watch(press(visit(**link), "train"), lambda job: job.over)


def concluded(tab):
    """The conclusion, the first text of the page after the run and its link."""
    return next(text for text in map(plain_text, tab.markdown) if CONCLUSION.search(text))


def about(tab, variant, tying):
    """Whether the conclusion is about tying a variant; a model near chance has little to lose."""
    words = concluded(tab)
    return words.startswith((f"Tying {tying} ", f"{variant} has little to lose yet"))


def keys(tab):
    """Keys of the live components and buttons."""
    return {element.key for element in (*tab.get("bidi_component"), *tab.button)}


def choose(tab, **wanted):
    """Choose by the beginning of a control's key."""
    for name, value in wanted.items():
        (control,) = [c for c in tab.button_group if (c.key or "").startswith(f"cut_{name}")]
        control.set_value(value)
        show(tab)
    return tab


def follow(tab, **link):
    """Open another link in the same tab."""
    tab.query_params.clear()
    tab.query_params.update(link)
    return show(tab)


def ended(tab, key):
    """Press a button, wait until what is trained on has ended, and draw the page."""
    tab = press(tab, key)
    wait_until(training_service(), tab.session_state["operation"].job.id, lambda job: job.over)
    return show(tab)


def mark_of(tab):
    """Return α of the chosen mixture, as the figure marks it."""
    (mark,) = [t for t in drawn(tab, "mixtures")["figure"]["data"] if t.get("mode") == "markers"]
    return mark["x"]


refuse = Mock(side_effect=Refused("12 experiments wait already"))
"""Refuses an experiment, as a full service does."""


def test_all_operations_are_offered_and_choices_hold(monkeypatch):
    """The slider of mixtures computes nothing, and a refusal is told once."""
    tab = operated()
    text = said(tab)
    assert "Trained for 40 steps, seed" in text
    assert about(tab, "QKV", "W_Q and W_K to their average")
    assert "Can it recover? “Train on” repeats the training with 1 seed" in text
    assert re.search("Without its only head|have learnt nothing yet", text)
    assert keys(tab) & {"ways_table", "heads_table", "mixtures", "recovery"} == FIGURES
    tab = choose(tab, tie="K=V", method="keep W_K")
    assert about(tab, "QKV", "W_K and W_V by keeping W_K")
    assert "▸ keep W_K" in drawn(tab, "ways_table")["diagram"]
    assert about(choose(tab, tie="Q=V"), "QKV", "W_Q and W_V to their average")  # has no W_K
    tab = choose(tab, variant="Q=K")
    assert about(tab, "Q=K", "W_Q, W_K and W_V to their average")
    assert drawn(tab, "ways_table")["diagram"].count("<tr") == 3
    assert mark_of(tab) == [0.5]
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "inspect", lambda *_, **__: pytest.fail("computed again"))
        tab.select_slider(key="tying_alpha").set_value(1.0)
        assert "α = 1 (keep W_K): " in said(show(tab))
    assert mark_of(turn_to(turn_to(tab, "attention"), "surgery")) == [1.0]
    monkeypatch.setattr(TrainingService, "submit", refuse)
    assert "The experiment was not accepted: 12 experiments wait already." in said(
        press(tab, "train_on")
    )
    assert "The experiment was not accepted" not in said(show(tab))


def test_what_is_tied_is_trained_on_and_the_next_way_offered():
    """With all seeds, once, and kept; another run takes it off the page."""
    tab = operated(n_seeds="2")
    assert "Mean of 2 seeds, with 95% intervals, 16 held-out examples each" in said(tab)
    tab = choose(tab, tie="K=V", method="keep W_V")
    assert "with 2 seeds, ties it at step 40 and trains 40 more steps" in said(tab)
    tab = ended(tab, "train_on")
    operation = tab.session_state["operation"]
    job, text = operation.job, said(tab)
    assert [v.value for v in job.experiment.sharing] == ["QKV", "QKV tie=K=V tie_by=keep_V"]
    assert job.kept
    assert "With 40 more steps, K=V " in concluded(tab)
    assert "K=V, keep W_V. Finished: Step 80 of 80" in text.replace("*", "")
    assert "Tied at step 40: " in text
    assert "repeats the training with" not in text  # it has been done
    assert "40 steps later" in drawn(tab, "recovery")["alt"]
    links = {link.proto.label: link.proto.query_string for link in tab.get("page_link")}
    assert "tie" in links["Open it in the Lab"]
    assert press(tab, "train_on").session_state["operation"].job_id == job.id
    (button,) = [button for button in tab.button if button.key == "try_next"]
    tie, method = button.label.removeprefix("Try ").split(", ")
    tab = press(tab, "try_next")
    remembered = tab.session_state["remembered"]
    assert (remembered["cut_tie"], remembered["cut_method"]) == (tie, method)
    assert f"▸ {method}" in drawn(tab, "ways_table")["diagram"]
    assert "more step" not in concluded(tab)
    assert "try_next" not in keys(tab)
    assert "| Tied | Before | At once |" in said(ended(tab, "train_on"))
    assert len(operation.ended) == 2
    tab = follow(tab, **small_link())
    tab = watch(press(turn_to(tab, "lab"), "train"), lambda job: job.over)
    assert "recovery" not in keys(turn_to(tab, "surgery"))


def test_beside_a_film_that_grows_training_on_can_be_stopped():
    """Numbers are those of the newest step, and mixtures wait for the end."""
    tab = press(visit(**small_link(**UNENDING)), "train")
    tab = turn_to(watch(tab, lambda job: job.step > 100), "surgery")
    film = tab.session_state["lab"].filmed_id
    try:
        text = said(tab)
        assert re.search("of 20000, .* The numbers are those of the newest step", text)
        assert "held-out examples after step" in text
        assert "The mixtures appear when the training has ended." in text
        tab = press(tab, "train_on")
        assert tab.button(key="train_on").disabled
        assert tab.session_state["operation"].job.active
        tab = ended(tab, "stop_trained_on")
        assert tab.session_state["operation"].job.state == "stopped"
        assert re.search("Stopp(ed|ing): Step", said(tab))
        assert not tab.button(key="train_on").disabled
    finally:
        training_service().stop(film)


def test_what_is_not_possible_says_why(monkeypatch):
    """Tying, mixing and training on; all else is offered all the same."""
    tab = operated(evaluate_every="1000", steps="400")
    assert tab.button(key="train_on").disabled
    text = said(tab)
    assert "It cannot be trained on. " in text
    assert "1000 is not allowed. Allowed: at most 400" in text
    assert "evaluate_every" not in text
    tab = operated(sharing="QKV,Q=K,RoPE", d_head="4")
    assert "Q=K: W_Q, W_K and W_V are not separate matrices." in said(tab)
    (control,) = [c for c in tab.button_group if (c.key or "").startswith("tying_variant")]
    assert control.options == ["QKV", "RoPE"]
    first = drawn(tab, "repairs_table")
    control.set_value(control.proto.options[1].content)
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "40")
    server_settings.cache_clear()
    assert drawn(show(tab), "repairs_table") != first
    assert "with 1 seed, ties it at step 20 and trains 20 more steps" in said(tab)
    tab = operated(sharing="Q=K=V")
    assert "nothing is left to tie" in said(tab)
    assert "None of these models can be tied in this way." in said(tab)
    assert keys(tab) & FIGURES == {"heads_table"}


def test_what_went_wrong_is_told_and_can_be_tried_again(monkeypatch):
    """A busy process is asked once; a failure is no run that has not begun; divergence is said."""
    asked, inspect = [], TrainingService.inspect

    def busy(self, job_id, inspection, **given):
        if inspection.view != "tying":
            return inspect(self, job_id, inspection, **given)
        asked.append(job_id)
        return "The training process is busy"

    def lost(inspected):
        (result,), refusals = tying_results(inspected)
        arrays = {name: np.full_like(array, np.nan) for name, array in result.arrays.items()}
        return [replace(result, **arrays)], refusals

    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "inspect", busy)
        tab = show(operated(sharing="QKV"))
        assert "The training process is busy." in said(tab)
        assert len(asked) == 1
    tab = press(tab, "again_tying")
    assert "mixtures" in keys(tab)
    assert "busy" not in said(tab)
    with monkeypatch.context() as patched:
        patched.setattr("attnkit.ui.inside.tying.tying_results", lost)
        tab = show(tab)
        assert "All runs have diverged, so nothing can be tied." in said(tab)
        assert not {"mixtures", "repairs_table"} & keys(tab)
    failed = filmed(tab).id
    fail(training_service(), failed)
    text = said(show(tab))
    assert "Training failed: not enough memory." in text
    assert "There is no trained model yet" not in text
    assert "mixtures" not in keys(tab)
    tab = watch_film(press(tab, "again_ties"))
    assert filmed(tab).id != failed
    assert about(tab, "QKV", "W_Q and W_K to their average")


def rescued(tab):
    """More heads, pressed on the page Asymmetry and trained to the end."""
    tab = press(tab, "rescue_n_heads")
    return show(watch(tab, lambda job: job.over))


def test_a_rescue_is_told_and_taken_back_where_it_belongs(monkeypatch):
    """On its own task, and only while its run is on screen; a refusal leaves all as it was."""
    link = small_link()
    tab = turn_to(trained(**link), "asymmetry")
    before = tab.session_state["lab"].job_id
    assert "rescue_undo" not in keys(tab)
    tab = rescued(tab)
    assert "with 1 head → " in said(tab)
    assert "with 4 heads (1 seed): not sure with one seed." in said(tab)
    tab = follow(tab, v="1", task="copy", sharing="Q=K", steps="40")
    assert "4 heads (" not in said(tab)
    assert "rescue_undo" not in keys(tab)
    tab = follow(tab, **{**link, "n_heads": "4"})
    known = tab.session_state["lab"].job_id
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", refuse)
        patched.setattr(TrainingService, "find", lambda *_: None)
        tab = press(tab, "rescue_undo")
        assert "The experiment was not accepted: 12 experiments wait already" in said(tab)
        assert tab.session_state["lab"].job_id == known
    tab = press(tab, "rescue_undo")
    assert tab.session_state["lab"].job_id == before
    assert "4 heads (" not in said(tab)
    assert "rescue_undo" not in keys(tab)


def test_a_shipped_example_is_shown_again_without_training(monkeypatch):
    """If it was the example that was changed."""
    link = small_link()
    experiment = from_params(link)
    snapshot = train(experiment).snapshot
    monkeypatch.setattr("attnkit.ui.lab.lab.shipped_example", lambda _: snapshot)
    tab = press(rescued(visit_at("asymmetry", **link)), "rescue_undo")
    lab = tab.session_state["lab"]
    assert lab.job is None
    assert lab.experiment == experiment
    assert training_service().find(experiment) is None
    assert "Change one thing and train it at once" in said(tab)


BARS = """() => [...document.querySelectorAll('.ak-ways tr:has(.ak-bar)')].map((row) => {
  const [filled, bar] = ['.ak-bar i', '.ak-bar'].map((name) => row.querySelector(name).offsetWidth);
  return [filled / bar, parseFloat(row.lastElementChild.innerText) / 100];
})"""
"""How far the bar of each way is filled, and its accuracy."""


@pytest.mark.browser
def test_tied_trained_on_and_taken_away_in_a_browser(visitors, address):
    """By keyboard: move α, choose, train on, see the curve grow on one node, take it away."""
    link = "&".join(f"{name}={value}" for name, value in small_link(steps="400").items())
    page = visitors.arrive(1440, 1400)
    page.goto(f"{address}/surgery?{link}")
    page.locator(".st-key-train_here button").click()
    expect(page.locator(".st-key-ways_table caption")).to_have_count(4)
    expect(page.get_by_text("Trained for 400 steps")).to_be_visible()
    bars = page.evaluate(BARS)
    assert bars
    assert all(abs(filled - accuracy) < 0.03 for filled, accuracy in bars), bars
    page.locator(".st-key-tying_alpha input[type=range]").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".st-key-tying_chosen")).to_have_text(re.compile(r"^α = 0\.6: \d+%"))
    mixtures = page.locator(".st-key-mixtures [role=img]")
    expect(mixtures).to_have_attribute("aria-label", re.compile(r"α = 0\.6: "))
    page.get_by_role("radio", name="K=V", exact=True).last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ak-ways tr[aria-current]")).to_contain_text("average")
    page.locator(".st-key-train_on button").focus()
    page.keyboard.press("Enter")
    plot = page.locator(".st-key-recovery .ak-plot[data-draws]")
    plot.evaluate("node => node.dataset.mine = 'yes'")
    expect(page.locator(".st-key-recovery_csv")).to_be_visible()
    expect(plot).to_have_attribute("data-mine", "yes")
    expect(plot).to_have_attribute("data-step", "800")
    expect(page.locator(".st-key-conclusion")).to_contain_text("With 400 more steps, K=V")
    finding = page.locator(".st-key-recovery_finding").inner_text()
    assert finding in page.locator(".st-key-recovery [role=img]").get_attribute("aria-label")
    for key, header in {"ways": "by", "recovery": "seed"}.items():
        text = downloaded(page, page.locator(f".st-key-{key}_csv button"))
        assert header in text.split("\n")[0].split(",")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    visitors.leave(page)
