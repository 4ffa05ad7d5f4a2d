"""Results of inspections: a header and arrays, as one blob that browsers read directly.

A blob is a safetensors file: eight bytes of length, JSON with the type, shape and offset of every
array, then the numbers. This module imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.analysis.attention_map import lacking_note
from attnkit.analysis.inspection.request import Inspection
from attnkit.foundation.documents import parse_json
from attnkit.training.failure import failure
from attnkit.training.film import Film
from attnkit.training.metrics import asymmetry
from attnkit.training.snapshot import metadata_of
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

if TYPE_CHECKING:
    import pandas as pd

Sentences = dict[str, list[Any]]
"""Text, or texts of all variants, for each frame, by name of the figure that shows them."""


@dataclass(frozen=True, eq=False)
class InspectionResult:
    """Result of an inspection.

    Attributes:
        header: Plain values; `header_of` returns those that all views have. Its "sentences"
            are lists over the frames, and its "newest" values are those of the last frame.
        framed: Arrays with a leading axis of frames, by name. The names of those of the variant
            with index p begin with `p.`.
        fixed: Arrays without such an axis, by name.
    """

    header: dict[str, Any]
    framed: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]

    @property
    def attribution(self) -> Attribution:
        """Why the inspected head looks at one token, and which values make the answer, as tables.

        Raises:
            ValueError: If the inspection has no attribution.
        """
        if self.header.get("attribution") is None:
            raise ValueError(
                "key_position: got none, but an attribution explains the score of one key; inspect "
                'with Inspection("attention", key_position=…)'
            )
        return Attribution(self.header, self.framed)

    def to_bytes(self) -> bytes:
        """Return header and arrays as a safetensors blob, in which each sentence stands once."""
        numbers = dict[str, int]()
        sentences = {
            name: _mapped(texts, lambda text: numbers.setdefault(text, len(numbers)))
            for name, texts in self.header["sentences"].items()
        }
        named = {name: np.ascontiguousarray(a) for name, a in {**self.framed, **self.fixed}.items()}
        header = {**self.header, "framed": sorted(self.framed)}
        header |= {"sentences": sentences, "all_sentences": list(numbers)}
        return save_arrays(named, metadata={"inspected": json.dumps(header, ensure_ascii=False)})

    @staticmethod
    def from_bytes(blob: bytes) -> InspectionResult:
        """Create a result from the blob of `to_bytes`."""
        arrays = load_arrays(blob)
        header = parse_json(metadata_of(blob)["inspected"], len(blob))
        framed, texts = set(header.pop("framed")), header.pop("all_sentences")
        for name, numbers in header["sentences"].items():
            header["sentences"][name] = _mapped(numbers, texts.__getitem__)
        return InspectionResult(
            header,
            {name: array for name, array in arrays.items() if name in framed},
            {name: array for name, array in arrays.items() if name not in framed},
        )


def _mapped(nested: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(nested, list):
        return [_mapped(part, function) for part in nested]
    return function(nested)


POSITION_BIAS = "position bias"
"""Name of the summand of a score that depends on both positions only."""

ANSWERS = ("given", "right")
"""Answers whose logits are attributed."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Summands of one score and of one answer's logits, for all variants and frames.

    The sums are exact, because the sizes by which norms divide and the attention pattern are frozen
    at their values. Amounts are float64. Variants without the inspected head have no rows.

    Attributes:
        header: Header of the inspection.
        framed: Arrays of the inspection.
    """

    header: dict[str, Any]
    framed: dict[str, np.ndarray]

    @property
    def scores(self) -> pd.DataFrame:
        """Summands of the score, with a row for each pair of parts of both tokens.

        The columns are `step`, `variant`, `direction`, `map`, `query_part`, `key_part` and
        `amount`. The direction is "forward" for the score of the query with the key, and
        "reverse" for that of the key's token with the query's; there is no reverse where queries
        and keys are different sequences. Amounts have the unit of scores, which are scaled and not
        masked. All amounts of one step, variant, direction and map add up to the score.
        """
        return self._table(("direction", "map", "query_part", "key_part"), self._rows_of_scores())

    @property
    def logits(self) -> pd.DataFrame:
        """Summands of the logits of the given and of the right answer.

        The columns are `step`, `variant`, `answer` ("given" or "right"), `text` of the answer,
        `layer` and `head` from 0, `position` and `token` of the value that is read, `part` and
        `amount`. Rows without a value have −1 as layer, head and position; their `part` names what
        adds to the logit directly. Amounts are logits, and all of one step, variant and answer add
        up to the logit. There are no rows if the query gives no answer.
        """
        return self._table(
            ("answer", "text", "layer", "head", "position", "token", "part"),
            self._rows_of_logits(),
        )

    @property
    def totals(self) -> pd.DataFrame:
        """Numbers to which the other tables add up, with the columns that tell them apart.

        The columns are `step`, `variant`, `quantity` ("score" or "logit"), `which` (the direction
        or the answer), `map` (−1 for logits) and `amount`.
        """
        import pandas as pd

        scores = self.scores.assign(quantity="score").rename(columns={"direction": "which"})
        logits = self.logits.assign(quantity="logit", map=-1).rename(columns={"answer": "which"})
        columns = ["step", "variant", "quantity", "which", "map"]
        both = pd.concat([scores, logits]).groupby(columns, sort=False)["amount"]
        return both.sum(skipna=False).reset_index()

    def _table(self, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(list(rows), columns=["step", "variant", *columns, "amount"])

    def _variants(self) -> Iterator[tuple[str, dict[str, Any], dict[str, np.ndarray]]]:
        """Yield the text form, the axes and the arrays of every variant that has an attribution."""
        for index, variant in enumerate(self.header["variants"]):
            prefix = f"{index}.why."
            arrays = {
                name.removeprefix(prefix): array
                for name, array in self.framed.items()
                if name.startswith(prefix)
            }
            if arrays:
                yield variant["text"], variant["attribution"], arrays

    def _rows_of_scores(self) -> Iterator[tuple[Any, ...]]:
        for text, axes, arrays in self._variants():
            of_query, of_key = axes["parts"]["query"], axes["parts"]["key"]
            for frame, step in enumerate(self.header["steps"]):
                for direction, start in (("forward", ""), ("reverse", "reverse_")):
                    if f"{start}parts" not in arrays:
                        continue
                    for (score_map, a, c), amount in np.ndenumerate(arrays[f"{start}parts"][frame]):
                        names = (of_query[a], of_key[c]) if not start else (of_key[c], of_query[a])
                        yield step, text, direction, score_map, *names, amount
                    for score_map in range(arrays["score"].shape[1]):
                        bias = arrays[f"{start}bias"][frame]
                        yield step, text, direction, score_map, POSITION_BIAS, POSITION_BIAS, bias

    def _rows_of_logits(self) -> Iterator[tuple[Any, ...]]:
        tokens = self.header["attribution"]["tokens"]
        for text, axes, arrays in self._variants():
            for frame, step in enumerate(self.header["steps"]):
                for which, answer in enumerate(ANSWERS):
                    if "logit" not in arrays or np.isnan(arrays["logit"][frame, which]):
                        continue
                    given = str(arrays["classes"][frame, which])
                    own = (step, text, answer, self.header["texts"].get(given, given))
                    for layer in axes["layers"]:
                        first = self.header["attribution"]["first_keys"][layer]
                        values = arrays[f"values.{layer}"][frame, which]
                        for (head, j), amount in np.ndenumerate(values):
                            position = first + j
                            yield *own, layer, head, position, tokens[position], "value", amount
                    direct = arrays["direct"][frame, which]
                    for name, amount in zip(axes["direct"], direct, strict=True):
                        yield *own, -1, -1, -1, "", name, amount


def header_of(film: Film, inspection: Inspection) -> dict[str, Any]:
    """Return the header values of every view: the film, its frames, variants and layers."""
    experiment = film.experiment
    failed, message = None, ""
    if film.frames:  # there may be none since the last request
        last = (film.metric(name)[-1] for name in ("accuracy", "loss"))
        failed = failure(experiment, *last, over=film.steps[-1] >= experiment.training.steps)
    if failed is not None and failed.setting == "learning_rate":
        message = f"{failed.sentence} {failed.advice}"
    colored = zip(experiment.sharing, colors_of(experiment.sharing), strict=True)
    return {
        "view": inspection.view,
        "request": {name: v for name, v in inspection.to_dict().items() if name != "since"},
        "since": inspection.since if inspection.since >= 0 else None,
        "task": experiment.task.name,
        "title": experiment.task.title,
        "failure": message,
        "sentences": {},
        "chance": experiment.task.chance,
        "seed": experiment.first_seed,
        "steps": film.steps,
        "total_steps": experiment.training.steps,
        "places": [spec.title for spec in experiment.layer_specs],
        "variants": [
            {
                "name": title_of(variant),
                "text": variant.value,
                "color": color,
                "classes": ["".join(members) for members in variant.sharing.classes],
                "n_heads": (n_heads := experiment.wiring(variant).sizes.n_heads),
                "lacking": lacking_note(n_heads),
            }
            for variant, color in colored
        ],
    }


def with_measures(film: Film) -> dict[str, np.ndarray]:
    """Return the framed arrays that every view has: accuracy and score asymmetry, (f, v)."""
    return {
        "accuracy": film.metric("accuracy").astype(np.float32),
        "asymmetry": asymmetry(film.metric("score_symmetry")).astype(np.float32),
    }
