"""Export of experiments as code, and of variants as PyTorch modules with their trained weights.

This package imports no torch, so that pages can use all of it.
"""

from attnkit.analysis.export.experiment import (
    command_line,
    experiment_code,
    export_files,
    folder_of,
)
from attnkit.analysis.export.module import module_code
from attnkit.analysis.export.weights import module_weights

__all__ = [
    "command_line",
    "experiment_code",
    "export_files",
    "folder_of",
    "module_code",
    "module_weights",
]
