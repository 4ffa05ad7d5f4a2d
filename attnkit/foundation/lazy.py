"""Lazy imports: a package's public names are imported when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_on_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports public names on first use.

    Args:
        package: Name of the package.
        modules: For every public name, the module of the package that defines it.
    """

    def get_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get_attribute
