"""Tables and texts that nobody here wrote: from the standard library of Python."""

import builtins
import encodings.aliases
import html.entities
import inspect
import locale
import mimetypes
import re
import typing
import unicodedata
import zoneinfo
from datetime import datetime, timedelta


def time_zones():
    """Return pairs (zone, offset from UTC in July 2024)."""
    moment = datetime(2024, 7, 1)
    offsets = ((n, moment.replace(tzinfo=zoneinfo.ZoneInfo(n)).utcoffset()) for n in _zones())
    return [(name, f"{offset / timedelta(hours=1):+g} h") for name, offset in offsets]


def _zones():
    return sorted(name for name in zoneinfo.available_timezones() if "/" in name)[:200]


def mime_types():
    """Return pairs (ending, type)."""
    return sorted(mimetypes.MimeTypes().types_map[True].items())


def entities():
    """Return pairs (entity of HTML, name of its character)."""
    codes = sorted(html.entities.name2codepoint.items())
    return [(f"&{name};", unicodedata.name(chr(code))) for name, code in codes]


def languages():
    """Return pairs (name of a language, its locale)."""
    return [(name, code) for name, code in sorted(locale.locale_alias.items()) if name.isalpha()]


def exceptions():
    """Return relations (exception, "is a", its base), in which nobody's base is its own heir."""
    found = (x for x in vars(builtins).values() if isinstance(x, type))
    kinds = [x for x in found if issubclass(x, BaseException) and x is not BaseException]
    names = {(kind.__name__, "is a", kind.__bases__[0].__name__) for kind in kinds}
    return sorted(names)


TABLES = {
    "time zones": time_zones,
    "MIME types": mime_types,
    "entities": entities,
    "languages": languages,
    "exceptions": exceptions,
}

TEXTS = {
    "source": lambda: inspect.getsource(typing)[:60_000],
    "aliases": lambda: inspect.getsource(encodings.aliases),
}


def without_cells(message):
    """Return a message without the cells of the row that it names."""
    return re.sub(r"(row [\d,]+) \(.*\)(?= with)", r"\1", message)
