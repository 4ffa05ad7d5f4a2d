"""A text of one's own, whose characters are predicted as those of the task `language`."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from attnkit.foundation.documents import read_file
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.names import composed, without_controls
from attnkit.foundation.settings import disagreement
from attnkit.tasks.language import HIDDEN, RARE, Language, starts_of
from attnkit.tasks.own_data import OwnData, check_present, register_own, wrong_data
from attnkit.tasks.own_files import MOST_BYTES, decoded

FEWEST_CHARACTERS = 2000
"""Smallest number of characters of a text."""

_SPACE = re.compile(r"[^\S\n]")


@register_own
class Text(OwnData, Language):
    """Predict the next or the hidden characters of a text of one's own.

    The hundred commonest characters have ids of their own, and all others share one. The text is
    divided into blocks, and a hash of their content decides which ones are held out: about one in
    eight. Windows of held-out text that also occur in the training text are not evaluated.

    ```
    position   0   1   2   3   4
    token      T   h   e   ␣   i
    label      h   e   ␣   i   f
    ```

    Chance and the loss to beat are those of the task `language`, counted in this text.

    Args:
        text: The text.
        **settings: Dials of the task: `objective`, `length`, `masked_share`.

    Raises:
        InvalidExperiment: If the text cannot be used.
    """

    name: ClassVar[str] = "text"
    title: ClassVar[str] = mark("Your own text")
    source: ClassVar[str] = mark("a text of one's own")

    def __init__(self, text: str | None = None, /, **settings: Any) -> None:
        given = settings.pop("data", "") if text is None else text
        if not isinstance(given, str):
            raise wrong_data(type(given).__name__, mark("a text"))
        super().__init__(data=self.text_form(given), **settings)

    @classmethod
    def read(cls, path: str | Path, **settings: Any) -> Self:
        """Return the task on the text of a file.

        Raises:
            OSError: If the file does not exist or cannot be read.
            BadDocument: If it is too large or no text.
            InvalidExperiment: If the text cannot be used.
        """
        return cls(decoded(read_file(path, MOST_BYTES))[0], **settings)

    @model_validator(mode="after")
    def _check(self) -> Self:
        trained, held_out = starts_of(self._n_characters, self.data)
        if not len(trained) or not len(held_out):
            allowed = mark("a shorter window, or a longer text that repeats itself less")
            raise disagreement("length", self.length, allowed, "data")
        return self

    @classmethod
    @lru_cache(8)
    def text_form(cls, data: str) -> str:
        check_present(data)
        if len(data) > MOST_BYTES:
            got = tr("{n:,} characters", n=len(data))
            raise wrong_data(got, mark("at most {most:,}", most=MOST_BYTES))
        text = _SPACE.sub(" ", data.replace("\r\n", "\n").replace("\r", "\n"))
        text = "\n".join(map(without_controls, text.split("\n")))
        text = composed(text.replace(HIDDEN, RARE))
        if len(text) >= FEWEST_CHARACTERS:
            return text
        got = tr_n("{n:,} character", "{n:,} characters", len(text))
        if text:
            raise wrong_data(got, mark("at least {fewest:,}", fewest=FEWEST_CHARACTERS))
        allowed = mark(
            "at least {fewest:,}: use ak.Text(text) or --data FILE", fewest=FEWEST_CHARACTERS
        )
        raise wrong_data(got, allowed)

    @classmethod
    def size_in_words(cls, data: str) -> str:
        return tr_n("text of {n:,} character", "text of {n:,} characters", len(data))

    @property
    def text(self) -> str:
        return self.data

    @property
    def notes(self) -> list[str]:
        corpus = self.corpus_read
        share = corpus.held_out.mean()
        return [
            tr(
                "The text has {n:,} characters, {different} different ones; {share:.0%} of it is "
                "held out: no training example overlaps with it, and accuracy is measured on "
                "nothing else.",
                n=len(corpus.text),
                different=len(corpus.characters),
                share=share,
            )
        ]
