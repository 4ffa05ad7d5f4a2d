"""Scripts for components and pages, joined from the ES modules in `attnkit/ui/assets`.

Streamlit gives a component one script, and a page that is saved as one file has no other files to
import from. So a module and everything that it imports are put below each other here.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from importlib.resources import files

_ASSETS = "ui/assets"

_IMPORT = re.compile(
    r'^import (?:(?P<name>\w+)|\{[^}]*\}) from "(?P<path>[./\w]+)"(?: with \{ type: "json" \})?;\n',
    re.MULTILINE,
)
_EXPORT = re.compile(r"^export (?=async function|function|const|let|class)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default function (\w+)", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file in `attnkit/ui/assets`."""
    return _read(f"{_ASSETS}/{name}")


@cache
def script(name: str) -> str:
    """Return a module together with all that it imports, as one module.

    Its default export is the only one that is left.

    Args:
        name: The module's file in `attnkit/ui/assets`, without its suffix.
    """
    sources: dict[str, str] = {}
    _collect(f"{_ASSETS}/{name}.js", "", sources)
    *imported, entry = sources.values()
    return "\n".join([*(_DEFAULT.sub(r"function \1", source) for source in imported), entry])


def inline_script(name: str) -> tuple[str, str]:
    """Return the same for a `<script>` of a page, and the name of the function that was exported.

    Raises:
        ValueError: If the module has no default export.
    """
    joined = script(name)
    found = _DEFAULT.search(joined)
    if found is None:
        raise ValueError(f"{name}.js: got no default export, allowed one function")
    return _DEFAULT.sub(r"function \1", joined).replace("</script", "<\\/script"), found[1]


def _collect(path: str, imported_as: str, sources: dict[str, str]) -> None:
    """Add a file behind those that it imports, each once.

    Args:
        path: The file, in the package.
        imported_as: The name that the importing module gives to the data of a JSON file.
        sources: Path → JavaScript, in the order in which they are joined.
    """
    if path in sources:
        return
    source = _read(path)
    if path.endswith(".json"):
        sources[path] = f"const {imported_as} = {source.strip()};"
        return
    for found in _IMPORT.finditer(source):
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), found["path"]))
        _collect(wanted, found["name"] or "", sources)
    sources[path] = _EXPORT.sub("", _IMPORT.sub("", source))


def _read(path: str) -> str:
    return files("attnkit").joinpath(path).read_text(encoding="utf-8")
