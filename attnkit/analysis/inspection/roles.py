"""Inputs, weights and vectors of one layer's heads in the roles Q, K and V, as numpy arrays.

The vectors of a head with several maps are concatenated. Index letters are those of
`attnkit.analysis.inspection.replay`, with `t` for a token of any example.
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
    """Inputs, weights and vectors of one layer on a batch, for the models of some frames.

    Args:
        replay: Models of the frames.
        stages: Stages of all layers, from the replay.
        layer: Index of the layer.
        frames: Slice of the replay's frames.

    Attributes:
        spec: Specification of the layer, with its query positions and key positions.
        wiring: Wiring of the variant.
        inputs: Role → rows that it is projected from, at the positions that have the role.
    """

    def __init__(
        self, replay: Replay, stages: list[Stages], layer: int, frames: slice = slice(None)
    ) -> None:
        (self.wiring,) = replay.model.wirings.values()
        current = stages[layer]
        key_leader = stages[self.wiring.leader(layer, "K")]
        value_leader = stages[self.wiring.leader(layer, "V")]
        self.spec = current.spec
        of_keys = of_values = _rows(key_leader, self.spec.key_positions, frames)
        if value_leader is not key_leader:
            of_values = _rows(value_leader, self.spec.key_positions, frames)
        of_queries = of_keys
        if current is not key_leader or not self.spec.square:
            of_queries = _rows(current, self.spec.query_positions, frames)
        self.inputs: dict[Role, Float32[np.ndarray, "f t m"]] = {
            "Q": of_queries,
            "K": of_keys,
            "V": of_values,
        }
        self._vectors = {"Q": current.q[frames], "K": current.k[frames], "V": current.v[frames]}
        self._weights = {role: replay.model.role_weights(layer, role)[0][frames] for role in ROLES}
        self._subspaces: dict[tuple[Role, int], Float64[np.ndarray, "f m d"]] = {}

    def weights(self, role: Role, head: int) -> Float32[np.ndarray, "f m d"]:
        """Return the weight matrix of a role in a head, without rules that are not linear."""
        return _concatenated(self._weights[role], 1, self.wiring, head)

    def subspace(self, role: Role, head: int) -> Float64[np.ndarray, "f m d"]:
        """Return the `column_space` of the weight matrix of a role in a head."""
        key = (role, head)
        if key not in self._subspaces:
            self._subspaces[key] = column_space(self.weights(role, head))
        return self._subspaces[key]

    def vectors(self, role: Role, head: int) -> Float32[np.ndarray, "f b n d"]:
        """Return the queries, keys or values of a head, as used for scores and read-out."""
        return _concatenated(self._vectors[role], 2, self.wiring, head)


def _rows(stages: Stages, positions: tuple[int, int], frames: slice) -> np.ndarray:
    array: np.ndarray = stages.rows[frames][:, :, slice(*positions)].flatten(1, 2).numpy()
    return array


def width_of(wiring: Wiring, role: Role) -> int:
    """Return the width of a head's vectors in a role, of all maps together."""
    width = wiring.vectors[wiring.roles[role]].width
    return width if role == "V" else width * wiring.n_maps


def _concatenated(of_maps: Tensor, axis: int, wiring: Wiring, head: int) -> np.ndarray:
    """Return the vectors of one head, those of its maps concatenated.

    Args:
        of_maps: Vectors or weights of all heads, (…, h·p, n, d).
        axis: Axis of heads and maps.
        wiring: Wiring of the variant.
        head: Index of the head.
    """
    of_head = of_maps.unflatten(axis, (wiring.sizes.n_heads, -1)).select(axis, head)
    array: np.ndarray = of_head.transpose(axis, axis + 1).flatten(axis + 1).numpy()  # (…, n, p·d)
    return array
