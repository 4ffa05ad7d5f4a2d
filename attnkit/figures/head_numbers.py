"""Numbers of one head of a real model beside random matrices, as texts for tables."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from attnkit.figures.groups import number_text
from attnkit.realmodels.measures import MEASURES


class HeadNumber(NamedTuple):
    """One measure of a head, as texts.

    Attributes:
        title: Title of the measure.
        value: Value of the head.
        random: Mean and standard deviation of random matrices of the same shape.
        n_sds: Number of standard deviations between both.
        median: Median of the heads of the same kind in the same model.
    """

    title: str
    value: str
    random: str
    n_sds: str
    median: str


COLUMNS = ("Measure", "Here", "Random", "SDs", "Median of its kind")
"""Headings of a table of `head_numbers`."""


def head_numbers(row: pd.Series, same_kind: pd.DataFrame) -> list[HeadNumber]:
    """Return every measure that a head has, in the order of `MEASURES`.

    Args:
        row: Row of the head in the table of an atlas.
        same_kind: Rows of all heads of the same kind in the same model.
    """
    numbers = []
    for name, measure in MEASURES.items():
        value = float(row[name])
        if math.isnan(value):
            continue
        mean, sd = random_at(row, name)
        random = (
            f"{number_text(mean)}\u00a0±\u00a0{number_text(sd)}" if not math.isnan(mean) else "–"
        )
        n_sds = number_text((value - mean) / sd) if sd > 0 else "–"
        median = number_text(float(same_kind[name].median()))
        numbers.append(HeadNumber(measure.title, number_text(value), random, n_sds, median))
    return numbers


def random_at(row: pd.Series, measure: str) -> tuple[float, float]:
    """Return mean and standard deviation of random matrices of a head's shape; NaN if unknown."""
    mean = float(row.get(f"{measure}_random", math.nan))
    sd = float(row.get(f"{measure}_random_sd", math.nan))
    return mean, sd
