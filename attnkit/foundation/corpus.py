"""The texts that ship with the package, on which tasks train.

They are shipped because every release of Python words its help differently, and every release of
Unicode's locale data changes some names. The file beside each with the ending `LICENSE` holds its
licence.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from attnkit.foundation.settings import InvalidExperiment, Problem


@dataclass(frozen=True)
class ShippedText:
    """A text that ships with the package.

    Attributes:
        file: The text as UTF-8, compressed.
        hash: Hash of the text; see `hash_of_text`.
    """

    file: Path
    hash: str

    def read(self) -> str:
        """Return the text.

        Raises:
            ValueError: If the file is missing or damaged.
        """
        try:
            text = gzip.decompress(self.file.read_bytes()).decode()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            text = ""
        if hash_of_text(text) != self.hash:
            raise ValueError(f"{self.file} is missing or damaged; install attnkit again")
        return text

    def read_for(self, task: str) -> str:
        """Return the text for a task.

        Raises:
            InvalidExperiment: If the file is missing or damaged; the task then cannot be trained.
        """
        try:
            return self.read()
        except ValueError as error:
            raise InvalidExperiment([Problem("task", task, f"but {error}")]) from None


TOPICS = ShippedText(Path(__file__).with_name("python_topics.txt.gz"), "32a81e1b87aa94e1")
"""Help topics of Python 3.11.7 in the order of their keys, with an empty line between two."""

TRANSLATED_NAMES = ShippedText(Path(__file__).with_name("unicode_names.txt.gz"), "ac8d5f42e7482db1")
"""Names of territories, languages and currencies: a heading, then one line per thing; tabs between
the languages, and nothing where Unicode's locale data have no name."""


def hash_of_text(text: str) -> str:
    """Return the hash of a text, in sixteen hexadecimal digits."""
    return blake2b(text.encode(), digest_size=8).hexdigest()
