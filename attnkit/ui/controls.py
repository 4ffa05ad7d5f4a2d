"""Widgets made from the settings: label, help and bounds stand on the fields, not here."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import streamlit as st

from attnkit.experiment import settings
from attnkit.settings import Setting
from attnkit.tasks import TASKS

MAIN_GROUPS: dict[str, tuple[str, ...]] = {
    "Model": ("n_heads", "d_head", "n_layers", "d_mlp", "d_model", "self_mask", "equal"),
    "Training": ("n_seeds", "steps", "learning_rate"),
}
"""What stands in the open besides the task's own dials; all else is under "More"."""

MOST_SEGMENTS = 3
"""Choices that stand side by side; more of them go into a list."""


def setting_widgets(task: str, hidden: Collection[str] = ()) -> None:
    """Draw one widget per setting of the task, in groups, keyed `set_` and its name.

    Args:
        hidden: what a class link hides, see `attnkit.links.hideable`.
    """
    if "settings" in hidden:
        return
    present = {name: s for name, s in settings(task).items() if name not in hidden}
    if TASKS[task]().earlier is None:
        present.pop("earlier_steps", None)
    for group, names in {"Task": tuple(TASKS[task].model_fields), **MAIN_GROUPS}.items():
        members = [present.pop(name) for name in names if name in present]
        if members:
            st.markdown(f"**{group}**")
        _grid(members)
    if present and "more" not in hidden:
        with st.expander("More"):
            _grid(present.values())


def _grid(group: Iterable[Setting]) -> None:
    """Number fields two in a row; switches and choices in rows of their own."""
    group = list(group)
    numbers = [setting for setting in group if setting.kind in (int, float)]
    for first in range(0, len(numbers), 2):
        for column, setting in zip(st.columns(2), numbers[first : first + 2], strict=False):
            with column:
                _widget(setting)
    for setting in group:
        if setting not in numbers:
            _widget(setting)


def _widget(setting: Setting) -> None:
    key, help_text = f"set_{setting.name}", f"{setting.help} Allowed: {setting.allowed}."
    if setting.kind is bool:
        st.toggle(setting.label, key=key, help=help_text)
    elif len(setting.choices) > MOST_SEGMENTS:
        st.selectbox(
            setting.label,
            setting.choices,
            format_func=lambda choice: choice.replace("_", " "),
            key=key,
            help=help_text,
        )
    elif setting.choices:
        st.segmented_control(setting.label, setting.choices, key=key, help=help_text, required=True)
    else:  # without bounds: the browser would drop a wrong value in silence, we say what is wrong
        st.number_input(
            setting.label,
            min_value=None,
            step=0.001 if setting.kind is float else _step(setting),
            format="%g" if setting.kind is float else "%d",
            key=key,
            help=help_text,
        )


def _step(setting: Setting) -> int:
    """How far one press of + goes: further where values are large."""
    return setting.multiple_of or (100 if setting.default >= 500 else 1)
