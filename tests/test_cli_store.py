"""The option `--store`: stored results are not trained again, and a bad store is one line."""

import contextlib
import json

import pytest
from command_lines import SMALL

from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.results import Result


def test_a_stored_experiment_is_not_trained_again(run, tmp_path):
    """It gives the same output, and its files; one of other settings is stored beside it."""
    where = str(tmp_path / "data")
    code, output, errors = run(*SMALL, "--store", where, "--json", "-")
    assert (code, "stored" in errors) == (0, False)
    again = run(*SMALL, "--store", where, "--json", "-", "--out", str(tmp_path / "result"))
    document = json.loads(output)
    message = f"experiment {document['hash']} is stored: nothing is trained\n"
    assert again == (0, output, message)
    assert Result.load(tmp_path / "result").to_dict() == document
    code, _, errors = run(*SMALL, "--store", where, "--steps", "13")
    assert (code, "stored" in errors) == (0, False)
    with contextlib.closing(ResultStore(where)) as store:
        assert len(store.entries()) == 2


def test_a_stored_result_of_another_engine_is_trained_again(run, tmp_path, monkeypatch):
    """A stored result of another engine is trained again and replaced, and a line says so."""
    where = str(tmp_path)
    for engine, then in (("kernel", ""), ("torch", "again"), ("torch", "nothing is trained")):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        code, output, errors = run(*SMALL, "--store", where, "--json", "-")
        assert (code, json.loads(output)["engine"]) == (0, engine)
        assert then in errors
    with contextlib.closing(ResultStore(tmp_path)) as store:
        assert store.snapshot(json.loads(output)["hash"]).engine == "torch"


@pytest.mark.parametrize("variable", ["ATTNKIT_STORE", "XDG_DATA_HOME"])
def test_store_alone_is_where_the_environment_says(run, tmp_path, monkeypatch, variable):
    """`--store` alone uses `ATTNKIT_STORE`, or else the user's data folder."""
    monkeypatch.delenv("ATTNKIT_STORE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    server_settings.cache_clear()
    code, _, _ = run("train", "--store", *SMALL[1:])
    folder = tmp_path if variable == "ATTNKIT_STORE" else tmp_path / "attnkit"
    assert code == 0
    assert (folder / "results.sqlite").is_file()


def test_without_store_nothing_is_stored(run, tmp_path, monkeypatch):
    """Without `--store` nothing is stored, although `ATTNKIT_STORE` is set."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    assert run(*SMALL)[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("mysql://host/db", "its address is neither a folder nor of"),
        ("postgresql://me:secret@127.0.0.1:1/db", "the database cannot be reached"),
        ("/dev/null", "its folder cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_before_training(run, where, reason):
    """An unusable store is one line before training, with the reason and no password."""
    code, output, errors = run(*SMALL, "--store", where)
    assert (code, output) == (2, "")
    assert errors.startswith(f"attnkit: error: --store: {reason}")
    assert errors.count("\n") == 1
    assert "secret" not in errors


def test_a_store_that_fails_after_training_loses_no_numbers(run, tmp_path, monkeypatch):
    """A store that fails after training leaves the numbers on the output."""

    def refuse(*_):
        raise Unavailable("the disk is full")

    monkeypatch.setattr(ResultStore, "put", refuse)
    code, output, errors = run(*SMALL, "--store", str(tmp_path), "--json", "-")
    assert code == 2
    assert json.loads(output)["status"] == "finished"
    assert errors.endswith("attnkit: error: --store: the disk is full\n")


def test_a_file_that_was_moved_aside_is_told(run, tmp_path):
    """A file that is no database is moved aside under a name that is printed."""
    (tmp_path / "results.sqlite").write_text("no database " * 1000)
    code, _, errors = run(*SMALL, "--store", str(tmp_path))
    assert code == 0
    assert "It is called results.sqlite.broken-1 now.\n" in errors
