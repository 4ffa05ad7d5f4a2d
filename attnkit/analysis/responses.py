"""What the training process answers besides snapshots: an example of a task, a book's answers.

numpy only: both processes read and write these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays


@dataclass(frozen=True, eq=False)
class Example:
    """One held-out example of a task, the one that attention maps show.

    Attributes:
        tokens: (i, fields) `Task.label` makes them readable.
        labels: (a,) right answers; `NOTHING` where nothing is asked.
        target: (a,) positions of the right tokens; `NOTHING` where there is no such single one.
        reverse: (a,) positions of the entries that ask for the asker; `NOTHING` where none is.
    """

    tokens: Int64[np.ndarray, "i fields"]
    labels: Int64[np.ndarray, " a"]
    target: Int64[np.ndarray, " a"]
    reverse: Int64[np.ndarray, " a"]

    def to_bytes(self) -> bytes:
        """As a safetensors blob."""
        return save_arrays({name: np.ascontiguousarray(v) for name, v in vars(self).items()})

    @staticmethod
    def from_bytes(blob: bytes) -> Example:
        """Read `to_bytes`."""
        return Example(**load_arrays(blob))


@dataclass(frozen=True, eq=False)
class VariantAnswers:
    """What one variant's runs answered to a book.

    Attributes:
        refusal: why they could not be asked; then the arrays are empty.
        answers: (s, a) classes.
        attention: (s, l, a, n) weights on the entries, mean over heads.
    """

    refusal: str
    answers: Int64[np.ndarray, "s a"]
    attention: Float32[np.ndarray, "s l a n"]


@dataclass(frozen=True, eq=False)
class Answers:
    """What all variants of a job answered, in the experiment's order, after so many steps."""

    step: int
    variants: list[VariantAnswers]

    def to_bytes(self) -> bytes:
        """As a safetensors blob."""
        arrays: dict[str, np.ndarray] = {"step": np.array([self.step])}
        for place, own in enumerate(self.variants):
            arrays[f"{place}.refusal"] = np.frombuffer(own.refusal.encode(), np.uint8)
            arrays[f"{place}.answers"] = np.ascontiguousarray(own.answers)
            arrays[f"{place}.attention"] = np.ascontiguousarray(own.attention)
        return save_arrays(arrays)

    @staticmethod
    def from_bytes(blob: bytes) -> Answers:
        """Read `to_bytes`."""
        arrays = load_arrays(blob)
        return Answers(
            int(arrays["step"][0]),
            [
                VariantAnswers(
                    arrays[f"{place}.refusal"].tobytes().decode(),
                    arrays[f"{place}.answers"],
                    arrays[f"{place}.attention"],
                )
                for place in range(len(arrays) // 3)
            ],
        )
