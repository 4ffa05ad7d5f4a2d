"""What one layer's heads read, are and make in each role, as numpy arrays over frames.

Of several maps per head the vectors stand side by side. Index letters as in
`attnkit.analysis.inspection.replay`, with `t` token of any example.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64
from torch import Tensor

from attnkit.analysis.inspection.replay import Replay
from attnkit.analysis.similarity import column_space
from attnkit.model.reference import Stages
from attnkit.variants import Wiring
from attnkit.variants.sharing import ROLES, Role


class LayerRoles:
    """One layer of some frames' models, and what it made of a batch.

    Args:
        replay: the models. stages: all layers, as the replay gave them. layer: which of them.
        frames: which of the replay's.

    Attributes:
        spec: who asks, and who is looked at. wiring: what the layer computes.
        inputs: role → the rows that it is made of, of the positions that have it, (f, t, m).
    """

    def __init__(
        self, replay: Replay, stages: list[Stages], layer: int, frames: slice = slice(None)
    ) -> None:
        (self.wiring,) = replay.model.wirings.values()
        own, leader = stages[layer], stages[self.wiring.leader(layer)]
        self.spec = own.spec
        looked_at = _rows(leader, self.spec.key_positions, frames)
        asking = looked_at
        if own is not leader or not self.spec.square:
            asking = _rows(own, self.spec.query_positions, frames)
        self.inputs: dict[Role, Float32[np.ndarray, "f t m"]] = {
            "Q": asking,
            "K": looked_at,
            "V": looked_at,
        }
        self._vectors = {"Q": own.q[frames], "K": own.k[frames], "V": own.v[frames]}
        self._weights = {role: replay.model.role_weights(layer, role)[0][frames] for role in ROLES}
        self._subspaces: dict[tuple[Role, int], Float64[np.ndarray, "f m d"]] = {}

    def weights(self, role: Role, head: int) -> Float32[np.ndarray, "f m d"]:
        """The matrix of a role, before rules that are not linear."""
        return side_by_side(self._weights[role], 1, self.wiring, head)

    def subspace(self, role: Role, head: int) -> Float64[np.ndarray, "f m d"]:
        """What that matrix reads, as `column_space` says it."""
        key = (role, head)
        if key not in self._subspaces:
            self._subspaces[key] = column_space(self.weights(role, head))
        return self._subspaces[key]

    def vectors(self, role: Role, head: int) -> Float32[np.ndarray, "f b n d"]:
        """A role's vectors as the scores and the read-out see them."""
        return side_by_side(self._vectors[role], 2, self.wiring, head)


def _rows(stages: Stages, positions: tuple[int, int], frames: slice) -> np.ndarray:
    array: np.ndarray = stages.rows[frames][:, :, slice(*positions)].flatten(1, 2).numpy()
    return array


def width_of(wiring: Wiring, role: Role) -> int:
    """Of a head's vectors in a role."""
    of_one = wiring.vectors[wiring.roles[role]].width
    return of_one if role == "V" else of_one * wiring.n_maps


def side_by_side(of_maps: Tensor, axis: int, wiring: Wiring, head: int) -> np.ndarray:
    """One head's vectors, those of its maps joined.

    Args:
        of_maps: (…, h·p, n, d). axis: where heads and maps are.
    """
    own = of_maps.unflatten(axis, (wiring.sizes.n_heads, -1)).select(axis, head)  # (…, p, n, d)
    array: np.ndarray = own.transpose(axis, axis + 1).flatten(axis + 1).numpy()
    return array
