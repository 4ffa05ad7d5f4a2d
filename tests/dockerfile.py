"""What the Dockerfile says, for its tests and for programs that start its command."""

import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Dockerfile:
    """Instructions of a Dockerfile: name and text, continued lines joined, no comments."""

    def __init__(self, text):
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
        found = (line.partition(" ") for line in joined.splitlines() if line.strip())
        self.instructions = [(name, rest.strip()) for name, _, rest in found]
        words = [word for text in self.all("ENV") for word in shlex.split(text)]
        self.environment = dict(word.split("=", maxsplit=1) for word in words)
        self.command = json.loads(self.all("CMD")[-1])
        self.health = json.loads(self.all("HEALTHCHECK")[-1].partition("CMD ")[2])
        copies = [text.split() for text in self.all("COPY")]
        self.copied = [(source, target) for *sources, target in copies for source in sources]

    def all(self, name):
        """Return the texts of all instructions of one kind, in their order."""
        return [text for kind, text in self.instructions if kind == name]


def read():
    """Return the Dockerfile of this repository."""
    return Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
