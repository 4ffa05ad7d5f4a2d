"""No file of a model can do more than be refused, in one line, soon, and in little memory."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_files import hostile, mutated, whole

SECONDS, MEGABYTES = 1.0, 200.0
"""What a damaged file may take of a processor and of memory."""


@dataclass
class Outcome:
    """What came of one file."""

    name: str
    path: Path
    outcome: str
    said: str
    seconds: float
    megabytes: float


def outcomes(cases):
    """Everything read in one process of its own, whole files first."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hostile_reading.py"))],
        input=json.dumps([str(path) for _, path in cases]),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    lines = done.stdout.splitlines()
    return [Outcome(*case, **json.loads(line)) for case, line in zip(cases, lines, strict=True)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The whole files, and all with a lie."""
    folder = tmp_path_factory.mktemp("hostile")
    intact = whole(folder)
    found = outcomes([*intact, *hostile(folder)])
    return found[: len(intact)], found[len(intact) :]


def test_files_without_a_lie_are_read(files):
    """So that it is the lie for which the others are refused."""
    assert [(file.name, file.outcome, file.said) for file in files[0]] == [
        (file.name, "read", "") for file in files[0]
    ]


def test_at_least_two_hundred_files_are_refused(files):
    """Every one with a lie: none is read, and none ends in another error."""
    assert len(files[1]) >= 200
    ends = [file.path.suffix for file in files[1]]
    assert min(ends.count(end) for end in (".safetensors", ".gguf", ".bin", ".npz")) >= 60
    wrong = [(f.name, f.outcome, f.said) for f in files[1] if f.outcome != "unreadable"]
    assert wrong == []


def test_each_is_told_in_one_line_without_names_of_errors_or_paths(files):
    """What a person reads who uploaded it."""
    for file in files[1]:
        assert file.said.strip(), file.name
        assert file.said.isprintable(), (file.name, file.said)
        assert len(file.said) <= 1200, (file.name, file.said)
        assert not re.search(r"\w(Error|Exception)\b|Traceback", file.said), (file.name, file.said)
        if not file.said.startswith("source:"):  # which says again what was asked for
            assert str(file.path.parent) not in file.said, (file.name, file.said)


def test_each_is_refused_within_a_second_and_little_memory(files):
    """Of the processor's time; memory is the most the process ever had, less that before."""
    assert max((f.seconds, f.name) for f in files[1])[0] <= SECONDS
    assert sum(f.megabytes for f in files[1]) <= MEGABYTES


def test_bytes_changed_at_random_are_refused_or_read(tmp_path):
    """Never another error, whatever is in the header."""
    found = outcomes(mutated(tmp_path, 100))
    assert {file.outcome for file in found} <= {"read", "unreadable"}
    assert max(file.seconds for file in found) <= SECONDS
    assert sum(file.megabytes for file in found) <= MEGABYTES
