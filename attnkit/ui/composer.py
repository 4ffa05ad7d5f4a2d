"""The form that adds a variant to the Lab: from the catalogue, or written by hand."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.figures.board import adjustment
from attnkit.foundation.settings import InvalidExperiment, Problem, ended
from attnkit.ui import components
from attnkit.ui.lab import MOST_COLUMNS, Lab
from attnkit.ui.markdown import plain
from attnkit.variants import CATALOGUE, InvalidVariant, Variant, names_of
from attnkit.variants.catalogue import search
from attnkit.variants.names import find, key_of
from attnkit.variants.palette import colors_of
from attnkit.variants.text import LONGEST

OPEN = "add_variant"
"""Key of the popover: whether it is open."""

_NAME, _TEXT, _FOUND = "catalogue_name", "variant_text", "variants_found"

_MOST_FOUND = 12
"""Entries offered for one search."""


def variant_form(lab: Lab) -> None:
    """What to add, what it is and costs, and the button that adds it."""
    st.text_input(
        "Search, or write one",
        placeholder="multi-query, DeepSeek, K=V n_heads=4 kv_heads=1",
        max_chars=LONGEST,
        key=_TEXT,
        on_change=_take_name,
        live=True,
        help="Search by name, by a word of the description or by the paper. Or write a sharing, "
        "then words: Q=K unit_key self_mask. The page Variants lists all words.",
    )
    text = str(st.session_state[_TEXT]).strip()
    found = _found(text)
    if found:
        st.pills(
            "Found",
            found,
            format_func=_with_alias,
            key=_FOUND,
            on_change=_take_found,
        )
    st.selectbox(
        "Or choose from the list",
        list(CATALOGUE),
        index=None,
        format_func=lambda key: f"{CATALOGUE[key].name} · {CATALOGUE[key].variant}",
        placeholder=f"All {len(CATALOGUE)} variants",
        filter_mode=None,
        key=_NAME,
        on_change=_take_text,
    )
    if not text:
        st.caption("What you find or choose can be changed before it is added.")
        st.page_link("pages/variants.py", label="All words", icon=":material/category:")
        return
    try:
        variant, experiment, problems = lab.preview(text)
    except InvalidVariant as error:
        if found:
            st.caption("Choose one of those found.")
        else:
            _say(str(error))
        return
    except InvalidExperiment as error:
        for problem in error.problems:
            _say(_reason(problem))
        return
    _preview(variant, experiment)
    for problem in problems:
        _say(_reason(problem))
    refusal = ""
    if variant in lab.chosen:
        refusal = "It is one of your columns."
    elif len(lab.chosen) >= MOST_COLUMNS:
        refusal = f"There are {MOST_COLUMNS} columns, which is the most: switch one off first."
    if refusal:
        st.caption(refusal)
    st.button(
        "Add",
        type="primary",
        icon=":material/add:",
        key="add",
        disabled=bool(refusal or problems),
        on_click=_add,
        args=(lab, variant),
    )


def _found(text: str) -> list[str]:
    """Return the catalogue keys that a search text finds; none if the text is a variant itself.

    A name such as GQA is a variant; others that it occurs in are found all the same.
    """
    named = find(text)
    if named is None:
        try:
            Variant(text)
        except InvalidVariant:
            pass
        else:
            return []
    others = [one for one in search(text) if one != named]
    return [key_of(one.name) for one in others[:_MOST_FOUND]]


def _with_alias(key: str) -> str:
    """Return a name with the alias that says what it stands for."""
    named = CATALOGUE[key]
    return f"{named.name} ({named.aliases[0]})" if named.aliases else named.name


def costs_line(experiment: Experiment, variant: Variant) -> str:
    """What a variant costs in an experiment."""
    costs = experiment.costs(variant)
    return (
        f"{costs.parameters:,} parameters; per token {costs.kv_cache:,} numbers kept (KV cache) "
        f"and {costs.multiply_adds:,} multiply-adds"
    )


def _say(reason: str) -> None:
    st.error(plain(ended(reason)), icon=":material/error:")


def _reason(problem: Problem) -> str:
    """Why a setting is none; the variant itself stands above it."""
    of_this = problem.field == "sharing" and problem.allowed.startswith("but ")
    return problem.allowed.removeprefix("but ") if of_this else str(problem)


def _preview(variant: Variant, experiment: Experiment) -> None:
    named = names_of(variant)
    with st.container(key="preview"):
        color = colors_of(experiment.sharing)[experiment.sharing.index(variant)]
        components.diagram(experiment, variant, color, key="previewed")
        if named:
            st.markdown(f"**{named[0].name}.** {named[0].explanation}")
            if named[0].aliases:
                st.caption(f"Also called: {', '.join(named[0].aliases)}.")
            st.caption(f"Source: {named[0].source}")
        else:
            st.markdown(f"`{variant.value}`  \n{variant.meaning}")
        costs = f"At your sizes: {costs_line(experiment, variant)}."
        if changes := adjustment(experiment, variant):
            costs += f" To make costs equal: {changes}."
        st.caption(costs)
        n_heads = experiment.wiring(variant).sizes.n_heads
        if n_heads != experiment.size.n_heads:
            plain = Variant(f"QKV n_heads={n_heads}")
            st.caption(
                f"It has {n_heads} heads, where plain columns have {experiment.size.n_heads} here: "
                f"compare its costs with `{plain}`."
            )


def _take_text() -> None:
    """A choice of the catalogue is written out, so that it can be changed."""
    key = st.session_state[_NAME]
    st.session_state[_TEXT] = CATALOGUE[key].variant.value if key else ""


def _take_found() -> None:
    """Write out the entry that was chosen of those found."""
    if key := st.session_state[_FOUND]:
        st.session_state[_NAME] = key
        _take_text()


def _take_name() -> None:
    """What is written by hand is found in the catalogue, if it is there."""
    text = str(st.session_state[_TEXT])
    try:
        named = find(text) or next(iter(names_of(Variant(text))), None)
    except InvalidVariant:
        named = None
    st.session_state[_NAME] = key_of(named.name) if named else None


def _add(lab: Lab, variant: Variant) -> None:
    lab.add(variant)
    st.session_state[_TEXT], st.session_state[_NAME] = "", None
    st.session_state[OPEN] = False
