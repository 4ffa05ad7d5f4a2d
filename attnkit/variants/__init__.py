"""Variants of attention: a sharing, composed with options, as one text form.

Modules of this package register what they define when they are imported, and all are imported
here: adding a variant is adding a module. Modules of one's own, named in the environment variable
`ATTNKIT_VARIANTS` with commas between them, are imported after them, in every process: command
line, dashboard and training.
"""

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pkgutil import iter_modules

from attnkit.variants.catalogue import CATALOGUE, Named, names_of, register
from attnkit.variants.options import OPTIONS, Option, register_option
from attnkit.variants.text import InvalidVariant, Variant, read_variants
from attnkit.variants.wiring import Wiring

__all__ = [
    "CATALOGUE",
    "OPTIONS",
    "OWN_MODULES",
    "InvalidVariant",
    "Named",
    "Option",
    "Variant",
    "Wiring",
    "import_own",
    "names_of",
    "read_variants",
    "register",
    "register_option",
]

OWN_MODULES = "ATTNKIT_VARIANTS"
"""The environment variable that names modules with variants of one's own."""


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


for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
import_own()
