"""Run of the whole benchmark, and its report as JSON and as Markdown tables."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from statistics import median
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any

from attnkit.foundation.machine import processor_name
from attnkit.foundation.process import n_cores
from attnkit.tasks import TASKS
from benchmark.cases import CASES, N_RUNS
from benchmark.compare import ROUNDS, Comparison, Rates, compare, measure_growth
from benchmark.parts import Parts, measure_parts
from benchmark.supply import measure_supply

if TYPE_CHECKING:
    from benchmark.live import LiveRates

_GROWTH_RUNS = 15
_WIDTHS = (16, 32, 64, 128)
_LENGTHS = (8, 16, 32, 64)


@dataclass
class Report:
    """All results of one run of the benchmark."""

    machine: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    widths: dict[str, Rates] = field(default_factory=dict)
    lengths: dict[str, Rates] = field(default_factory=dict)
    supply: dict[str, Rates] = field(default_factory=dict)
    parts: list[Parts] = field(default_factory=list)
    live: LiveRates | None = None
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return all rates (model-steps per second, one per round) and ratios, for JSON."""
        comparisons: list[dict[str, Any]] = []
        for c in self.comparisons:
            ratios = {name: one and one.median for name, one in c.ratios.items()}
            told = {"case": c.case, "runs": c.n_runs, "rates": c.rates.by_name, **ratios}
            comparisons.append({**told, "loss_gap": c.loss_gap, "memory_mib": c.memory})
        sizes = {**self.widths, **self.lengths}
        data: dict[str, Any] = {"machine": self.machine, "comparisons": comparisons}
        data["growth"] = {name: rates.by_name[name] for name, rates in sizes.items()}
        data["parts"] = [asdict(parts) for parts in self.parts]
        data["supply"] = {task: rates.by_name for task, rates in self.supply.items()}
        if self.live:
            data["live"] = {
                "rates": self.live.rates.by_name,
                "click_to_solved_seconds": self.live.click_to_solved,
                "headless_to_solved_seconds": self.live.headless_to_solved,
            }
        return data

    def to_markdown(self) -> str:
        """Return the tables of docs/performance.md."""
        m = self.machine
        sections = [
            f"{m['date']}, {m['processor']}, {m['cores']} cores, {m['memory_gib']:.0f} GiB, "
            f"{m['system']}, Python {m['python']}, torch {m['torch']}. Rates in model-steps per "
            "second; ratios are medians over interleaved rounds (smallest–largest).",
            _comparison_table(self.comparisons) if self.comparisons else "",
            _growth_lines(self.comparisons, self.widths, self.lengths),
            _parts_table(self.parts) if self.parts else "",
            _supply_line(self.supply) if self.supply else "",
            _live_lines(self.live) if self.live else "",
        ]
        return "\n\n".join(filter(None, sections))


