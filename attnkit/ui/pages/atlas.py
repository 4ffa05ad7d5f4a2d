"""Atlas: how similar the three matrices are in real models, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from attnkit.figures.atlas import (
    atlas_panels,
    describe_depth,
    describe_scatter,
    plot_depth,
    plot_distribution,
    plot_scatter,
)
from attnkit.figures.groups import (
    KINDS,
    Group,
    describe_groups,
    describe_lacking,
    groups_of,
)
from attnkit.realmodels import shipped, toys
from attnkit.realmodels.answer import (
    QUESTION,
    SOURCE,
    answer_sentences,
    as_they_stand,
    caveats,
    cka_on_text,
    summary,
)
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.portraits import Portrait
from attnkit.ui import components
from attnkit.ui.atlas import (
    AtlasChoice,
    Head,
    grid,
    heads_in,
    heads_table,
    numbers,
    open_atlas_choice,
    picture,
)
from attnkit.ui.custom_model import custom_model
from attnkit.ui.head_portrait import head_in_words, show_head
from attnkit.ui.markdown import plain, with_formulas
from attnkit.ui.routing import require_route

GRID = "atlas_grid"
"""Key of the grid of all heads."""


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_atlas_choice()
    st.title("How similar are the three matrices in real models?", anchor=False)
    shipped_atlas = load_shipped()
    atlas = shipped_atlas
    if choice.measured is not None:
        atlas = choice.measured if shipped_atlas is None else shipped_atlas.joined(choice.measured)
    if shipped_atlas is not None:
        answer(shipped_atlas.table)
    if atlas is not None:
        show_figures(choice, atlas, shipped_atlas)
    st.subheader("A model of your own", anchor=False)
    custom_model(choice, () if shipped_atlas is None else shipped_atlas.table["model"].unique())
    if atlas is not None:
        st.subheader("Take away", anchor=False)
        downloads(atlas.table)
        choice.write_link()
    components.load_plotly()


def load_shipped() -> Atlas | None:
    """Return the atlas that ships with this copy; None, with a message, if it is unreadable."""
    try:
        return shipped.load_atlas()
    except (OSError, Unreadable) as error:
        st.error(plain(f"The atlas that ships with this copy cannot be read: {error}"))
        return None


def load_toys() -> pd.DataFrame:
    """Return the table of our toy models; an empty one, with a message, if it is unreadable."""
    try:
        return toys.toy_table()
    except (OSError, Unreadable) as error:
        st.error(plain(f"The numbers of our toy models cannot be read: {error}"))
        return pd.DataFrame()


def answer(table: pd.DataFrame) -> None:
    """Draw the answer in three sentences, the numbers behind it, and its caveats."""
    st.caption(plain(f"“{QUESTION}”: {SOURCE}"))
    with st.container(key="answer"):
        st.markdown("\n\n".join(map(with_formulas, answer_sentences(table))))
    st.caption(
        with_formulas(f"{cka_on_text(table)} All as the models stand: nothing folded, distance 0.")
    )
    with st.expander("The numbers of these sentences"):
        st.markdown(summary(as_they_stand(table)))
    with st.expander("What is not comparable"):
        st.markdown("\n".join(f"- {with_formulas(caveat)}" for caveat in caveats(table)))


def show_figures(choice: AtlasChoice, atlas: Atlas, shipped_atlas: Atlas | None) -> None:
    """Draw the controls and all figures of the models in an atlas."""
    table = atlas.table
    if choice.toys:
        table = pd.concat([table, load_toys()], ignore_index=True)
    heads = heads_in(table, choice.fold, choice.offset)
    head, measure = choice.find(heads), MEASURES[choice.measure]
    if choice.problem:
        st.warning(plain(choice.problem), icon=":material/warning:")
        choice.problem = ""
    controls(choice)
    show_grid(choice, heads, head, measure)
    groups = groups_of(heads, measure.name, choice.once)
    if groups:
        show_distribution(groups, measure)
    show_scatter(heads)
    show_one_head(choice, heads, head, shipped_atlas)
    if groups:
        show_depth(groups, measure)


def controls(choice: AtlasChoice) -> None:
    """Draw the widgets that choose what is measured and how."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="atlas_controls"):
        st.session_state["atlas_measure"] = choice.measure
        st.selectbox(
            "Measure",
            list(MEASURES),
            format_func=title_of_measure,
            key="atlas_measure",
            on_change=take,
            args=(choice, "measure"),
            width=220,
        )
        st.session_state["atlas_offset"] = choice.offset
        st.segmented_control(
            "Tokens apart",
            shipped.OFFSETS,
            key="atlas_offset",
            on_change=take,
            args=(choice, "offset"),
            required=True,
            help="With rotary positions W_Q W_Kᵀ depends on how far apart two tokens are. Models "
            "without them do not change.",
        )
        st.session_state["atlas_once"] = choice.once
        st.segmented_control(
            "Count shared K and V",
            [True, False],
            format_func=lambda once: "once" if once else "per query head",
            key="atlas_once",
            on_change=take,
            args=(choice, "once"),
            required=True,
            help="Where several query heads share one key and value head, measures of K and V "
            "alone can count it once, or once per query head.",
        )
        switch(
            choice,
            "Fold norm gains",
            "fold",
            "Multiply the gains of the norm before attention into the matrices. MiniLM has none.",
        )
        switch(
            choice,
            "Add toy models",
            "toys",
            "Our own small models of the Lab’s tasks, whose sharing is known.",
        )
    measure = MEASURES[choice.measure]
    st.caption(f"**{plain(measure.title)}**: {plain(measure.help)}")


