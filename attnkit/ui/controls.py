"""Widgets made from the settings: label, help and bounds stand on the fields, not here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import Problem, Setting
from attnkit.tasks import TASKS
from attnkit.ui.markdown import plain

MAIN_GROUPS: dict[str, tuple[str, ...]] = {
    "Model": ("n_heads", "d_head", "n_layers", "d_mlp", "d_model", "self_mask", "equal"),
    "Training": ("n_seeds", "steps", "learning_rate"),
}
"""What stands in the open besides the task's own dials; all else is under "More"."""

MOST_SEGMENTS = 3
"""Choices that stand side by side; more of them go into a list."""


def setting_widgets(
    task: str, hidden: Collection[str] = (), problems: Sequence[Problem] = ()
) -> None:
    """Draw one widget per setting of the task, in groups, keyed `set_` and its name.

    Args:
        hidden: what a class link hides, see `attnkit.experiment.links.hideable`.
        problems: what is wrong with the values of the widgets; each is told below its widget.
    """
    if "settings" in hidden:
        return
    labels = labels_of(task)
    wrong = {problem.field: problem.on_screen(labels) for problem in problems}
    present = {name: s for name, s in settings(task).items() if name not in hidden}
    if TASKS[task]().earlier is None:
        present.pop("earlier_steps", None)
    for group, names in {"Task": tuple(TASKS[task].model_fields), **MAIN_GROUPS}.items():
        members = [present.pop(name) for name in names if name in present]
        if members:
            st.markdown(f"**{group}**")
        _grid(members, wrong)
    if present and "more" not in hidden:
        with st.expander("More", expanded=not wrong.keys().isdisjoint(present)):
            _grid(present.values(), wrong)


def labels_of(task: str) -> dict[str, str]:
    """Return what every setting of a task is called on screen, by its name."""
    return {"sharing": "Variants"} | {name: s.label for name, s in settings(task).items()}


def _grid(group: Iterable[Setting], wrong: Mapping[str, str]) -> None:
    """Draw number fields two in a row, switches and choices in rows of their own.

    Args:
        wrong: what is wrong with a setting, by its name; it stands below its box.
    """
    group = list(group)
    numbers = [setting for setting in group if setting.kind in (int, float)]
    rows = [numbers[first : first + 2] for first in range(0, len(numbers), 2)]
    rows += [[setting] for setting in group if setting not in numbers]
    for row in rows:
        for place, setting in zip(_places(row), row, strict=False):
            with place:
                _widget(setting)
                if setting.name in wrong:
                    st.markdown(f":red[:material/error: {plain(wrong[setting.name])}]")


def _places(row: list[Setting]) -> Sequence[DeltaGenerator]:
    """Return where the settings of a row are drawn: numbers in columns of one width."""
    if row[0].kind in (int, float):
        return list(st.columns(2))
    return [st.container()]


def _widget(setting: Setting) -> None:
    key, help_text = f"set_{setting.name}", setting.help
    if setting.kind is bool:
        st.toggle(setting.label, key=key, help=help_text)
    elif len(setting.choices) > MOST_SEGMENTS:
        st.selectbox(
            setting.label, setting.choices, format_func=setting.label_of, key=key, help=help_text
        )
    elif setting.choices:
        st.segmented_control(
            setting.label,
            setting.choices,
            format_func=setting.label_of,
            key=key,
            help=help_text,
            required=True,
        )
    else:
        # The browser cuts whole numbers (3.7 to 3, 1e3 to 1), replaces an empty box by its default
        # and drops what is out of bounds, all in silence. A number of any kind, without default
        # and bounds, arrives as it was typed; `Lab.read_widgets` says what is wrong with it.
        st.number_input(
            setting.label,
            value=None,
            step=_step(setting),
            format="%g",
            key=key,
            help=f"{help_text} Allowed: {setting.allowed}.",
        )


def _step(setting: Setting) -> float:
    """Return how far one press of + goes: further where values are large."""
    if setting.kind is float:
        return 0.001
    return float(setting.multiple_of or (100 if setting.default >= 500 else 1))
