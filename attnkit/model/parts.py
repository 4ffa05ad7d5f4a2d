"""Vectors, scores and outputs of heads as exact sums over parts, with the factors of norms frozen.

Between the residual stream and a score, everything is linear but the norms, which divide a vector
by its size. If a part is divided by the size of the whole vector, the parts add up to the whole.
The same holds between the values of tokens, weighted by the pattern, and the output of a head.

Index letters as in `attnkit.model.reference`, with `a` and `c` for the parts of two tokens. There
is one example and one position, so that `b`, `i` and `n` are left out.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.model.heads import Heads
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import TOKEN


def split_vectors(
    heads: Heads,
    role: Role,
    parts: Float[Tensor, "s a m"],
    rows: Float[Tensor, "s m"],
    position: int,
) -> Float[Tensor, "s a+1 hp d"]:
    """Return a role's vector of one token, after all rules, as a sum over parts of the token.

    The last summand does not come from a part: biases, and the MLP of queries if there is one.

    Args:
        heads: Heads of a layer that computes this role.
        role: "Q" or "K".
        parts: Parts of the normalised token.
        rows: The whole normalised token.
        position: Number of the position.
    """
    name, places = heads.wiring.roles[role], torch.tensor([position], device=rows.device)
    made = heads.vector(name, {TOKEN: parts.unsqueeze(2)}, linear=True)  # (s, a, hp, 1, d)
    whole = heads.vector(name, {TOKEN: rows[:, None, None]})
    made = torch.cat([made, whole - made.sum(1, keepdim=True)], 1)
    for rule in heads.wiring.rules:
        frozen, own = rule.norm(role, whole), rule.norm(role, made)
        made, whole = (rule.adjust(role, one, places, heads.rule_layer) for one in (made, whole))
        if frozen is not None and own is not None:
            made = made * (frozen / own)
    return heads.for_all_heads(made).squeeze(3)


def split_scores(
    heads: Heads, q: Float[Tensor, "s a hp d"], k: Float[Tensor, "s c hp d"]
) -> Float[Tensor, "s h p a c"]:
    """Return the scaled products of the parts of a query and of a key, without biases."""
    wiring, n_pairs = heads.wiring, (q.shape[1], k.shape[1])
    products = torch.einsum("sahd,schd->sach", q * wiring.scale, k)
    scores = products.flatten(1, 2).unflatten(2, (wiring.sizes.n_heads, wiring.n_maps))
    scores = scores[..., None, None]  # (s, a·c, h, p, 1, 1)
    for rule in wiring.rules:
        scores = rule.merge(scores, heads.rule_layer)
    by_pair: Tensor = scores[..., 0, 0].unflatten(1, n_pairs)
    return by_pair.permute(0, 3, 4, 1, 2)


def position_bias(heads: Heads, query: int, key: int, n_seeds: int) -> Float[Tensor, "s h"]:
    """Return the bias of a score, which depends on the numbers of both positions only."""
    total = torch.zeros(n_seeds, heads.wiring.sizes.n_heads, dtype=torch.double)
    for rule in heads.wiring.rules:
        bias = rule.bias(torch.tensor([query]), torch.tensor([key]), heads.rule_layer)
        if bias is not None:  # (s or 1, 1, h or 1, 1, 1)
            total = total + bias[:, 0, :, 0, 0]
    return total


def split_output(
    heads: Heads,
    pattern: Float[Tensor, "s h j"],
    v: Float[Tensor, "s h j d"],
    own_value: Float[Tensor, "s h d"] | None,
    position: int,
) -> Float[Tensor, "s j+1 h m"]:
    """Return what the value of every token adds to the residual stream of one query, head by head.

    The last summand is what a rule adds apart from the pattern. Biases of W_O are left out.

    Args:
        heads: Heads of the layer.
        pattern: Pattern of the query.
        v: Values after all rules.
        own_value: Value of the query's token; None if queries and keys are different sequences.
        position: Number of the query's position.
    """
    sizes, places = heads.wiring.sizes, torch.tensor([position], device=v.device)
    own = None if own_value is None else own_value[:, None, :, None]  # (s, 1, h, 1, d)
    parts = (pattern.unsqueeze(-1) * v).transpose(1, 2).unsqueeze(3)  # (s, j, h, 1, d)
    whole = parts.sum(1, keepdim=True)
    nothing = torch.zeros_like(whole)
    parts = torch.cat([parts, nothing], 1)
    for rule in heads.wiring.rules:
        frozen, of_parts = rule.norm("Z", whole), rule.norm("Z", parts)
        parts, whole, offset = (
            rule.finish(z, own, places, heads.rule_layer) for z in (parts, whole, nothing)
        )
        if frozen is not None and of_parts is not None:  # a norm adds nothing
            parts = parts * (frozen / of_parts)
        parts = parts - offset
        parts = torch.cat([parts[:, :-1], parts[:, -1:] + offset], 1)
    if heads.wiring.has_output:
        matrix = heads.weights["W_O"]
    else:
        matrix = torch.eye(heads.wiring.n_inner, dtype=v.dtype, device=v.device)[None]
    by_head = matrix.unflatten(1, (sizes.n_heads, sizes.d_v)).expand(len(v), -1, -1, -1)
    return torch.einsum("sjhd,shdm->sjhm", parts.squeeze(3), by_head)
