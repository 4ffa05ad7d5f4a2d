"""Where the numbers of a run lie, and what the kernel computes with them.

Everything that the kernel reads or writes is found here and checked here: afterwards no bounds are
checked any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnkit.experiment.layer_specs import LayerSpec
from attnkit.model.kernel.rows import padded
from attnkit.model.kernel.tables import LAYER, MATRIX, NONE, RUN
from attnkit.tasks import Task
from attnkit.variants.position_rules import RotaryPositions
from attnkit.variants.rules import Rule
from attnkit.variants.scores import UnitKeyOption
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.size import ALIGNED
from attnkit.variants.wiring import TOKEN, Wiring

ROWS_TOGETHER = 64
"""Rows of a chunk, about: enough for the products, few enough for the cache."""

Offsets = Mapping[str, tuple[int, tuple[int, ...]]]
"""Name of a parameter → its place in the run's numbers, and its shape."""


@dataclass
class _Memory:
    """Scratch memory as it is given out: every buffer on a cache line, with a gap behind it.

    Attributes:
        size: floats so far. gaps: places of gaps, which a test fills and looks at again.
    """

    size: int = 0
    gaps: list[int] = field(default_factory=list)

    def take(self, *shape: int) -> int:
        """Return the place of a new buffer."""
        start, n_numbers = self.size, padded(math.prod(shape))
        stop = start + n_numbers
        self.gaps.append(stop)
        self.size = stop + 1 + -(stop + 1) % ALIGNED
        return start


