"""The toy transformer: one computation for all runs of a cohort.

Every parameter has a run axis. Runs are ordered by variant, then seed. Variants whose attention is
that of a plain partition, with the same heads and mask, stand together in `COHORT_ORDER`, so that
the runs that own a W_K, and those that own a W_V, are contiguous: a tied parameter is really
absent, and who reads the same matrix are neighbours. Every other variant is a group of its own.
Only attention goes by groups, and MLPs by widths; all else is one batched computation.

Lean blocks are pre-norm with RMSNorm without gain (a gain before a linear map is absorbed in it)
and have no biases. Standard blocks are those of PyTorch, with LayerNorm before each and none before
the read-out, with which the results of arXiv 2606.04032's re-run come out. Embeddings and read-out
are laid out `[seeds·vocab, variants·d_model]` and `[runs, d_model, classes]`: one lookup serves all
variants of a seed.

Index letters: `r` run, `v` variant, `s` seed, `b` batch, `i` query position, `j` key position,
`h` head, `m` d_model, `d` d_head, `f` d_mlp, `c` class, `t` = b·i flattened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.architecture import Place
from attnkit.attention import Attention, Layer
from attnkit.blocks import Embedding, Layout, Mlp, Norm, Parameter, ReadOut
from attnkit.experiment import Experiment
from attnkit.initial import generator_for, initial_numbers, weight_outside
from attnkit.level import Level
from attnkit.parameters import TABLE, Parameters
from attnkit.sharing import ROLES, Role, Sharing
from attnkit.variants import Variant, Wiring
from attnkit.variants.positions import POSITIONS
from attnkit.wired import Heads, WiredAttention

COHORT_ORDER = (Sharing.Q_K, Sharing.QKV, Sharing.K_V, Sharing.Q_V, Sharing.Q_K_V)

SELF_MASK = -1e5
"""Added to a token's score with itself: soft, so a token with no other target still sees itself."""


@dataclass(frozen=True)
class Group:
    """Neighbouring runs whose attention is one computation.

    Attributes:
        runs: where they stand. forms: the variants they are of, several only if they are plain.
        wiring: of the first; all of a group agree in heads, their width and the self-mask.
    """

    runs: slice
    forms: tuple[Variant, ...]
    wiring: Wiring

    @property
    def plain(self) -> bool:
        """Whether it is attention of plain partitions."""
        return self.wiring.plain


