"""Plugins: your own modules with variants and tasks, named in an environment variable.

`ATTNKIT_MODULES=my_module,another` imports them in every process, so that the command line, the
dashboard and the training process know the variants and tasks that they register.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

PLUGINS = "ATTNKIT_MODULES"
"""Environment variable that names the plugin modules, separated by commas."""


def import_plugins() -> list[str]:
    """Import the plugin modules, and return one error message for each that fails.

    Those of the current folder are found, too, also by an installed command, whose first place to
    look is its own folder.
    """
    problems = []
    if {"", folder := str(Path.cwd())}.isdisjoint(sys.path):
        sys.path.append(folder)
    names = [name.strip() for name in os.environ.get(PLUGINS, "").split(",")]
    for name in filter(None, names):
        try:
            with redirect_stdout(sys.stderr):
                import_module(name)
        except (Exception, SystemExit) as error:  # a plugin may raise anything
            problems.append(f"{PLUGINS}: {name!r} cannot be imported ({error})")
    return problems
