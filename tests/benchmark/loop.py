"""Baselines that train one model at a time: careful plain PyTorch, and layers of x-transformers.

Models of the plain loop start with the parameters of a cohort's run, and all loops train on its
batches, so that losses can be compared. The batches are drawn in advance, while the cohort's time
includes drawing them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from attnkit.experiment import Experiment
from attnkit.model.model import SELF_MASK, Model
from attnkit.tasks import NOTHING
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.variants import Variant

CPU = torch.device("cpu")


class Attention(nn.Module):
    """Pre-norm residual attention whose tied roles read one `nn.Linear`."""

    mask: Tensor | None

    def __init__(self, experiment: Experiment, sharing: Variant) -> None:
        super().__init__()
        size = experiment.size
        self.size = size
        self.sharing = Variant(sharing).sharing
        inner = size.n_heads * size.d_head
        owned = (role for role in ("Q", "K", "V") if self.sharing.owner(role) == role)
        self.roles = nn.ModuleDict()
        for role in owned:
            self.roles[role] = nn.Linear(size.d_model, inner, bias=False)
        self.out = nn.Linear(inner, size.d_model, bias=False)
        mask = SELF_MASK * torch.eye(experiment.task.n_ctx) if size.self_mask else None
        if mask is not None and size.causal:
            mask = mask.masked_fill(torch.ones_like(mask).triu(1).bool(), -torch.inf)
        self.register_buffer("mask", mask)

    def forward(self, x: Float[Tensor, "b i m"]) -> Float[Tensor, "b i m"]:
        """Return the residual stream after this layer."""
        normed = F.rms_norm(x, x.shape[-1:], eps=1e-6)
        heads = (self.size.n_heads, self.size.d_head)
        projected = {
            role: linear(normed).unflatten(-1, heads).transpose(1, 2)  # (b, h, i, d)
            for role, linear in self.roles.items()
        }
        q, k, v = (projected[self.sharing.owner(role)] for role in ("Q", "K", "V"))
        causal = self.size.causal and self.mask is None
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=causal)
        after: Tensor = x + self.out(z.transpose(1, 2).flatten(2))
        return after


class Mlp(nn.Module):
    """Pre-norm residual MLP."""

    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_mlp, bias=False)
        self.down = nn.Linear(d_mlp, d_model, bias=False)

    def forward(self, x: Float[Tensor, "b i m"]) -> Float[Tensor, "b i m"]:
        """Return the residual stream after this layer."""
        after: Tensor = x + self.down(F.gelu(self.up(F.rms_norm(x, x.shape[-1:], eps=1e-6))))
        return after


class Transformer(nn.Module):
    """One run, with the initial parameters that it has in a cohort."""

    def __init__(self, experiment: Experiment, sharing: Variant, seed: int) -> None:
        super().__init__()
        task, size = experiment.task, experiment.size
        self.answers_from = task.answers_from
        self.embedding = nn.Embedding(task.d_vocab, size.d_model)
        start = torch.zeros(task.n_ctx, size.d_model)
        self.positions = nn.Parameter(start) if size.positions == "learned" else None
        self.blocks: nn.Module = self.make_blocks(experiment, sharing)
        self.unembedding = nn.Linear(size.d_model, task.n_classes, bias=False)
        self.load(initial_parameters(experiment, sharing, seed))

    def make_blocks(self, experiment: Experiment, sharing: Variant) -> nn.Module:
        """Return the layers between embedding and unembedding."""
        size = experiment.size
        blocks: list[nn.Module] = []
        for _ in range(size.n_layers):
            blocks.append(Attention(experiment, sharing))
            if size.d_mlp:
                blocks.append(Mlp(size.d_model, size.d_mlp))
        return nn.Sequential(*blocks)

    @torch.no_grad()
    def load(self, parameters: dict[str, Tensor]) -> None:
        """Copy the parameters of a run."""
        self.embedding.weight.copy_(parameters["W_E"])
        self.unembedding.weight.copy_(parameters["W_U"].T)
        if self.positions is not None:
            self.positions.copy_(parameters["W_pos"])
        self.load_blocks(parameters)

    def load_blocks(self, parameters: dict[str, Tensor]) -> None:
        """Copy the parameters of the layers between embedding and unembedding."""
        layer = -1
        for block in self.blocks.children():
            if isinstance(block, Attention):
                layer += 1
                for role, linear in block.roles.items():
                    linear.weight.copy_(parameters[f"{layer}.W_{role}"].T)  # type: ignore[operator]
                block.out.weight.copy_(parameters[f"{layer}.W_O"].T)
            elif isinstance(block, Mlp):
                block.up.weight.copy_(parameters[f"{layer}.W_in"].T)
                block.down.weight.copy_(parameters[f"{layer}.W_out"].T)

    def forward(self, tokens: Int64[Tensor, "b i fields"]) -> Float[Tensor, "b a c"]:
        """Return the logits of the answering positions."""
        x = self.embedding(tokens).sum(2)
        if self.positions is not None:
            x = x + self.positions
        x = self.blocks(x)[:, self.answers_from :]
        logits: Tensor = self.unembedding(F.rms_norm(x, x.shape[-1:], eps=1e-6))
        return logits


class PeerTransformer(Transformer):
    """Transformer with layers of x-transformers (lucidrains), which cannot tie roles."""

    def make_blocks(self, experiment: Experiment, sharing: Variant) -> nn.Module:
        """Return pre-norm attention and feed-forward layers of the same sizes."""
        from x_transformers.x_transformers import AttentionLayers

        size = experiment.size
        blocks: nn.Module = AttentionLayers(
            dim=size.d_model,
            depth=size.n_layers,
            heads=size.n_heads,
            attn_dim_head=size.d_head,
            causal=size.causal,
            use_simple_rmsnorm=True,
            only_attn=not size.d_mlp,
            attn_flash=True,
            ff_mult=size.d_mlp / size.d_model,
            ff_no_bias=True,
            verbose=False,
        )
        return blocks

    def load_blocks(self, parameters: dict[str, Tensor]) -> None:
        """Keep the initial parameters of x-transformers."""


def initial_parameters(experiment: Experiment, sharing: Variant, seed: int) -> dict[str, Tensor]:
    """Return the initial parameters of one run by name."""
    settings = {"sharing": (Variant(sharing),), "n_seeds": 1, "first_seed": seed}
    model = Model(experiment.model_copy(update=settings), [seed], CPU)
    return {name: value.detach() for name, value in model.run_parameters(0).items()}


class Loop:
    """Loop that trains the runs of some seeds one after another; a fused Adam is one call."""

    def __init__(
        self,
        experiment: Experiment,
        seeds: list[int],
        make: Callable[[Experiment, Variant, int], Transformer] = Transformer,
        *,
        fused: bool = False,
    ) -> None:
        self._experiment, self._seeds, self._make = experiment, seeds, make
        self._fused, self._rate = fused, experiment.training.learning_rate
        self._trainers: dict[tuple[Variant, int], _Trainer] = {}
        self._batches = {seed: _first_batches(experiment, seed, 16) for seed in seeds[:2]}
        self._round = 0

    def run(self, n_steps: int) -> int:
        """Train all sharings of the next seed, and return the number of model-steps."""
        seed = self._seeds[self._round % len(self._batches)]
        self._round += 1
        for sharing in self._experiment.sharing:
            if (run := (sharing, seed)) not in self._trainers:
                model = self._make(self._experiment, sharing, seed)
                self._trainers[run] = _Trainer(model, self._rate, self._fused)
            self._trainers[run].train(self._batches[seed], n_steps)
        return n_steps * len(self._experiment.sharing)

    def losses(self, n_steps: int) -> dict[str, float]:
        """Return the held-out losses of the first seed's runs after their first `n_steps` steps."""
        seed = self._seeds[0]
        batches = _first_batches(self._experiment, seed, n_steps)
        held_out = held_out_examples(self._experiment, [seed], CPU)
        losses = {}
        for sharing in self._experiment.sharing:
            trainer = _Trainer(self._make(self._experiment, sharing, seed), self._rate, self._fused)
            trainer.train(batches, n_steps)
            with torch.no_grad():
                logits = trainer.model(held_out.tokens[0])
            losses[sharing.value] = float(_loss(logits, held_out.labels[0]))
        return losses


class _Trainer:
    """One model with its optimiser."""

    def __init__(self, model: Transformer, learning_rate: float, fused: bool) -> None:
        self.model = model
        options: dict[str, Any] = {"fused": True} if fused else {}
        self._optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, **options)
        self._step = 0

    def train(self, batches: list[tuple[Tensor, Tensor]], n_steps: int) -> None:
        for _ in range(n_steps):
            tokens, labels = batches[self._step % len(batches)]
            self._step += 1
            loss = _loss(self.model(tokens), labels)
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()


def _loss(logits: Float[Tensor, "b a c"], labels: Int64[Tensor, "b a"]) -> Tensor:
    """Return the mean cross-entropy over the labelled positions."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)


def _first_batches(experiment: Experiment, seed: int, n_steps: int) -> list[tuple[Tensor, Tensor]]:
    data = TrainingData(experiment, [seed], CPU)
    batches = (data.next() for _ in range(n_steps))
    return [(tokens[0].contiguous(), labels[0].contiguous()) for tokens, labels in batches]
