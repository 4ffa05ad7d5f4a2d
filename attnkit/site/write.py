"""Writing of the static site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from plotly.offline import get_plotlyjs

from attnkit.foundation.files import write_file
from attnkit.site.frame import LOCAL_LAB, PLOTLY, html_of
from attnkit.site.pages import pages


def write_site(
    folder: Path, lab: str = LOCAL_LAB, say: Callable[[str], None] | None = None
) -> list[Path]:
    """Write the static site into a folder, and return its files.

    Films are trained on this machine, some seconds for each task.

    Args:
        folder: The folder, which is made if there is none.
        lab: Address of the Lab that the buttons open.
        say: Called with a line about each file that is written.

    Raises:
        OSError: If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []

    def write(name: str, content: str) -> None:
        write_file(folder / name, content)
        files.append(folder / name)
        if say is not None:
            say(f"{name}: {len(content.encode()) / 1000:,.0f} kB")

    write(PLOTLY, get_plotlyjs())
    for make in pages(lab):
        page = make()
        write(page.file, html_of(page))
        if page.embedded:
            write(page.embed_file, page.embedded)
    return files
