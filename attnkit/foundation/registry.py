"""Names in registries: each belongs to one origin, and a refusal names both.

A class from the same module with the same name is a new version of the registered one, as when a
cell of a notebook is run twice, and replaces it.
"""

from __future__ import annotations

import inspect


def origin_of(registered: type) -> str:
    """Return the module and the qualified name of a registered class."""
    return f"{registered.__module__}.{registered.__qualname__}"


def calling_module() -> str:
    """Return the name of the module that called the function which calls this one."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def name_taken(field: str, name: str, registered: str, origin: str) -> ValueError:
    """Return the error for a name that something from another origin has.

    Args:
        field: What the name is called in the message.
        name: The name.
        registered: Origin of what has the name.
        origin: Origin of what was to be registered.
    """
    return ValueError(
        f"{field}: got {name!r} from {origin}, but {registered} has this name; allowed is a name "
        "that nothing else has"
    )
