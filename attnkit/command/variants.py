"""The command `variants`: list the variants, and the options of text forms."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from attnkit.command.outputs import say
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.engine import kernel_knows
from attnkit.variants import CATALOGUE, OPTIONS

if TYPE_CHECKING:
    from attnkit.examples import RecordedAccuracy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.examples import default_of, load_variants

    recorded = load_variants()
    rows = []
    for named in CATALOGUE.values():
        try:
            experiment = default_of(named.variant)
            costs = experiment.costs(named.variant)
        except InvalidExperiment as error:
            say(f"attnkit: {named.name}: {error}")
            continue
        engine = "kernel" if kernel_knows(experiment, named.variant) else "torch"
        rows.append((named, costs, engine, recorded.accuracy.get(named.variant)))
    if arguments.json:
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
                "accuracy": None if accuracy is None else accuracy.mean,
            }
            for named, costs, engine, accuracy in rows
        ]
        print(json.dumps(listing, indent=1, ensure_ascii=False))
        return 0
    header = f"{'name':22} {'text form':33} {'param.':>6} {'KV':>4} {'MACs':>6}  {'engine':6}"
    print(f"{header} {'accuracy':>20}  source")
    for named, costs, engine, accuracy in rows:
        print(
            f"{named.name:22} {named.variant.value:33} {costs.parameters:6} {costs.kv_cache:4} "
            f"{costs.multiply_adds:6}  {engine:6} {_accuracy_text(accuracy):>20}  {named.source}"
        )
    n_reached = sum(accuracy is not None and accuracy.reached for *_, accuracy in rows)
    print(
        f"\n{len(rows)} variants; {n_reached} of {len(recorded.accuracy)} measured reach "
        f"{recorded.threshold} (*) on {recorded.task} at its defaults: mean of "
        f"{recorded.n_seeds} seeds after {recorded.steps} steps with its 95% interval. KV: floats "
        "a decoder keeps per token. MACs: multiply-adds per token. Variants that share across "
        "layers have two layers, all others one. Engine: trains the variant on a CPU by default."
        "\n\n"
        "A text form is a sharing (QKV, Q=K, K=V, Q=V, Q=K=V), then roles without a matrix "
        "(V=I), then words:"
    )
    for name, option in OPTIONS.items():
        values = f" ({option.allowed})" if option.allowed else ""
        print(f"    {name:15} {option.help}{values}")
    return 0


def _accuracy_text(accuracy: RecordedAccuracy | None) -> str:
    if accuracy is None:
        return "not measured"
    mark = "*" if accuracy.reached else " "
    return f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]{mark}"
