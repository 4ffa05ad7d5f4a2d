"""Baselines that train one model at a time.

Loops start with the parameters of a cohort and train on its batches, which are drawn in advance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.model.model import Model
from attnkit.tasks import NOTHING
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.variants import Variant
from attnkit.variants.sharing import ROLES

CPU = torch.device("cpu")


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


class Transformer:
    """One run, with the initial parameters that it has in a cohort, and its optimiser."""

    def __init__(
        self, experiment: Experiment, sharing: Variant, seed: int, *, fused: bool = False
    ) -> None:
        self.task, self.size = experiment.task, experiment.size
        self.sharing, self.n_steps = Variant(sharing).sharing, 0
        settings = {"sharing": (Variant(sharing),), "n_seeds": 1, "first_seed": seed}
        model = Model(experiment.model_copy(update=settings), [seed], CPU)
        self.weights = {
            name: value.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
            for name, value in model.run_parameters(0).items()
        }
        parameters = [*self.weights.values(), *self.made_blocks()]
        rate = experiment.training.learning_rate
        self.optimiser = torch.optim.Adam(parameters, lr=rate, fused=fused or None)

    def made_blocks(self) -> list[Tensor]:
        """Prepare the layers, and return the parameters that they have besides the weights."""
        return []

    def blocks(self, x: Float[Tensor, "b i m"]) -> Float[Tensor, "b i m"]:
        """Return the residual stream after pre-norm layers whose tied roles are projected once."""
        weights, owners = self.weights, {role: self.sharing.owner(role) for role in ROLES}
        for layer in range(self.size.n_layers):
            normed = _norm(x)
            projected = {
                role: (normed @ weights[f"{layer}.W_{role}"])
                .unflatten(-1, (self.size.n_heads, self.size.d_head))
                .transpose(1, 2)  # (b, h, i, d)
                for role in dict.fromkeys(owners.values())
            }
            q, k, v = (projected[owners[role]] for role in ROLES)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=self.size.causal)
            x = x + z.transpose(1, 2).flatten(2) @ weights[f"{layer}.W_O"]
            if self.size.d_mlp:
                inner = F.gelu(_norm(x) @ weights[f"{layer}.W_in"])
                x = x + inner @ weights[f"{layer}.W_out"]
        return x

    def logits(self, tokens: Int64[Tensor, "b i fields"]) -> Float[Tensor, "b a c"]:
        """Return the logits of the answering positions."""
        x = F.embedding(tokens, self.weights["W_E"]).sum(2)
        if self.size.positions == "learned":
            x = x + self.weights["W_pos"]
        return _norm(self.blocks(x)[:, self.task.answers_from :]) @ self.weights["W_U"]

    def train_on(self, batches: list[tuple[Tensor, Tensor]], n_steps: int) -> None:
        """Take so many steps, batch after batch, again and again."""
        for _ in range(n_steps):
            tokens, labels = batches[self.n_steps % len(batches)]
            self.n_steps += 1
            loss = _loss(self.logits(tokens), labels)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()


class PeerTransformer(Transformer):
    """Transformer with layers of x-transformers (lucidrains), which cannot tie roles."""

    def made_blocks(self) -> list[Tensor]:
        """Make layers of the same sizes, with their own initial parameters."""
        from x_transformers.x_transformers import AttentionLayers

        self.layers = AttentionLayers(
            dim=self.size.d_model,
            depth=self.size.n_layers,
            heads=self.size.n_heads,
            attn_dim_head=self.size.d_head,
            causal=self.size.causal,
            use_simple_rmsnorm=True,
            only_attn=not self.size.d_mlp,
            attn_flash=True,
            ff_mult=self.size.d_mlp / self.size.d_model,
            ff_no_bias=True,
            verbose=False,
        )
        return list(self.layers.parameters())

    def blocks(self, x: Float[Tensor, "b i m"]) -> Float[Tensor, "b i m"]:
        """Return the residual stream after the layers."""
        after: Tensor = self.layers(x)
        return after


class Loop:
    """Loop that trains the runs of some seeds one after another; a fused Adam is one call."""

    def __init__(
        self,
        experiment: Experiment,
        seeds: list[int],
        make: Callable[..., Transformer] = Transformer,
        fused: bool = False,
    ) -> None:
        self._experiment, self._seeds = experiment, seeds
        self._make = partial(make, experiment, fused=fused)
        self._models: dict[tuple[Variant, int], Transformer] = {}
        self._batches = {seed: _first_batches(experiment, seed, 16) for seed in seeds[:2]}
        self._round = 0

    def run(self, n_steps: int) -> int:
        """Train all sharings of the next seed, and return the number of model-steps."""
        seed = self._seeds[self._round % len(self._batches)]
        self._round += 1
        for sharing in self._experiment.sharing:
            if (run := (sharing, seed)) not in self._models:
                self._models[run] = self._make(sharing, seed)
            self._models[run].train_on(self._batches[seed], n_steps)
        return n_steps * len(self._experiment.sharing)

    def losses(self, n_steps: int) -> dict[str, float]:
        """Return the held-out losses of the first seed's runs after their first `n_steps` steps."""
        seed = self._seeds[0]
        batches = _first_batches(self._experiment, seed, n_steps)
        held_out = held_out_examples(self._experiment, [seed], CPU)
        losses = {}
        for sharing in self._experiment.sharing:
            model = self._make(sharing, seed)
            model.train_on(batches, n_steps)
            with torch.no_grad():
                loss = _loss(model.logits(held_out.tokens[0]), held_out.labels[0])
            losses[sharing.value] = float(loss)
        return losses


def _loss(logits: Float[Tensor, "b a c"], labels: Int64[Tensor, "b a"]) -> Tensor:
    """Return the mean cross-entropy over the labelled positions."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)


def _first_batches(experiment: Experiment, seed: int, n_steps: int) -> list[tuple[Tensor, Tensor]]:
    data = TrainingData(experiment, [seed], CPU)
    batches = (data.next() for _ in range(n_steps))
    return [(tokens[0].contiguous(), labels[0].contiguous()) for tokens, labels in batches]