def run(
    *,
    names: Sequence[str] = tuple(CASES),
    n_runs: Sequence[int] = N_RUNS,
    peers: bool = False,
    growth: bool = True,
    supply: bool = True,
    live: bool = True,
    rounds: int = ROUNDS,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run the benchmark, and say every result at once; Ctrl-C ends it with the results so far."""
    report = Report(describe_machine())
    try:
        for name, n in product(names, n_runs):
            report.comparisons.append(compare(CASES[name], n, peers=peers, rounds=rounds))
            say(_line(report.comparisons[-1]))
        if growth:
            base = CASES["phonebook"]
            widths = [base.resized(d_model=width, d_head=min(width, 64)) for width in _WIDTHS]
            report.widths = measure_growth(widths, _GROWTH_RUNS, rounds)
            lengths = [base.resized(n_entries=length // 2) for length in _LENGTHS]
            report.lengths = measure_growth(lengths, _GROWTH_RUNS, rounds)
            say(_growth_lines([], report.widths, report.lengths))
            report.parts = [measure_parts(CASES[name]) for name in names]
            say(_parts_table(report.parts))
        for task in TASKS if supply else ():
            report.supply[task] = measure_supply(task, rounds)
            say(_supply_line({task: report.supply[task]}))
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


def _line(c: Comparison) -> str:
    ratios = c.ratios
    peer = f", {ratios['over_peer']} × x-transformers" if ratios["over_peer"] else ""
    return (
        f"{c.case}, {c.n_runs} runs: {c.rates.median('cohort'):.0f}/s, {ratios['of_bound']} of the "
        f"bound, {ratios['over_clean_loop']} × clean loop, {ratios['over_processes']} × "
        f"processes{peer}, losses within {c.loss_gap:.0e}"
    )


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions on which the benchmark runs."""
    import torch

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


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _comparison_table(comparisons: Sequence[Comparison]) -> str:
    columns = {
        "of_bound": "of the bound",
        "of_true_bound": "of the true bound",
        "over_clean_loop": "× clean loop",
        "over_processes": "× processes",
        "over_peer": "× x-transformers",
    }
    if not any(c.ratios["over_peer"] for c in comparisons):
        del columns["over_peer"]
    lines = [_row(["case", "runs", "rate", *columns.values()]), "|" + "---|" * (len(columns) + 3)]
    for c in comparisons:
        row = [c.case, f"{c.n_runs}", f"{c.rates.median('cohort'):,.0f}"]
        lines.append(_row([*row, *(str(c.ratios[name] or "") for name in columns)]))
    gap = max(c.loss_gap for c in comparisons)
    told = f"Held-out losses of cohort, clean loop and processes agree within {gap:.0e} (relative)."
    return "\n".join([*lines, "", told])


def _growth_lines(
    comparisons: Sequence[Comparison], widths: dict[str, Rates], lengths: dict[str, Rates]
) -> str:
    lines = []
    by_size = {(c.case, c.n_runs): c for c in comparisons}
    for name in dict.fromkeys(c.case for c in comparisons):
        few, many = by_size.get((name, 15)), by_size.get((name, 60))
        if few and many:
            time = few.rates.median("cohort") / many.rates.median("cohort")
            lines.append(
                f"- {name}: time per model-step at 60 runs {time:.2f} × that at 15; peak memory "
                f"{few.memory:.0f} MiB at 15, {many.memory:.0f} MiB at 60."
            )
    for dimension, rates_by_name in (("width", widths), ("length", lengths)):
        if rates_by_name:
            each = ", ".join(
                f"{name.partition(' ')[2]}: {1e6 / rates.median(name):.0f} µs"
                for name, rates in rates_by_name.items()
            )
            lines.append(f"- Time per model-step by {dimension}: {each}.")
    return "\n".join(lines)


def _parts_table(cases: Sequence[Parts]) -> str:
    names = [*cases[0].per_step, *cases[0].others]
    lines = [_row(["µs of one thread for each run", *names])]
    lines += ["|" + "---|" * (len(names) + 1)]
    for parts in cases:
        times = {**parts.per_step, **parts.others}
        lines += [_row([parts.case, *(f"{times[name]:,.0f}" for name in names)])]
    return "\n".join(lines)


def _supply_line(supply: dict[str, Rates]) -> str:
    each = ", ".join(f"{name} {rates.ratio('drawn', 'used')}" for name, rates in supply.items())
    return f"- Examples drawn over examples used by training, at each task's defaults: {each}."


def _live_lines(live: LiveRates) -> str:
    from benchmark.live import N_WATCHING

    ratios = ", ".join(f"{n} watching {live.of_headless(n)}" for n in N_WATCHING)
    watched, headless = median(live.click_to_solved), median(live.headless_to_solved)
    return (
        f"- Live over headless, the default experiment: {ratios}; headless "
        f"{live.rates.median('headless'):,.0f} model-steps/s.\n"
        f"- From the click on Train until the page shows every solvable run at 0.99 or more: "
        f"{watched:.2f} s, {watched / headless:.2f} × the {headless:.2f} s of training alone."
    )
