"""What people take away: an experiment as code, a variant as a PyTorch module with its weights.

No torch here, so that pages can offer all of it.
"""

from attnkit.analysis.export.bundle import folder_of, take_away
from attnkit.analysis.export.experiment import command_line, experiment_code
from attnkit.analysis.export.module import module_code
from attnkit.analysis.export.weights import module_weights, torch_file

__all__ = [
    "command_line",
    "experiment_code",
    "folder_of",
    "module_code",
    "module_weights",
    "take_away",
    "torch_file",
]
