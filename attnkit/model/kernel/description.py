"""Writer of the kernel's tables: what a run computes, and where its numbers are in memory.

All memory offsets that the kernel uses are computed and checked here, because the compiled
functions check no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnkit.experiment.layer_specs import LayerSpec
from attnkit.model.kernel.tables import LAYER, MATRIX, NONE, RUN, padded
from attnkit.tasks import Task
from attnkit.variants.position_rules import RotaryPositions
from attnkit.variants.scores import SkewOption, UnitKeyOption
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.size import ALIGNED
from attnkit.variants.wiring import TOKEN, Rule, Wiring

ROWS_TOGETHER = 64
"""Approximate rows of a chunk: enough for fast products, few enough for the processor's cache."""

Offsets = Mapping[str, tuple[int, tuple[int, ...]]]
"""Name of a parameter → (its offset in the run's parameters, its shape)."""


@dataclass
class _Memory:
    """Allocator of scratch memory: buffers begin on cache lines, with a gap after each.

    Attributes:
        size: Number of floats that have been allocated.
        gaps: Offsets of the gaps; a test checks that nothing writes to them.
    """

    size: int = 0
    gaps: list[int] = field(default_factory=list)

    def take(self, *shape: int) -> int:
        """Allocate a buffer of this shape, and return its offset."""
        start, n_numbers = self.size, padded(math.prod(shape))
        stop = start + n_numbers
        self.gaps.append(stop)
        self.size = stop + 1 + -(stop + 1) % ALIGNED
        return start


@dataclass(frozen=True, eq=False)
class Description:
    """Tables of one variant; the kernel is called with them, with parameters and with examples.

    Attributes:
        run: Table `RUN` of `attnkit.model.kernel.tables`, with one row.
        matrices: Table `MATRIX`.
        layers: Table `LAYER`.
        gaps: Offsets in scratch memory to which nothing may write.
        shapes: Shape (h, i, j) of the scores of each layer.
    """

    run: np.ndarray
    matrices: np.ndarray
    layers: np.ndarray
    gaps: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three tables, in the order of the kernel's arguments."""
        return self.run, self.matrices, self.layers

    @property
    def n_scratch(self) -> int:
        """Size of scratch memory, in floats."""
        return int(self.run[0]["n_scratch"])

    @property
    def n_recorded(self) -> int:
        """Number of scores and pattern entries of one example, over all layers."""
        return 2 * sum(h * i * j for h, i, j in self.shapes)


def describe(
    wiring: Wiring,
    layer_specs: Sequence[LayerSpec],
    task: Task,
    offsets: Offsets,
    n_numbers: int,
    *,
    all_positions: bool = False,
) -> Description:
    """Return the tables for the runs of one variant.

    Args:
        wiring: Vectors, roles and rules of the variant's attention.
        layer_specs: Specifications of the attention layers.
        task: Task of the experiment.
        offsets: Offsets and shapes of a run's parameters.
        n_numbers: Size of a run's parameters, in floats.
        all_positions: Whether the last layer computes all query positions, so that its whole
            pattern can be recorded; otherwise it computes the answering positions where possible.

    Raises:
        ValueError: If a parameter is missing or has a wrong offset or shape; the message names it.
    """
    return _Writer(wiring, layer_specs, task, offsets, n_numbers, all_positions).write()


