"""Responses of the training process besides snapshots: an example of a task, answers to a book.

This module needs numpy only, since the page and the training process both read and write them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.foundation.language import packed, unpacked


@dataclass(frozen=True, eq=False)
class Example:
    """The held-out example of a task that attention maps show.

    Attributes:
        tokens: Token ids; `Task.label` makes them readable.
        labels: Right answers of the answering positions; `NOTHING` where no answer is expected.
        target: Positions of the tokens that hold the answers; `NOTHING` where no single one does.
        reverse: Positions of the entries that refer back to the query; `NOTHING` where none does.
    """

    tokens: Int64[np.ndarray, "i fields"]
    labels: Int64[np.ndarray, " a"]
    target: Int64[np.ndarray, " a"]
    reverse: Int64[np.ndarray, " a"]

    def to_bytes(self) -> bytes:
        """Return the arrays as a safetensors blob."""
        return save_arrays({name: np.ascontiguousarray(a) for name, a in vars(self).items()})

    @staticmethod
    def from_bytes(blob: bytes) -> Example:
        """Create an instance from the blob of `to_bytes`."""
        return Example(**load_arrays(blob))


@dataclass(frozen=True, eq=False)
class VariantAnswers:
    """Answers of one variant's runs to a custom phone book.

    Index letters: `s` seed, `a` question, `l` layer, `n` entry of the book.

    Attributes:
        refusal: Reason why the variant cannot answer this book; then the arrays are empty.
        answers: Class that each seed answers to each question.
        attention: Attention of the questions to the entries, mean over heads.
    """

    refusal: str
    answers: Int64[np.ndarray, "s a"]
    attention: Float32[np.ndarray, "s l a n"]


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of all variants of a job, in the order of the experiment, after `step` steps."""

    step: int
    variants: list[VariantAnswers]

    def to_bytes(self) -> bytes:
        """Return the arrays as a safetensors blob."""
        arrays: dict[str, np.ndarray] = {"step": np.array([self.step])}
        for index, variant in enumerate(self.variants):
            refusal = json.dumps(packed(variant.refusal)).encode()
            arrays[f"{index}.refusal"] = np.frombuffer(refusal, np.uint8)
            arrays[f"{index}.answers"] = np.ascontiguousarray(variant.answers)
            arrays[f"{index}.attention"] = np.ascontiguousarray(variant.attention)
        return save_arrays(arrays)

    @staticmethod
    def from_bytes(blob: bytes) -> Answers:
        """Create an instance from the blob of `to_bytes`."""
        arrays = load_arrays(blob)
        return Answers(
            int(arrays["step"][0]),
            [
                VariantAnswers(
                    unpacked(json.loads(arrays[f"{index}.refusal"].tobytes())),
                    arrays[f"{index}.answers"],
                    arrays[f"{index}.attention"],
                )
                for index in range(len(arrays) // 3)
            ],
        )
