"""The form that adds a variant to the Lab: from the catalogue, or written by hand."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.figures.board import adjustment
from attnkit.foundation.language import tr, tr_n
from attnkit.foundation.settings import as_sentence, message_of
from attnkit.ui import components
from attnkit.ui.lab.lab import MOST_COLUMNS, Lab
from attnkit.ui.lab.own_attention import own_attention
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.reference.variant_choice import key_of_text
from attnkit.variants import CATALOGUE, InvalidVariant, Named, Variant, names_of
from attnkit.variants.catalogue import search
from attnkit.variants.palette import colors_of
from attnkit.variants.text import LONGEST, find, key_of

OPEN = "add_variant"
"""Key of the popover; its value tells whether it is open."""

_NAME, _TEXT, _FOUND = "catalogue_name", "variant_text", "variants_found"
"""Keys of the list, of the text field and of the entries that the text finds."""

_MOST_FOUND = 12
"""Number of entries offered for one search, at most."""


def variant_form(lab: Lab) -> None:
    """Draw the choice of a variant, its description and costs, and the button that adds it.

    When as many columns are chosen as fit, the form says so first and adds nothing.
    """
    if is_full := len(lab.chosen) >= MOST_COLUMNS:
        st.warning(
            tr(
                "{most} variants are chosen, as many as fit side by side. Switch one off before "
                "you add another.",
                most=MOST_COLUMNS,
            )
        )
    text, matches = _pick_text()
    if not text:
        st.caption(tr("What you find or choose can be changed before it is added."))
        page_link("variants", tr("All words"), icon=":material/category:")
        own_attention(lab, is_full=is_full)
        return
    try:
        variant = Variant(text)
    except InvalidVariant as error:
        if matches:
            st.caption(tr("Choose one of those found."))
        else:
            _show_error(as_sentence(tr(message_of(error))))
        return
    experiment, problems = lab.preview(variant)
    if experiment is not None:
        _preview(variant, experiment)
    for problem in problems:  # without the variant, which stands above
        is_of_variant = problem.field == "sharing" and problem.has_reason
        _show_error(as_sentence(problem.reason) if is_of_variant else problem.sentence)
    if experiment is None:
        return
    is_chosen = variant in lab.chosen
    if is_chosen:
        st.caption(tr("It is one of your columns."))
    st.button(
        tr("Add"),
        type="primary",
        icon=":material/add:",
        key="add",
        disabled=is_full or is_chosen or bool(problems),
        on_click=_add,
        args=(lab, variant),
    )


def _pick_text() -> tuple[str, list[str]]:
    """Draw the search and the list of the catalogue; return the text and the keys that it finds."""
    st.text_input(
        tr("Search, or write one"),
        placeholder="multi-query, DeepSeek, K=V n_heads=4 kv_heads=1",
        max_chars=LONGEST,
        key=_TEXT,
        on_change=_take_name,
        live=True,
        help=tr(
            "Search by name, model, paper or a word of the explanation. Or write a sharing, "
            "then words: Q=K unit_key self_mask. The page Variants lists all words."
        ),
    )
    text = str(st.session_state[_TEXT]).strip()
    matches = _matches(text)
    if matches:
        st.pills(
            tr("Variants found"),
            matches,
            format_func=_with_alias,
            key=_FOUND,
            on_change=_take_match,
        )
    st.selectbox(
        tr("Or choose from the list"),
        list(CATALOGUE),
        index=None,
        format_func=_with_text_form,
        placeholder=tr("All {n} variants", n=len(CATALOGUE)),
        filter_mode=None,
        key=_NAME,
        on_change=_write_entry,
    )
    return text, matches


def _matches(text: str) -> list[str]:
    """Return the catalogue keys that a search text finds; none if the text is a text form.

    A name such as GQA is a variant, but other entries that contain it are found all the same.
    """
    named = find(text)
    if named is None or named.name == named.variant:
        try:
            Variant(text)
        except InvalidVariant:
            pass
        else:
            return []
    others = [entry for entry in search(text) if entry != named]
    return [key_of(entry.name) for entry in others[:_MOST_FOUND]]


def _with_text_form(key: str) -> str:
    """Return the name of an entry, with its text form if that is another text."""
    named = CATALOGUE[key]
    return named.name if named.name == named.variant else f"{named.name} · {named.variant}"


def _with_alias(key: str) -> str:
    """Return the name of an entry, with its first alias in brackets."""
    named = CATALOGUE[key]
    return f"{named.name} ({named.aliases[0]})" if named.aliases else named.name


def other_names(named: Named) -> str:
    """Return the other names of an entry and the models that have it; empty if there are none."""
    if not named.aliases:
        return ""
    return tr("Other names, or models that have it: {names}.", names=", ".join(named.aliases))


def costs_line(experiment: Experiment, variant: Variant) -> str:
    """Return the parameters, cache and multiply-adds of a variant in an experiment, in words."""
    costs = experiment.costs(variant)
    cache = costs.kv_cache
    if cache is None or cache != cache:
        return tr(
            "{parameters:,} parameters; per token an unknown number of numbers kept (KV cache) "
            "and {multiply_adds:,} multiply-adds",
            parameters=costs.parameters,
            multiply_adds=costs.multiply_adds,
        )
    return tr(
        "{parameters:,} parameters; per token {cache:,.0f} numbers kept (KV cache) and "
        "{multiply_adds:,} multiply-adds",
        parameters=costs.parameters,
        cache=cache,
        multiply_adds=costs.multiply_adds,
    )


def _show_error(sentence: str) -> None:
    st.error(plain(sentence), icon=":material/error:")


def _preview(variant: Variant, experiment: Experiment) -> None:
    named = names_of(variant)
    with st.container(key="preview"):
        color = colors_of(experiment.sharing)[experiment.sharing.index(variant)]
        components.diagram(experiment, variant, color, key="previewed")
        if named:
            st.markdown(f"**{named[0].name}.** {tr(named[0].explanation)}")
            if names := other_names(named[0]):
                st.caption(names)
            st.caption(tr("Source: {source}", source=named[0].source))
        else:
            st.markdown(f"`{variant.value}`  \n{tr(variant.meaning)}")
        costs = tr("At your sizes: {costs}.", costs=costs_line(experiment, variant))
        if changes := adjustment(experiment, variant):
            made_equal = tr("To make costs equal: {changes}.", changes=changes)
            costs = f"{costs} {made_equal}"
        st.caption(costs)
        n_heads = experiment.wiring(variant).sizes.n_heads
        if n_heads != experiment.size.n_heads:
            st.caption(
                tr_n(
                    "It has {n} head, where plain columns have {usual} here: compare its costs "
                    "with `{plain}`.",
                    "It has {n} heads, where plain columns have {usual} here: compare its costs "
                    "with `{plain}`.",
                    n_heads,
                    usual=experiment.size.n_heads,
                    plain=Variant(f"QKV n_heads={n_heads}").value,
                )
            )


def _write_entry() -> None:
    """Write the chosen catalogue entry as a text form, so that it can be changed."""
    key = st.session_state[_NAME]
    st.session_state[_TEXT] = CATALOGUE[key].variant.value if key else ""


def _take_match() -> None:
    """Write the entry that was chosen among the matches."""
    if key := st.session_state[_FOUND]:
        st.session_state[_NAME] = key
        _write_entry()


def _take_name() -> None:
    """Choose the typed variant in the list of the catalogue, if the catalogue has it."""
    st.session_state[_NAME] = key_of_text(str(st.session_state[_TEXT]))


def _add(lab: Lab, variant: Variant) -> None:
    lab.add(variant)
    st.session_state[_TEXT], st.session_state[_NAME] = "", None
    st.session_state[OPEN] = False