class Model:
    """The runs of one cohort as one batched transformer.

    Args:
        experiment: its variants, sizes and task decide every shape.
        seeds: those of the experiment's seeds that are in this cohort.
        device: where the parameters live.
        sharing: those of the experiment's variants that are in this cohort; None: all.
        tied: those of the variants that are tied during training and have been by now.
        embedding_frozen: whether no training step changes the embedding any more.
        drawn: whether initial numbers are drawn; otherwise all are to be filled in.

    Attributes:
        places: the attention layers.
        variants: the experiment's, in cohort order. forms: what each of them is at this stage.
        wirings: variant → what its attention computes at this stage.
        groups: the runs whose attention is computed together.
        numbers: all parameters as one vector, of which `parameters` are views.
        gradient: that of `numbers` after `differentiate`; `gradients` are its views by name.
        embedding, levels, read_out: the parts that a batch goes through, one after another.
        parameters: name → tensor. `W_E` is (s·vocab, v·m); all others lead with the runs that
            own them. A name that several groups have is numbered from the second on.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        *,
        sharing: Sequence[Variant] | None = None,
        tied: Collection[Variant] = (),
        embedding_frozen: bool = False,
        drawn: bool = True,
    ) -> None:
        self.size = experiment.size
        self.task = experiment.task
        self.places = experiment.places
        self.device = device
        self.seeds = list(seeds)
        chosen = experiment.sharing if sharing is None else tuple(sharing)
        forms = {v: v.stages[-1 if v in tied else 0] for v in chosen}
        self.wirings = {v: experiment.wiring(v, form) for v, form in forms.items()}
        self.variants = sorted(forms, key=lambda v: (self._rank(self.wirings[v], forms[v]), v))
        self.forms = [forms[variant] for variant in self.variants]
        self.n_runs = len(self.variants) * len(self.seeds)
        self.to_experiment_order = [
            self.variants.index(variant) * len(self.seeds) + s
            for variant in chosen
            for s in range(len(self.seeds))
        ]
        self.groups = self._make_groups()
        n_variants, width = len(self.variants), self.size.d_model
        self._all = Parameters(
            len(self.seeds), n_variants, self.task.d_vocab, width, list(self._slabs()), device
        )
        if drawn:
            self._initialise()
        self.numbers, self.gradient = self._all.numbers, self._all.gradient
        self.parameters = self._all.by_name(self.numbers)
        self.gradients = self._all.by_name(self.gradient)
        self._movable = self._find_movable(embedding_frozen)
        self.levels: list[Level] = []
        for layer in range(len(self.places)):
            self.levels.append(self._build_layer(layer))
        columns, everyone = Layout(tuple(self.sharings), len(self.seeds)), slice(0, self.n_runs)
        b_e = self._all.of_runs("b_E", everyone) if self._standard else None
        self.embedding = Embedding(columns, self._all.table(), self._segments("W_pos"), b_e)
        w_u = self._linear("W_U", everyone)
        norm = None if self._standard else Norm()
        self.read_out = ReadOut(columns, norm, w_u, sparse=self.task.sparse)

    @property
    def sharings(self) -> list[Sharing]:
        """The partition of every variant, in cohort order."""
        return [form.sharing for form in self.forms]

    @torch.no_grad()
    def logits(
        self, tokens: Int64[Tensor, "s b i fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "r b a c"]:
        """Answer a batch per seed with every run.

        Args:
            tokens: one batch per seed, shared by the seed's variants.
            layers: if given, the scores and the pattern of every layer are appended, those of
                all `groups` of a layer one after another.
        """
        x, _ = self.embedding.forward(tokens)
        for level in self.levels:
            x, _ = level.forward(x, layers)
        if layers is not None or self.task.n_source:  # all positions are there, some answer
            x = self._answers(x, tokens.shape[2]).flatten(1, 2)
        logits, _ = self.read_out.forward(x)
        return logits.view(self.n_runs, tokens.shape[1], -1, logits.shape[-1])

    def differentiate(
        self, tokens: Int64[Tensor, "s b i fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Put the gradient of every run's mean cross-entropy into `gradient`."""
        x, looked_up = self.embedding.forward(tokens)
        steps: list[Any] = []
        for level in self.levels:
            x, saved = level.forward(x)
            steps.append(saved)
        answers = self._answers(x, tokens.shape[2]) if self.task.n_source else None
        logits, read = self.read_out.forward(x if answers is None else answers.flatten(1, 2))
        dx = self.read_out.backward(logits, labels, read)
        if answers is not None:
            d_answers, dx = dx, torch.zeros_like(x)
            self._answers(dx, tokens.shape[2]).copy_(d_answers.view(answers.shape))
        for level in reversed(self.levels):
            dx = level.backward(dx, steps.pop())  # freed as soon as it is used
        self.embedding.backward(dx, looked_up)
        if self._movable is not None:
            self.gradient.mul_(self._movable)

    def clip(self, largest: float) -> None:
        """Shorten every run's gradient to this norm if it is longer."""
        self._all.clip(largest)

    def run_parameters(self, run: int, vector: Tensor | None = None) -> dict[str, Tensor]:
        """Views of the parameters that exist for one run (in cohort order), without the run axis.

        Args:
            vector: another vector with a number for every parameter; None: `numbers`.
        """
        return self._all.of_run(run, self.numbers if vector is None else vector)

    def rates(self, of: Callable[[Variant], float]) -> tuple[list[float], Tensor | None]:
        """The different values that variants have, and for each of `numbers` which one it takes.

        None in place of the latter if there is but one.
        """
        values = sorted({of(variant) for variant in self.variants})
        if len(values) == 1:
            return values, None
        index = torch.zeros(len(self.numbers), dtype=torch.int64, device=self.device)
        for run in range(self.n_runs):
            place = values.index(of(self.variants[run // len(self.seeds)]))
            for view in self.run_parameters(run, index).values():
                view.fill_(place)
        return values, index

    def role_weights(self, layer: int, role: Role) -> list[Float[Tensor, "r h m d"]]:
        """The matrix that each run's heads use for a role, tied or not, one tensor for each group.

        Where rules beyond a fixed matrix act (unit keys, turned vectors), that before them.
        """
        return [self._role_weights(group, layer, role) for group in self.groups]

    def heads(self, layer: int, group: Group) -> Heads:
        """What a layer computes for a group of one variant."""
        return self._heads(group, layer, lambda parameter: parameter.value)

    def mask(self, group: Group, place: Place) -> Float[Tensor, "i j"] | None:
        """What is added to a group's scores in one layer."""
        self_mask = group.wiring.sizes.self_mask and place.square
        if not (place.causal or self_mask):
            return None
        n_looks = place.looks[1] - place.looks[0]
        mask = torch.zeros(n_looks, n_looks, device=self.device)
        if place.causal:
            future = torch.ones(n_looks, n_looks, dtype=torch.bool, device=self.device).triu(1)
            mask = mask.masked_fill(future, -math.inf)
        if self_mask:
            mask = mask + SELF_MASK * torch.eye(n_looks, device=self.device)
        return mask

    @property
    def _standard(self) -> bool:
        return self.size.blocks == "standard"

    def _answers(self, x: Float[Tensor, "r t m"], n_ctx: int) -> Float[Tensor, "r b a m"]:
        """A view of the rows that answer, among those of all positions."""
        rows: Tensor = x.unflatten(1, (-1, n_ctx))[:, :, self.task.answers_from :]
        return rows

    @staticmethod
    def _rank(wiring: Wiring, form: Variant) -> tuple[Any, ...]:
        """Where a variant's runs stand: plain ones of the same sizes first, in COHORT_ORDER."""
        return not wiring.plain, _kind(wiring), COHORT_ORDER.index(form.sharing), form

    def _make_groups(self) -> list[Group]:
        groups: list[Group] = []
        n_seeds = len(self.seeds)
        for place, form in enumerate(self.forms):
            runs = slice(place * n_seeds, (place + 1) * n_seeds)
            wiring = self.wirings[self.variants[place]]
            last = groups[-1] if groups else None
            if last and last.plain and wiring.plain and _kind(last.wiring) == _kind(wiring):
                runs = slice(last.runs.start, runs.stop)
                groups[-1] = Group(runs, (*last.forms, form), last.wiring)
            else:
                groups.append(Group(runs, (form,), wiring))
        return groups

    def _slabs(self) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
        """Every parameter besides the embedding: its name, who owns it, the shape of one."""
        width = self.size.d_model
        for runs, learned in self._pieces(lambda w: POSITIONS[w.sizes.positions].embedded):
            if learned:
                yield "W_pos", runs, (self.task.n_ctx, width)
        everyone, standard = slice(0, self.n_runs), self._standard
        if standard:
            yield "b_E", everyone, (width,)
        for layer, place in enumerate(self.places):
            for group in self.groups:
                yield from self._attention_slabs(group, layer)
            normed = [("ln1", everyone)]
            for runs, d_mlp in self._pieces(lambda wiring: wiring.sizes.d_mlp):
                if d_mlp and place.has_mlp:
                    normed.append(("ln2", runs))
                    yield f"{layer}.W_in", runs, (width, d_mlp)
                    yield f"{layer}.W_out", runs, (d_mlp, width)
                    if standard:
                        yield f"{layer}.b_in", runs, (d_mlp,)
                        yield f"{layer}.b_out", runs, (width,)
            for norm, runs in normed if standard else ():
                yield f"{layer}.{norm}.w", runs, (width,)
                yield f"{layer}.{norm}.b", runs, (width,)
        yield "W_U", everyone, (width, self.task.n_classes)
        if standard:
            yield "b_U", everyone, (self.task.n_classes,)

    def _attention_slabs(
        self, group: Group, layer: int
    ) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
        if not group.plain:
            for name, full in group.wiring.names(layer).items():
                if full.startswith(f"{layer}."):  # else it is the first layer's
                    yield full, group.runs, group.wiring.weights[name].shape
            return
        layout = self._layout(group)
        for role in ROLES:
            owners = layout.owners(role)
            if owners.stop > owners.start:
                runs = slice(owners.start + group.runs.start, owners.stop + group.runs.start)
                shape = (self.size.d_model, group.wiring.n_inner)
                yield f"{layer}.W_{role}", runs, shape
                if self._standard:
                    yield f"{layer}.b_{role}", runs, shape[1:]
        yield f"{layer}.W_O", group.runs, (group.wiring.n_inner, self.size.d_model)
        if self._standard:
            yield f"{layer}.b_O", group.runs, (self.size.d_model,)

    def _layout(self, group: Group) -> Layout:
        return Layout(tuple(form.sharing for form in group.forms), len(self.seeds))

    def _pieces(self, kind: Callable[[Wiring], Any]) -> Iterator[tuple[slice, Any]]:
        """Neighbouring runs whose wirings are of one kind."""
        n_seeds, stop = len(self.seeds), 0
        for found, alike in groupby(kind(self.wirings[variant]) for variant in self.variants):
            start, stop = stop, stop + len(list(alike)) * n_seeds
            yield slice(start, stop), found

    def _segments(self, name: str) -> list[tuple[slice, Parameter]]:
        """Every slab of a name, with its runs."""
        return [
            (slab.runs, self._all.parameter(slab)) for slab in self._all.slabs if slab.name == name
        ]

    def _linear(self, name: str, runs: slice) -> Parameter:
        """The matrix of some runs that own it, and its bias where there is one."""
        found = self._all.of_runs(name, runs)
        if self._standard:
            found.bias = self._all.of_runs(name.replace("W_", "b_"), runs)
        return found

    def _norm(self, name: str, runs: slice) -> Norm:
        """The normalisation before a block of some runs."""
        if not self._standard:
            return Norm()
        return Norm(self._all.of_runs(f"{name}.w", runs), self._all.of_runs(f"{name}.b", runs))

    def _build_layer(self, layer: int) -> Level:
        place, n_ctx = self.places[layer], self.task.n_ctx
        last = layer == len(self.places) - 1 and not self.task.n_source
        first = self.task.answers_from if last else 0
        attention: list[tuple[slice, Attention | WiredAttention]] = []
        for number, group in enumerate(self.groups):
            mask = self.mask(group, place)
            if group.plain:
                attention.append((group.runs, self._plain_attention(group, layer, mask, first)))
                continue
            leader = None
            if group.wiring.leader(layer) != layer:
                block = self.levels[group.wiring.leader(layer)].attention[number][1]
                assert isinstance(block, WiredAttention)
                leader = block
            wired = WiredAttention(
                self._heads(group, layer, lambda p: p.value.detach().requires_grad_()),
                self._norm(f"{layer}.ln1", group.runs),
                self._of_group(group, layer, lambda p: p.gradient),
                mask,
                adds=group.wiring.read_above(layer),
                n_ctx=n_ctx,
                place=place,
                answers_from=first,
                leader=leader,
            )
            attention.append((group.runs, wired))
        mlps = []
        for runs, _ in self._segments(f"{layer}.W_in"):
            up, down = (self._linear(f"{layer}.W_{name}", runs) for name in ("in", "out"))
            mlps.append((runs, Mlp(self._norm(f"{layer}.ln2", runs), up, down)))
        return Level(attention, mlps, place, n_ctx)

    def _plain_attention(
        self, group: Group, layer: int, mask: Tensor | None, first: int
    ) -> Attention:
        named = {
            role: self._linear(slab.name, slab.runs)
            for role in ROLES
            for slab in self._all.slabs
            if slab.name == f"{layer}.W_{role}"
            and group.runs.start <= slab.runs.start < group.runs.stop
        }
        return Attention(
            self._layout(group),
            self._norm(f"{layer}.ln1", group.runs),
            named,
            self._linear(f"{layer}.W_O", group.runs),
            mask,
            n_ctx=self.task.n_ctx,
            n_heads=group.wiring.sizes.n_heads,
            answers_from=first,
        )

    def _heads(self, group: Group, layer: int, of: Callable[[Parameter], Tensor]) -> Heads:
        leader = group.wiring.leader(layer)
        return Heads(
            group.wiring,
            layer,
            self._of_group(group, layer, of),
            self._heads(group, leader, of) if leader != layer else None,
        )

    def _of_group(
        self, group: Group, layer: int, of: Callable[[Parameter], Tensor]
    ) -> dict[str, Tensor]:
        """Something of every parameter that a layer of a group reads, by the wiring's names."""
        return {
            name: of(self._all.parameter(self._all.find(full, group.runs)))
            for name, full in group.wiring.names(layer).items()
        }

    def _role_weights(self, group: Group, layer: int, role: Role) -> Float[Tensor, "r h m d"]:
        if not group.plain:
            n_runs = group.runs.stop - group.runs.start
            matrix = self.heads(layer, group).matrix(role).to(self.device)
            return matrix.expand(n_runs, -1, -1, -1)
        heads = (group.wiring.sizes.n_heads, group.wiring.sizes.d_k)
        pieces = []
        for runs, owner in self._layout(group).pieces(lambda sharing: sharing.owner(role)):
            start = runs.start + group.runs.start
            slab = self._all.find(f"{layer}.W_{owner}", slice(start, start + 1))
            own = slice(start - slab.runs.start, start - slab.runs.start + runs.stop - runs.start)
            pieces.append(slab.of(self.numbers)[own])
        by_head: Tensor = torch.cat(pieces).unflatten(-1, heads).transpose(1, 2)
        return by_head

    def _initialise(self) -> None:
        """Draw the initial numbers: one generator per seed and name, whoever owns the parameter."""
        for run in range(self.n_runs):
            variant, place = divmod(run, len(self.seeds))
            wiring, seed = self.wirings[self.variants[variant]], self.seeds[place]
            own = self._all.of_run(run, self._all.numbers)
            for name, value in own.items():
                shape = tuple(value.shape)
                weight = wiring.weights.get(name.partition(".")[2])
                weight = weight or weight_outside(name, shape, wiring.sizes, self.task)
                value.copy_(initial_numbers(seed, name, weight))
            fixed = self._fixed_rows(seed)
            if fixed is not None:
                ids, rows = fixed
                own[TABLE][ids] = rows.to(self.device)

    def _fixed_rows(self, seed: int) -> tuple[Tensor, Tensor] | None:
        """The embeddings that the task gives, by token."""
        generator = generator_for(seed, "fixed embedding")
        return self.task.fixed_embedding(self.size.d_model, generator)

    def _find_movable(self, embedding_frozen: bool) -> Tensor | None:
        """1 for every number that training may change, else 0; None if it may change all."""
        if not embedding_frozen and self._fixed_rows(self.seeds[0]) is None:
            return None
        movable = torch.ones_like(self.numbers)
        for run in range(self.n_runs):
            rows = self._all.of_run(run, movable)[TABLE]
            fixed = self._fixed_rows(self.seeds[run % len(self.seeds)])
            if embedding_frozen:
                rows.zero_()
            elif fixed is not None:
                rows[fixed[0]] = 0.0
        return movable


def _kind(wiring: Wiring) -> tuple[int, int, bool]:
    """What plain variants must agree in to be computed together."""
    return wiring.sizes.n_heads, wiring.sizes.d_head, wiring.sizes.self_mask
