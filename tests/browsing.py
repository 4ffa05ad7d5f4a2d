"""What browser tests ask of pages, and steps that several of them take."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

from attnkit.ui.standalone import asset, inline_script, page_html

OWNER_SECRET = "correct horse"
"""What opens the owner's page of the server that browser tests share."""

LONG = 60_000
"""Milliseconds; a shared machine may be slow, and waiting ends with the condition."""

ALL_HAS_COME = """(document.fonts.status === 'loaded'
  && document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]') !== null
  && document.querySelector('[data-testid=stSkeleton], [data-stale=true]') === null)"""
"""Whether a page's script has ended, and what it asked for has come: an expression of JavaScript.

Streamlit loads the code of each kind of element on its own, and shows a skeleton until it has.
"""

COUNT_REPLACED = """(box) => {
  window.replaced = 0;
  new MutationObserver((changes) => {
    for (const change of changes) {
      window.replaced += change.addedNodes.length + change.removedNodes.length;
    }
  }).observe(document.querySelector(box ?? '.ak-film'), {childList: true, subtree: true});
}"""
"""Counts in `window.replaced` the nodes that come or go."""

WIDER = """() => [...document.querySelectorAll('body *')]
  .filter((node) => node.getBoundingClientRect().right > window.innerWidth + 1)
  .filter((node) => !node.closest('.ak-tip, .ak-scroll'))
  .map((node) => node.tagName + '.' + node.className).slice(0, 5)"""
"""What is cut at the right edge, of what does not scroll by itself."""

ROW, HEADER, CHECKBOX = 35, 35, 20
"""Pixels of a table, which is drawn on a canvas: rows can only be ticked by their place."""


def chromium(playwright):
    """Launch Debian's Chromium; without one the tests are skipped, but never in CI."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        assert not os.environ.get("CI"), "CI needs Chromium (Debian's package `chromium`)"
        pytest.skip("no Chromium on this machine (Debian's package `chromium`)")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    return playwright.chromium.launch(executable_path=path, args=options)


def at_rest(page):
    """Wait until what a film shows is also said."""
    page.wait_for_function(
        """() => { const { step, described } = document.querySelector('.ak-film').dataset;
        return step !== undefined && step === described; }"""
    )


def saved(page, menu, kind):
    """Return the text of a file that a figure's menu gives."""
    menu.locator("summary").click()
    with page.expect_download() as download:
        menu.get_by_role("button", name=f"Save as {kind}").click()
    return Path(download.value.path()).read_text(encoding="utf-8")


_HOST = """<div id="here"></div><script type="module">{script}
const parentElement = document.querySelector("#here");
const setTriggerValue = (name, value) => window.told.push([name, value]);
window.told = [];
window.take = (text) => {
  const data = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  window.leave = {show}({ data, parentElement, setTriggerValue });
};
window.inside = (code) => eval(code);
</script>"""
"""A page around a component: `take` draws it, `told` is what it has sent, and `inside` computes an
expression with the functions of its script."""


def show_component(page, name, data, *styles, around="{here}"):
    """Draw a component of the dashboard in a plain page, without a server.

    Args:
        name: Name of the component's script.
        data: What it draws; see `give`.
        styles: Names of its style sheets, besides those of films.
        around: HTML around its box, which is `{here}`.
    """
    script, show = inline_script(name)
    host = _HOST.replace("{script}", script).replace("{show}", show)
    style = "".join(asset(f"{one}.css") for one in styles)
    page.set_content(page_html(name, around.replace("{here}", host), style=style))
    page.wait_for_function("Boolean(window.take)")
    give(page, data)


def give(page, data):
    """Give the component of a plain page new data: a blob, or what is packed as JSON."""
    blob = data if isinstance(data, bytes) else json.dumps(data).encode()
    page.evaluate("(text) => { window.take(text); }", base64.b64encode(blob).decode())
