"""The text of README.md and of the pages in docs/, for tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_PART = re.compile(
    r"^#+ (?P<heading>[^\n]+)$|"
    r"^(?P<reason><!-- not run: [^\n]+ -->\n+)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def sections_with_python() -> dict[str, list[str]]:
    """Return the blocks of Python below each heading, by page and heading.

    A block is left out if the comment above it says why it is not run.
    """
    found: dict[str, list[str]] = {}
    for page in PAGES:
        heading = ""
        for part in _PART.finditer(page.read_text(encoding="utf-8")):
            heading = part["heading"] or heading
            if part["language"] == "python" and not part["reason"]:
                found.setdefault(f"{page.relative_to(ROOT)}: {heading}", []).append(part["code"])
    return found


def example_task() -> str:
    """Return the module of a task that docs/tasks.md shows."""
    (code,) = sections_with_python()["docs/tasks.md: Your own task"]
    return code
