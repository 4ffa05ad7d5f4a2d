"""Attribution of one score to parts of two tokens, and of one answer to the values of tokens.

All numbers are computed in double precision, and the sums are exact. What is not linear is frozen
at its value: the sizes by which norms divide, and the pattern. The sentences say which parts make a
score, in both directions, and an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.analysis.inspection.inspected_example import InspectedExample
from attnkit.analysis.inspection.replay import Replay
from attnkit.foundation.words import first_true
from attnkit.model.parts import position_bias, split_output, split_scores, split_vectors
from attnkit.model.reference import Stages, Transformer
from attnkit.tasks import NOTHING
from attnkit.training.summary import two_decimals
from attnkit.variants.sharing import Role

NEAR = 1e-6
"""Largest difference between a sum of parts and the whole, relative to the largest part."""

MASKED = -5e4
"""Half of the soft mask: scores that a mask lowers by more are hidden."""

SAME = 1e-6
"""Largest difference between the amounts of two directions that count as equal, of the largest."""

NO_SUM = (
    "The scores or outputs of this variant are no sums over parts of tokens, because one of its "
    "rules is not linear apart from a norm."
)

NO_ATTRIBUTION: dict[str, Any] = {
    "note": "",
    "parts": {"query": [], "key": []},
    "direct": [],
    "layers": [],
    "hidden": False,
    "symmetric": False,
}
"""Header of a variant without attribution."""

BIASES = "biases"
"""Name of the part that stands for all biases of layers."""

Written: TypeAlias = tuple[str, Float[Tensor, "f m"]]
"""Name of a vector that was added to the residual stream of a token, and the vector."""


def attribution_of(
    replay: Replay, inspected: InspectedExample
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays that explain a score and an answer, and the header values that name their axes.

    Index letters: `f` frame, `p` score map, `a` part of the query's token, `c` part of the key's
    token, `o` answer (0: the one that is given, 1: the right one), `h` head, `j` key position,
    `n` other summands. All amounts have the unit of scores or of logits, and are float64.

    Returns:
        `why.score` (f, p) is the scaled score before masks. It is the sum of `why.parts`
        (f, p, a, c) and of `why.bias` (f). In square layers, `why.reverse`, `why.reverse_parts`
        (f, p, a, c) and `why.reverse_bias` are those of the score of the key's token with the
        query's, with the axes of the same tokens. If the query gives an answer, `why.logit` (f, o)
        is the sum of `why.values.L` (f, o, h, j) over all layers L and of `why.direct` (f, o, n);
        `why.classes` (f, o) are the answers. Of an answer that is not known all are NaN.

        The header names the axes: `parts`, `direct`, and `layers` with those that have values. It
        says whether a mask hides the key from the query, and whether scores are symmetric by
        construction. Its `note` says why there is no attribution; then there are no arrays.
    """
    run = _Run(replay.precise(), inspected)
    with torch.no_grad():
        arrays, header = run.of_score()
        if inspected.answer_index != NOTHING:
            of_answer, more = run.of_answer()
            arrays, header = arrays | of_answer, header | more
    if not _adds_up(arrays):
        return {}, {**NO_ATTRIBUTION, "note": NO_SUM}
    named = {f"why.{name}": tensor.numpy() for name, tensor in arrays.items()}
    return named, NO_ATTRIBUTION | header


def _adds_up(arrays: dict[str, Tensor]) -> bool:
    """Return whether all parts add up to what they are parts of; unknown numbers do not count."""
    sums = [
        (arrays[name], arrays[f"{start}parts"].flatten(2), arrays[f"{start}bias"][:, None])
        for name, start in (("score", ""), ("reverse", "reverse_"))
        if name in arrays
    ]
    if "logit" in arrays:
        values = [array.flatten(2) for name, array in arrays.items() if name.startswith("values")]
        sums.append((arrays["logit"], torch.cat([arrays["direct"], *values], -1), torch.zeros(1)))
    return not any(
        ((parts.sum(-1) + bias - whole).abs() > NEAR * parts.abs().amax(-1).clamp_min(1)).any()
        for whole, parts, bias in sums
    )


