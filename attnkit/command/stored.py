"""The store that `train --store` names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnkit.command.arguments import BadInput
from attnkit.command.outputs import given_as
from attnkit.experiment import Experiment

if TYPE_CHECKING:
    from attnkit.results import Result
    from attnkit.store import ResultStore


class Stored:
    """Results that are kept between commands.

    Args:
        where: a folder or the URL of a database; empty for what the environment says; None if
            nothing is kept.

    Raises:
        BadInput: here and in every method, if the store cannot be used.
    """

    def __init__(self, where: str | None) -> None:
        self._opened: ResultStore | None = None
        if where is not None:
            if "\0" in where:
                raise BadInput(f"{given_as('--store', where)}, but no address has a null character")
            from attnkit.server import server_settings
            from attnkit.store import ResultStore

            with self._errors():
                server = server_settings()
                self._opened = ResultStore(where or server.store, megabytes=server.store_megabytes)

    def recall(self, experiment: Experiment) -> Result | None:
        """Return the stored result and say so on standard error; None if there is none."""
        if self._opened is None:
            return None
        with self._errors():
            result = self._opened.result(experiment.hash)
        if result is not None:
            print(f"experiment {experiment.hash} is stored: nothing is trained", file=sys.stderr)
        return result

    def keep(self, result: Result) -> None:
        """Store a result that was trained to its end."""
        if self._opened is not None and result.snapshot.status == "finished":
            with self._errors():
                self._opened.put(*result.to_blobs())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the store as `BadInput`, and print its notes on files it moved aside."""
        from attnkit.store import Unavailable

        try:
            yield
        except Unavailable as error:
            raise BadInput(f"--store: {error}") from None
        finally:
            while self._opened is not None and self._opened.notes:
                print(self._opened.notes.pop(0), file=sys.stderr)
