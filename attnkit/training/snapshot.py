"""Snapshots of experiments in training: metrics, attention and their storage.

Runs are in the order of `Experiment.runs`. Files are JSON and safetensors, never pickle. This
module does not import torch.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float16, Float32, Int64
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.experiment import Experiment, from_text
from attnkit.foundation.display import Plotted
from attnkit.foundation.documents import parse_json
from attnkit.foundation.language import tr
from attnkit.foundation.words import listed
from attnkit.training.engine import Engine, kernel_knows
from attnkit.training.maker import Maker
from attnkit.training.metrics import ASYMMETRY, METRICS, asymmetry

THRESHOLD = 0.99
"""Accuracy from which a run counts as having solved its task."""

ROUNDING = 1e-5
"""Largest symmetry error of scores that count as the same in both directions. Scores of the same
vectors differ by 0 with the kernel, and by up to 1e-6 with torch."""

CONSECUTIVE = 3
"""Number of consecutive evaluations at the threshold that are needed to reach it."""

Status = Literal["running", "finished", "stopped"]


@dataclass(frozen=True, eq=False)
class Probe:
    """Held-out example with the answers and the attention of every run, for attention maps.

    Attributes:
        tokens: Tokens (i, fields) of the example; `Task.label` makes them readable.
        labels: Right answers (a,).
        target: Positions (a,) of the right entries.
        reverse: Positions (a,) of the mirrored entries; −1 where there are none.
        answers: Answers (r, a) of the runs.
        pattern: Attention (r, l, h, i, j) after softmax; NaN for heads that a variant lacks.
        scores: Scaled scores (r, l, h, i, j) before mask and softmax, the mean over the maps of a
            head; NaN for heads that a variant lacks and for pairs of positions that a layer does
            not compare. None if no single token has the answer, and in results of versions that
            did not record scores.
    """

    tokens: Int64[np.ndarray, "i fields"]
    labels: Int64[np.ndarray, " a"]
    target: Int64[np.ndarray, " a"]
    reverse: Int64[np.ndarray, " a"]
    answers: Int64[np.ndarray, "r a"]
    pattern: Float16[np.ndarray, "r l h i j"]
    scores: Float16[np.ndarray, "r l h i j"] | None = None

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, without those that are None."""
        return {name: array for name, array in vars(self).items() if array is not None}


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot(Plotted):
    """State of an experiment at one step of training, without weights.

    Attributes:
        experiment: The experiment that is trained.
        status: "running", "finished", or "stopped" before the last step.
        step: Optimiser steps taken.
        seconds: Time spent on training and evaluation so far.
        eval_steps: Steps (e,) of the evaluations.
        history: Metrics (e, r) by name; NaN where undefined or after a run diverged.
        head_symmetry: Score symmetry (r, l, h) at the last evaluation; NaN for heads that a
            variant lacks.
        slice_accuracy: Accuracy (r, slices) on the task's groups of answers at the last
            evaluation.
        diverged_at: Step (r,) of the evaluation that found a run diverged, else −1.
        probe: The same held-out example, answered by every run.
        engine: Engine that trained the runs.
        processor: Kind of processor that trained the runs; empty if unknown.
        versions: Versions of the libraries that trained the runs; empty if unknown. Equal
            experiments have equal bits if engine, processor and versions are equal.
    """

    experiment: Experiment
    status: Status
    step: int
    seconds: float
    eval_steps: Int64[np.ndarray, " e"]
    history: dict[str, Float32[np.ndarray, "e r"]]
    head_symmetry: Float32[np.ndarray, "r l h"]
    slice_accuracy: Float32[np.ndarray, "r slices"]
    diverged_at: Int64[np.ndarray, " r"]
    probe: Probe
    engine: Engine = "torch"
    processor: str = ""
    versions: str = ""

    def __repr__(self) -> str:
        """Return a short description; the arrays would fill many screens."""
        experiment = self.experiment
        steps = f"step {self.step} of {experiment.training.steps}"
        return f"<Snapshot of {experiment.n_runs} runs of {experiment.task.name}, {steps}>"

    @property
    def maker(self) -> Maker:
        """Engine, kind of processor and versions; bits are equal only if all are equal."""
        return Maker(self.engine, self.processor, self.versions)

    @property
    def trained_by(self) -> str:
        """Description of the engine and the kind of processor; of both engines if both trained."""
        if self.engine != "kernel":
            return self.maker.in_short
        by_torch = [v for v in self.experiment.sharing if not kernel_knows(self.experiment, v)]
        if len(by_torch) == len(self.experiment.sharing):
            return self.maker._replace(engine="torch").in_short
        if not by_torch:
            return self.maker.in_short
        # Translators: for example "the compiled kernel on Intel AVX-512, Q=V and K=V by torch".
        return tr(
            "{engine}, {variants} by torch",
            engine=self.maker.in_short,
            variants=listed(by_torch),
        )

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of all runs together per second of training and evaluation."""
        return self.experiment.n_runs * self.step / self.seconds if self.seconds > 0 else 0.0

    def latest(self, metric: str) -> Float32[np.ndarray, " r"]:
        """Return a metric at the last evaluation of each run; NaN for runs that have diverged.

        It can differ from the last row of the history; see `last_evaluation`.
        """
        last = self.last_evaluation
        latest: np.ndarray = self.curve(metric)[last, np.arange(len(last))]
        return latest

    @property
    def last_evaluation(self) -> Int64[np.ndarray, " r"]:
        """Index in `eval_steps` of the last evaluation of each run.

        Runs that were added to finished ones may have been evaluated less often than the others.
        """
        evaluated = np.isfinite(self.history["loss"][::-1])
        behind = np.where(self.diverged_at < 0, evaluated.argmax(0), 0)
        return len(self.eval_steps) - 1 - behind

    def curve(self, metric: str) -> Float32[np.ndarray, "e r"]:
        """Return a metric of the history, or the asymmetry that follows from it."""
        return self.asymmetry if metric == ASYMMETRY else self.history[metric]

    @property
    def asymmetry(self) -> Float32[np.ndarray, "e r"]:
        """Antisymmetric share of the scores, 0 … 1."""
        share: np.ndarray = asymmetry(self.history["score_symmetry"])
        return share

    @property
    def same_both_ways(self) -> Bool[np.ndarray, " r"]:
        """Whether the scores of each run are the same in both directions, up to rounding."""
        same: np.ndarray = np.isfinite(self.latest("score_symmetry"))
        return same & (self.latest("symmetry_error") <= ROUNDING)

    def per_sharing(self, values: np.ndarray) -> np.ndarray:
        """Split the run axis, which is the last, into (variant, seed)."""
        n_sharings, n_seeds = len(self.experiment.sharing), self.experiment.n_seeds
        return values.reshape(*values.shape[:-1], n_sharings, n_seeds)

    def counted(self) -> Bool[np.ndarray, "e r"]:
        """Return which evaluations count for the threshold.

        If a variant is tied during training, evaluations before tying do not count. If there is
        an earlier task, evaluations on it do not count.
        """
        earlier = self.experiment.training.earlier_steps
        tied_at = [
            max(self.experiment.tie_step(variant), earlier) for variant, _ in self.experiment.runs
        ]
        return self.eval_steps[:, None] >= np.array(tied_at)

    def steps_to_threshold(self) -> np.ndarray:
        """Return the step of each run at which it has reached the threshold, (r,); NaN if never.

        It is the first of three consecutive counted evaluations with at least this accuracy.
        """
        solved = (self.history["accuracy"] >= THRESHOLD) & self.counted()
        n_starts = max(len(solved) - CONSECUTIVE + 1, 0)
        reached = np.ones((n_starts, solved.shape[1]), dtype=bool)
        for offset in range(CONSECUTIVE):
            reached &= solved[offset : offset + n_starts]
        steps = self.eval_steps[reached.argmax(0) if n_starts else np.zeros(solved.shape[1], int)]
        return np.where(reached.any(0), steps, np.nan)

    def to_bytes(self) -> bytes:
        """Return the snapshot as a safetensors blob, with the experiment in its metadata."""
        arrays = {f"history.{name}": values for name, values in self.history.items()}
        arrays |= {f"probe.{name}": array for name, array in self.probe.to_arrays().items()}
        for name in ("eval_steps", "head_symmetry", "slice_accuracy", "diverged_at"):
            arrays[name] = getattr(self, name)
        head = {
            "experiment": self.experiment.to_json(),
            "fingerprint": self.experiment.task.fingerprint,
            "status": self.status,
            "step": str(self.step),
            "seconds": repr(self.seconds),
            **self.maker._asdict(),
        }
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return save_arrays(contiguous, metadata={"snapshot": json.dumps(head)})

    @staticmethod
    def from_bytes(blob: bytes) -> Snapshot:
        """Read the snapshot that `to_bytes` wrote.

        Raises:
            ValueError: If the bytes hold no snapshot.
        """
        try:
            arrays = load_arrays(blob)
            head = parse_json(metadata_of(blob)["snapshot"])
            if head["status"] not in get_args(Status):
                raise ValueError(f"status: got {head['status']!r}")
            engine = head.get("engine", "torch")  # older files do not name it
            if engine not in get_args(Engine):
                raise ValueError(f"engine: got {engine!r}, allowed {', '.join(get_args(Engine))}")
            snapshot = Snapshot(
                experiment=from_text(head["experiment"]),
                status=head["status"],
                step=int(head["step"]),
                seconds=float(head["seconds"]),
                eval_steps=arrays["eval_steps"],
                history=_read_history(arrays),
                head_symmetry=arrays["head_symmetry"],
                slice_accuracy=arrays["slice_accuracy"],
                diverged_at=arrays["diverged_at"],
                probe=_read_probe(arrays),
                engine=engine,
                processor=str(head.get("processor", "")),
                versions=str(head.get("versions", "")),
            )
            snapshot._check_shapes()
            task = snapshot.experiment.task
            if head["fingerprint"] != task.fingerprint:
                raise ValueError(f"{task.name}: trained on another text than this version has")
            return snapshot
        except READING_ERRORS as error:
            raise ValueError(f"these bytes hold no snapshot ({error})") from None

    def _check_shapes(self) -> None:
        """Raise ValueError if an array does not have the shape that the experiment requires."""
        experiment = self.experiment
        n_runs, n_ctx = experiment.n_runs, experiment.task.n_ctx
        heads = (n_runs, len(experiment.layer_specs), experiment.n_heads)
        n_answers = n_ctx - experiment.task.answers_from
        expected: dict[str, tuple[np.ndarray, tuple[int, ...]]] = {
            "head_symmetry": (self.head_symmetry, heads),
            "slice_accuracy": (self.slice_accuracy, (n_runs, len(experiment.task.slice_names))),
            "diverged_at": (self.diverged_at, (n_runs,)),
            "pattern": (self.probe.pattern, (*heads, n_ctx, n_ctx)),
            "answers": (self.probe.answers, (n_runs, n_answers)),
            "tokens": (self.probe.tokens, (n_ctx, experiment.task.n_fields)),
        }
        if self.probe.scores is not None:
            expected["scores"] = (self.probe.scores, (*heads, n_ctx, n_ctx))
        for name, values in self.history.items():
            expected[name] = (values, (len(self.eval_steps), n_runs))
        for name in ("labels", "target", "reverse"):
            expected[name] = (getattr(self.probe, name), (n_answers,))
        for name, (array, shape) in expected.items():
            if array.shape != shape:
                raise ValueError(f"{name}: got shape {array.shape}, expected {shape}")


READING_ERRORS = (
    SafetensorError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors that reading bytes of unknown origin can raise."""


def _read_history(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the metrics of the history, with NaN for a metric that is newer than the file."""
    missing = np.full_like(arrays["history.loss"], np.nan)
    return {name: arrays.get(f"history.{name}", missing) for name in METRICS}


def _read_probe(arrays: dict[str, np.ndarray]) -> Probe:
    """Return the probe of a snapshot's arrays; older snapshots have no scores."""
    names = [field.name for field in fields(Probe) if field.default is MISSING]
    required = {name: arrays[f"probe.{name}"] for name in names}
    return Probe(**required, scores=arrays.get("probe.scores"))


def metadata_of(blob: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors blob, which begins with a length and JSON."""
    length = int.from_bytes(blob[:8], "little")
    metadata: dict[str, str] = parse_json(blob[8 : 8 + length], length)["__metadata__"]
    return metadata