@dataclass(frozen=True, eq=False)
class Description:
    """Tables of one variant that the kernel is called with, besides numbers and examples.

    Attributes:
        run, matrices, layers: those of `attnkit.model.kernel.tables`; `run` has one row.
        gaps: places in scratch memory that nothing may write to.
        shapes: for each layer (h, i, j) of its scores.
    """

    run: np.ndarray
    matrices: np.ndarray
    layers: np.ndarray
    gaps: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three tables, in the order in which the kernel takes them."""
        return self.run, self.matrices, self.layers

    @property
    def n_scratch(self) -> int:
        """Numbers of scratch memory."""
        return int(self.run[0]["n_scratch"])

    @property
    def n_recorded(self) -> int:
        """Scores and pattern of one example over all layers."""
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
    """Describe the runs of one variant.

    Args:
        offsets: the places of its parameters. n_numbers: size of the run's numbers.
        all_positions: whether all positions ask in the last layer, so that its whole pattern can be
            recorded; otherwise those that answer do, where that makes no difference.

    Raises:
        ValueError: if a parameter does not fit: names it.
    """
    return _Writer(wiring, layer_specs, task, offsets, n_numbers, all_positions).write()


class _Writer:
    """Fills the tables of one description."""

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
        self.n_together = max(1, ROWS_TOGETHER // task.n_ctx)

    def write(self) -> Description:
        """Fill all tables."""
        m, n_ctx = self.wiring.sizes.d_model, self.task.n_ctx
        rows = self.n_together * n_ctx
        self.stream = self.memory.take(rows, m), self.memory.take(rows, m)
        self.last = n_ctx, *self.stream, self.task.answers_from
        layers, shapes, recorded = np.full(len(self.layer_specs), NONE, LAYER), [], 0
        for layer, (number, place) in zip(layers, enumerate(self.layer_specs), strict=True):
            for name, value in self._layer(number, place):
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
            "ln_final_w": self._place("ln_final.w", (m,)) if gain else NONE,
            "ln_final_b": self._place("ln_final.b", (m,)) if gain else NONE,
            "W_E": self._place("W_E", (task.d_vocab, m)),
            "W_pos": self._place("W_pos", (task.n_ctx, m), optional=True),
            "b_E": self._place("b_E", (m,), optional=True),
            "W_U": self._matrix("W_U", m, task.n_classes),
            "normed": normed,
            "rows": take(answers, m) if gain else normed,
            "inverse": take(answers),
            "answers": take(answers, m),
            "logits": take(answers, padded(task.n_classes)),
            "x": self.stream[0],
            "dx": self.stream[1],
            **dict(zip(("n_last", "x_last", "dx_last", "answers_in_last"), self.last, strict=True)),
            "some": take(rows, m),
            "d_some": take(rows, m),
            "d_rows": take(rows, m),
            "d_query_rows": take(rows, m),
            "d_key_rows": take(rows, m),
            "dz": take(rows, sizes.n_heads * sizes.d_v),
            "d_hidden": take(rows, sizes.d_mlp),
            "turned": take(widest_head, task.n_ctx),
            **self._waves(),
            "d_pattern": take(task.n_ctx, padded(task.n_ctx)),
        }

    def _waves(self) -> dict[str, int]:
        """Return the places of what turns rows by their positions, if anything does."""
        turns = self._has(RotaryPositions)
        n_waves, width = (self.task.n_ctx if turns else 0), self.wiring.sizes.d_k
        at = self.memory.take(max(n_waves, 1), width)
        return {"waves": at, "n_waves": n_waves, "d_turned": width}

    def _layer(self, number: int, place: LayerSpec) -> Iterator[tuple[str, Any]]:
        """Yield the columns of one layer."""
        wiring, sizes, task, take = self.wiring, self.wiring.sizes, self.task, self.memory.take
        last = number == len(self.layer_specs) - 1 and not task.n_source and not self.all_positions
        position = task.answers_from if last else 0
        queries_from, queries_to = place.query_positions[0] + position, place.query_positions[1]
        keys_from, keys_to = place.key_positions
        n_queries, n_keys = queries_to - queries_from, keys_to - keys_from
        rows, m = self.n_together * task.n_ctx, sizes.d_model
        query_rows, key_rows = self.n_together * n_queries, self.n_together * n_keys
        x, dx = self.stream
        yield from {"n_before": task.n_ctx, "x": x, "dx": dx}.items()
        if position:  # from here on there are the answering positions only
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
            "causal": int(place.causal),
            "self_mask": int(sizes.self_mask and place.square),
            "n_heads": sizes.n_heads,
            "kv_heads": sizes.kv_heads,
            "d_k": sizes.d_k,
            "d_v": sizes.d_v,
            "scale": wiring.scale,
        }.items()
        owner = {role: wiring.roles[role] for role in ROLES}
        names = wiring.names(number)  # some layers have the parameters of the first
        for role in ROLES:
            vector = wiring.vectors[owner[role]]
            narrow = None if vector.reads == TOKEN else wiring.vectors[vector.reads]
            name = names[vector.weight] if vector.weight else ""
            n_in = narrow.n_numbers if narrow else m
            yield f"W_{role}", self._matrix(name, n_in, vector.n_numbers)
            if role != "Q":
                yield f"narrow_{role}", int(narrow is not None)
            if narrow is not None:
                assert narrow.weight is not None
                yield "W_narrow", self._matrix(names[narrow.weight], m, narrow.n_numbers)
                yield "narrow", take(key_rows, narrow.n_numbers)
                yield "d_narrow", take(key_rows, narrow.n_numbers)
        yield from self._adjustments(names, query_rows, key_rows)
        yield "W_O", self._matrix(names["W_O"] if wiring.has_output else "", wiring.n_inner, m)
        normed = take(rows, m)
        yield "normed", normed
        yield "rows", take(rows, m) if sizes.standard else normed
        yield "inverse", take(rows)
        yield "query_rows", take(query_rows, m)
        yield "key_rows", take(key_rows, m)
        # Queries that are keys or values are read where those were made, if they ask there.
        q_is = next((role for role in ("K", "V") if owner[role] == owner["Q"]), "Q")
        if not place.square:
            q_is = "Q"
        v_is = "K" if owner["V"] == owner["K"] else "V"
        yield from {
            "makes_V": int(v_is == "V"),
            "makes_Q": int(q_is == "Q"),
            "q_each": n_queries if q_is == "Q" else n_keys,
            "q_first": 0 if q_is == "Q" else position,
        }.items()
        for prefix in ("", "d"):
            at = {"K": take(key_rows, sizes.kv_heads * sizes.d_k)}
            at["V"] = take(key_rows, sizes.kv_heads * sizes.d_v) if v_is == "V" else at["K"]
            at["Q"] = take(query_rows, sizes.n_heads * sizes.d_k) if q_is == "Q" else at[q_is]
            for role in ROLES:
                yield prefix + role.lower(), at[role]
        yield "pattern", take(self.n_together, sizes.n_heads, n_queries, padded(n_keys))
        yield "z", take(query_rows, wiring.n_inner)
        if sizes.standard:
            yield "ln1_w", self._place(f"{number}.ln1.w", (m,))
            yield "ln1_b", self._place(f"{number}.ln1.b", (m,))
        if sizes.d_mlp and place.has_mlp:
            yield "W_in", self._matrix(f"{number}.W_in", m, sizes.d_mlp)
            yield "W_out", self._matrix(f"{number}.W_out", sizes.d_mlp, m)
            normed = take(query_rows, m)
            yield "normed2", normed
            yield "rows2", take(query_rows, m) if sizes.standard else normed
            yield "inverse2", take(query_rows)
            yield "hidden", take(query_rows, sizes.d_mlp)
            yield "active", take(query_rows, sizes.d_mlp)
            if sizes.standard:
                yield "ln2_w", self._place(f"{number}.ln2.w", (m,))
                yield "ln2_b", self._place(f"{number}.ln2.b", (m,))

    def _adjustments(
        self, names: Mapping[str, str], query_rows: int, key_rows: int
    ) -> Iterator[tuple[str, int]]:
        """Yield what rules do to the rows of roles, and the places of adjusted rows."""
        sizes = self.wiring.sizes
        turns, unit = self._has(RotaryPositions), self._has(UnitKeyOption)
        yield from {"turns": int(turns), "unit_key": int(unit)}.items()
        shapes: dict[Role, tuple[int, int, int]] = {
            "Q": (query_rows, sizes.n_heads, sizes.d_k),
            "K": (key_rows, sizes.kv_heads, sizes.d_k),
            "V": (key_rows, sizes.kv_heads, sizes.d_v),
        }
        for role, (rows, n_heads, width) in shapes.items():
            factors, gains = f"D_{role}", f"g_{role}"
            if role == "K" and "D" in names:  # `signed` has factors of keys only
                factors = "D"
            adjusts = (turns and role != "V") or (unit and role == "K")
            if factors in names:
                yield f"D_{role}", self._place(names[factors], (n_heads, 1, width))
                adjusts = True
            if gains in names:
                yield gains, self._place(names[gains], (width,))
                adjusts = True
            for prefix in ("", "d") if adjusts else ():
                yield f"{prefix}{role.lower()}_seen", self.memory.take(rows, n_heads * width)

    def _has(self, kind: type[Rule]) -> bool:
        """Return whether the variant has a rule of this kind."""
        return any(type(rule) is kind for rule in self.wiring.rules)

    def _matrix(self, name: str, n_in: int, n_out: int) -> int:
        """Return a matrix's place in their table; one that is read twice stands there once.

        Args:
            name: empty for the identity.
        """
        if not name and n_in != n_out:
            raise ValueError(f"identity: reads {n_in} numbers and writes {n_out}")
        if not name:
            self.matrices[name] = (NONE, NONE, n_in, n_out, NONE)
        elif name not in self.matrices:
            bias = self._place(_bias_of(name), (n_out,), optional=True)
            weight = self._place(name, (n_in, n_out))
            turned = self.memory.take(n_out, n_in)
            self.matrices[name] = (weight, bias, n_in, n_out, turned)
        return list(self.matrices).index(name)

    def _place(self, name: str, shape: tuple[int, ...], *, optional: bool = False) -> int:
        """Return the place of a parameter, after checking that it lies where it should."""
        if name not in self.offsets:
            if optional:
                return NONE
            raise ValueError(f"{name}: the run has no such parameter")
        start, found = self.offsets[name]
        if tuple(found) != shape:
            raise ValueError(f"{name}: has shape {tuple(found)}, expected {shape}")
        if start < 0 or start + math.prod(shape) > self.n_numbers:
            raise ValueError(f"{name}: lies outside of the run's {self.n_numbers} numbers")
        return start


def _bias_of(weight: str) -> str:
    """Return the name of the bias of a matrix."""
    return weight.replace("W_", "b_")
