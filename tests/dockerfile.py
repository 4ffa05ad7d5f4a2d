"""What the Dockerfile says, for its tests and for `hosted.py`, which starts its command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Dockerfile:
    """Its instructions: name and text, continued lines joined, comments left out."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
        found = (line.partition(" ") for line in joined.splitlines() if line.strip())
        self.instructions = [(name, rest.strip()) for name, _, rest in found]

    def all(self, name: str) -> list[str]:
        """The texts of all instructions of one kind, in their order."""
        return [text for kind, text in self.instructions if kind == name]

    @property
    def command(self) -> list[str]:
        """What starts the server."""
        return json.loads(self.all("CMD")[-1])

    @property
    def options(self) -> dict[str, str]:
        """Streamlit's options in the command."""
        given = (word[2:] for word in self.command if word.startswith("--"))
        return dict(word.split("=", maxsplit=1) for word in given)

    @property
    def health(self) -> list[str]:
        """What asks whether the server is well."""
        return json.loads(self.all("HEALTHCHECK")[-1].partition("CMD ")[2])

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables while the server runs."""
        words = [word for text in self.all("ENV") for word in shlex.split(text)]
        return dict(word.split("=", maxsplit=1) for word in words)

    @property
    def copied(self) -> list[tuple[str, str]]:
        """Files and folders that come from here, and where they go."""
        found = []
        for text in self.all("COPY"):
            *sources, target = text.split()
            found += [(source, target) for source in sources]
        return found


def read() -> Dockerfile:
    """This repository's."""
    return Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
