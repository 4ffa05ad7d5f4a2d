"""Widgets made from the settings: label, help and bounds stand on the fields, not here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from attnkit.experiment import Setting, settings

MAIN_GROUPS: dict[str, tuple[str, ...]] = {
    "Task": ("n_entries", "n_names", "n_values"),
    "Model": ("n_heads", "d_head", "n_layers", "d_mlp", "d_model", "self_mask"),
    "Training": ("n_seeds", "steps", "learning_rate"),
}
"""What stands in the open; everything else of a task is under "More"."""


def setting_widgets(task: str) -> dict[str, Any]:
    """Draw one widget per setting of the task, in groups; return their values by name."""
    all_settings = settings(task)
    values: dict[str, Any] = {}
    for group, names in MAIN_GROUPS.items():
        present = [all_settings[name] for name in names if name in all_settings]
        st.markdown(f"**{group}**")
        values |= _grid(present)
    shown = {name for names in MAIN_GROUPS.values() for name in names}
    with st.expander("More"):
        values |= _grid([s for name, s in all_settings.items() if name not in shown])
    return values


def _grid(group: Iterable[Setting]) -> dict[str, Any]:
    """Number fields two in a row; switches and choices in rows of their own."""
    group = list(group)
    numbers = [setting for setting in group if setting.kind in (int, float)]
    values: dict[str, Any] = {}
    for first in range(0, len(numbers), 2):
        for column, setting in zip(st.columns(2), numbers[first : first + 2], strict=False):
            with column:
                values[setting.name] = _widget(setting)
    for setting in group:
        if setting not in numbers:
            values[setting.name] = _widget(setting)
    return values


def _widget(setting: Setting) -> Any:
    key, help_text = f"set_{setting.name}", f"{setting.help} Allowed: {setting.allowed}."
    if setting.kind is bool:
        return st.toggle(setting.label, key=key, help=help_text)
    if setting.choices:
        return st.segmented_control(
            setting.label, setting.choices, key=key, help=help_text, required=True
        )
    if setting.kind is float:
        return st.number_input(
            setting.label,
            min_value=setting.low,
            max_value=setting.high,
            step=0.001,
            format="%g",
            key=key,
            help=help_text,
        )
    return st.number_input(
        setting.label,
        min_value=int(setting.low or 0),
        max_value=None if setting.high is None else int(setting.high),
        step=setting.multiple_of or _step(setting),
        key=key,
        help=help_text,
    )


def _step(setting: Setting) -> int:
    """How far one press of + goes: about a fiftieth of the default, at least 1."""
    return 100 if (setting.default or 0) >= 500 else 1
