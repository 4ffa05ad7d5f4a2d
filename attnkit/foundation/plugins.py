"""Variants and tasks of one's own: modules named in the environment, imported in every process.

`ATTNKIT_MODULES=my_module,another` makes what they register known to the command line, the
dashboard and the training process.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module

OWN_MODULES = "ATTNKIT_MODULES"
"""The environment variable that names modules of one's own, with commas between them."""


def import_own() -> list[str]:
    """Import the modules named in the environment; returns what went wrong, in words."""
    problems = []
    for name in filter(None, (part.strip() for part in os.environ.get(OWN_MODULES, "").split(","))):
        try:
            with redirect_stdout(sys.stderr):
                import_module(name)
        except (Exception, SystemExit) as error:  # somebody else's code
            problems.append(f"{OWN_MODULES}: {name!r} cannot be imported ({error})")
    return problems
