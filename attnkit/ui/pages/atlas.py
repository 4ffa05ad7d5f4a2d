"""Atlas: how similar the three matrices are in real models, head by head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
import streamlit as st

from attnkit.figures.atlas import atlas_panels, plot_distribution
from attnkit.figures.groups import (
    KINDS,
    Group,
    describe_groups,
    describe_lacking,
    describe_tied,
    groups_of,
    heads_in,
)
from attnkit.realmodels import shipped, toys
from attnkit.realmodels.answer import conclusion, overlap_line
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.ui import components
from attnkit.ui.address import open_choice
from attnkit.ui.atlas.choice import (
    SECTIONS,
    AtlasChoice,
    Head,
    grid,
    heads_table,
    numbers,
    pick_measure,
    picture,
)
from attnkit.ui.atlas.custom_model import RUNNING, custom_model
from attnkit.ui.atlas.head_portrait import head_in_words
from attnkit.ui.atlas.sections import (
    show_costs,
    show_depth,
    show_numbers,
    show_one_head,
    show_scatter,
    show_training,
)
from attnkit.ui.atlas.sentence import show_sentence
from attnkit.ui.markdown import plain, with_formulas
from attnkit.ui.routing import require_route
from attnkit.ui.widgets import bound, sections, warn_once

GRID = "atlas_grid"
"""Key of the grid of all heads."""


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_choice("atlas", "atlas_chosen", AtlasChoice)
    st.title("How similar are the three matrices in real models?", anchor=False)
    shipped_atlas = load_shipped()
    atlas = shipped_atlas
    if choice.measured is not None:
        atlas = choice.measured if shipped_atlas is None else shipped_atlas.joined(choice.measured)
    if shipped_atlas is not None:
        conclude(shipped_atlas.table)
    if atlas is None:
        warn_once(choice.problems)
        st.subheader(SECTIONS["own"], anchor=False)
        show_custom_model(choice, None)
    else:
        show_figures(choice, atlas, shipped_atlas)
        choice.write_link()
    components.load_plotly()


def load_shipped() -> Atlas | None:
    """Return the atlas that ships with this copy; None, with a message, if it is unreadable."""
    try:
        return shipped.load_atlas()
    except (OSError, Unreadable):
        st.error("The numbers of the real models that ship with this copy cannot be read.")
        return None


def load_toys() -> pd.DataFrame:
    """Return the table of our toy models; an empty one, with a message, if it is unreadable."""
    try:
        return toys.toy_table()
    except (OSError, Unreadable):
        st.error("The numbers of our toy models cannot be read.")
        return pd.DataFrame()


def conclude(table: pd.DataFrame) -> None:
    """Draw the conclusion, and the numbers behind it."""
    with st.container(key="conclusion"):
        st.markdown(with_formulas(conclusion(table)))
    st.caption(with_formulas(overlap_line(table)))


def show_figures(choice: AtlasChoice, atlas: Atlas, shipped_atlas: Atlas | None) -> None:
    """Draw the controls, the main figures of the models in an atlas, and the open section."""
    table = atlas.table
    if choice.toys:
        table = pd.concat([table, load_toys()], ignore_index=True)
    heads = heads_in(table, choice.fold, choice.offset)
    head, measure = choice.find(heads), MEASURES[choice.measure]
    if choice.section == "head":
        choice.head = head  # it stays when the measure changes, and the address names it
    groups = groups_of(heads, measure.name, choice.once)
    pair = choice.find_pair(groups) if groups else None
    warn_once(choice.problems)
    controls(choice)
    show_grid(choice, heads, head, measure)
    if groups:
        show_distribution(groups, measure)
    own = partial(show_custom_model, choice, shipped_atlas)
    draw: dict[str, Callable[[], None]] = {
        "head": lambda: show_one_head(choice, heads, head, shipped_atlas),
        "measures": lambda: show_scatter(choice, heads),
        "models": lambda: show_depth(choice, groups, pair, measure),
        "tying": lambda: show_costs(choice, heads, load_toys()),
        "training": lambda: show_training(choice, atlas),
        "numbers": lambda: show_numbers(atlas, shipped_atlas),
        "own": own,
        "sentence": show_sentence,
    }
    sections(choice, SECTIONS, draw, "atlas_section")
    if choice.section != "own" and RUNNING in st.session_state:
        st.subheader(SECTIONS["own"], anchor=False)
        own()


def controls(choice: AtlasChoice) -> None:
    """Draw the widgets that choose what is measured and how."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="atlas_controls"):
        pick_measure(choice, "Measure", "measure", 220)
        st.segmented_control(
            "Tokens apart",
            shipped.OFFSETS,
            help="With rotary positions W_Q W_Kᵀ depends on how far apart two tokens are. Models "
            "without them do not change.",
            **bound(choice, "offset", "atlas_offset", required=True),
        )
        st.toggle(
            "Add toy models",
            help="Our own small models of the Lab’s tasks, whose sharing is known.",
            **bound(choice, "toys", "atlas_toys"),
        )
        with st.popover("More settings", icon=":material/tune:"):
            st.toggle(
                "Fold norm gains",
                help="Multiply the gains of the norm before attention into the matrices. MiniLM "
                "has none.",
                **bound(choice, "fold", "atlas_fold"),
            )
            st.segmented_control(
                "Count shared K and V",
                [True, False],
                format_func=lambda once: "once" if once else "per query head",
                help="Where several query heads share one key and value head, measures of K and V "
                "alone can count it once, or once per query head.",
                **bound(choice, "once", "atlas_once", required=True),
            )
    measure = MEASURES[choice.measure]
    st.caption(f"**{plain(measure.title)}**: {plain(measure.help)} {plain(measure.in_words)}")


