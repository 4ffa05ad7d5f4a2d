"""One head of a real model: its measures beside random matrices, and pictures of its matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import streamlit as st

from attnkit.figures.groups import number_text, random_of
from attnkit.figures.head_numbers import COLUMNS, head_numbers
from attnkit.figures.panels import Figure
from attnkit.figures.portrait import (
    PAIR_NAMES,
    describe_angles,
    describe_spectra,
    describe_split,
    parts_of,
    plot_angles,
    plot_spectra,
    plot_split,
    random_squares,
)
from attnkit.foundation.tables import markdown_table
from attnkit.realmodels.atlas import K_IS_V, PLACE, Q_IS_K
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.portraits import Portrait
from attnkit.ui.atlas.choice import Head, numbers, picture
from attnkit.ui.markdown import plain, with_formulas

TIED = {
    K_IS_V: "One matrix serves as W_K and as W_V here, so comparisons with W_V are left out.",
    Q_IS_K: "Q and K are tied here: one matrix serves as W_Q and as W_K. Their cosine is 1, a "
    "positive control.",
}
"""Caption of a head in a layer with one matrix in two roles, by the sharing."""


def row_of(heads: pd.DataFrame, head: Head) -> pd.Series:
    """Return the row of a head that the table has."""
    for name, value in zip(PLACE, head, strict=True):
        heads = heads[heads[name] == value]
    row: pd.Series = heads.iloc[0]
    return row


def numbers_table(heads: pd.DataFrame, head: Head) -> str:
    """Return a table of every measure of a head beside random matrices; Markdown."""
    row = row_of(heads, head)
    same_kind = heads[(heads["model"] == head.model) & (heads["kind"] == head.kind)]
    rows = (map(plain, cells) for cells in head_numbers(row, same_kind))
    return markdown_table(COLUMNS, rows, "lrrrr")


def head_in_words(heads: pd.DataFrame, head: Head, measure: str) -> str:
    """Return a head, its value of a measure, and that of random matrices of its shape."""
    row = row_of(heads, head)
    text = f"{head.in_words}: {MEASURES[measure].title} {number_text(float(row[measure]))}"
    mean, sd = random_of(row, measure)
    return text if math.isnan(mean) else f"{text} (random {number_text(mean)} ± {number_text(sd)})"


def show_head(heads: pd.DataFrame, head: Head, portrait: Portrait | None) -> None:
    """Draw the measures of a head, and its pictures if its portrait is stored."""
    row = row_of(heads, head)
    left, right = st.columns(2, gap="large")
    with left:
        with st.container(key="head_numbers"):
            st.markdown(numbers_table(heads, head))
        st.caption(
            "Random: matrices of the same shape, mean ± SD; then how many SDs this head is from "
            "it. The last column is of all heads of this kind in this model."
        )
        if row["tied"] in TIED:
            st.caption(with_formulas(TIED[row["tied"]]))
    with right:
        if portrait is None:
            st.info("No pictures of this head: only its numbers were kept.")
            return
        if row["offset"]:
            st.caption("The pictures are of tokens at distance 0.")
        show_portrait(portrait, head, int(row["d_model"]))


def show_portrait(portrait: Portrait, head: Head, d_model: int) -> None:
    """Draw two parts, three spectra and three sets of angles, each with finding and numbers."""
    split = describe_split(portrait)
    if head.kind == "cross":
        split += " Cross-attention reads two streams, so the split says nothing here: a control."
    parts: tuple[tuple[str, str, Figure, str, str, Callable[[], pd.DataFrame]], ...] = (
        (
            "split",
            "W_Q W_Kᵀ in two parts",
            plot_split(portrait),
            split,
            "Entries of both parts",
            lambda: split_table(portrait),
        ),
        (
            "spectra",
            "Spectra of W_Q W_Kᵀ",
            plot_spectra(portrait),
            describe_spectra(portrait),
            "Singular values and eigenvalues",
            lambda: spectra_table(portrait),
        ),
        (
            "angles",
            "Principal angles: do Q, K and V read the same directions?",
            plot_angles(portrait, d_model),
            describe_angles(portrait, d_model),
            "cos² of principal angles",
            lambda: angles_table(portrait, d_model),
        ),
    )
    for name, title, figure, finding, numbers_alt, make_table in parts:
        st.markdown(f"**{title}**")
        alt, saved = f"{head.in_words}. {finding}", f"{head.in_words}: {title}"
        picture(figure, key=f"atlas_{name}", alt=alt, title=saved)
        st.caption(plain(finding))
        numbers(name, make_table, numbers_alt)


def split_table(portrait: Portrait) -> pd.DataFrame:
    """Return the entries of the symmetric and the skew part; indices count from 1."""
    symmetric, skew = parts_of(portrait)
    n = len(symmetric)
    return pd.DataFrame(
        {
            "query direction": [i + 1 for i in range(n) for _ in range(n)],
            "key direction": [j + 1 for _ in range(n) for j in range(n)],
            "symmetric": symmetric.ravel(),
            "skew": skew.ravel(),
        }
    )


def spectra_table(portrait: Portrait) -> pd.DataFrame:
    """Return all three spectra side by side, largest value first."""
    spectra = {
        "singular value": portrait.singular,
        "eigenvalue, symmetric": portrait.symmetric,
        "size, skew": portrait.skew,
    }
    table = pd.DataFrame({name: pd.Series(values) for name, values in spectra.items()})
    table.insert(0, "number", table.index + 1)
    return table


def angles_table(portrait: Portrait, d_model: int) -> pd.DataFrame:
    """Return cos² of the principal angles of every pair, and of random subspaces."""
    columns = {name: pd.Series(portrait.angles[pair] ** 2) for pair, name in PAIR_NAMES.items()}
    columns["random"] = pd.Series(random_squares(d_model, len(portrait.angles["qk"])))
    table = pd.DataFrame(columns)
    table.insert(0, "angle", table.index + 1)
    return table
