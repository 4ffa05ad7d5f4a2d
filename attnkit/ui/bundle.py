"""Scripts for components and pages, joined from the ES modules in `attnkit/ui/assets`.

A component of Streamlit has one script, and a page that is saved as one file cannot import others.
So a module and everything that it imports are joined to one text here.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import cache
from importlib.resources import files

from attnkit.foundation.language import ENGLISH, script_messages

_ASSETS = "ui/assets"

_MESSAGES = f"{_ASSETS}/messages.json"
"""The file of translations that scripts import: it has none."""

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
def script(name: str, code: str = ENGLISH) -> str:
    """Return a module joined with all its imports; only its default export is left.

    Args:
        name: Name of the module's file in `attnkit/ui/assets`, without its suffix.
        code: Code of the language of its texts.
    """
    sources: dict[str, str] = {}
    _collect(f"{_ASSETS}/{name}.js", "", sources)
    if code != ENGLISH and _MESSAGES in sources:
        known = script_messages(code)
        own = [known.get(posixpath.basename(path), {}) for path in sources]
        texts = {message: text for one in own for message, text in one.items()}
        sources[_MESSAGES] = f"const MESSAGES = {json.dumps({'language': code, 'texts': texts})};"
    *imported, entry = sources.values()
    return "\n".join([*(_DEFAULT.sub(r"function \1", source) for source in imported), entry])


def inline_script(name: str) -> tuple[str, str]:
    """Return a joined module for a `<script>` of a page, and the name of its default function.

    Raises:
        ValueError: If the module has no default export.
    """
    joined = script(name)
    default = _DEFAULT.search(joined)
    if default is None:
        raise ValueError(f"{name}.js: got no default export, allowed one function")
    return _DEFAULT.sub(r"function \1", joined).replace("</script", "<\\/script"), default[1]


def _collect(path: str, imported_as: str, sources: dict[str, str]) -> None:
    """Add a file to `sources` after the files that it imports, each once.

    Args:
        path: Path of the file in the package.
        imported_as: Name that the importing module gives to the data of a JSON file.
        sources: JavaScript by path, in the order in which it is joined.
    """
    if path in sources:
        return
    source = _read(path)
    if path.endswith(".json"):
        sources[path] = f"const {imported_as} = {source.strip()};"
        return
    for match in _IMPORT.finditer(source):
        imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["path"]))
        _collect(imported, match["name"] or "", sources)
    sources[path] = _EXPORT.sub("", _IMPORT.sub("", source))


def _read(path: str) -> str:
    return files("attnkit").joinpath(path).read_text(encoding="utf-8")
