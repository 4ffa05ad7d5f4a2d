"""Sections of the Atlas below its main figures, without those about a visitor's own model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.figures.atlas import describe_depth, describe_scatter, plot_depth, plot_scatter
from attnkit.figures.groups import Group
from attnkit.figures.revisions import plot_revisions
from attnkit.foundation.tables import csv_of_frame
from attnkit.realmodels import shipped
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
from attnkit.realmodels.measures import MEASURES, TIES, Measure
from attnkit.realmodels.portraits import Portrait
from attnkit.realmodels.revisions import describe_training, over_training
from attnkit.realmodels.tie_costs import cost_sentences, cost_table, toy_cost_table, toy_costs
from attnkit.service.server import server_settings
from attnkit.ui.atlas.choice import AtlasChoice, Head, heads_table, numbers, pick_measure, picture
from attnkit.ui.atlas.custom_model import LINK_SHOWS, ONLY_HERE, off_here
from attnkit.ui.atlas.head_portrait import show_head
from attnkit.ui.markdown import plain, with_formulas
from attnkit.ui.widgets import bound, download

TRAINING = "atlas_training_shown"
"""Key of the name of the model whose revisions are shown."""


def show_scatter(choice: AtlasChoice, heads: pd.DataFrame) -> None:
    """Draw two measures of all heads against each other."""
    with st.container(horizontal=True, key="atlas_axes"):
        pick_measure(choice, "Across", "x", 260)
        pick_measure(choice, "Upwards", "y", 260)
    x, y = MEASURES[choice.x], MEASURES[choice.y]
    finding = describe_scatter(heads, x, y)
    picture(
        plot_scatter(heads, x, y),
        key="atlas_scatter",
        alt=finding,
        title=f"{y.title} against {x.title}",
    )
    st.caption(f"Dotted: random matrices. {plain(finding)}")
    measures = list(dict.fromkeys([x.name, y.name]))
    numbers("scatter", lambda: heads_table(heads, measures), "Both of every head")


def show_one_head(
    choice: AtlasChoice, heads: pd.DataFrame, head: Head, shipped_atlas: Atlas | None
) -> None:
    """Draw one head, and lists that choose another one."""
    candidates = heads
    with st.container(horizontal=True, key="atlas_head"):
        for field, label in zip(Head._fields, ("Model", "Kind", "Layer", "Head"), strict=True):
            values = candidates[field].drop_duplicates()
            if field in ("layer", "head"):
                values = values.sort_values()
            width, key = 240 if field == "model" else 110, f"atlas_head_{field}"
            take = partial(_take_head, choice, head, field)
            st.selectbox(label, list(values), width=width, **bound(head, field, key, take))
            candidates = candidates[candidates[field] == getattr(head, field)]
    if choice.measured is not None and head.model in set(choice.measured.table["model"]):
        st.caption(LINK_SHOWS if choice.mine else ONLY_HERE)
    else:
        st.caption("The address of this page names this head: send it on.")
    show_head(heads, head, portrait_of(head, [choice.measured, shipped_atlas], fold=choice.fold))


def _take_head(choice: AtlasChoice, head: Head, field: str, value: Any) -> None:
    """Choose a head by one of the lists; `AtlasChoice.find` takes the nearest if it is none."""
    choice.head = Head(*{**head._asdict(), field: value}.values())


def portrait_of(head: Head, atlases: Sequence[Atlas | None], *, fold: bool) -> Portrait | None:
    """Return the matrices of a head for its pictures; None if they are not stored."""
    for atlas in atlases:
        if atlas is not None and head.model in set(atlas.table["model"]):
            return atlas.portrait(head.model, head.kind, head.layer, head.head, fold)
    return None


def show_depth(
    choice: AtlasChoice, groups: list[Group], pair: tuple[Group, Group] | None, measure: Measure
) -> None:
    """Draw two models by relative depth."""
    if pair is None:
        st.info("None of these models has this measure.")
        return
    with st.container(horizontal=True, key="atlas_two"):
        for label, side, group in zip(("One", "Other"), ("one", "other"), pair, strict=True):
            names, shown = [group.name for group in groups], {side: group.name}
            take = partial(setattr, choice, side)
            st.selectbox(label, names, width=300, **bound(shown, side, f"atlas_{side}", take))
    first, second = pair
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


def show_costs(choice: AtlasChoice, heads: pd.DataFrame, toys: pd.DataFrame) -> None:
    """Draw what the best tied matrices would lose in every model, and what they do to our toys."""
    costs = toy_costs(toys) if len(toys) else toys
    for sentence in cost_sentences(heads, costs):
        st.markdown(with_formulas(sentence))
    shown = {"tie": choice.measure if choice.measure in TIES else None}

    def take(name: str | None) -> None:
        choice.measure = name or choice.measure

    st.segmented_control(
        "Error of every head, on the [map above](#heads)",
        TIES,
        format_func=lambda name: MEASURES[name].title,
        wrap=True,
        **bound(shown, "tie", "atlas_tie", take),
    )
    with st.container(key="atlas_costs"):
        st.markdown(cost_table(heads))
        st.caption("Median over heads; in brackets the level of random matrices.")
        if len(costs):
            st.markdown(toy_cost_table(costs))
            st.caption(
                "Our toys: medians over heads and mean accuracies over seeds. “Put in”: the best "
                "tied matrices replace those of the trained QKV model in all heads at once, and "
                "nothing is trained further."
            )
    for name in TIES:
        measure = MEASURES[name]
        st.caption(f"**{plain(measure.title)}**: {with_formulas(measure.help)}")
    numbers("costs", lambda: heads_table(heads, TIES), "Errors of every head")


def show_training(choice: AtlasChoice, atlas: Atlas) -> None:
    """Draw symmetry, cosine and overlap of every layer over the revisions of a model."""
    rows = over_training(atlas.table, folded=choice.fold, offset=choice.offset)
    rows = rows if len(rows) else over_training(atlas.table, folded=choice.fold)
    rows = rows if len(rows) else over_training(atlas.table)
    command = "python -m attnkit models FOLDER --training training.html"
    if rows.empty and server_settings().hosted:
        off_here("measure revisions", command)
        return
    if rows.empty:
        st.markdown(
            "None of these models is there in several revisions. Under *A model of your own* you "
            "can measure them: `owner/name@step1000,step4000` are revisions of a model on the hub, "
            "and the path of a folder with checkpoints stands for all of these. The same in a "
            "terminal:"
        )
        st.code(command, language="bash")
        return
    names = list(rows["training"].unique())
    if len(names) > 1:
        shown = {"name": st.session_state.get(TRAINING, names[-1])}
        shown["name"] = shown["name"] if shown["name"] in names else names[-1]
        take = partial(st.session_state.__setitem__, TRAINING)
        st.selectbox("Model", names, width=300, **bound(shown, "name", "atlas_training_of", take))
        rows = rows[rows["training"] == shown["name"]]
    findings = describe_training(rows)
    picture(
        plot_revisions(rows),
        key="atlas_training",
        alt=" ".join(findings),
        title=f"{rows['training'].iloc[0]} over its training",
    )
    dashes = "Solid: encoder, long dashes: causal, dashes and dots: cross-attention. "
    st.caption(
        f"{dashes if rows['kind'].nunique() > 1 else ''}Dotted: random matrices. Revisions stand "
        "evenly spaced, in the order of training."
    )
    for finding in findings:
        st.markdown(with_formulas(finding))
    numbers("training", lambda: rows, "Every layer of every revision")


def show_numbers(atlas: Atlas, shipped_atlas: Atlas | None) -> None:
    """Draw the answer in numbers, what is not comparable, and the downloads of everything."""
    if shipped_atlas is not None:
        table = shipped_atlas.table
        st.caption(plain(f"“{QUESTION}”: {SOURCE}"))
        st.markdown("\n\n".join(map(with_formulas, (*answer_sentences(table), cka_on_text(table)))))
        st.caption("All as the models stand: nothing folded, distance 0.")
        with st.container(key="atlas_summary"):
            st.markdown(summary(as_they_stand(table)))
        with st.expander("What is not comparable"):
            st.markdown("\n".join(f"- {with_formulas(caveat)}" for caveat in caveats(table)))
    downloads(atlas.table)


def downloads(table: pd.DataFrame) -> None:
    """Draw the downloads of all numbers, and the command that computes them, folded."""
    with st.container(horizontal=True, key="atlas_downloads"):
        csv, parquet = (
            lambda: csv_of_frame(table),
            lambda: bytes(table.to_parquet(index=False)),
        )
        download("All numbers as CSV", csv, "attnkit-atlas.csv", key="atlas_csv")
        download("All numbers as Parquet", parquet, "attnkit-atlas.parquet", key="atlas_parquet")
    with st.expander("For programmers: the same table from a terminal"):
        st.code(shipped.COMMAND, language="bash", wrap_lines=True)
