"""Training in the Lab, in a real Chromium: all buttons of the action bar, and the board."""

import pytest
from lab_browsing import (
    COLOURS,
    CURVES,
    SIX_VARIANTS,
    open_lab,
    open_untrained,
    press,
    shown_step,
    status_line,
    wait_for_figure,
    wait_for_step,
)
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

ACCURACIES = """() => [...document.querySelectorAll('.st-key-board .ak-value')]
  .map((node) => parseFloat(node.textContent) || 0)"""
"""In percent; 0 before training."""

TITLES = """() => [...document.querySelectorAll('.st-key-board .ak-board-head b')]
  .map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.right, box.top])"""


def test_first_visit_shows_a_finished_example(page, address):
    """The first visit shows five trained models, not an empty screen."""
    open_lab(page, address)
    expect(page.get_by_text("A finished example")).to_be_visible()
    expect(page.locator(".st-key-board .ak-value").first).to_have_text("100%")
    assert page.locator(".st-key-board canvas").count() == 5


def test_train_raises_accuracy_and_changes_the_map(page, address):
    """One press trains all five models: their accuracy rises and their maps change."""
    open_lab(page, address, "?v=1&first_seed=100")
    press(page, "train")
    wait_for_figure(page, 0, 100)
    early, colours = page.evaluate(ACCURACIES), page.evaluate(COLOURS)
    wait_for_figure(page, 150)
    late = page.evaluate(ACCURACIES)
    assert len(late) == 5
    assert all(after > before for before, after in zip(early, late, strict=True))
    assert page.evaluate(COLOURS) != colours
    press(page, "stop")


def test_pause_holds_step_moves_one_evaluation_and_train_goes_on(page, address):
    """Pause holds the run, Step advances it by one evaluation, and Resume continues it."""
    open_lab(page, address, "?v=1&first_seed=300&steps=3000")
    press(page, "train")
    wait_for_step(page, 5)
    press(page, "pause")
    expect(page.locator(".st-key-train")).to_contain_text("Resume")
    expect(status_line(page)).to_contain_text("Paused")
    held = shown_step(page)
    press(page, "step")
    wait_for_step(page, held + 1)
    expect(status_line(page)).to_contain_text("Paused")
    assert shown_step(page) == held - held % 10 + 10
    press(page, "train")
    wait_for_step(page, held + 30)
    press(page, "stop")
    expect(status_line(page)).to_contain_text("Stopped")


def test_reset_goes_back_to_the_same_start(page, address):
    """Training again after Reset starts at step 0 and gives the same curve."""
    open_lab(page, address, "?v=1&first_seed=350&steps=30")
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    wait_for_figure(page, 30, 30)
    first = page.evaluate(CURVES)
    press(page, "reset")
    expect(status_line(page)).to_contain_text("Step 0 of 30")
    wait_for_figure(page, 0, 0)
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    wait_for_figure(page, 30, 30)
    assert page.evaluate(CURVES) == first


@pytest.mark.long
def test_new_seeds_train_other_runs_and_fade_the_old_ones(page, address):
    """New seeds change the link, and keep the previous experiment behind the new one."""
    open_lab(page, address, "?v=1&first_seed=400&steps=30")
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    press(page, "new_seeds")
    page.wait_for_url("**first_seed=405**")
    expect(page.locator(".st-key-board .ak-legend")).to_contain_text("previous experiment")
    expect(status_line(page)).to_contain_text("Finished")


def test_link_opens_the_same_experiment_and_reload_finds_the_run(page, address):
    """A link opens its experiment, and a reload returns to the run in progress."""
    open_lab(page, address, "?v=1&task=mutual&sharing=QKV,K%3DV&first_seed=500&steps=4000")
    expect(page.locator(".st-key-set_steps input")).to_have_value("4000")
    expect(page.locator(".ak-board-column")).to_have_count(2)
    expect(page.locator(".st-key-board canvas")).to_have_count(0)  # the example has other settings
    press(page, "train")
    wait_for_step(page, 20)
    page.reload()
    wait_for_step(page, 21)
    expect(page.locator(".st-key-board canvas")).to_have_count(2)
    press(page, "stop")


def test_six_composed_variants_train_and_their_titles_do_not_touch(page, address):
    """Six columns are drawn while they learn, and their long titles wrap."""
    open_lab(page, address, f"?v=1&sharing={SIX_VARIANTS}&n_seeds=1&steps=40&first_seed=700")
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    wait_for_figure(page, 40, 40)  # the example, which it replaces, stands at a later step
    expect(page.locator(".st-key-board .ak-board-column")).to_have_count(6)
    expect(page.locator(".st-key-board canvas")).to_have_count(6)
    titles = page.evaluate(TITLES)
    assert len(titles) == 6
    for i, (left, right, top) in enumerate(titles):
        for other_left, other_right, other_top in titles[:i]:
            beside = right <= other_left or other_right <= left
            assert beside or abs(top - other_top) > 100


@pytest.mark.parametrize(
    "task", [pytest.param("language", marks=pytest.mark.long), "mqar", "dictionary"]
)
def test_tasks_of_every_shape_train_and_show_maps(page, address, task):
    """A text, scattered questions, and an encoder with a decoder train and show maps."""
    query = f"?v=1&task={task}&sharing=QKV,Q%3DK&n_seeds=1&steps=4&evaluate_every=2&first_seed=800"
    open_untrained(page, address, query)
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    expect(page.locator(".st-key-board canvas")).to_have_count(2)
    assert all(len(set(pixels.split(","))) > 3 for pixels in page.evaluate(COLOURS))
