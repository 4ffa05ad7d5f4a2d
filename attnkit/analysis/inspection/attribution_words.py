"""Sentences about an attribution: which parts make a score, in both directions, and an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnkit.training.summary import two_decimals

SAME = 1e-6
"""Largest difference between the amounts of two directions that count as equal, of the largest."""


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
    variant, start = header["variants"][p], f"{p}.why."
    axes = variant["attribution"]
    arrays = {
        name.removeprefix(start): array[frame]
        for name, array in framed.items()
        if name.startswith(start)
    }
    if not arrays:
        return str(axes["note"] or variant["refusal"] or variant["lacking"])
    if not np.isfinite(arrays["score"]).all():
        return "The numbers are not finite: the training has diverged."
    sentences = [_of_score(header["attribution"], axes, arrays)]
    if "reverse" in arrays:
        sentences.append(_of_reverse(axes, arrays))
    if axes["hidden"]:
        sentences.append("The mask hides this token from the query, whatever the score is.")
    if "logit" in arrays:
        sentences.append(_of_answer(header, axes, arrays))
    return " ".join(sentences)


def _of_score(
    tokens: Mapping[str, Any], axes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> str:
    """Return the score, and the pair of parts that adds most to it."""
    parts = arrays["parts"][0]
    a, c = np.unravel_index(np.abs(parts).argmax(), parts.shape)
    names = axes["parts"]["query"][a], axes["parts"]["key"][c]
    where = "In the first of its two maps, the score" if len(arrays["score"]) > 1 else "The score"
    return (
        f"{where} is {two_decimals(arrays['score'][0])}. The largest part, "
        f"{two_decimals(parts[a, c])}, comes from “{names[0]}” of {tokens['query']} and "
        f"“{names[1]}” of {tokens['key']}."
    )


def _of_reverse(axes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the score the other way round, and whether all parts add the same to both."""
    there, back = arrays["parts"], arrays["reverse_parts"]
    same = np.abs(there - back).max() <= SAME * max(1.0, np.abs(there).max())
    other = f"The other way round the score is {two_decimals(arrays['reverse'][0])}"
    if not same:
        return f"{other}: the same pairs add other numbers."
    reason = ", because queries and keys have one matrix" * axes["symmetric"]
    if abs(arrays["bias"] - arrays["reverse_bias"]) > SAME:
        return f"{other}: all pairs add the same numbers{reason}; only the position bias differs."
    return f"{other}: all pairs add the same numbers in both directions{reason}."


def _of_answer(
    header: Mapping[str, Any], axes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> str:
    """Return the given answer with its logit, and the token whose values add most to it."""
    tokens, first_keys = header["attribution"]["tokens"], header["attribution"]["first_keys"]
    added = np.zeros(len(tokens))
    for layer in axes["layers"]:
        values = arrays[f"values.{layer}"][0].sum(0)
        added[first_keys[layer] : first_keys[layer] + len(values)] += values
    most = int(added.argmax())
    text = header["texts"][str(arrays["classes"][0])]
    return (
        f"It answers {text}, whose logit is {two_decimals(arrays['logit'][0])}: the value of "
        f"{tokens[most]} adds most, {two_decimals(added[most])}."
    )
