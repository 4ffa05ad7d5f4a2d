"""Interactive figures of trained models' heads, with titles and how to read them."""

from __future__ import annotations

from attnkit.figures.atlas import describe_scatter, plot_distribution, plot_scatter
from attnkit.figures.groups import groups_of, heads_in
from attnkit.figures.panels import Figure
from attnkit.figures.portrait import (
    describe_angles,
    describe_spectra,
    describe_split,
    plot_angles,
    plot_spectra,
    plot_split,
)
from attnkit.foundation.settings import allowed_names, shown
from attnkit.realmodels.atlas import Atlas, MeasuredHead
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.portraits import Portrait


def plot_measure(atlas: Atlas, measure: str = "overlap_qk") -> tuple[Figure, str, str]:
    """Plot a dot per head, a row per model and kind of layer, beside random matrices.

    Args:
        atlas: The atlas.
        measure: Name of a measure, a key of `MEASURES`.

    Raises:
        ValueError: If there is no such measure.
    """
    chosen = _measure("measure", measure)
    heads = heads_in(atlas.table, fold=False, offset=0)
    reading = "A dot is a head, the large mark the median. Grey: random matrices of this shape."
    return plot_distribution(groups_of(heads, chosen.name), chosen), chosen.title, reading


def plot_measures(
    atlas: Atlas, x: str = "overlap_qk", y: str = "symmetry"
) -> tuple[Figure, str, str]:
    """Plot two measures against each other, a dot per head.

    Args:
        atlas: The atlas.
        x: Name of the measure on the horizontal axis.
        y: Name of the measure on the vertical axis.

    Raises:
        ValueError: If there is no such measure.
    """
    a, b = _measure("x", x), _measure("y", y)
    heads = heads_in(atlas.table, fold=False, offset=0)
    return plot_scatter(heads, a, b), f"{b.title} against {a.title}", describe_scatter(heads, a, b)


def plot_parts(head: MeasuredHead) -> tuple[Figure, str, str]:
    """Plot the symmetric and the skew part of W_Q W_Kᵀ."""
    portrait = _portrait(head)
    title = f"{head.in_words}: W_Q W_Kᵀ in two parts"
    return plot_split(portrait), title, describe_split(portrait)


def plot_values(head: MeasuredHead) -> tuple[Figure, str, str]:
    """Plot the singular values and eigenvalues of W_Q W_Kᵀ."""
    portrait = _portrait(head)
    return plot_spectra(portrait), f"{head.in_words}: spectra", describe_spectra(portrait)


def plot_directions(head: MeasuredHead) -> tuple[Figure, str, str]:
    """Plot the angles between the subspaces that Q, K and V read."""
    portrait, d_model = _portrait(head), int(head.row["d_model"])
    title = f"{head.in_words}: do Q, K and V read the same directions?"
    return plot_angles(portrait, d_model), title, describe_angles(portrait, d_model)


def _measure(field: str, name: str) -> Measure:
    """Return the measure of a name.

    Raises:
        ValueError: If there is none; the message names the field.
    """
    if name not in list(MEASURES):
        allowed = allowed_names(MEASURES, str(name))
        raise ValueError(f"{field}: got {shown(name, quoted=True)}, allowed {allowed}")
    return MEASURES[name]


def _portrait(head: MeasuredHead) -> Portrait:
    """Return the portrait of a head.

    Raises:
        ValueError: If only its numbers were kept.
    """
    if head.portrait is None:
        raise ValueError(f"head: got {head.in_words!r}, allowed one whose portrait was kept")
    return head.portrait
