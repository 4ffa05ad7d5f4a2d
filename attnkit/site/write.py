"""Writing of the static site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnkit.foundation.files import write_file
from attnkit.site.frame import LOCAL_LAB, html_of
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
    for make in pages(lab):
        page = make()
        contents = {page.file: html_of(page)}
        if page.embedded:
            contents[page.embed_file] = page.embedded
        for name, content in contents.items():
            write_file(folder / name, content)
            files.append(folder / name)
            if say is not None:
                say(f"{name}: {len(content.encode()) / 1000:,.0f} kB")
    return files
