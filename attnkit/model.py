"""The toy transformer: one computation for all runs of a cohort.

Every parameter has a run axis. Runs are ordered by sharing, then seed, and the sharings by
`COHORT_ORDER`, so that the runs that own a W_K, and those that own a W_V, are contiguous: a
tied parameter is really absent, and who reads the same matrix are neighbours.

Blocks are pre-norm with RMSNorm without gain (a gain before a linear map is absorbed in it) and
have no biases. Embeddings and read-out are laid out `[seeds·vocab, sharings·d_model]` and
`[runs, d_model, classes]`: one lookup serves all sharings of a seed.

Index letters: `r` run, `v` sharing, `s` seed, `b` batch, `i` query position, `j` key position,
`h` head, `m` d_model, `d` d_head, `f` d_mlp, `c` class, `t` = b·i flattened.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.attention import Attention, Layer
from attnkit.blocks import Embedding, Layout, Mlp, Parameter, ReadOut
from attnkit.experiment import Experiment
from attnkit.sharing import ROLES, Role, Sharing

COHORT_ORDER = (Sharing.Q_K, Sharing.QKV, Sharing.K_V, Sharing.Q_V, Sharing.Q_K_V)

SELF_MASK = -1e5
"""Added to a token's score with itself: soft, so a token with no other target still sees itself."""

_EMBEDDING_STD = 0.5
"""Of the sum over a token's fields, before its first RMSNorm."""


