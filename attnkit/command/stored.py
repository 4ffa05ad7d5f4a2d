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
    from attnkit.service.store import ResultStore
    from attnkit.training.results import Result


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
            from attnkit.service.server import server_settings
            from attnkit.service.store import ResultStore

            with self._errors():
                server = server_settings()
                self._opened = ResultStore(where or server.store, megabytes=server.store_megabytes)

    def recall(self, experiment: Experiment, device: str) -> Result | None:
        """Return the stored result if training would give the same bits, else None.

        A line on standard error says that it was found, or that another engine or another kind of
        processor trained it.
        """
        if self._opened is None:
            return None
        with self._errors():
            result = self._opened.result(experiment.hash)
        if result is None:
            return None
        from attnkit.foundation.machine import processor_kind
        from attnkit.training.engine import ready_engine
        from attnkit.training.training import pick_device

        chosen = pick_device(device)
        same = result.snapshot.maker == (ready_engine(chosen), processor_kind(chosen))
        told = ": nothing is trained"
        if not same:
            told = f", but {result.snapshot.trained_by} trained it: it is trained again"
        print(f"experiment {experiment.hash} is stored{told}", file=sys.stderr)
        return result if same else None

    def keep(self, result: Result) -> None:
        """Store a result that was trained to its end."""
        if self._opened is not None and result.snapshot.status == "finished":
            with self._errors():
                self._opened.put(*result.to_blobs())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the store as `BadInput`, and print its notes on files it moved aside."""
        from attnkit.service.store import Unavailable

        try:
            yield
        except Unavailable as error:
            raise BadInput(f"--store: {error}") from None
        finally:
            while self._opened is not None and self._opened.notes:
                print(self._opened.notes.pop(0), file=sys.stderr)
