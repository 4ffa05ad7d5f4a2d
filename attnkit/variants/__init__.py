"""Variants of attention: a sharing and options, written in one text form.

Every module of this package is imported here and registers the variants that it defines: to add a
variant, add a module. Plugins are imported last; see `attnkit.foundation.plugins`.
"""

from importlib import import_module
from pkgutil import iter_modules

from attnkit.foundation.plugins import import_plugins
from attnkit.variants.catalogue import names_of, register, title_of
from attnkit.variants.module import variant
from attnkit.variants.options import OPTIONS, Option, register_option
from attnkit.variants.sharing import Sharing
from attnkit.variants.text import CATALOGUE, InvalidVariant, Named, Variant, read_variants
from attnkit.variants.wiring import Wiring

__all__ = [
    "CATALOGUE",
    "OPTIONS",
    "InvalidVariant",
    "Named",
    "Option",
    "Sharing",
    "Variant",
    "Wiring",
    "names_of",
    "read_variants",
    "register",
    "register_option",
    "title_of",
    "variant",
]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
import_plugins()
