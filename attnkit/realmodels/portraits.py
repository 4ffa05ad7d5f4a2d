"""One head from close by: W_Q W_Kᵀ in two parts, its spectra, and the angles between subspaces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.analysis.similarity import cosines_between
from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.measures import PAIRS, bases_of

AXES = 16
"""Rows of the picture of W_Q W_Kᵀ."""


@dataclass(frozen=True, eq=False)
class Portrait:
    """What the page of a head draws; M = W_Q W_Kᵀ.

    Attributes:
        singular: singular values of M, largest first.
        symmetric: eigenvalues of (M + Mᵀ)/2 that can differ from 0, largest first.
        skew: sizes of (M − Mᵀ)/2: of each pair ±iω of eigenvalues its ω, largest first.
        angles: pair, as "qk" → cosines of the principal angles, largest first.
        matrix: M in the directions where it is largest, turned so that its symmetric part is
            diagonal: what is off the diagonal is skew.
        shown: share of ‖M‖² that `matrix` has.
    """

    singular: Float[Array, " d"]
    symmetric: Float[Array, " 2*d"]
    skew: Float[Array, " d"]
    angles: dict[str, Float[Array, " d"]]
    matrix: Float[Array, "k k"]
    shown: float


def portraits_of(layer: Projections) -> list[Portrait] | None:
    """Of every query head of a layer that was `prepared`; None if it reads streams of two widths.

    Two streams of one width have portraits; whether their coordinates may be compared is another
    question.
    """
    if layer.W_Q.shape[1] != layer.W_K.shape[1]:
        return None
    repeated = len(layer.W_Q) // len(layer.W_K)
    of_k, of_v = bases_of(layer.W_K), bases_of(layer.W_V)
    found = []
    for head in range(len(layer.W_Q)):
        group, w = head // repeated, layer.W_Q[head : head + 1]
        spaces = {"q": bases_of(w)[0], "k": of_k[group], "v": of_v[group]}
        angles = {pair: cosines_between(spaces[pair[0]], spaces[pair[1]]) for pair in PAIRS}
        found.append(_portrait(w[0], layer.W_K[group], angles))
    return found


def _portrait(q: Float[Array, "m d"], k: Float[Array, "m d"], angles: dict[str, Array]) -> Portrait:
    d = q.shape[1]
    basis, _ = np.linalg.qr(np.concatenate([q, k], 1).astype(np.float64))
    core = (basis.T @ q) @ (basis.T @ k).T  # M among the directions that either reads
    even, odd = (core + core.T) / 2, (core - core.T) / 2
    size = float((core**2).sum())
    _, axes = np.linalg.eigh(core @ core.T + core.T @ core)
    axes = axes[:, ::-1][:, :AXES]
    values, turn = np.linalg.eigh(axes.T @ even @ axes)
    axes = axes @ turn[:, np.argsort(-np.abs(values))]
    matrix = axes.T @ core @ axes
    return Portrait(
        np.linalg.svd(core, compute_uv=False)[:d],
        np.linalg.eigvalsh(even)[::-1],
        np.linalg.svd(odd, compute_uv=False)[::2][:d],
        angles,
        matrix,
        float((matrix**2).sum()) / size if size > 0 else float("nan"),
    )
