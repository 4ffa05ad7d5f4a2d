"""Drawing data of one head: W_Q W_Kᵀ, its spectra, and the angles between subspaces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.analysis.similarity import cosines_between
from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.gram import bases_of
from attnkit.realmodels.measures import PAIRS, is_finite

AXES = 16
"""Maximum number of rows and columns of `Portrait.matrix`."""


@dataclass(frozen=True, eq=False)
class Portrait:
    """Drawing data of one head, about M = W_Q W_Kᵀ and its subspaces.

    Attributes:
        singular: Singular values of M, largest first.
        symmetric: Eigenvalues of (M + Mᵀ)/2 that can differ from 0, largest first.
        skew: ω of each pair ±iω of eigenvalues of (M − Mᵀ)/2, largest first.
        angles: Cosines of the principal angles, largest first, by pair, such as "qk".
        matrix: M in the directions where it is largest, rotated so that its symmetric part is
            diagonal; entries off the diagonal are skew.
        shown: Share of ‖M‖² that is in `matrix`, from 0 to 1.
    """

    singular: Float[Array, " d"]
    symmetric: Float[Array, " 2*d"]
    skew: Float[Array, " d"]
    angles: dict[str, Float[Array, " d"]]
    matrix: Float[Array, "k k"]
    shown: float


def portraits_of(layer: Projections) -> list[Portrait] | None:
    """Return the portrait of every query head of a layer that was `prepared`.

    None if W_Q and W_K read residual streams of different widths, or if weights are infinite.
    Portraits of two streams of one width exist, although the coordinates of such streams need not
    be comparable.
    """
    if layer.W_Q.shape[1] != layer.W_K.shape[1]:
        return None
    if not all(map(is_finite, (layer.W_Q, layer.W_K, layer.W_V))):
        return None
    per_group = len(layer.W_Q) // len(layer.W_K)
    bases_k, bases_v = bases_of(layer.W_K), bases_of(layer.W_V)
    portraits = []
    for head in range(len(layer.W_Q)):
        group, q = head // per_group, layer.W_Q[head]
        bases = {"q": bases_of(q[None])[0], "k": bases_k[group], "v": bases_v[group]}
        angles = {pair: cosines_between(bases[pair[0]], bases[pair[1]]) for pair in PAIRS}
        portraits.append(_portrait(q, layer.W_K[group], angles))
    return portraits


def _portrait(q: Float[Array, "m d"], k: Float[Array, "m d"], angles: dict[str, Array]) -> Portrait:
    d = q.shape[1]
    basis, _ = np.linalg.qr(np.concatenate([q, k], 1).astype(np.float64))
    core = (basis.T @ q) @ (basis.T @ k).T  # M in the subspace that Q and K read together
    symmetric, skew = (core + core.T) / 2, (core - core.T) / 2
    size = float((core**2).sum())
    _, axes = np.linalg.eigh(core @ core.T + core.T @ core)
    axes = axes[:, ::-1][:, :AXES]
    values, rotation = np.linalg.eigh(axes.T @ symmetric @ axes)
    axes = axes @ rotation[:, np.argsort(-np.abs(values))]
    matrix = axes.T @ core @ axes
    return Portrait(
        singular=np.linalg.svd(core, compute_uv=False)[:d],
        symmetric=np.linalg.eigvalsh(symmetric)[::-1],
        skew=np.linalg.svd(skew, compute_uv=False)[::2][:d],
        angles=angles,
        matrix=matrix,
        shown=float((matrix**2).sum()) / size if size > 0 else float("nan"),
    )
