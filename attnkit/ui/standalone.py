"""Scripts of pages, and a page's figures as one HTML file that needs no server or other file.

A component of Streamlit has one script, and a page that is saved as one file cannot import others.
So an ES module of `attnkit/ui/assets` and all that it imports are joined to one text here. This
module needs no Streamlit.
"""

from __future__ import annotations

import gzip
import json
import posixpath
import re
from base64 import b64encode
from functools import cache
from html import escape
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
    """Return a module joined with all its imports; only its default export is left."""
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
    """Return a joined module for a `<script>` of a page, and the name of its default function."""
    joined = script(name)
    default = _DEFAULT.search(joined)
    if default is None:
        raise ValueError(f"{name}.js: got no default export, allowed one function")
    return _DEFAULT.sub(r"function \1", joined).replace("</script", "<\\/script"), default[1]


def _collect(path: str, imported_as: str, sources: dict[str, str]) -> None:
    """Add a file to `sources` after the files that it imports, each once.

    Args:
        imported_as: Name that the importing module gives to the data of a JSON file.
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


_LIGHT = """--st-text-color: #31333f; --st-background-color: #ffffff;
  --st-border-color: #d0d2da; --st-primary-color: #0b5fa5; --st-green-text-color: #1a6b2d;
  --st-red-text-color: #b3261e;"""

_DARK = """--st-text-color: #fafafa;
  --st-background-color: #0e1117; --st-border-color: #3d4150; --st-primary-color: #4aa3e0;
  --st-green-text-color: #6fd08c; --st-red-text-color: #ff8f87;"""

_LIKE_THE_SYSTEM = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
"""

_LIKE_THE_FRAME = f"""
:root {{ color-scheme: light; {_LIGHT} }}
:root.ak-dark {{ color-scheme: dark; {_DARK} }}
"""

_THEME = """
:root { --st-base-radius: 8px;
  --st-font: "Source Sans 3", "Source Sans Pro", system-ui, sans-serif; }
body { margin: 0 auto; max-width: 1400px; padding: 16px 24px; font-family: var(--st-font);
  color: var(--st-text-color); background: var(--st-background-color); }
h1 { font-size: 1.25rem; margin: 0 0 4px; } p.ak-page-note { margin: 0 0 12px; line-height: 1.45; }
pre { white-space: pre-wrap; }
@media (max-width: 480px) { body { padding: 12px; } }
"""

_FOLLOW_THE_FRAME = """<script>
const frame = window.frameElement; // null where the page around may not be read
let dark = matchMedia("(prefers-color-scheme: dark)").matches;
if (frame) {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(frame).color; // the text around; any notation of a colour
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
  dark = 0.3 * red + 0.59 * green + 0.11 * blue > 127;
}
document.documentElement.classList.toggle("ak-dark", dark);
</script>
"""
"""Script that makes a page dark if the text around its frame is bright."""


def page_html(title: str, body: str, *, style: str = "", framed: bool = False) -> str:
    """Return an HTML file, light or dark like the system.

    Args:
        style: CSS besides that of all pages.
        framed: Whether the file stands in a frame of another page; it is then light or dark like
            that page.
    """
    colors, follow = (_LIKE_THE_FRAME, _FOLLOW_THE_FRAME) if framed else (_LIKE_THE_SYSTEM, "")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{colors}{_THEME}{asset("lab.css")}{asset("film.css")}{asset("print.css")}{style}</style>
{follow}</head>
<body>
{body}
</body>
</html>
"""


def film_html(component: str, blob: bytes, still: str = "") -> str:
    """Return a film as HTML: the film itself, compressed, and the script that shows it.

    A page has one film.

    Args:
        component: Name of the component, which is that of its file in `attnkit/ui/assets`.
        blob: The film with all its frames, as the component reads it.
        still: HTML that stands in its place where scripts are off.
    """
    script, show = inline_script(component)
    packed = b64encode(gzip.compress(blob, mtime=0)).decode()
    return f"""<div id="film">{still}</div>
<script type="text/plain" id="blob">{packed}</script>
<script type="module">
{script}
const text = document.getElementById("blob").textContent;
const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unzipped = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const data = new Uint8Array(await new Response(unzipped).arrayBuffer());
const parentElement = document.getElementById("film");
parentElement.replaceChildren();
{show}({{ data, parentElement }});
</script>"""


def standalone_html(
    title: str,
    component: str,
    blob: bytes,
    note: str = "",
    command: str = "",
    *,
    style: str = "",
    framed: bool = False,
) -> str:
    """Return an HTML file that shows a film as the page does, light or dark like the system.

    Args:
        note: Sentence below the title that says what is shown.
        command: Command that trains the run again; it is folded away below the figures.
    """
    again = f"<pre>{escape(command)}</pre>"
    folded = f"<details><summary>Train it again</summary>{again}</details>" if command else ""
    body = f"""<main>
<h1>{escape(title)}</h1>
<p class="ak-page-note">{escape(note)}</p>
{film_html(component, blob)}
{folded}
</main>"""
    return page_html(title, body, style=style, framed=framed)