class _Writer:
    """Writer of the tables of one description."""

    def __init__(
        self,
        wiring: Wiring,
        layer_specs: Sequence[LayerSpec],
        task: Task,
        offsets: Offsets,
        n_numbers: int,
        all_positions: bool,
    ) -> None:
        self.wiring, self.layer_specs, self.task = wiring, layer_specs, task
        self.offsets, self.n_numbers = offsets, n_numbers
        self.all_positions = all_positions
        self.memory = _Memory()
        self.matrices: dict[str, tuple[int, ...]] = {}
        self.n_together = max(1, ROWS_TOGETHER // task.n_ctx)  # examples of a chunk

    def write(self) -> Description:
        """Write all tables."""
        m, n_ctx = self.wiring.sizes.d_model, self.task.n_ctx
        rows = self.n_together * n_ctx
        self.stream = self.memory.take(rows, m), self.memory.take(rows, m)
        self.last = n_ctx, *self.stream, self.task.answers_from
        layers, shapes, recorded = np.full(len(self.layer_specs), NONE, LAYER), [], 0
        for layer, (number, spec) in zip(layers, enumerate(self.layer_specs), strict=True):
            for name, value in self._layer(number, spec):
                layer[name] = value
            shapes.append(tuple(int(layer[name]) for name in ("n_heads", "n_queries", "n_keys")))
            layer["recorded"] = recorded
            recorded += 2 * math.prod(shapes[-1])
        run = np.full(1, NONE, RUN)
        for name, value in self._run().items():
            run[0][name] = value
        run[0]["n_scratch"] = self.memory.size
        matrices = np.array(list(self.matrices.values()), MATRIX)
        return Description(run, matrices, layers, tuple(self.memory.gaps), tuple(shapes))

    def _run(self) -> dict[str, int]:
        task, sizes, take = self.task, self.wiring.sizes, self.memory.take
        m, gain = sizes.d_model, sizes.standard and sizes.final_norm
        rows, n_answers = self.n_together * task.n_ctx, task.n_ctx - task.answers_from
        answers = self.n_together * n_answers
        widest_head = max(sizes.d_k, sizes.d_v)
        normed = take(answers, m)
        return {
            "n_ctx": task.n_ctx,
            "n_fields": task.n_fields,
            "d_model": m,
            "d_vocab": task.d_vocab,
            "n_classes": task.n_classes,
            "answers_from": task.answers_from,
            "n_together": self.n_together,
            "n_numbers": self.n_numbers,
            "final_norm": int(sizes.final_norm),
            "ln_final_w": self._offset("ln_final.w", (m,)) if gain else NONE,
            "ln_final_b": self._offset("ln_final.b", (m,)) if gain else NONE,
            "W_E": self._offset("W_E", (task.d_vocab, m)),
            "W_pos": self._offset("W_pos", (task.n_ctx, m), optional=True),
            "b_E": self._offset("b_E", (m,), optional=True),
            "W_U": self._matrix("W_U", m, task.n_classes),
            "normed": normed,
            "rows": take(answers, m) if gain else normed,
            "inverse": take(answers),
            "answers": take(answers, m),
            "logits": take(answers, padded(task.n_classes)),
            "x": self.stream[0],
            "dx": self.stream[1],
            **dict(zip(("n_last", "x_last", "dx_last", "answers_in_last"), self.last, strict=True)),
            "x_window": take(rows, m),
            "d_window": take(rows, m),
            "d_rows": take(rows, m),
            "d_query_rows": take(rows, m),
            "d_key_rows": take(rows, m),
            "dz": take(rows, sizes.n_heads * sizes.d_v),
            "d_hidden": take(rows, sizes.d_mlp),
            "transposed_head": take(widest_head, task.n_ctx),
            **self._rotations(),
            "d_pattern": take(task.n_ctx, padded(task.n_ctx)),
        }

    def _rotations(self) -> dict[str, int]:
        """Return the offset and the size of the cosines and sines of rotary positions."""
        n_rotations = self.task.n_ctx if self._has(RotaryPositions) else 0
        width = self.wiring.rotation.width or self.wiring.sizes.d_k
        offset = self.memory.take(max(n_rotations, 1), width)
        return {"rotations": offset, "n_rotations": n_rotations, "d_rotation": width}

    def _layer(self, number: int, spec: LayerSpec) -> Iterator[tuple[str, Any]]:
        """Yield the columns of one layer, as (name, value)."""
        wiring, sizes, task, take = self.wiring, self.wiring.sizes, self.task, self.memory.take
        last = number == len(self.layer_specs) - 1 and not task.n_source and not self.all_positions
        position = task.answers_from if last else 0
        queries_from, queries_to = spec.query_positions[0] + position, spec.query_positions[1]
        keys_from, keys_to = spec.key_positions
        n_queries, n_keys = queries_to - queries_from, keys_to - keys_from
        rows, m = self.n_together * task.n_ctx, sizes.d_model
        query_rows, key_rows = self.n_together * n_queries, self.n_together * n_keys
        x, dx = self.stream
        yield from {"n_before": task.n_ctx, "x": x, "dx": dx}.items()
        if position:  # from here on the stream has the answering positions only
            x, dx = take(query_rows, m), take(query_rows, m)
            self.last = n_queries, x, dx, 0
        yield from {"n_after": self.last[0], "x_after": x, "dx_after": dx}.items()
        yield "after_from", 0 if position else queries_from
        yield from {
            "queries_from": queries_from,
            "n_queries": n_queries,
            "keys_from": keys_from,
            "n_keys": n_keys,
            "position": position,
            "causal": int(spec.causal),
            "self_mask": int(sizes.self_mask and spec.square),
            "n_heads": sizes.n_heads,
            "kv_heads": sizes.kv_heads,
            "d_k": sizes.d_k,
            "d_v": sizes.d_v,
            "scale": wiring.scale,
        }.items()
        names = wiring.names(number)  # layers may share parameters
        yield from self._projections(names, key_rows)
        yield from self._adjustments(names, query_rows, key_rows)
        yield "W_O", self._matrix(names["W_O"] if wiring.has_output else "", wiring.n_inner, m)
        normed = take(rows, m)
        yield "normed", normed
        yield "rows", take(rows, m) if sizes.standard else normed
        yield "inverse", take(rows)
        yield "query_rows", take(query_rows, m)
        yield "key_rows", take(key_rows, m)
        yield from self._role_rows(spec, position, n_queries, n_keys)
        yield "pattern", take(self.n_together, sizes.n_heads, n_queries, padded(n_keys))
        yield "z", take(query_rows, wiring.n_inner)
        if sizes.standard:
            yield "ln1_w", self._offset(f"{number}.ln1.w", (m,))
            yield "ln1_b", self._offset(f"{number}.ln1.b", (m,))
        if sizes.d_mlp and spec.has_mlp:
            yield from self._mlp(number, query_rows)

    def _projections(self, names: Mapping[str, str], key_rows: int) -> Iterator[tuple[str, int]]:
        """Yield the matrices of the roles, and the narrow vector that roles may read."""
        m = self.wiring.sizes.d_model
        for role in ROLES:
            vector = self.wiring.vectors[self.wiring.roles[role]]
            narrow = None if vector.reads == TOKEN else self.wiring.vectors[vector.reads]
            name = names[vector.weight] if vector.weight else ""
            n_in = narrow.n_numbers if narrow else m
            yield f"W_{role}", self._matrix(name, n_in, vector.n_numbers)
            if role != "Q":
                yield f"narrow_{role}", int(narrow is not None)
            if narrow is not None:
                assert narrow.weight is not None
                yield "W_narrow", self._matrix(names[narrow.weight], m, narrow.n_numbers)
                yield "narrow", self.memory.take(key_rows, narrow.n_numbers)
                yield "d_narrow", self.memory.take(key_rows, narrow.n_numbers)

    def _role_rows(
        self, spec: LayerSpec, position: int, n_queries: int, n_keys: int
    ) -> Iterator[tuple[str, int]]:
        """Yield the offsets of the rows of roles and of their gradients; tied roles share them.

        Args:
            position: Position of the first query in its sequence.
        """
        sizes, take, owner = self.wiring.sizes, self.memory.take, self.wiring.roles
        query_rows, key_rows = self.n_together * n_queries, self.n_together * n_keys
        # Tied queries read the rows of keys or values, if these have the same positions.
        q_owner = next((role for role in ("K", "V") if owner[role] == owner["Q"]), "Q")
        if not spec.square:
            q_owner = "Q"
        v_owner = "K" if owner["V"] == owner["K"] else "V"
        yield from {
            "projects_V": int(v_owner == "V"),
            "projects_Q": int(q_owner == "Q"),
            "n_q_rows": n_queries if q_owner == "Q" else n_keys,
            "first_q_row": 0 if q_owner == "Q" else position,
        }.items()
        for prefix in ("", "d"):
            offsets = {"K": take(key_rows, sizes.kv_heads * sizes.d_k)}
            offsets["V"] = (
                take(key_rows, sizes.kv_heads * sizes.d_v) if v_owner == "V" else offsets["K"]
            )
            offsets["Q"] = (
                take(query_rows, sizes.n_heads * sizes.d_k) if q_owner == "Q" else offsets[q_owner]
            )
            for role in ROLES:
                yield prefix + role.lower(), offsets[role]

    def _mlp(self, number: int, query_rows: int) -> Iterator[tuple[str, int]]:
        """Yield the columns of a layer's MLP."""
        sizes, take = self.wiring.sizes, self.memory.take
        m = sizes.d_model
        yield "W_in", self._matrix(f"{number}.W_in", m, sizes.d_mlp)
        yield "W_out", self._matrix(f"{number}.W_out", sizes.d_mlp, m)
        normed = take(query_rows, m)
        yield "normed2", normed
        yield "rows2", take(query_rows, m) if sizes.standard else normed
        yield "inverse2", take(query_rows)
        yield "hidden", take(query_rows, sizes.d_mlp)
        yield "active", take(query_rows, sizes.d_mlp)
        if sizes.standard:
            yield "ln2_w", self._offset(f"{number}.ln2.w", (m,))
            yield "ln2_b", self._offset(f"{number}.ln2.b", (m,))

    def _adjustments(
        self, names: Mapping[str, str], query_rows: int, key_rows: int
    ) -> Iterator[tuple[str, int]]:
        """Yield the adjustments of roles by rules, and the offsets of the adjusted rows."""
        sizes = self.wiring.sizes
        rotates, unit = self._has(RotaryPositions), self._has(UnitKeyOption)
        rules = self.wiring.rules
        skew = sum(rule.width(self.wiring) for rule in rules if isinstance(rule, SkewOption))
        yield from {"skew": skew, "rotates": int(rotates), "unit_key": int(unit)}.items()
        shapes: dict[Role, tuple[int, int, int]] = {
            "Q": (query_rows, sizes.n_heads, sizes.d_k),
            "K": (key_rows, sizes.kv_heads, sizes.d_k),
            "V": (key_rows, sizes.kv_heads, sizes.d_v),
        }
        for role, (rows, n_heads, width) in shapes.items():
            factors, gains = f"D_{role}", f"g_{role}"
            if role == "K" and "D" in names:  # `signed` has factors for keys only
                factors = "D"
            adjusts = (rotates and role != "V") or ((unit or skew) and role == "K")
            if factors in names:
                yield f"D_{role}", self._offset(names[factors], (n_heads, 1, width))
                adjusts = True
            if gains in names:
                yield gains, self._offset(names[gains], (width,))
                adjusts = True
            for prefix in ("", "d") if adjusts else ():
                yield f"{prefix}{role.lower()}_adjusted", self.memory.take(rows, n_heads * width)

    def _has(self, kind: type[Rule]) -> bool:
        """Return whether the variant has a rule of this kind."""
        return any(type(rule) is kind for rule in self.wiring.rules)

    def _matrix(self, name: str, n_in: int, n_out: int) -> int:
        """Return the index of a matrix in the table of matrices, and add it if it is new.

        Args:
            name: Name of the parameter; empty for the identity.
            n_in: Width of the rows that it multiplies.
            n_out: Width of the result.
        """
        if not name and n_in != n_out:
            raise ValueError(
                f"identity: got {n_in} inputs and {n_out} outputs, allowed equal numbers"
            )
        if not name:
            self.matrices[name] = (NONE, NONE, n_in, n_out, NONE)
        elif name not in self.matrices:
            bias = self._offset(_bias_of(name), (n_out,), optional=True)
            weight = self._offset(name, (n_in, n_out))
            transposed = self.memory.take(n_out, n_in)
            self.matrices[name] = (weight, bias, n_in, n_out, transposed)
        return list(self.matrices).index(name)

    def _offset(self, name: str, shape: tuple[int, ...], *, optional: bool = False) -> int:
        """Return the offset of a parameter after checking its shape and its bounds."""
        if name not in self.offsets:
            if optional:
                return NONE
            raise ValueError(f"{name}: the run has no such parameter")
        start, actual = self.offsets[name]
        if tuple(actual) != shape:
            raise ValueError(f"{name}: has shape {tuple(actual)}, expected {shape}")
        if start < 0 or start + math.prod(shape) > self.n_numbers:
            raise ValueError(f"{name}: lies outside of the run's {self.n_numbers} numbers")
        return start


def _bias_of(weight: str) -> str:
    """Return the name of a matrix's bias."""
    return weight.replace("W_", "b_")
