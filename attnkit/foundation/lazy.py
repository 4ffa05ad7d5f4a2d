"""Import of a package's public names when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names when they are used.

    Args:
        package: Name of the package.
        homes: Public name → name of the module in the package that defines it.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