class _Run:
    """The run of a variant on the inspected example, in double precision."""

    def __init__(self, replay: Replay, inspected: InspectedExample) -> None:
        self.inspected, self.layer = inspected, inspected.request.layer
        self.transformer: Transformer = replay.transformer
        replayed = replay.forward(inspected.tokens)
        self.stages, self.logits = replayed.stages, replayed.logits
        last = len(self.stages) - 1
        with torch.no_grad():
            final = self.transformer.stream_after(last, self.stages[last])
            tokens = inspected.tokens.expand(len(final), *inspected.tokens.shape)
            self.embeddings = self.transformer.embeddings(tokens)
        self.streams = [stages.x[:, 0] for stages in self.stages] + [final[:, 0]]  # (f, n, m)

    def written(self, position: int, n_layers: int, *, attention: bool = True) -> list[Written]:
        """Return what the embedding and the first layers, or only their MLPs, wrote to a position.

        The position is one of the residual stream.
        """
        task, weights = self.inspected.experiment.task, self.transformer.weights
        names = [*task.field_names, *["position"] * ("W_pos" in weights)]
        names += ["embedding bias"] * ("b_E" in weights)
        shape = self.streams[0].shape
        found = [
            (name, vectors[:, 0].expand(shape)[:, position])
            for name, vectors in zip(names, self.embeddings, strict=True)
        ]
        for layer, stages in enumerate(self.stages[:n_layers]):
            first, end = stages.spec.query_positions
            if not first <= position < end:
                continue
            added = stages.added[:, 0, position - first]
            title = stages.spec.title
            found += [(f"{title}: attention", added)] * attention
            if f"{layer}.W_in" in weights:
                before, after = (self.streams[n][:, position] for n in (layer, layer + 1))
                found.append((f"{title}: MLP", after - before - added))
        return found

    def of_score(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the attribution of the inspected score, and of the one the other way."""
        stages, head = self.stages[self.layer], self.inspected.request.head
        query, key = self.inspected.query_position, self.inspected.request.key_position
        assert key is not None
        arrays = self._score("", stages, query, key, head)
        if stages.spec.square:
            reverse = self._score("reverse_", stages, key, query, head)
            arrays |= reverse | {"reverse_parts": reverse["reverse_parts"].mT}
        names = {
            side: [name for name, _ in self.written(position, self.layer)] + self._rest
            for side, position in (("query", query), ("key", key))
        }
        i, j = query - stages.spec.query_positions[0], key - stages.spec.key_positions[0]
        masked = stages.masked[:, 0, head, :, i, j] - stages.scores[:, 0, head, :, i, j]
        hidden = bool((masked < MASKED).all())
        symmetric = self.transformer.wiring.symmetric
        return arrays, {"parts": names, "hidden": hidden, "symmetric": symmetric}

    @property
    def _rest(self) -> list[str]:
        """Name of what queries and keys have besides the parts of tokens, if there is any."""
        wiring = self.transformer.wiring
        of_roles = {name for role in ("Q", "K") for name in wiring.order(wiring.roles[role])}
        has_mlp = any(wiring.vectors[name].gain for name in of_roles)
        named = [BIASES] * wiring.sizes.standard + ["MLP of queries"] * has_mlp
        return [", ".join(named)] if named else []

    def _score(
        self, start: str, stages: Stages, query: int, key: int, head: int
    ) -> dict[str, Tensor]:
        """Return the attribution of the score of one position's query with another one's key."""
        i, j = query - stages.spec.query_positions[0], key - stages.spec.key_positions[0]
        q, k = self._vectors("Q", query, i), self._vectors("K", key, j)
        return {
            start.removesuffix("_") or "score": stages.scores[:, 0, head, :, i, j],
            f"{start}parts": split_scores(stages.heads, q, k)[:, head],
            f"{start}bias": position_bias(stages.heads, i, j, len(q))[:, head],
        }

    def _vectors(self, role: Role, position: int, number: int) -> Float[Tensor, "f a hp d"]:
        """Return the query or the key of a position as the sum of those of its parts.

        Parts that were written after the layer that computed the keys are 0.
        """
        layer = self.transformer.wiring.leader(self.layer, "K") if role == "K" else self.layer
        stages, name = self.stages[layer], f"{layer}.ln1"
        parts = torch.stack([vector for _, vector in self.written(position, layer)], 1)
        whole = stages.x[:, 0, None, position]
        normed = self.transformer.norm_parts(parts[:, :, None], whole[:, :, None], name)[:, :, 0]
        vectors = split_vectors(
            stages.heads, role, normed, stages.rows[:, 0, position], number
        )  # (f, a + 1, hp, d)
        n_later = len(self.written(position, self.layer)) - parts.shape[1]
        later = torch.zeros_like(vectors[:, :1]).expand(-1, n_later, -1, -1)
        rest = vectors[:, -1:] if self._rest else vectors[:, :0]
        return torch.cat([vectors[:, :-1], later, rest], 1)

    def of_answer(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the attribution of the logits of the given and of the right answer."""
        inspected, weights = self.inspected, self.transformer.weights
        position = inspected.query_position
        logits = self.logits[:, 0, inspected.answer_index]
        right = int(inspected.example.labels[inspected.answer_index])
        given = logits.argmax(-1)  # (f,)
        classes = torch.stack([given, torch.full_like(given, max(right, 0))], 1)

        direct = self.written(position, len(self.stages), attention=False)
        biases = torch.zeros_like(self.streams[0][:, 0])
        values: dict[int, Tensor] = {}
        for layer, stages in enumerate(self.stages):
            first, end = stages.spec.query_positions
            if first <= position < end:
                values[layer], apart = _values(stages, position - first)
                biases = biases + apart
        shapes = [one.shape[1:3] for one in values.values()]  # (j, h)
        vectors = torch.cat(
            [
                torch.stack([vector for _, vector in direct], 1),
                biases[:, None],
                *(one.flatten(1, 2) for one in values.values()),
            ],
            1,
        )
        constant = torch.zeros_like(logits)
        if self.transformer.wiring.sizes.final_norm:
            whole = self.streams[-1][:, None, None, position]
            vectors = self.transformer.norm_parts(vectors[:, :, None], whole, "ln_final")[:, :, 0]
            if "ln_final.b" in weights:
                constant = (weights["ln_final.b"][:, None] @ weights["W_U"])[:, 0]
        constant = constant + weights["b_U"] if "b_U" in weights else constant
        amounts = (vectors @ weights["W_U"]).transpose(1, 2)  # (f, classes, n)
        amounts[:, :, len(direct)] += constant
        chosen = amounts.gather(1, classes[..., None].expand(-1, -1, amounts.shape[2]))
        if right == NOTHING:
            chosen[:, 1] = torch.nan
        first, *rest = chosen.split([len(direct) + 1, *(j * h for j, h in shapes)], -1)
        names = [name for name, _ in direct] + [BIASES] * ("b_U" in weights)
        arrays = {"classes": classes, "logit": logits.gather(1, classes)}
        arrays["direct"] = first[..., : len(names)]
        for layer, shape, part in zip(values, shapes, rest, strict=True):
            arrays[f"values.{layer}"] = part.unflatten(-1, shape).transpose(-1, -2)
        if right == NOTHING:
            arrays["logit"][:, 1] = torch.nan
        return arrays, {"direct": names, "layers": list(values)}


def _values(stages: Stages, i: int) -> tuple[Float[Tensor, "f j h m"], Float[Tensor, "f m"]]:
    """Return what the values of all tokens add to the query at index i, and what else is added."""
    own = stages.places.own(stages.v)
    added = split_output(
        stages.heads,
        stages.pattern[:, 0, :, i],
        stages.v[:, 0],
        None if own is None else own[:, 0, :, i],
        i,
    )
    values, apart = added[:, :-1].clone(), added[:, -1]  # (f, h, m)
    if own is not None:  # a rule adds the value of the token itself
        values[:, i] += apart
        apart = torch.zeros_like(apart)
    biases = apart.sum(1)
    weights = stages.heads.weights
    return values, biases + weights["b_O"] if "b_O" in weights else biases


def attribution_sentences(
    header: Mapping[str, Any], framed: Mapping[str, np.ndarray]
) -> list[list[str]]:
    """Return for every frame what each variant's score and answer are made of."""
    return [
        [_of_variant(header, framed, p, frame) for p in range(len(header["variants"]))]
        for frame in range(len(header["steps"]))
    ]


def _of_variant(
    header: Mapping[str, Any], framed: Mapping[str, np.ndarray], p: int, frame: int
) -> str:
    variant, tokens, start = header["variants"][p], header["attribution"], f"{p}.why."
    axes = variant["attribution"]
    found = SimpleNamespace(
        **{
            name.removeprefix(start): array[frame]
            for name, array in framed.items()
            if name.startswith(start)
        }
    )
    if not vars(found):
        return str(axes["note"] or variant["refusal"] or variant["lacking"])
    if not np.isfinite(found.score).all():
        return "The numbers are not finite: the training has diverged."
    parts = found.parts[0]
    a, c = np.unravel_index(np.abs(parts).argmax(), parts.shape)
    numbers = {
        "n_maps": len(found.score),
        "score": two_decimals(found.score[0]),
        "most": two_decimals(parts[a, c]),
        "of_query": axes["parts"]["query"][a],
        "of_key": axes["parts"]["key"][c],
        "query": tokens["query"],
        "key": tokens["key"],
        "hidden": axes["hidden"],
        "one_matrix": axes["symmetric"],
        "reverse": "",
        "answer": "",
    }
    if hasattr(found, "reverse"):
        apart = np.abs(found.parts - found.reverse_parts).max()
        numbers |= {
            "reverse": two_decimals(found.reverse[0]),
            "same": apart <= SAME * max(1.0, np.abs(found.parts).max()),
            "biased": abs(found.bias - found.reverse_bias) > SAME,
        }
    if hasattr(found, "logit"):
        added = np.zeros(len(tokens["tokens"]))
        for layer in axes["layers"]:
            values, first = getattr(found, f"values.{layer}")[0].sum(0), tokens["first_keys"][layer]
            added[first : first + len(values)] += values
        numbers |= {
            "answer": header["texts"][str(found.classes[0])],
            "logit": two_decimals(found.logit[0]),
            "token": tokens["tokens"][added.argmax()],
            "added": two_decimals(added.max()),
        }
    sentences = (first_true(table, SimpleNamespace(**numbers)) for table in _SENTENCES)
    return " ".join(filter(None, sentences))


_SENTENCES = (
    {
        "In the first of its two maps, the score is {score}. The largest part, {most}, comes from "
        "“{of_query}” of {query} and “{of_key}” of {key}.": lambda n: n.n_maps > 1,
        "The score is {score}. The largest part, {most}, comes from “{of_query}” of {query} and "
        "“{of_key}” of {key}.": lambda n: True,
    },
    {
        "": lambda n: not n.reverse,
        "The other way round the score is {reverse}: the same pairs add other numbers.": lambda n: (
            not n.same
        ),
        "The other way round the score is {reverse}: all pairs add the same numbers, because "
        "queries and keys have one matrix; only the position bias differs.": lambda n: (
            n.biased and n.one_matrix
        ),
        "The other way round the score is {reverse}: all pairs add the same numbers; only the "
        "position bias differs.": lambda n: n.biased,
        "The other way round the score is {reverse}: all pairs add the same numbers in both "
        "directions, because queries and keys have one matrix.": lambda n: n.one_matrix,
        "The other way round the score is {reverse}: all pairs add the same numbers in both "
        "directions.": lambda n: True,
    },
    {"The mask hides this token from the query, whatever the score is.": lambda n: n.hidden},
    {
        "It answers {answer}, whose logit is {logit}: the value of {token} adds most, "
        "{added}.": lambda n: n.answer
    },
)
"""Sentences about the score, the reverse score, the mask and the answer, in this order."""
