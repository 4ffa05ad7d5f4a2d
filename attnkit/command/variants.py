"""`python -m attnkit variants`: table of the variants and of the words they are made of."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from attnkit.command.arguments import Commands
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.engine import kernel_knows
from attnkit.variants import CATALOGUE, OPTIONS

if TYPE_CHECKING:
    from attnkit.examples import RecordedAccuracy


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("variants", help="table of the variants and of their words")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _run(given: argparse.Namespace) -> int:
    from attnkit.examples import default_of, load_variants

    recorded = load_variants()
    rows = []
    for named in CATALOGUE.values():
        try:
            experiment = default_of(named.variant)
            costs = experiment.costs(named.variant)
        except InvalidExperiment as error:
            print(f"attnkit: {named.name}: {error}", file=sys.stderr)
            continue
        engine = "kernel" if kernel_knows(experiment, named.variant) else "torch"
        rows.append((named, costs, engine, recorded.accuracy.get(named.variant)))
    if given.json:
        listing = [
            {
                "name": named.name,
                "variant": named.variant.value,
                "family": named.family,
                "explanation": named.explanation,
                "source": named.source,
                "parameters": costs.parameters,
                "attention_parameters": costs.attention,
                "kv_cache_floats_per_token": costs.kv_cache,
                "multiply_adds_per_token": costs.multiply_adds,
                "engine": engine,
                "accuracy": None if found is None else found.mean,
            }
            for named, costs, engine, found in rows
        ]
        print(json.dumps(listing, indent=1, ensure_ascii=False))
        return 0
    head = f"{'name':22} {'text form':33} {'param.':>6} {'KV':>4} {'MACs':>6}  {'engine':6}"
    print(f"{head} {'accuracy':>20}  source")
    for named, costs, engine, found in rows:
        print(
            f"{named.name:22} {named.variant.value:33} {costs.parameters:6} {costs.kv_cache:4} "
            f"{costs.multiply_adds:6}  {engine:6} {_accuracy(found):>20}  {named.source}"
        )
    n_reached = sum(found is not None and found.reached for *_, found in rows)
    print(
        f"\n{len(rows)} variants; {n_reached} of {len(recorded.accuracy)} measured reach "
        f"{recorded.threshold} (*) on {recorded.task} at its defaults: mean of "
        f"{recorded.n_seeds} seeds after {recorded.steps} steps with its 95% interval. KV: floats "
        "a decoder keeps per token. MACs: multiply-adds per token. What shares across layers has "
        "two of them, all else one. Engine: what trains it on a CPU by default.\n\n"
        "A text form is a sharing (QKV, Q=K, K=V, Q=V, Q=K=V), then roles without a matrix "
        "(V=I), then words:"
    )
    for name, option in OPTIONS.items():
        values = f" ({option.allowed})" if option.allowed else ""
        print(f"    {name:15} {option.help}{values}")
    return 0


def _accuracy(found: RecordedAccuracy | None) -> str:
    if found is None:
        return "not measured"
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]{'*' if found.reached else ' '}"
