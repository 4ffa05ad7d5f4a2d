"""Attention of one's own on a server: its code is executed in processes of its own.

Code that somebody wrote may fail, print, or never end. A server reads such a file without executing
it. A second process, `python -m attnkit.service.modules`, executes it, tries it at the sizes that a
page asks for, and answers with facts; one that takes too long is killed. The training process gets
the code after that. There is no torch in the server's part of this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.foundation.settings import message_of
from attnkit.service.process import ChildProcess
from attnkit.service.protocol import Answer, GiveModule, encode, read
from attnkit.variants import Variant
from attnkit.variants.module import (
    OWN_MODULES,
    OwnModule,
    read_code,
    register_module,
    variant_of_code,
)
from attnkit.variants.wiring import ModuleFacts, Sizes

STARTING_SECONDS = 60.0
"""Seconds until the first answer, in which the process imports torch."""

ANSWER_SECONDS = 30.0
"""Seconds until any later answer."""


class OwnModules:
    """Classes that visitors have loaded, and the process that tries them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._has_answered = False
        self._loaded: dict[str, GiveModule] = {}

    @property
    def commands(self) -> list[GiveModule]:
        """Commands that give all loaded classes to a training process."""
        return list(self._loaded.values())

    def start(self) -> None:
        """Start the other process, if it does not run, so that it is ready when it is needed."""
        with self._lock:
            self._process = self._process or ChildProcess("attnkit.service.modules")

    def load(self, file: str, wanted: str) -> tuple[Variant, GiveModule]:
        """Execute a file in the other process; return the variant of its class, and its command.

        Raises:
            ValueError: If the file cannot be read or fails, or has no such class.
        """
        command = GiveModule(file, wanted, read_code(file))
        value = str(self.ask(command)["value"])
        self._loaded[value] = command

        def facts_at(sizes: Sizes) -> ModuleFacts:
            return ModuleFacts.from_dict(self.ask(replace(command, sizes=asdict(sizes))))

        return register_module(value, OwnModule(wanted, Path(file).name, facts_at)), command

    def changed(self, variant: Variant) -> tuple[str, str] | None:
        """Return file and class of a variant whose file has changed since it was loaded, or None.

        A file that is gone has not changed.
        """
        option = variant.given.get("module")
        command = None if option is None else self._loaded.get(option.value)
        if command is None:
            return None
        with contextlib.suppress(ValueError):
            if read_code(command.file) != command.code:
                return command.file, command.wanted
        return None

    def ask(self, command: GiveModule) -> dict[str, Any]:
        """Return the answer of the other process to a command.

        Raises:
            ValueError: If it is an error, or if none comes in time.
        """
        with self._lock:
            process = self._process = self._process or ChildProcess("attnkit.service.modules")
            process.send(command)
            seconds = ANSWER_SECONDS + STARTING_SECONDS * (not self._has_answered)
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            try:
                answer = process.read()
                assert isinstance(answer, Answer)
            except (EOFError, ValueError):
                self._end()
                raise ValueError(_too_late(command)) from None
            finally:
                timer.cancel()
            self._has_answered = True
        if answer.error:
            raise ValueError(answer.error)
        found: dict[str, Any] = json.loads(answer.blob)
        return found

    def close(self) -> None:
        """End the other process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        """End the other process at once, if it runs; the next question starts another."""
        process, self._process, self._has_answered = self._process, None, False
        if process is not None:
            process.end()
            process.close()


_WARM_UP = b"""
from torch import nn
class Layer(nn.Linear):
    def __init__(self, d_model):
        super().__init__(d_model, d_model)
"""
"""Code of a layer that is tried first, because torch imports and sets up much on first use."""

_LONGEST_ERROR = 1000
"""Largest number of characters of an error."""


def _too_late(command: GiveModule) -> str:
    """Return the error of a class whose process has not answered a command in time."""
    values = {
        "name": command.wanted,
        "file": Path(command.file).name,
        "seconds": f"{ANSWER_SECONDS:.0f}",
    }
    if command.sizes is None:
        return mark(
            "{name} in {file}: it takes more than {seconds} seconds, or ends its process, while "
            "it is loaded",
            **values,
        )
    return mark(
        "{name} in {file}: it takes more than {seconds} seconds, or ends its process, while it "
        "computes a small batch",
        **values,
    )


def answer_to(command: GiveModule) -> Answer:
    """Execute the code of a class, and return its value in text forms or its facts at sizes."""
    try:
        variant = variant_of_code(command.code, command.file, command.wanted)
        value = variant.given["module"].value
        found: dict[str, Any] = {"value": value}
        if command.sizes is not None:
            found = asdict(OWN_MODULES[value].layers(Sizes(**command.sizes)))
    except Exception as error:  # code of somebody else may raise anything
        is_ours = isinstance(error, ValueError)
        text = message_of(error) if is_ours else f"{type(error).__name__}: {error}"
        return Answer((), error=text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR])
    return Answer((), json.dumps(found).encode())


def main() -> None:
    """Answer commands until standard input ends."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not break a frame
    commands = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # code may read it
    Experiment(sharing=[variant_of_code(_WARM_UP, "warm_up.py", "Layer")])
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            output.write(encode(answer_to(read(commands))))
            output.flush()


if __name__ == "__main__":
    main()
