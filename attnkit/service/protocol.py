"""Messages between the server and its training process.

A message is a frozen dataclass. It travels as one JSON line, which names its type and holds its
fields and the sizes of its blobs, followed by the bytes of the blobs. Texts for people arrive in a
form that can still be translated.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import IO, Any, Literal

from attnkit.foundation import language
from attnkit.training.engine import Engine
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

State = Literal["waiting", "running", "paused", "finished", "stopped", "failed"]

Verb = Literal["pause", "resume", "step", "stop"]


@dataclass(frozen=True, kw_only=True)
class Start:
    """Command: train an experiment.

    Attributes:
        job: Id of the job.
        experiment: JSON of the experiment.
        address: Address from which it was submitted; jobs of one address share its turns.
        seconds: Training time after which it is stopped.
        paused: Whether it pauses at once.
        missing: JSON of the experiment without variants whose finished runs the server has. Only
            this is trained if this process would give the others the same bits.
        maker: `Maker` of the finished runs; empty if there are none.
        resumes: Id of a stopped job to continue; empty if there is none.
        step: Step that the stopped job had reached; no snapshots of earlier steps are sent.
    """

    job: str
    experiment: str
    address: str = ""
    seconds: float = float("inf")
    paused: bool = False
    missing: str = ""
    maker: tuple[str, ...] = ()
    resumes: str = ""
    step: int = 0


@dataclass(frozen=True)
class GiveModule:
    """Command: let text forms name a class of attention of one's own.

    Attributes:
        file: Path of its file.
        wanted: Name of the class.
        code: Content of the file when it was loaded.
        sizes: Sizes of a wiring at which facts are asked for; the training process ignores them.
    """

    file: str
    wanted: str
    code: bytes
    sizes: dict[str, Any] | None = None


@dataclass(frozen=True)
class Steer:
    """Command to a job that has begun; commands to one job are numbered from 1."""

    job: str
    verb: Verb
    number: int


@dataclass(frozen=True)
class MeasurePace:
    """Command: measure how fast this machine trains, for estimates."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request that changes no job.

    Attributes:
        request: Its id.
        address: Address from which it comes; its answer takes turns of this address.
        visitor: Browser from which it comes; browsers of one address take turns.
    """

    request: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    address: str = ""
    visitor: str = ""

    @property
    def key(self) -> bytes:
        """Encoded request without its id and sender; equal keys have equal answers."""
        return encode(replace(self, request="", address="", visitor=""))


@dataclass(frozen=True, kw_only=True)
class DrawExample(Request):
    """Request for one held-out example of the task of an experiment, which is given as JSON."""

    experiment: str


@dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """Request to the models of a job.

    Attributes:
        job: Id of the job.
        trainers: For each variant the id of the job that has trained it.
        experiment: JSON of the job's experiment, with the filmed seed only.
    """

    job: str = ""
    trainers: tuple[str, ...] = ()
    experiment: str = ""


@dataclass(frozen=True, kw_only=True)
class Ask(ModelRequest):
    """Request for the answers to a phone book.

    Attributes:
        tokens: (i, fields) entries, followed by as many questions.
        example: Name of the task whose shipped models answer instead of those of a job.
    """

    tokens: list[list[int]]
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class Inspect(ModelRequest):
    """Request for an inspection, `Inspection.to_dict`, of the film of a job."""

    inspection: dict[str, Any]


@dataclass(frozen=True)
class Withdraw:
    """Command to drop a request, because nobody waits for its answer any more."""

    request: str


@dataclass(frozen=True)
class Beat:
    """Sign of life."""


@dataclass(frozen=True)
class Turn:
    """Whose turn comes next: ids of a job or of equal requests, which are blamed if it dies."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Pace:
    """Seconds per unit of `training_work` that an engine needs on this machine."""

    pace: float
    engine: Engine


@dataclass(frozen=True)
class Answer:
    """Answer to equal requests.

    Attributes:
        requests: Ids of the requests.
        error: Reason why there is no answer.
        gone: Whether the film that it needs was dropped.
    """

    requests: tuple[str, ...]
    blob: bytes = b""
    error: str = ""
    gone: bool = False


@dataclass(frozen=True)
class Update:
    """Present state of a job.

    Attributes:
        obeyed: Number of the last command that the job has obeyed.
        error: Reason why it failed or was stopped.
        snapshot: `Snapshot.to_bytes`; empty if it has failed.
        parameters: Second part of `Result.to_blobs` of a finished job.
    """

    job: str
    state: State
    obeyed: int = 0
    error: str = ""
    snapshot: bytes = b""
    parameters: bytes = b""

    def decode(self) -> tuple[Snapshot | None, Result | None]:
        """Return the snapshot, and the result of a finished job.

        Raises:
            ValueError: If the bytes are neither.
        """
        if not self.snapshot:
            return None, None
        snapshot = Snapshot.from_bytes(self.snapshot)
        finished = self.state == "finished"
        return snapshot, Result.from_blobs(snapshot, self.parameters) if finished else None


Command = Start | GiveModule | Steer | MeasurePace | Request | Withdraw
"""Messages of the server."""

Message = Command | Beat | Turn | Pace | Answer | Update

_TYPES = (
    *(Start, GiveModule, Steer, MeasurePace, DrawExample, Ask, Inspect, Withdraw),
    *(Beat, Turn, Pace, Answer, Update),
)

_BY_NAME: dict[str, type[Any]] = {each.__name__: each for each in _TYPES}


def encode(message: Message) -> bytes:
    """Return the bytes of a message, from which `read` reads it."""
    fields = vars(message)
    blobs = {name: value for name, value in fields.items() if isinstance(value, bytes)}
    header = {
        "message": type(message).__name__,
        "fields": {
            name: language.packed(value) for name, value in fields.items() if name not in blobs
        },
        "sizes": {name: len(blob) for name, blob in blobs.items()},
    }
    return b"".join([json.dumps(header).encode(), b"\n", *blobs.values()])


def read(stream: IO[bytes]) -> Any:
    """Wait for one message and return it.

    Raises:
        EOFError: If the other side has ended.
        ValueError: If it sends an invalid message.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the other process has ended")
    header = json.loads(line)
    blobs = {}
    for name, size in header["sizes"].items():
        blobs[name] = stream.read(size)
        if len(blobs[name]) < size:
            raise EOFError("the other process ended in the middle of a message")
    fields = {name: language.unpacked(value) for name, value in header["fields"].items()}
    return _BY_NAME[header["message"]](**fields, **blobs)