def show_grid(choice: AtlasChoice, heads: pd.DataFrame, head: Head, measure: Measure) -> None:
    """Draw a grid of heads for every model and kind of attention."""
    st.subheader(
        "Every head", anchor="heads", help="By keys: Tab to a grid, arrows within it, then Enter."
    )
    panels = atlas_panels(heads, measure)
    if not panels["panels"]:
        st.info("None of these models has this measure.")
        return
    st.caption("Rows are layers, columns heads, counted from 0. Press a cell to look at its head.")
    grid(panels, head, partial(take_cell, choice), key=GRID)
    for sentence in filter(None, (describe_lacking(heads, measure), describe_tied(heads))):
        st.caption(with_formulas(sentence))
    look = " [Look at it](#head)" if choice.section == "head" else ""
    st.markdown(f"Outlined: {plain(head_in_words(heads, head, measure.name))}.{look}")
    numbers("grid", lambda: heads_table(heads, [measure.name]), f"{measure.title} of every head")


def take_cell(choice: AtlasChoice) -> None:
    """Choose the head whose cell was pressed, and open its section."""
    cell: Head | None = components.reported(GRID, "chosen", Head)
    if cell is not None:
        choice.head, choice.section = cell, "head"


def show_distribution(groups: list[Group], measure: Measure) -> None:
    """Draw a strip of marks, one mark per head, for every model and kind of attention."""
    st.subheader("By model and kind", anchor=False)
    picture(
        plot_distribution(groups, measure),
        key="atlas_strips",
        alt=describe_groups(groups, measure.title),
        title=f"{measure.title} by model and kind",
    )
    st.caption(
        "A small mark is a head, the large one the median. Grey: random matrices of the same "
        "shape, mean ± SD. " + "; ".join(KINDS.values()) + "."
    )
    numbers("strips", lambda: groups_table(groups), f"{measure.title} by model and kind")


def groups_table(groups: list[Group]) -> pd.DataFrame:
    """Return the numbers of the strips, one row per group."""
    return pd.DataFrame(
        {
            "model": [group.model for group in groups],
            "kind": [group.kind for group in groups],
            "heads": [len(group.values) for group in groups],
            "median": [group.median for group in groups],
            "mean": [group.values.mean() for group in groups],
            "lowest": [group.values.min() for group in groups],
            "highest": [group.values.max() for group in groups],
            "random, mean": [group.random[0] for group in groups],
            "random, SD": [group.random[1] for group in groups],
        }
    )


def show_custom_model(choice: AtlasChoice, shipped_atlas: Atlas | None) -> None:
    """Draw the section in which a visitor measures a model."""
    custom_model(choice, () if shipped_atlas is None else shipped_atlas.table["model"].unique())
