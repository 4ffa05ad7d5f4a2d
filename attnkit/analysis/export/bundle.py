"""Export of a whole result as files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attnkit.analysis.export.experiment import command_line, experiment_code
from attnkit.analysis.export.module import module_code
from attnkit.analysis.export.weights import module_weights

if TYPE_CHECKING:
    from attnkit.training.results import Result
    from attnkit.variants import Variant


def export_files(result: Result) -> dict[str, bytes]:
    """Return the experiment as code, and a folder per variant with its module and its weights.

    Returns:
        Path → content, with `/` between folders. There is one file of weights per seed.

    Raises:
        ValueError: If a variant cannot be written as a module, or was not yet tied.
    """
    experiment = result.experiment
    program = f"# {command_line(experiment)}\n{experiment_code(experiment)}"
    files = {"experiment.py": program.encode()}
    for (variant, seed), parameters in zip(experiment.runs, result.parameters, strict=True):
        folder = folder_of(variant)
        files[f"{folder}/module.py"] = module_code(experiment, variant).encode()
        weights = module_weights(experiment, variant, parameters)
        files[f"{folder}/seed_{seed}/weights.safetensors"] = weights
    return files


def folder_of(variant: Variant) -> str:
    """Return a file name for a variant: its text form without spaces, slashes and the like."""
    return re.sub(r"[^A-Za-z0-9=._-]+", "_", variant.value)
