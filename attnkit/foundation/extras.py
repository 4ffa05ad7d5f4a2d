"""Optional dependencies: what each extra is for, and how much its installation downloads."""

from __future__ import annotations

from typing import NamedTuple


class Extra(NamedTuple):
    """Group of packages that an installation can do without.

    Attributes:
        purpose: What it is for, as in the table of `docs/install.md`.
        megabytes: Approximate download beside attnkit and its dependencies, on Linux with x86.
    """

    purpose: str
    megabytes: int


EXTRAS = {
    "cluster": Extra("sweeps on a Ray cluster", 80),
    "excel": Extra("tables in workbooks of Excel", 1),
    "models": Extra("trained models of others: measuring them, and letting them read text", 23),
    "notebook": Extra("Jupyter kernels, and Plotly figures below a cell", 11),
    "postgres": Extra("results in PostgreSQL", 4),
}
"""The extras by name; `pyproject.toml` lists their packages."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, and about how much it downloads."""
    return f"pip install 'attnkit[{extra}]' (downloads about {EXTRAS[extra].megabytes} MB)"
