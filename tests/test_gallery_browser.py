"""The gallery of tasks in a real Chromium: by keys, by mouse, with a task of one's own."""

import pytest
from documents import example_task
from lab_browsing import (
    GALLERY,
    open_lab,
    open_untrained,
    press,
    serve,
    status_line,
    wait_for_thumbnails,
)
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_a_task_is_chosen_in_the_gallery(page, address):
    """Enter opens it at the current task, Tab moves, Escape returns; a click sets a task up.

    The Lab draws itself anew for two tasks, which takes some seconds.
    """
    open_lab(page, address)
    button = page.locator(f"{GALLERY} .ak-chosen-task")
    dialog = page.get_by_role("dialog", name="Choose a task")
    focused = "() => document.activeElement.dataset.task"
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "directed"
    for family in ("Questions people ask", "Recall benchmarks", "Lists", "Text"):
        expect(dialog.get_by_role("region", name=family)).to_have_count(1)
    expect(dialog.locator("[aria-current=true] b")).to_have_text("Directed relation")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    following = page.evaluate(focused)
    assert following != "directed"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**task={following}**")
    wait_for_thumbnails(page, GALLERY)
    button.click()
    dialog.get_by_role("button", name="Reverse").click()
    expect(dialog).to_be_hidden()
    page.wait_for_url("**task=reverse**")
    expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Reverse")
    expect(page.locator(".st-key-example .ak-token-box")).to_have_count(10)
    expect(page.locator(".st-key-set_n_symbols input")).to_have_value("10")


@pytest.mark.long
def test_a_task_of_ones_own_is_in_the_gallery_and_trains(page, tmp_path, monkeypatch):
    """The example of docs/tasks.md, named in the server's environment, can be trained."""
    (tmp_path / "my_task.py").write_text(example_task(), encoding="utf-8")
    monkeypatch.setenv("ATTNKIT_MODULES", "my_task")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serve() as own:
        open_untrained(page, own, "?v=1&task=largest&sharing=QKV&n_seeds=1&steps=40")
        wait_for_thumbnails(page, GALLERY)
        expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Largest")
        press(page, "train")
        expect(status_line(page)).to_contain_text("Finished")
        expect(page.locator(".st-key-board canvas")).to_have_count(1)
        page.goto("about:blank")  # it would complain of the server's end
