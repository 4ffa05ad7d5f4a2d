"""What tied matrices would cost: errors of the best ones, beside the accuracies of toys.

The errors are the measures `attnkit.realmodels.measures.TIES`. What an error means for accuracy is
known of our toys only: the best tied matrices were put into trained QKV models, and the same tasks
were trained with tied matrices from the start.
"""

from __future__ import annotations

import pandas as pd

from attnkit.foundation.tables import markdown_table, markdown_text
from attnkit.foundation.words import counted
from attnkit.realmodels.measures import MEASURES, TIES
from attnkit.training.summary import fixed, percent

_TIED = {"qk": "Q=K", "kv": "K=V"}
"""Sharings whose accuracies are known of the toys, by the ending of their columns."""


def cost_table(heads: pd.DataFrame) -> str:
    """Return a Markdown table of the median errors per model and kind of layer; random in brackets.

    Args:
        heads: A row per head; those of toys are left out.
    """
    rows = []
    for (model, kind), of_group in _real(heads).groupby(["model", "kind"], sort=False):
        cells = [f"{markdown_text(str(model))} {kind} ({len(of_group)})"]
        for name in TIES:
            random = of_group[f"{name}_random"].mean() if f"{name}_random" in of_group else None
            chance = f" ({fixed(random, 2)})" if random is not None and pd.notna(random) else ""
            cells.append(fixed(of_group[name].median(), 2) + chance)
        rows.append(cells)
    return markdown_table(
        ("model, kind (heads)", *(MEASURES[name].title for name in TIES)), rows, "lrrr"
    )


def toy_costs(toys: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task of the toys: errors of QKV models, and accuracies with tied matrices.

    Args:
        toys: Table of `attnkit.realmodels.toys.toy_table`.

    Returns:
        The columns `task`, `chance`, `accuracy` (trained as QKV), and for "qk" and "kv" `error_…`
        (median over heads), `put_in_…` (accuracy after the best tied matrices are put into the
        trained model) and `trained_…` (accuracy of models trained with tied matrices); accuracies
        are means over seeds.
    """
    names = toys["model"].str.rsplit(", ", n=1)
    labelled = toys.assign(task=names.str[0].str.removeprefix("toy "), variant=names.str[1])
    rows = []
    for task, of_task in labelled.groupby("task", sort=False):
        free = of_task[of_task["variant"] == "QKV"]
        if free.empty:
            continue
        row = {"task": task, "chance": free["chance"].mean(), "accuracy": free["accuracy"].mean()}
        for ending, sharing in _TIED.items():
            tied = of_task[of_task["variant"] == sharing]
            row[f"error_{ending}"] = free[f"tie_{ending}"].median()
            row[f"put_in_{ending}"] = free[f"accuracy_{ending}"].mean()
            row[f"trained_{ending}"] = tied["accuracy"].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def toy_cost_table(costs: pd.DataFrame) -> str:
    """Return `toy_costs` as a Markdown table."""
    head = ["toy", "accuracy of QKV (chance)"]
    for sharing in _TIED.values():
        head += [f"error of {sharing}", f"best {sharing} put in", f"trained with {sharing}"]
    rows = []
    for row in costs.to_dict("records"):
        cells = [str(row["task"]), f"{percent(row['accuracy'])} ({percent(row['chance'])})"]
        for ending in _TIED:
            cells.append(fixed(row[f"error_{ending}"], 2))
            cells += [percent(row[f"{name}_{ending}"]) for name in ("put_in", "trained")]
        rows.append(cells)
    return markdown_table(head, rows, "lrrrrrrr")


def cost_sentences(heads: pd.DataFrame, costs: pd.DataFrame) -> tuple[str, ...]:
    """Return sentences on what tied matrices would cost real models, and what they cost the toys.

    Args:
        heads: A row per head of some models.
        costs: Rows of `toy_costs`; none if the toys are not known.
    """
    sentences = []
    medians = _real(heads).groupby(["model", "kind"], sort=False)[[*TIES]].median()
    if medians["tie_qk"].notna().any():
        qk, symmetric, kv = (_span(medians[name]) for name in ("tie_qk", "tie_symmetric", "tie_kv"))
        sentences.append(
            f"In the median head of these models, the best Q=K has a relative error of {qk} in "
            "W_Q W_Kᵀ, which makes the scores, and the nearest symmetric matrix one of "
            f"{symmetric} (random matrices: 0.87 and 0.71). The best K=V has one of {kv} in W_K "
            "and in W_V."
        )
    if len(costs):
        before, put_in, trained = (
            percent(float(costs[name].median())) for name in ("accuracy", "put_in_qk", "trained_qk")
        )
        of_values, from_start = (
            percent(float(costs[name].median())) for name in ("put_in_kv", "trained_kv")
        )
        sentences.append(
            f"In our toys, for which such errors are {_span(costs['error_qk'])} and "
            f"{_span(costs['error_kv'])}, the median accuracy of {counted(len(costs), 'task')} "
            f"falls from {before} to {put_in} if the best Q=K is put into trained QKV models, and "
            f"to {of_values} with the best K=V. Trained with Q=K from the start, models reach "
            f"{trained}, and with K=V {from_start}: the error says what trained weights would "
            "lose, not what a model can learn with tied matrices."
        )
    return tuple(sentences)


def _real(heads: pd.DataFrame) -> pd.DataFrame:
    return heads[heads["family"] != "toy"]


def _span(values: pd.Series[float]) -> str:
    low, high = fixed(values.min(), 2), fixed(values.max(), 2)
    return low if low == high else f"{low} to {high}"
