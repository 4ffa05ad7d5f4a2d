"""Views of a film, and the function that computes each."""

from __future__ import annotations

from collections.abc import Callable

from attnkit.analysis.inspection.lookup import inspect_attention, inspect_examples
from attnkit.analysis.inspection.request import Inspection, View
from attnkit.analysis.inspection.result import InspectionResult, header_of
from attnkit.analysis.inspection.similarity import inspect_similarity
from attnkit.analysis.inspection.surgery import inspect_heads, inspect_ties, inspect_tying
from attnkit.analysis.inspection.symmetry import inspect_symmetry
from attnkit.experiment import Experiment
from attnkit.training.film import Film
from attnkit.training.joining import join_films
from attnkit.variants import Variant, title_of


def inspect_weights(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the parameters of every variant at the last frame; `0/W_E` is of the first variant."""
    last = film.frames[-1]
    fixed = {
        f"{index}/{name}": array
        for index, parameters in enumerate(last.parameters)
        for name, array in parameters.items()
    }
    return InspectionResult(header_of(film.at(last.step), inspection), {}, fixed)


VIEWS: dict[View, Callable[[Film, Inspection], InspectionResult]] = {
    "examples": inspect_examples,
    "attention": inspect_attention,
    "symmetry": inspect_symmetry,
    "similarity": inspect_similarity,
    "heads": inspect_heads,
    "ties": inspect_ties,
    "tying": inspect_tying,
    "weights": inspect_weights,
}


OF_MODULES: tuple[View, ...] = ("symmetry", "examples", "weights")
"""Views that show variants which a PyTorch module computes; others need queries and keys."""


def shown_film(film: Film, view: View) -> Film:
    """Return a film without the variants that a view cannot show.

    Raises:
        ValueError: If none is left.
    """
    experiment = film.experiment
    own = [variant for variant in experiment.sharing if "module" in variant.given]
    if not own or view in OF_MODULES:
        return film
    kept = [variant for variant in experiment.sharing if variant not in own]
    if not kept:
        raise ValueError(
            f"film: got {title_of(own[0])}, which a PyTorch module computes, allowed variants "
            "with queries, keys and values to look at; the pattern and the scores that the "
            "module returns are in the Lab and in the snapshots of its training"
        )
    if experiment.equal == "nothing":
        return join_films(experiment.replace(sharing=kept), [film] * len(kept))
    names = {_with_widths(experiment, variant): variant for variant in kept}
    others = experiment.replace(sharing=list(names), equal="nothing")
    recorded = [names[variant] for variant in others.sharing]
    return join_films(others, [film] * len(kept), recorded)


def _with_widths(experiment: Experiment, variant: Variant) -> Variant:
    """Return a variant that names the widths which make its costs equal to those of the others."""
    adjusted, size = experiment.adjusted(variant), experiment.size
    ranked = variant if adjusted.rank is None else variant.replacing(adjusted.rank)
    widths = {name: getattr(adjusted.size, name) for name in ("d_head", "d_mlp")}
    changed = [f"{name}={n}" for name, n in widths.items() if n != getattr(size, name)]
    return Variant(" ".join([ranked, *changed]))


def inspect(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the result of an inspection; without arrays if no frame is new since the last one.

    Variants that a PyTorch module computes are left out of the views that need queries, keys and
    values.

    Raises:
        ValueError, InvalidExperiment: If the example, layer or head does not exist, or if no
            variant is left.
    """
    film = shown_film(film, inspection.view).after(inspection.since)
    if not film.frames:
        return InspectionResult(header_of(film, inspection), {}, {})
    return VIEWS[inspection.view](film, inspection)
