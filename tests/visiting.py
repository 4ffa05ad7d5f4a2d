"""Steps that a visitor takes on the pages without a browser, and what is then on screen."""

import itertools
import json
import re
import time

from idle import PATIENCE, show, visit

from attnkit.experiment.experiment import settings
from attnkit.ui.server.service import training_service

SMALL = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "n_entries": "6", "n_names": "11"}
SMALL |= {"n_values": "7", "d_head": "3", "evaluate_every": "10"}
SMALL |= {"batch_size": "16", "n_eval": "16"}

UNENDING = {"steps": "20000", "batch_size": "256"}
"""Settings of a job that goes on for longer than any test."""

FRESH_SEED = (str(seed) for seed in itertools.count(100))
"""Seeds that no other test uses, as a known link opens the training that is there."""


def visit_small(**params):
    """Open a small experiment that nobody has trained yet."""
    return visit(**{**SMALL, "first_seed": next(FRESH_SEED), **params})


def press(tab, key):
    """Press a button, which must not be disabled."""
    button = tab.button(key=key)
    assert not button.disabled
    button.click()
    return show(tab)


def job_of(tab):
    """Return the job on screen."""
    return tab.session_state["lab"].job


def watch(tab, condition):
    """Wait until the job fulfils a condition, then draw the page."""
    deadline = time.monotonic() + PATIENCE
    while not condition(job := job_of(tab)):
        assert time.monotonic() < deadline, f"still waiting: {job.state} at step {job.step}"
        training_service().wait(job.id, job.version, deadline - time.monotonic())
    return show(tab)


def watch_series(tab, series):
    """Draw the page until a series of experiments has ended."""
    deadline = time.monotonic() + PATIENCE
    while series.moving:
        assert time.monotonic() < deadline, "still training"
        if series.job is not None and not series.job.over:
            training_service().wait(series.job.id, series.job.version, deadline - time.monotonic())
        show(tab)
    return show(tab)


def turn_to(tab, page):
    """Open another page in the same tab."""
    return show(tab.switch_page(f"pages/{page}.py"))


def switch(tab, task):
    """Choose another task."""
    tab.session_state["requested_task"] = task  # as a card of the gallery does
    return show(tab)


def status(tab):
    """Return the status line of the Lab, the first text of its container."""

    def blocks_of(block):
        for child in block.children.values():
            if getattr(child, "children", None):
                yield child
                yield from blocks_of(child)

    (state,) = (b for b in blocks_of(tab.main) if getattr(b.proto, "id", "").endswith("-state"))
    return state.markdown[0].value


def disabled(tab):
    """Return the keys of the buttons that cannot be pressed."""
    keys = ("train", "pause", "step", "stop", "reset", "new_seeds")
    return {key for key in keys if tab.button(key=key).disabled}


def widget(tab, name):
    """Return the widget of a setting."""
    if name == "sharing":
        return tab.button_group(key="set_sharing")
    setting = settings("directed")[name]
    if len(setting.choices) in (2, 3):
        return tab.button_group(key=f"set_{name}")
    collection = {bool: tab.toggle, str: tab.selectbox}.get(setting.kind, tab.number_input)
    return collection(key=f"set_{name}")


def widgets(tab):
    """Return all widgets of the kinds that set a value."""
    return (*tab.number_input, *tab.toggle, *tab.selectbox, *tab.button_group)


def plain_text(element):
    """Return the text of a warning or an error without its Markdown escapes."""
    return re.sub(r"\\(\W|_)", r"\1", element.value)


def said(tab):
    """Return all that the page says, an element a line, without Markdown escapes."""
    messages = (tab.info, tab.warning, tab.error, tab.success, tab.subheader)
    kinds = (tab.markdown, tab.caption, *messages)
    return "\n".join(plain_text(element) for kind in kinds for element in kind)


def columns(tab):
    """Return the columns of the board."""
    return drawn(tab, "board")["columns"]


def drawn(tab, key):
    """Return the data that were sent to a live component."""
    components = {element.key: element.proto for element in tab.get("bidi_component")}
    return json.loads(components[key].bytes or components[key].json)