class Model:
    """The runs of one cohort as one batched transformer.

    Args:
        experiment: its sharings, sizes and task decide every shape.
        seeds: those of the experiment's seeds that are in this cohort.
        device: where the parameters live.

    Attributes:
        parameters: name → tensor. `W_E` is (s·vocab, v·m); all others lead with the runs that
            own them.
        numbers: all parameters as one vector, of which `parameters` are views.
        gradient: that of `numbers` after `differentiate`; `gradients` are its views by name.
    """

    def __init__(self, experiment: Experiment, seeds: Sequence[int], device: torch.device) -> None:
        self.size = experiment.size
        self.task = experiment.task
        self.device = device
        self.seeds = list(seeds)
        self.sharings = [sharing for sharing in COHORT_ORDER if sharing in experiment.sharing]
        self.n_runs = len(self.sharings) * len(self.seeds)
        self.to_experiment_order = [
            self.sharings.index(sharing) * len(self.seeds) + s
            for sharing in experiment.sharing
            for s in range(len(self.seeds))
        ]
        self._layout = Layout(tuple(self.sharings), len(self.seeds))
        initial = self._initialise()
        self.numbers = torch.cat([value.flatten() for value in initial.values()]).to(device)
        self.gradient = torch.zeros_like(self.numbers)
        self.parameters = _views(self.numbers, initial)
        self.gradients = _views(self.gradient, initial)
        self._blocks: list[Attention | Mlp] = []
        self._embedding, self._read_out = self._build(
            {
                name: Parameter(value, self.gradients[name])
                for name, value in self.parameters.items()
            }
        )

    def logits(
        self, tokens: Int64[Tensor, "s b i fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "r b a c"]:
        """Answer a batch per seed with every run.

        Args:
            tokens: one batch per seed, shared by the seed's sharings.
            layers: if given, each layer's scores and pattern are appended to it.
        """
        x, _ = self._embedding.forward(tokens)
        for block in self._blocks:
            x, _ = block.forward(x) if isinstance(block, Mlp) else block.forward(x, layers)
        if layers is not None:  # all positions are there, some answer
            x = x.unflatten(1, tokens.shape[1:3])[:, :, self.task.answers_from :].flatten(1, 2)
        logits, _ = self._read_out.forward(x)
        return logits.view(self.n_runs, tokens.shape[1], -1, logits.shape[-1])

    def differentiate(
        self, tokens: Int64[Tensor, "s b i fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Put the gradient of every run's mean cross-entropy into `gradient`."""
        x, looked_up = self._embedding.forward(tokens)
        steps: list[tuple[Any, Any]] = []
        for block in self._blocks:
            x, saved = block.forward(x)
            steps.append((block, saved))
        logits, read = self._read_out.forward(x)
        dx = self._read_out.backward(logits, labels, read)
        while steps:
            block, saved = steps.pop()  # freed as soon as it is used
            dx = block.backward(dx, saved)
        self._embedding.backward(dx, looked_up)

    def run_parameters(self, run: int) -> dict[str, Tensor]:
        """The parameters that exist for one run (in cohort order), without the run axis."""
        n_seeds, width = len(self.seeds), self.size.d_model
        variant, seed = divmod(run, n_seeds)
        own: dict[str, Tensor] = {}
        for name, value in self.parameters.items():
            if name == "W_E":
                rows = value[seed * self.task.d_vocab : (seed + 1) * self.task.d_vocab]
                own[name] = rows[:, variant * width : (variant + 1) * width]
                continue
            owners = self._owners(name)
            if owners.start <= run < owners.stop:
                own[name] = value[run - owners.start]
        return own

    def role_weights(self, layer: int, role: Role) -> Float[Tensor, "r m hd"]:
        """The matrix each run uses for a role, tied or not."""
        pieces = []
        for runs, owner in self._layout.pieces(lambda sharing: sharing.owner(role)):
            own = self._layout.among_owners(owner, runs)
            pieces.append(self.parameters[f"{layer}.W_{owner}"][own])
        return torch.cat(pieces)

    def _present(self) -> list[Role]:
        return [role for role in ROLES if self._layout.owners(role) != slice(0, 0)]

    def _owners(self, name: str) -> slice:
        """Which runs, contiguous, own the parameter of this name."""
        for role in ROLES:
            if name.endswith(f".W_{role}"):
                return self._layout.owners(role)
        return slice(0, self.n_runs)

    def _build(self, given: dict[str, Parameter]) -> tuple[Embedding, ReadOut]:
        size, layout, mask = self.size, self._layout, self._make_mask()
        for layer in range(size.n_layers):
            attention = Attention(
                layout,
                {role: given[f"{layer}.W_{role}"] for role in self._present()},
                given[f"{layer}.W_O"],
                mask,
                n_ctx=self.task.n_ctx,
                n_heads=size.n_heads,
                answers_from=self.task.answers_from if layer == size.n_layers - 1 else 0,
            )
            self._blocks.append(attention)
            if size.d_mlp:
                self._blocks.append(Mlp(given[f"{layer}.W_in"], given[f"{layer}.W_out"]))
        embedding = Embedding(layout, given["W_E"], given.get("W_pos"))
        return embedding, ReadOut(layout, given["W_U"])

    def _make_mask(self) -> Float[Tensor, "i j"] | None:
        if not (self.size.causal or self.size.self_mask):
            return None
        n_ctx = self.task.n_ctx
        mask = torch.zeros(n_ctx, n_ctx, device=self.device)
        if self.size.causal:
            future = torch.ones(n_ctx, n_ctx, dtype=torch.bool, device=self.device).triu(1)
            mask = mask.masked_fill(future, -math.inf)
        if self.size.self_mask:
            mask = mask + SELF_MASK * torch.eye(n_ctx, device=self.device)
        return mask

    def _initialise(self) -> dict[str, Tensor]:
        size, task = self.size, self.task
        width, inner = size.d_model, size.n_heads * size.d_head
        every = slice(0, self.n_runs)

        def stacked(name: str, shape: tuple[int, int], std: float, owners: slice) -> Tensor:
            n_seeds = len(self.seeds)
            per_seed = [_normal(seed, name, shape) * std for seed in self.seeds]
            return torch.stack(per_seed).repeat((owners.stop - owners.start) // n_seeds, 1, 1)

        table_std = _EMBEDDING_STD / math.sqrt(task.n_fields)
        tables = [_normal(seed, "W_E", (task.d_vocab, width)) * table_std for seed in self.seeds]
        parameters = {"W_E": torch.cat(tables).repeat(1, len(self.sharings))}
        if size.positions == "learned":
            parameters["W_pos"] = stacked("W_pos", (task.n_ctx, width), _EMBEDDING_STD, every)
        for layer in range(size.n_layers):
            for role in self._present():
                name = f"{layer}.W_{role}"
                parameters[name] = stacked(
                    name, (width, inner), width**-0.5, self._layout.owners(role)
                )
            name = f"{layer}.W_O"
            parameters[name] = stacked(name, (inner, width), inner**-0.5, every)
            if size.d_mlp:
                name = f"{layer}.W_in"
                parameters[name] = stacked(name, (width, size.d_mlp), width**-0.5, every)
                name = f"{layer}.W_out"
                parameters[name] = stacked(name, (size.d_mlp, width), size.d_mlp**-0.5, every)
        parameters["W_U"] = stacked("W_U", (width, task.n_classes), width**-0.5, every)
        return parameters


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """The generator of one (seed, purpose): independent of every other and of their number."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _normal(seed: int, name: str, shape: tuple[int, int]) -> Tensor:
    return torch.randn(shape, generator=generator_for(seed, f"initial {name}"))


def _views(flat: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Consecutive parts of a vector, with the names and shapes of `like`."""
    parts = flat.split([value.numel() for value in like.values()])
    return {
        name: part.view(value.shape)
        for (name, value), part in zip(like.items(), parts, strict=True)
    }
