"""Comparison of a file's tensors with what a model's configuration says, and the error messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attnkit.realmodels.base import TensorFile, Unreadable, listing, quote

_ATTENTION_WORDS = ("attn", "attention", "q_proj", "query", "qkv")
_QUANTISED_ENDINGS = ("qweight", "weight_packed", "scb", "weight_scale", "weight_format", "absmax")


def contents(names: Iterable[str], config: Mapping[str, Any]) -> str:
    """Return what the file holds instead of the expected tensors, for an error message."""
    names = list(names)
    similar = [name for name in names if any(word in name.lower() for word in _ATTENTION_WORDS)]
    quantised = "quantization_config" in config or any(
        name.lower().endswith(_QUANTISED_ENDINGS) for name in names
    )
    return f"the file holds {listing(similar or names)}" + (
        " and is quantised: take the unquantised model" if quantised else ""
    )


def check_shape(tensors: TensorFile, name: str, shape: tuple[int, ...], reason: str) -> None:
    """Raise Unreadable unless a tensor is present and has a shape.

    Args:
        tensors: The model's file.
        name: Name of the tensor.
        shape: Shape that the configuration says.
        reason: Fields and values from which the shape follows, for the message.
    """
    actual = tensors.shapes.get(name)
    if actual is None:
        raise Unreadable(f"there is no tensor {quote(name)}; {contents(tensors.shapes, {})}")
    if actual != shape:
        raise Unreadable(
            f"tensor {quote(name)} is of shape {quote(actual)}; "
            f"the configuration says {shape} ({reason})"
        )
