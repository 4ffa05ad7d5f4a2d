"""Widgets of the settings, made from the fields, which hold label, help and bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from attnkit.experiment.experiment import settings
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import Problem, Setting
from attnkit.tasks import Task
from attnkit.ui.lab.lab import setting_key
from attnkit.ui.markdown import plain

MAIN_GROUPS: dict[str, tuple[str, ...]] = {
    mark("Model"): ("n_heads", "d_head", "n_layers", "d_mlp", "d_model", "self_mask", "equal"),
    mark("Training"): ("n_seeds", "steps", "learning_rate"),
}
"""Settings that are shown besides the task's own, by group; all others are under "More"."""

MOST_SEGMENTS = 3
"""Number of choices that stand side by side, at most; more of them go into a list."""


def setting_widgets(
    task: Task, hidden: Collection[str] = (), problems: Sequence[Problem] = ()
) -> None:
    """Draw one widget for each setting of a task, in groups; see `setting_key`.

    Data of one's own, and how they are learnt, have an area of their own.
    """
    if "settings" in hidden:
        return
    labels = labels_of(task.name)
    messages = {problem.field: problem.on_screen(labels) for problem in problems}
    present = {name: s for name, s in settings(task.name).items() if name not in hidden}
    for name in ("data", "learn"):
        present.pop(name, None)
    if task.earlier is None:
        present.pop("earlier_steps", None)
    if not task.lengths:
        present.pop("longer_test", None)
    for group, names in {mark("Task"): tuple(type(task).model_fields), **MAIN_GROUPS}.items():
        members = [present.pop(name) for name in names if name in present]
        if members:
            st.markdown(f"**{tr(group)}**")
        _grid(members, messages)
    if present and "more" not in hidden:
        with st.expander(tr("More"), expanded=not messages.keys().isdisjoint(present)):
            _grid(present.values(), messages)


def labels_of(task: str) -> dict[str, str]:
    """Return the English label of every setting of a task, by the setting's name.

    So are labels of quantities that a copy limits.
    """
    others = {
        "sharing": mark("Variants"),
        "data": mark("Data"),
        "parameters": mark("Parameters"),
        "memory": mark("Memory"),
    }
    return others | {name: s.label for name, s in settings(task).items()}


def _grid(group: Iterable[Setting], messages: Mapping[str, str]) -> None:
    group = list(group)
    numbers = [setting for setting in group if setting.kind in (int, float)]
    rows = [numbers[first : first + 2] for first in range(0, len(numbers), 2)]
    rows += [[setting] for setting in group if setting not in numbers]
    for row in rows:
        columns = st.columns(2) if row[0] in numbers else [st.container()]
        for column, setting in zip(columns, row, strict=False):
            with column:
                _widget(setting)
                if setting.name in messages:
                    st.markdown(f":red[:material/error: {plain(messages[setting.name])}]")


def _widget(setting: Setting) -> None:
    common: dict[str, Any] = {"label": tr(setting.label), "key": setting_key(setting.name)}
    choices: dict[str, Any] = {
        "options": setting.choices,
        "format_func": lambda choice: tr(setting.label_of(choice)),
    }
    if setting.kind is bool:
        st.toggle(**common, help=tr(setting.help))
    elif len(setting.choices) > MOST_SEGMENTS:
        st.selectbox(**common, **choices, help=tr(setting.help))
    elif setting.choices:
        st.segmented_control(**common, **choices, help=tr(setting.help), required=True)
    else:
        # For whole numbers the browser cuts decimals (3.7 to 3, 1e3 to 1), replaces an empty box
        # by its default and drops values out of bounds, all without a message. A decimal number
        # without default and bounds arrives as it was typed; `Lab.read_widgets` finds its problems.
        allowed = tr("Allowed: {allowed}.", allowed=tr(setting.allowed))
        help_text = f"{tr(setting.help)} {allowed}"
        st.number_input(**common, value=None, step=_step(setting), format="%g", help=help_text)


def _step(setting: Setting) -> float:
    """Return by how much one press of + changes a value: by more where values are large."""
    if setting.kind is float:
        return 0.001
    return float(setting.multiple_of or (100 if setting.default >= 500 else 1))