def switch(choice: AtlasChoice, label: str, field: str, help: str) -> None:
    """Draw a switch that sets a field of the visitor's choice."""
    key = f"atlas_{field}"
    st.session_state[key] = getattr(choice, field)
    st.toggle(label, key=key, on_change=take, args=(choice, field), help=help)


def take(choice: AtlasChoice, field: str) -> None:
    """Set a field of the visitor's choice to the value of its widget."""
    setattr(choice, field, st.session_state[f"atlas_{field}"])


def show_grid(choice: AtlasChoice, heads: pd.DataFrame, head: Head, measure: Measure) -> None:
    """Draw a grid of heads for every model and kind of attention."""
    st.subheader("Every head", anchor=False)
    panels = atlas_panels(heads, measure)
    if not panels["panels"]:
        st.info("None of these models has this measure.")
        return
    st.caption(
        "Rows are layers, columns heads, both counted from 0. Point at a cell for its number; "
        "press it to look at the head. By keys: Tab to a grid, arrows, Enter."
    )
    grid(panels, head, partial(take_cell, choice), key=GRID)
    if lacking := describe_lacking(heads, measure):
        st.caption(plain(lacking))
    st.markdown(f"Outlined: {plain(head_in_words(heads, head, measure.name))}. [Look at it](#head)")
    numbers("grid", lambda: heads_table(heads, [measure.name]), f"{measure.title} of every head")


def take_cell(choice: AtlasChoice) -> None:
    """Choose the head whose cell was pressed."""
    cell = st.session_state[GRID].chosen
    if isinstance(cell, list) and len(cell) == 4:
        model, kind, layer, head = cell
        if isinstance(layer, int) and isinstance(head, int):
            choice.head = Head(str(model), str(kind), layer, head)


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


def show_scatter(heads: pd.DataFrame) -> None:
    """Draw two measures of all heads against each other."""
    st.subheader("Two measures", anchor=False)
    with st.container(horizontal=True, key="atlas_axes"):
        x = pick_axis("Across", "overlap_qk", "atlas_x")
        y = pick_axis("Upwards", "symmetry", "atlas_y")
    finding = describe_scatter(heads, MEASURES[x], MEASURES[y])
    picture(
        plot_scatter(heads, MEASURES[x], MEASURES[y]),
        key="atlas_scatter",
        alt=finding,
        title=f"{title_of_measure(y)} against {title_of_measure(x)}",
    )
    st.caption(f"Dotted: random matrices. {plain(finding)}")
    measures = list(dict.fromkeys([x, y]))
    numbers("scatter", lambda: heads_table(heads, measures), "Both of every head")


