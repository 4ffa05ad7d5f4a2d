"""The text that ships with the package: the help topics of Python 3.11.7.

It is shipped because every release of Python words its help differently. The file beside it with
the ending `LICENSE` holds its licence.
"""

from __future__ import annotations

import gzip
import zlib
from hashlib import blake2b
from pathlib import Path

FILE = Path(__file__).with_name("python_topics.txt.gz")
"""The text as UTF-8, compressed."""

HASH = "32a81e1b87aa94e1"
"""Hash of the text; see `hash_of_text`."""


def read_topics() -> str:
    """Return the help topics in the order of their keys, with an empty line between two of them.

    Raises:
        ValueError: If the file is missing or damaged.
    """
    try:
        text = gzip.decompress(FILE.read_bytes()).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        text = ""
    if hash_of_text(text) != HASH:
        raise ValueError(f"{FILE} is missing or damaged; install attnkit again")
    return text


def hash_of_text(text: str) -> str:
    """Return the hash of a text, in sixteen hexadecimal digits."""
    return blake2b(text.encode(), digest_size=8).hexdigest()
