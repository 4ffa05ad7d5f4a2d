"""Tables of an attribution: why a head looks there, and which values make an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

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
        return self._table(("quantity", "which", "map"), self._rows_of_totals())

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
                    for place, amount in np.ndenumerate(arrays[f"{start}parts"][frame]):
                        score_map, a, c = place
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
                    own = (step, text, answer, self._text(arrays["classes"][frame, which]))
                    for layer in axes["layers"]:
                        first = self.header["attribution"]["first_keys"][layer]
                        values = arrays[f"values.{layer}"][frame, which]
                        for (head, j), amount in np.ndenumerate(values):
                            position = first + j
                            yield *own, layer, head, position, tokens[position], "value", amount
                    direct = arrays["direct"][frame, which]
                    for name, amount in zip(axes["direct"], direct, strict=True):
                        yield *own, -1, -1, -1, "", name, amount

    def _rows_of_totals(self) -> Iterator[tuple[Any, ...]]:
        for text, _, arrays in self._variants():
            for frame, step in enumerate(self.header["steps"]):
                for direction, name in (("forward", "score"), ("reverse", "reverse")):
                    for score_map, score in enumerate(
                        arrays.get(name, np.zeros((frame + 1, 0)))[frame]
                    ):
                        yield step, text, "score", direction, score_map, score
                for which, answer in enumerate(ANSWERS):
                    if "logit" in arrays and not np.isnan(arrays["logit"][frame, which]):
                        yield step, text, "logit", answer, -1, arrays["logit"][frame, which]

    def _text(self, answer: int) -> str:
        """Return the text of an answer."""
        text: str = self.header["texts"].get(str(answer), str(answer))
        return text
