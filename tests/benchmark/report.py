"""Run of the whole benchmark, and its report as JSON and as Markdown tables."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from statistics import median
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any

import torch

from attnkit.foundation.machine import processor_name
from attnkit.foundation.process import n_cores
from benchmark.cases import CASES
from benchmark.compare import Comparison, compare

if TYPE_CHECKING:
    from benchmark.live import LiveRates


@dataclass
class Report:
    """All results of one run of the benchmark."""

    machine: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    live: LiveRates | None = None
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return all rates (model-steps per second, one per round) and ratios, for JSON."""
        comparisons = [
            {"case": c.case, "runs": c.n_runs, "rates": c.rates.by_name}
            | {name: one and one.median for name, one in c.ratios.items()}
            | {"loss_gap": c.loss_gap, "memory_mib": c.memory}
            for c in self.comparisons
        ]
        live = self.live and {
            "rates": self.live.rates.by_name,
            "click_to_solved_seconds": self.live.click_to_solved,
            "headless_to_solved_seconds": self.live.headless_to_solved,
        }
        return {
            "machine": self.machine,
            "comparisons": comparisons,
            **({"live": live} if live else {}),
        }

    def to_markdown(self) -> str:
        """Return the tables of docs/performance.md."""
        m = self.machine
        sections = [
            f"{m['date']}, {m['processor']}, {m['cores']} cores, {m['memory_gib']:.0f} GiB, "
            f"{m['system']}, Python {m['python']}, torch {m['torch']}. Rates in model-steps per "
            "second; ratios are medians over interleaved rounds (smallest–largest).",
            _comparison_table(self.comparisons) if self.comparisons else "",
            "\n".join(_scaling_lines(self.comparisons)),
            _live_lines(self.live) if self.live else "",
        ]
        return "\n\n".join(filter(None, sections))


def run(
    *,
    names: Sequence[str],
    n_runs: Sequence[int],
    peers: bool,
    live: bool,
    rounds: int,
    say: Callable[[str], None],
) -> Report:
    """Run the benchmark, and say every result at once; Ctrl-C ends it with the results so far."""
    report = Report(describe_machine())
    try:
        for name, n in product(names, n_runs):
            report.comparisons.append(compare(CASES[name], n, peers=peers, rounds=rounds))
            say(_comparison_table(report.comparisons[-1:]))
        if live:
            from benchmark.live import measure_live

            try:
                report.live = measure_live(rounds)
                say(_live_lines(report.live))
            except (RuntimeError, AssertionError, SubprocessError) as error:
                say(f"live: not measured, {error}")  # keeps the other results, half an hour of work
    except KeyboardInterrupt:
        report.interrupted = True
    return report


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions on which the benchmark runs."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor_name(),
        "cores": n_cores(),
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_average": os.getloadavg()[0],
        "argv": sys.argv[1:],
    }


def _table(*rows: Sequence[str]) -> str:
    """Return a table, whose first row is its head."""
    head, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


def _comparison_table(comparisons: Sequence[Comparison]) -> str:
    columns = {
        "over_clean_loop": "× clean loop",
        "over_processes": "× processes",
    }
    if any(c.ratios["over_peer"] for c in comparisons):
        columns["over_peer"] = "× x-transformers"
    rows = [
        [c.case, f"{c.n_runs}", f"{c.rates.median('cohort'):,.0f}"]
        + [str(c.ratios[name] or "") for name in columns]
        for c in comparisons
    ]
    gap = max(c.loss_gap for c in comparisons)
    told = f"Held-out losses of cohort, clean loop and processes agree within {gap:.0e} (relative)."
    return f"{_table(['case', 'runs', 'rate', *columns.values()], *rows)}\n\n{told}"


def _scaling_lines(comparisons: Sequence[Comparison]) -> list[str]:
    by_size = {(c.case, c.n_runs): c for c in comparisons}
    pairs = [(c, by_size.get((c.case, 60))) for c in comparisons if c.n_runs == 15]
    return [
        f"- {few.case}: time per model-step at 60 runs "
        f"{few.rates.median('cohort') / many.rates.median('cohort'):.2f} × that at 15; peak memory "
        f"{few.memory:.0f} MiB at 15, {many.memory:.0f} MiB at 60."
        for few, many in pairs
        if many
    ]


def _live_lines(live: LiveRates) -> str:
    watching = [name for name in live.rates.by_name if name != "headless"]
    ratios = ", ".join(f"{name} {live.rates.ratio(name, 'headless')}" for name in watching)
    watched, headless = median(live.click_to_solved), median(live.headless_to_solved)
    return (
        f"- Live over headless, the default experiment: {ratios}; headless "
        f"{live.rates.median('headless'):,.0f} model-steps/s.\n"
        f"- From the click on Train until the page shows every solvable run at 0.99 or more: "
        f"{watched:.2f} s, {watched / headless:.2f} × the {headless:.2f} s of training alone."
    )