def pick_axis(label: str, default: str, key: str) -> str:
    """Let the visitor choose the measure of an axis, and return its name."""
    names = list(MEASURES)
    return st.selectbox(
        label, names, names.index(default), format_func=title_of_measure, key=key, width=260
    )


def title_of_measure(name: str) -> str:
    """Return the title of a measure."""
    return MEASURES[name].title


def show_one_head(
    choice: AtlasChoice, heads: pd.DataFrame, head: Head, shipped_atlas: Atlas | None
) -> None:
    """Draw one head, and lists that choose another one."""
    st.subheader("One head", anchor="head")
    candidates = heads
    with st.container(horizontal=True, key="atlas_head"):
        for field, label in zip(Head._fields, ("Model", "Kind", "Layer", "Head"), strict=True):
            values = candidates[field].drop_duplicates()
            if field in ("layer", "head"):
                values = values.sort_values()
            key = f"atlas_head_{field}"
            st.session_state[key] = getattr(head, field)
            st.selectbox(
                label,
                list(values),
                key=key,
                on_change=take_head,
                args=(choice,),
                width=240 if field == "model" else 110,
            )
            candidates = candidates[candidates[field] == getattr(head, field)]
    if choice.measured is not None and head.model in set(choice.measured.table["model"]):
        st.caption("You measured this model: a link to this page shows it to nobody else.")
    else:
        st.caption("The address of this page names this head: send it on.")
    show_head(heads, head, portrait_of(head, [choice.measured, shipped_atlas], fold=choice.fold))


def take_head(choice: AtlasChoice) -> None:
    """Choose the head that the lists name; `AtlasChoice.find` takes the nearest if it is none."""
    model, kind, layer, head = (st.session_state[f"atlas_head_{name}"] for name in Head._fields)
    choice.head = Head(model, kind, int(layer), int(head))


def portrait_of(head: Head, atlases: Sequence[Atlas | None], *, fold: bool) -> Portrait | None:
    """Return the matrices of a head for its pictures; None if they are not stored."""
    for atlas in atlases:
        if atlas is not None and head.model in set(atlas.table["model"]):
            return atlas.portrait(head.model, head.kind, head.layer, head.head, fold)
    return None


def show_depth(groups: list[Group], measure: Measure) -> None:
    """Draw two models by relative depth."""
    st.subheader("Two models", anchor=False)
    names = {group.name: group for group in groups}
    defaults = [groups.index(group) for group in two_models(groups)]
    with st.container(horizontal=True, key="atlas_two"):
        first, second = (
            names[st.selectbox(label, list(names), index, key=f"atlas_{key}", width=300)]
            for label, key, index in zip(("One", "Other"), ("one", "other"), defaults, strict=True)
        )
    finding = describe_depth(first, second, measure)
    picture(
        plot_depth(first, second, measure),
        key="atlas_depth",
        alt=finding,
        title=f"{measure.title} by depth",
    )
    st.markdown(plain(finding))
    numbers(
        "depth",
        lambda: heads_table(pd.concat([first.heads, second.heads]), [measure.name]),
        f"{measure.title} of the heads of both",
    )


def two_models(groups: list[Group]) -> tuple[Group, Group]:
    """Return groups of two models if there are two; of causal layers if both have them."""
    causal = [group for group in groups if group.kind == "causal"]
    first = (causal or groups)[0]
    others = [group for group in (*causal, *groups) if group.model != first.model]
    return first, (others or [groups[-1]])[0]


def downloads(table: pd.DataFrame) -> None:
    """Draw the downloads of all numbers, and the command that computes them."""
    with st.container(horizontal=True, key="atlas_downloads"):
        for ending, mime, write in (
            ("csv", "text/csv", lambda: table.to_csv(index=False)),
            ("parquet", "application/octet-stream", lambda: table.to_parquet(index=False)),
        ):
            st.download_button(
                f"All numbers as {'CSV' if ending == 'csv' else 'Parquet'}",
                write,
                f"attnkit-atlas.{ending}",
                mime,
                icon=":material/download:",
                on_click="ignore",
                key=f"atlas_{ending}",
            )
    st.caption("The table of the three models that ship, from a terminal:")
    st.code(shipped.COMMAND, language="bash", wrap_lines=True)
