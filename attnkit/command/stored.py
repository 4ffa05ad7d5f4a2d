"""The store of results that `train --store` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnkit.command.arguments import BadInput
from attnkit.command.outputs import got_path, say
from attnkit.experiment import Experiment

if TYPE_CHECKING:
    from attnkit.service.store import ResultStore
    from attnkit.training.results import Result


class OptionalStore:
    """Store of results for one command, or no store.

    Args:
        address: A folder or the URL of a database. Empty: the store of the environment. None: no
            store; nothing is found or saved.

    Raises:
        BadInput: On construction and in every method, if the store cannot be used.
    """

    def __init__(self, address: str | None) -> None:
        self._store: ResultStore | None = None
        if address is not None:
            if "\0" in address:
                got = got_path("--store", address)
                raise BadInput(f"{got}, but no address has a null character")
            from attnkit.service.server import server_settings
            from attnkit.service.store import ResultStore

            with self._errors():
                server = server_settings()
                address = address or server.store
                self._store = ResultStore(address, megabytes=server.store_megabytes)

    def find(self, experiment: Experiment, device: str) -> Result | None:
        """Return the stored result of an experiment if training would give the same bits.

        A line on standard error says that it is stored, or that another engine, another kind of
        processor or other versions trained it; then None is returned.
        """
        if self._store is None:
            return None
        with self._errors():
            result = self._store.result(experiment.hash)
        if result is None:
            return None
        from attnkit.training.maker import Maker
        from attnkit.training.training import pick_device

        maker, here = result.snapshot.maker, Maker.here(pick_device(device))
        same, outcome = maker == here, ": nothing is trained"
        if not same:
            outcome = f", but {maker} trained it: it is trained again by {here}"
        say(f"experiment {experiment.hash} is stored{outcome}")
        return result if same else None

    def put(self, result: Result) -> None:
        """Store a result if its training is finished."""
        if self._store is not None and result.snapshot.status == "finished":
            with self._errors():
                self._store.put(*result.to_blobs())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Report errors of the store as `BadInput`, print the store's notes, and close it."""
        from attnkit.service.store import Unavailable

        try:
            yield
        except Unavailable as error:
            raise BadInput(f"--store: {error}") from None
        finally:
            if self._store is not None:
                self._store.close()
                while self._store.notes:
                    say(self._store.notes.pop(0))
