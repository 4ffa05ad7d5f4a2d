"""Atlas: how similar the three matrices are in real models, head by head."""

from collections.abc import Callable, Sequence

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
from attnkit.realmodels.answer import (
    QUESTION,
    SOURCE,
    answer_004,
    as_they_stand,
    caveats,
    on_text,
    summary,
)
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.portraits import Portrait
from attnkit.realmodels.shipped import COMMAND, OFFSETS, load_atlas
from attnkit.realmodels.toys import toy_table
from attnkit.ui import components
from attnkit.ui.atlas import (
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

require_route()
GRID = "atlas_grid"


def answer(table: pd.DataFrame) -> None:
    """Three sentences, the numbers behind them, and what to keep in mind."""
    st.caption(plain(f"“{QUESTION}”: {SOURCE}"))
    with st.container(key="answer"):
        st.markdown("\n\n".join(map(with_formulas, answer_004(table))))
    st.caption(
        with_formulas(f"{on_text(table)} All as the models stand: nothing folded, distance 0.")
    )
    with st.expander("The numbers of these sentences"):
        st.markdown(summary(as_they_stand(table)))
    with st.expander("What is not comparable"):
        st.markdown("\n".join(f"- {with_formulas(caveat)}" for caveat in caveats(table)))


def toys() -> pd.DataFrame:
    """Our own small models, if their numbers are there."""
    try:
        return toy_table()
    except (OSError, Unreadable) as error:
        st.error(plain(f"The numbers of our toy models cannot be read: {error}"))
        return pd.DataFrame()


def controls() -> None:
    """What is measured and how."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="atlas_controls"):
        pick("Measure", list(MEASURES), "measure", lambda name: MEASURES[name].title)
        st.session_state["atlas_offset"] = chosen.offset
        st.segmented_control(
            "Tokens apart",
            OFFSETS,
            key="atlas_offset",
            on_change=take,
            args=("offset",),
            required=True,
            help="With rotary positions W_Q W_Kᵀ hangs on how far apart two tokens are. Models "
            "without them do not change.",
        )
        st.session_state["atlas_once"] = chosen.once
        st.segmented_control(
            "Count shared K and V",
            [True, False],
            format_func=lambda once: "once" if once else "per query head",
            key="atlas_once",
            on_change=take,
            args=("once",),
            required=True,
            help="Where several query heads share one key and value head, measures of K and V "
            "alone can count it once, or once per query head.",
        )
        switch(
            "Fold norm gains",
            "fold",
            "Multiply the gains of the norm before attention into the matrices. MiniLM has none.",
        )
        switch(
            "Add toy models",
            "toys",
            "Our own small models of the Lab’s tasks, whose sharing is known.",
        )
    measure = MEASURES[chosen.measure]
    st.caption(f"**{plain(measure.title)}**: {plain(measure.help)}")


def pick(label: str, names: Sequence[str], field: str, told: Callable[[str], str] = str) -> None:
    """A list that sets a field of the visitor's choices."""
    key = f"atlas_{field}"
    st.session_state[key] = getattr(chosen, field)
    st.selectbox(label, names, format_func=told, key=key, on_change=take, args=(field,), width=220)


def switch(label: str, field: str, help: str) -> None:
    """A switch that sets a field of the visitor's choices."""
    key = f"atlas_{field}"
    st.session_state[key] = getattr(chosen, field)
    st.toggle(label, key=key, on_change=take, args=(field,), help=help)


def take(field: str) -> None:
    """Set a field to what its widget says."""
    setattr(chosen, field, st.session_state[f"atlas_{field}"])


def take_cell() -> None:
    """Look at the head whose cell was pressed."""
    told = st.session_state[GRID].chosen
    if isinstance(told, list) and len(told) == 4:
        model, kind, layer, head = told
        if isinstance(layer, int) and isinstance(head, int):
            chosen.head = Head(str(model), str(kind), layer, head)


def show_atlas(head: Head, measure: Measure) -> None:
    """A grid per model and kind."""
    st.subheader("Every head", anchor=False)
    panels = atlas_panels(heads, measure)
    if not panels["panels"]:
        st.info("None of these models has this measure.")
        return
    st.caption(
        "Rows are layers, columns heads, both counted from 0. Point at a cell for its number; "
        "press it to look at the head. By keys: Tab to a grid, arrows, Enter."
    )
    grid(panels, head, take_cell, key=GRID)
    if lacking := describe_lacking(heads, measure):
        st.caption(plain(lacking))
    st.markdown(f"Outlined: {plain(head_in_words(heads, head, measure.name))}. [Look at it](#head)")
    numbers("grid", lambda: heads_table(heads, [measure.name]), f"{measure.title} of every head")


def show_distribution(groups: list[Group], measure: Measure) -> None:
    """Strips."""
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
    """What strips show, a row per group."""
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


def show_scatter() -> None:
    """Two measures against each other."""
    st.subheader("Two measures", anchor=False)
    with st.container(horizontal=True, key="atlas_axes"):
        names = list(MEASURES)
        x = st.selectbox(
            "Across", names, names.index("overlap_qk"), format_func=titled, key="atlas_x", width=260
        )
        y = st.selectbox(
            "Upwards", names, names.index("symmetry"), format_func=titled, key="atlas_y", width=260
        )
    told = describe_scatter(heads, MEASURES[x], MEASURES[y])
    picture(
        plot_scatter(heads, MEASURES[x], MEASURES[y]),
        key="atlas_scatter",
        alt=told,
        title=f"{titled(y)} against {titled(x)}",
    )
    st.caption(f"Dotted: random matrices. {plain(told)}")
    numbers(
        "scatter", lambda: heads_table(heads, list(dict.fromkeys([x, y]))), "Both of every head"
    )


def titled(name: str) -> str:
    """A measure's name on screen."""
    return MEASURES[name].title


def head_section(head: Head) -> None:
    """The head that is looked at, chosen by lists as well."""
    st.subheader("One head", anchor="head")
    own = heads
    with st.container(horizontal=True, key="atlas_head"):
        for field, label in zip(Head._fields, ("Model", "Kind", "Layer", "Head"), strict=True):
            values = list(
                own[field].drop_duplicates().sort_values()
                if field in COUNTED
                else own[field].drop_duplicates()
            )
            key = f"atlas_head_{field}"
            st.session_state[key] = getattr(head, field)
            st.selectbox(
                label, values, key=key, on_change=take_head, width=240 if field == "model" else 110
            )
            own = own[own[field] == getattr(head, field)]
    if chosen.own is not None and head.model in set(chosen.own.table["model"]):
        st.caption("You measured this model: a link to this page shows it to nobody else.")
    else:
        st.caption("The address of this page names this head: send it on.")
    show_head(heads, head, portrait_of(head))


COUNTED = ("layer", "head")


def take_head() -> None:
    """Look at the head that the lists name, or at the nearest there is."""
    model, kind, layer, head = (st.session_state[f"atlas_head_{name}"] for name in Head._fields)
    chosen.head = Head(model, kind, int(layer), int(head))


def portrait_of(head: Head) -> Portrait | None:
    """Its pictures, if they were kept."""
    for atlas in (chosen.own, shipped):
        if atlas is not None and head.model in set(atlas.table["model"]):
            return atlas.portrait(head.model, head.kind, head.layer, head.head, chosen.fold)
    return None


def show_depth(groups: list[Group], measure: Measure) -> None:
    """Two models by relative depth."""
    st.subheader("Two models", anchor=False)
    names = {group.name: group for group in groups}
    first, second = first_two(groups)
    with st.container(horizontal=True, key="atlas_two"):
        places = [groups.index(first), groups.index(second)]
        one, other = (
            names[st.selectbox(label, list(names), place, key=f"atlas_{key}", width=300)]
            for label, key, place in zip(("One", "Other"), ("one", "other"), places, strict=True)
        )
    told = describe_depth(one, other, measure)
    picture(
        plot_depth(one, other, measure),
        key="atlas_depth",
        alt=told,
        title=f"{measure.title} by depth",
    )
    st.markdown(plain(told))
    numbers(
        "depth",
        lambda: heads_table(pd.concat([group.heads for group in (one, other)]), [measure.name]),
        f"{measure.title} of the heads of both",
    )


def first_two(groups: list[Group]) -> tuple[Group, Group]:
    """Of two models, if there are two: causal layers if both have them."""
    causal = [group for group in groups if group.kind == "causal"]
    first = (causal or groups)[0]
    others = [group for group in (*causal, *groups) if group.model != first.model]
    return first, (others or [groups[-1]])[0]


def downloads(table: pd.DataFrame) -> None:
    """All numbers, and the command that made them."""
    with st.container(horizontal=True, key="atlas_downloads"):
        for ending, kind, write in (
            ("csv", "text/csv", lambda: table.to_csv(index=False)),
            ("parquet", "application/octet-stream", lambda: table.to_parquet(index=False)),
        ):
            st.download_button(
                f"All numbers as {'CSV' if ending == 'csv' else 'Parquet'}",
                write,
                f"attnkit-atlas.{ending}",
                kind,
                icon=":material/download:",
                on_click="ignore",
                key=f"atlas_{ending}",
            )
    st.caption("The table of the three models that ship, from a terminal:")
    st.code(COMMAND, language="bash", wrap_lines=True)


chosen = open_atlas_choice()
st.title("How similar are the three matrices in real models?", anchor=False)
shipped: Atlas | None = None
try:
    shipped = load_atlas()
except (OSError, Unreadable) as error:
    st.error(plain(f"The atlas that ships with this copy cannot be read: {error}"))
atlas = shipped
if chosen.own is not None:
    atlas = chosen.own if shipped is None else shipped.joined(chosen.own)
if shipped is not None:
    answer(shipped.table)
if atlas is not None:
    table = atlas.table
    if chosen.toys:
        table = pd.concat([table, toys()], ignore_index=True)
    heads = heads_in(table, chosen.fold, chosen.offset)
    head, measure = chosen.find(heads), MEASURES[chosen.measure]
    if chosen.problem:
        st.warning(plain(chosen.problem), icon=":material/warning:")
        chosen.problem = ""
    controls()
    show_atlas(head, measure)
    groups = groups_of(heads, measure.name, chosen.once)
    if groups:
        show_distribution(groups, measure)
    show_scatter()
    head_section(head)
    if groups:
        show_depth(groups, measure)
st.subheader("A model of your own", anchor=False)
custom_model(chosen, () if shipped is None else shipped.table["model"].unique())
if atlas is not None:
    st.subheader("Take away", anchor=False)
    downloads(atlas.table)
    chosen.write_link()
components.load_plotly()
