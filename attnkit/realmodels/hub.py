"""Models on the Hugging Face hub: their files, and the byte ranges of them that are needed.

What is fetched is kept in the hub's folder on this machine, so that a second measurement, or one
that goes on after a stop, fetches nothing twice and needs no network. Files that the library
`huggingface_hub` has in its own cache are read there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from attnkit.foundation.extras import install_hint
from attnkit.foundation.files import write_file
from attnkit.realmodels import errors
from attnkit.realmodels.errors import Unreadable, listing
from attnkit.realmodels.revisions import is_checkpoint, step_of

_NAME = r"(?P<owner>[\w.-]+)/(?P<model>[\w.-]+)"
_ADDRESS = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?:models/)?{_NAME}"
    r"(?:/(?:tree|blob|resolve|raw)/(?P<revision>[^/?#]+)(?:/(?P<inside>[^?#]+))?)?/?(?:[?#].*)?",
    re.ASCII,
)
_SHORT = re.compile(rf"{_NAME}(?:@(?P<revision>[^:\s]+))?(?::(?P<inside>[^\s]+))?", re.ASCII)


_FIRST_BYTES = 2**16
"""Bytes of a file that are fetched first; most headers of safetensors fit."""

_OF_A_MODEL = ("config.json", ".safetensors", ".gguf", ".npz", "model.bin")
"""Endings of the names of files in the folder of a model."""


@dataclass(frozen=True)
class Address:
    """Place of a model on the hub.

    Attributes:
        name: "owner/name".
        revision: Branch, tag or commit; "" for the main branch.
        inside: Folder, file, or number type of a GGUF file such as "Q8_0"; "" for the whole model.
    """

    name: str
    revision: str = ""
    inside: str = ""


def parse_address(source: str) -> Address | None:
    """Return the place on the hub that a source names; None if it is no address of the hub.

    Allowed are owner/name, owner/name@revision, owner/name:Q8_0, owner/name:folder-or-file, and
    addresses of the hub's pages as a browser shows them.
    """
    match = _ADDRESS.fullmatch(source) or _SHORT.fullmatch(source)
    if match is None or match["owner"].startswith("."):
        return None
    revision, inside = (unquote(match[part] or "") for part in ("revision", "inside"))
    return Address(f"{match['owner']}/{match['model']}", revision, inside)


def revisions_of(source: str) -> list[str]:
    """Return a source of each revision that owner/name@revision,revision… names, in their order.

    FOLDER@checkpoint-500,checkpoint-1000 names folders in a folder in the same way, and a folder
    that holds no model itself, but folders of checkpoints, stands for all of these.
    """
    name, _, revisions = source.rpartition("@")
    match = _SHORT.fullmatch(source)
    try:
        path = Path(source).expanduser()
        if path.exists():
            return [str(one) for one in _checkpoints(path)] or [source]
        folders = [Path(name).expanduser() / one for one in revisions.split(",") if one]
        if name and folders and all(folder.is_dir() for folder in folders):
            return list(map(str, folders))
    except (OSError, RuntimeError):  # a name that no file can have; opening it says why
        return [source]
    if match is None or "," not in (match["revision"] or ""):
        return [source]
    inside = f":{match['inside']}" if match["inside"] else ""
    stem = f"{match['owner']}/{match['model']}"
    return [f"{stem}@{one}{inside}" for one in match["revision"].split(",") if one]


def _checkpoints(path: Path) -> list[Path]:
    """Return the folders of checkpoints in a folder; none if it holds a model itself."""
    inside = list(path.iterdir()) if path.is_dir() else []
    if any(one.name.endswith(_OF_A_MODEL) for one in inside):
        return []
    found = [one for one in inside if is_checkpoint(one.name) and one.is_dir()]
    steps = {one: step_of(one.name) for one in found}
    return sorted(found, key=lambda one: (isnan(steps[one]), steps[one], one.name))


@dataclass(frozen=True)
class HubFile:
    """File of a model on the hub, of which byte ranges are fetched.

    What has been fetched is kept in a file of the same size on this machine, whose other bytes are
    zeros that take no place on the disk.

    Attributes:
        address: The model, with the commit as its revision.
        path: Name of the file in the model, with folders.
    """

    address: Address
    path: str

    @property
    def name(self) -> str:
        """Name of the file without folders."""
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """End of the name, from its last dot."""
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        """Name without its end."""
        return Path(self.name).stem

    def with_name(self, name: str) -> HubFile:
        """Return another file in the same folder."""
        return HubFile(self.address, f"{self.path.removesuffix(self.name)}{name}")

    @cached_property
    def _cached(self) -> Path | None:
        """The whole file in the cache of `huggingface_hub`, if it is there."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.address.name, self.path, revision=self.address.revision)
        return Path(found) if isinstance(found, str) else None

    def with_header(self, size_of: Callable[[bytes], int]) -> Path:
        """Return the file on this machine, with its first bytes.

        Args:
            size_of: Function that returns how many they are from some of them.
        """
        local = self.with_bytes(0, _FIRST_BYTES)
        with local.open("rb") as file:
            size = size_of(file.read(_FIRST_BYTES))
        return self.with_bytes(_FIRST_BYTES, size) if size > _FIRST_BYTES else local

    def with_bytes(self, start: int, stop: int) -> Path:
        """Return the file on this machine, with the bytes from `start` to before `stop`.

        Raises:
            Unreadable: If the hub does not deliver them; the message says what you can do.
        """
        if self._cached is not None:
            return self._cached
        local = _kept(self.address.name) / self.address.revision / self.path
        listed = local.with_name(f"{local.name}.ranges")
        ranges = json.loads(listed.read_bytes()) if listed.is_file() else []
        if any(first <= start and stop <= last for first, last in ranges):
            return local
        raw, size = self._fetch(start, stop)
        local.parent.mkdir(parents=True, exist_ok=True)
        with local.open("r+b" if local.exists() else "w+b") as file:
            file.truncate(size)
            file.seek(start)
            file.write(raw)
        write_file(listed, json.dumps([*ranges, [start, stop]]).encode())
        return local

    def _fetch(self, start: int, stop: int) -> tuple[bytes, int]:
        """Return bytes from the hub, fewer at the end of the file, and the size of the file."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            hf_raise_for_status,
            http_backoff,
        )

        url = hf_hub_url(self.address.name, self.path, revision=self.address.revision)
        headers = build_hf_headers() | {"Range": f"bytes={start}-{stop - 1}"}
        with delivered(self.address):
            response = http_backoff("GET", url, headers=headers, follow_redirects=True, timeout=60)
            if response.status_code != 416:  # the file ends before the first byte
                hf_raise_for_status(response)
            raw: bytes = response.content
        if response.status_code == 206:
            total = response.headers.get("Content-Range", "").rpartition("/")[2]
            return raw, int(total) if total.isdecimal() else start + len(raw)
        # A server may send the whole of a small file.
        return raw[start:stop], len(raw)

    def whole(self) -> Path:
        """Download the file, or find it in the cache."""
        from huggingface_hub import hf_hub_download

        if self._cached is not None:
            return self._cached
        with delivered(self.address):
            return Path(
                hf_hub_download(self.address.name, self.path, revision=self.address.revision)
            )


@dataclass(frozen=True)
class HubModel:
    """Files of a model on the hub, at one commit.

    Attributes:
        address: The model, with the commit as its revision.
        paths: Names of all files, with folders.
    """

    address: Address
    paths: tuple[str, ...] = field(default=())


def list_files(address: Address) -> HubModel:
    """Return the files of a model; those in the cache if the hub cannot be reached.

    Raises:
        Unreadable: If there is no such model or revision, or it may not be read.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise Unreadable(
            f"source: there is no file {address.name!r} here; models on the hub need the extra "
            f"`models`: {install_hint('models')}"
        ) from error
    revision = address.revision or None
    kept = _kept(address.name) / f"files of {quote(address.revision or 'main', safe='')}.json"
    try:
        with delivered(address):
            info = HfApi().model_info(address.name, revision=revision, timeout=20)
        commit, paths = info.sha or "main", sorted(one.rfilename for one in info.siblings or ())
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, json.dumps([commit, paths]).encode())
    except Unreachable as error:
        try:
            commit, paths = json.loads(kept.read_bytes())
        except (OSError, ValueError):
            commit, paths = _cached(address, error)
    return HubModel(replace(address, revision=commit), tuple(paths))


