"""The toy transformer: one computation for all runs of a cohort.

Every parameter has a run axis. Runs are ordered by sharing, then seed, and the sharings by
`COHORT_ORDER`, so that the runs that own a W_K, and those that own a W_V, are contiguous: a
tied parameter is really absent, and assembling K and V needs no gather.

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
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.sharing import ROLES, Role, Sharing

COHORT_ORDER = (Sharing.Q_K, Sharing.QKV, Sharing.K_V, Sharing.Q_V, Sharing.Q_K_V)

SELF_MASK = -1e5
"""Added to a token's score with itself: soft, so a token with no other target still sees itself."""

_NARROW = 16
"""Width below which a single run's products are computed as a batch of two; see `_project`."""

_EMBEDDING_STD = 0.5
"""Of the sum over a token's fields, before its first RMSNorm."""


@dataclass(frozen=True)
class Layer:
    """What one layer computed, for measuring.

    Attributes:
        scores: scaled, before masks and softmax.
        pattern: after softmax.
    """

    scores: Float[Tensor, "r b h i j"]
    pattern: Float[Tensor, "r b h i j"]


class Model:
    """The runs of one cohort as one batched transformer.

    Args:
        experiment: its sharings, sizes and task decide every shape.
        seeds: those of the experiment's seeds that are in this cohort.
        device: where the parameters live.

    Attributes:
        parameters: name → tensor that requires a gradient. `W_E` is
            (s·vocab, v·m); all others lead with the runs that own them.
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
        self._slices = {role: self._slice_of_owners(role) for role in ROLES}
        self._mask = self._make_mask()
        self._offsets = torch.arange(len(self.seeds), device=device) * self.task.d_vocab
        self.parameters = {
            name: value.to(device).requires_grad_() for name, value in self._initialise().items()
        }

    def logits(
        self, tokens: Int64[Tensor, "s b i fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "r b a c"]:
        """Answer a batch per seed with every run.

        Args:
            tokens: one batch per seed, shared by the seed's sharings.
            layers: if given, each layer's scores and pattern are appended to it.
        """
        n_batch, n_ctx = tokens.shape[1:3]
        x = self._embed(tokens)  # (r, t, m)
        for layer in range(self.size.n_layers):
            x = self._attend(x, layer, n_batch, layers)
            if self.size.d_mlp:
                hidden = _project(_rms_norm(x), self.parameters[f"{layer}.W_in"])
                x = x + _project(F.gelu(hidden), self.parameters[f"{layer}.W_out"])
        x = x.unflatten(1, (n_batch, n_ctx))[:, :, self.task.answers_from :]
        out = _project(_rms_norm(x).flatten(1, 2), self.parameters["W_U"])
        return out.view(self.n_runs, n_batch, -1, out.shape[-1])

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
        return self._assemble(role, {r: self.parameters[f"{layer}.W_{r}"] for r in self._present()})

    def _present(self) -> list[Role]:
        return [role for role in ROLES if self._slices[role].stop > self._slices[role].start]

    def _slice_of_owners(self, role: Role) -> slice:
        owners = [i for i, sharing in enumerate(self.sharings) if sharing.owns(role)]
        n_seeds = len(self.seeds)
        return slice(owners[0] * n_seeds, (owners[-1] + 1) * n_seeds) if owners else slice(0, 0)

    def _owners(self, name: str) -> slice:
        """Which runs, contiguous, own the parameter of this name."""
        for role in ROLES:
            if name.endswith(f".W_{role}"):
                return self._slices[role]
        return slice(0, self.n_runs)

    def _make_mask(self) -> Float[Tensor, "1 i j"]:
        n_ctx = self.task.n_ctx
        mask = torch.zeros(1, n_ctx, n_ctx, device=self.device)
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
                parameters[name] = stacked(name, (width, inner), width**-0.5, self._slices[role])
            name = f"{layer}.W_O"
            parameters[name] = stacked(name, (inner, width), inner**-0.5, every)
            if size.d_mlp:
                name = f"{layer}.W_in"
                parameters[name] = stacked(name, (width, size.d_mlp), width**-0.5, every)
                name = f"{layer}.W_out"
                parameters[name] = stacked(name, (size.d_mlp, width), size.d_mlp**-0.5, every)
        parameters["W_U"] = stacked("W_U", (width, task.n_classes), width**-0.5, every)
        return parameters

    def _embed(self, tokens: Int64[Tensor, "s b i fields"]) -> Float[Tensor, "r t m"]:
        n_seeds, n_batch, n_ctx, n_fields = tokens.shape
        ids = tokens + self._offsets.view(-1, 1, 1, 1)
        rows = F.embedding(ids.view(-1, n_fields), self.parameters["W_E"]).sum(1)
        by_run = rows.view(n_seeds, n_batch * n_ctx, len(self.sharings), -1).permute(2, 0, 1, 3)
        x = by_run.reshape(self.n_runs, n_batch * n_ctx, -1)
        if "W_pos" in self.parameters:
            x = (x.unflatten(1, (n_batch, n_ctx)) + self.parameters["W_pos"].unsqueeze(1)).flatten(
                1, 2
            )
        return x

    def _attend(
        self, x: Float[Tensor, "r t m"], layer: int, n_batch: int, layers: list[Layer] | None
    ) -> Float[Tensor, "r t m"]:
        """One residual attention layer."""
        normed = _rms_norm(x)
        projected = {
            role: _project(normed[self._slices[role]], self.parameters[f"{layer}.W_{role}"])
            for role in self._present()
        }
        q, k, v = (self._split(self._assemble(role, projected), n_batch) for role in ROLES)
        scale = self.size.d_head**-0.5
        masked = torch.baddbmm(self._mask, q, k.transpose(1, 2), alpha=scale)  # (rbh, i, j)
        pattern = masked.softmax(-1)
        if layers is not None:
            shape = (self.n_runs, n_batch, self.size.n_heads)
            scores = torch.bmm(q, k.transpose(1, 2)) * scale
            layers.append(Layer(scores.unflatten(0, shape), pattern.unflatten(0, shape)))
        z = torch.bmm(pattern, v)  # (rbh, i, d)
        return x + _project(self._merge(z, n_batch), self.parameters[f"{layer}.W_O"])

    def _assemble(self, role: Role, owned: dict[Role, Tensor]) -> Tensor:
        """The values of one role for all runs, from those of the roles that own a parameter."""
        n_seeds = len(self.seeds)
        pieces: list[Tensor] = []
        start = 0
        while start < len(self.sharings):  # neighbours with the same owner are one piece
            owner = self.sharings[start].owner(role)
            stop = start
            while stop < len(self.sharings) and self.sharings[stop].owner(role) == owner:
                stop += 1
            first = self._slices[owner].start
            pieces.append(owned[owner][start * n_seeds - first : stop * n_seeds - first])
            start = stop
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _split(self, x: Float[Tensor, "r t hd"], n_batch: int) -> Float[Tensor, "rbh i d"]:
        size = self.size
        heads = x.view(self.n_runs, n_batch, -1, size.n_heads, size.d_head).transpose(2, 3)
        return heads.reshape(self.n_runs * n_batch * size.n_heads, -1, size.d_head)

    def _merge(self, z: Float[Tensor, "rbh i d"], n_batch: int) -> Float[Tensor, "r t hd"]:
        heads = z.view(self.n_runs, n_batch, self.size.n_heads, -1, self.size.d_head)
        return heads.transpose(2, 3).reshape(self.n_runs, -1, self.size.n_heads * self.size.d_head)


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """The generator of one (seed, purpose): independent of every other and of their number."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _normal(seed: int, name: str, shape: tuple[int, int]) -> Tensor:
    return torch.randn(shape, generator=generator_for(seed, f"initial {name}"))


def _project(x: Float[Tensor, "r t n"], w: Float[Tensor, "r n k"]) -> Float[Tensor, "r t k"]:
    """Each run's x @ w, with the same bits whatever the number of runs.

    A batch of one goes through another BLAS kernel than a larger one, and for narrow matrices the
    two round the gradient of w differently (seen for n of 5 to 11). A narrow run that is alone
    is computed twice, which costs next to nothing.
    """
    if len(x) == 1 and min(w.shape[1:]) < _NARROW:
        return torch.bmm(x.expand(2, -1, -1), w.expand(2, -1, -1))[:1]
    return torch.bmm(x, w)


def _rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
