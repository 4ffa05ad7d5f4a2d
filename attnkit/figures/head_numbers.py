"""Numbers of one head of a real model beside random matrices, as texts for tables."""

from __future__ import annotations

import math

import pandas as pd

from attnkit.figures.groups import number_text, random_of
from attnkit.realmodels.measures import MEASURES

COLUMNS = ("Measure", "Here", "Random", "SDs", "Median of its kind")
"""Headings of a table of `head_numbers`."""


def head_numbers(row: pd.Series, same_kind: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the cells of a row for every measure that a head has, in the order of `MEASURES`.

    They are the measure, its value, mean and standard deviation of random matrices of the same
    shape, the number of standard deviations between both, and the median of the same kind of heads.

    Args:
        row: Row of the head in the table of an atlas.
        same_kind: Rows of all heads of the same kind in the same model.
    """
    numbers: list[tuple[str, ...]] = []
    for name, measure in MEASURES.items():
        value = float(row[name])
        if math.isnan(value):
            continue
        mean, sd = random_of(row, name)
        random = (
            f"{number_text(mean)}\u00a0±\u00a0{number_text(sd)}" if not math.isnan(mean) else "–"
        )
        n_sds = number_text((value - mean) / sd) if sd > 0 else "–"
        median = number_text(float(same_kind[name].median()))
        numbers.append((measure.title, number_text(value), random, n_sds, median))
    return numbers
