"""Names in registries: each belongs to one origin, and a refusal names both."""

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


def refuse_taken(field: str, name: str, registered: str | None, origin: str) -> None:
    """Refuse a name that something from another origin has.

    What comes from the same origin again is a new version of it, as when a cell of a notebook is
    run twice, and may replace it.

    Args:
        field: What the name is called in the message.
        name: The name.
        registered: Origin of what has the name; None if nothing has it.
        origin: Origin of what is to be registered.

    Raises:
        ValueError: If the origins differ.
    """
    if registered not in (None, origin):
        raise ValueError(
            f"{field}: got {name!r} from {origin}, but {registered} has this name; "
            "allowed is a name that nothing else has"
        )