def _cached(address: Address, error: Unreachable) -> tuple[str, list[str]]:
    """Return commit and files of a model in the library's cache, or raise the error."""
    from huggingface_hub import snapshot_download

    revision = address.revision or None
    try:
        folder = Path(snapshot_download(address.name, revision=revision, local_files_only=True))
    except Exception as missing:
        raise error from missing
    return folder.name, [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*"))]


def _kept(name: str) -> Path:
    """Return the folder with what has been read of a model."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME, "attnkit", *name.split("/"))


class Unreachable(Unreadable):
    """The hub cannot be reached, so that only what is in the cache can be read."""


@contextmanager
def delivered(address: Address) -> Iterator[None]:
    """Raise Unreadable for whatever the library of the hub raises; the message says what to do."""
    from huggingface_hub import errors as of_hub

    name = address.name
    try:
        yield
    except of_hub.GatedRepoError as error:
        raise Unreadable(
            f"source: {name} is gated; accept its licence at https://huggingface.co/{name}, then "
            "log in on this machine with `hf auth login`"
        ) from error
    except of_hub.RevisionNotFoundError as error:
        raise Unreadable(
            f"source: {name} has no revision {errors.quote(address.revision)}{_revisions(name)}"
        ) from error
    except (of_hub.RepositoryNotFoundError, of_hub.HFValidationError) as error:
        raise Unreadable(
            f"source: there is no file {errors.quote(name)} here, and the hub has no model of that "
            "name; is the name right? A private one is there only after `hf auth login`"
        ) from error
    except Unreadable:
        raise
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise Unreadable(
                f"source: the hub does not let you read {name} (status {status}); log in with "
                "`hf auth login`, and accept the licence on the model's page if there is one"
            ) from error
        if status is not None:
            raise Unreadable(
                f"source: the hub did not deliver {name} (status {status}); try again later"
            ) from error
        raise Unreachable(
            f"source: there is no file {errors.quote(name)} here, and the hub cannot be reached "
            f"({type(error).__name__}): is there a network, and is the name right?"
        ) from error


def _revisions(name: str) -> str:
    """Return the revisions that a model has, for a message; "" if they are not known."""
    from huggingface_hub import HfApi

    try:
        refs: Any = HfApi().list_repo_refs(name)
        names = [one.name for one in (*refs.branches, *refs.tags)]
    except Exception:
        return "; its page on the hub lists them under Files"
    return f"; it has {listing(names)}"
