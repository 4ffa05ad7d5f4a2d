"""Damaged and altered rows of the result store: they are absent until they are put again."""

import pytest
from kinds import tiny
from sqlalchemy import text
from storing import made
from table_rows import UNKNOWN, alter, connected, put, stored

from attnkit.experiment.experiment import hash_of
from attnkit.service.table import RESULTS, checksum
from attnkit.training import Training

TORN_SNAPSHOTS = {
    "snapshot cut": {"snapshot": made(1).to_blobs()[0][:1000]},
    "snapshot of another": {"snapshot": made(2).to_blobs()[0]},
    "both checksums": {"checksum": "0" * 32, "snapshot_checksum": "0" * 32},
}

TORN_PARAMETERS = {
    "parameters cut": {"parameters": made(1).to_blobs()[1][:-1]},
    "parameters empty": {"parameters": b""},
    "parameters of another": {"parameters": made(2).to_blobs()[1]},
    "checksum": {"checksum": "0" * 32},
}

TORN = TORN_SNAPSHOTS | TORN_PARAMETERS


def of_a_text():
    """Return a result of a task that reads a text of this package."""
    training = Training(tiny("language", sharing="QKV", n_seeds=1), "cpu")
    training.advance(8)
    return training.result()


@pytest.mark.parametrize("change", TORN.values(), ids=TORN)
def test_a_torn_row_is_absent_until_it_is_put_again(where, open_store, change):
    """A torn row is absent; a second put makes it whole and keeps name and pin."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    store.rename(one, "kept")
    store.pin(one, True)
    alter(where, one, **change)
    assert store.result(one) is None
    assert (store.snapshot(one) is None) == (change in TORN_SNAPSHOTS.values())
    assert store.result(two) is not None
    result = made(1)
    assert store.put(*result.to_blobs()) is True
    assert store.result(one).to_blobs() == result.to_blobs()
    by_hash = {entry.hash: entry for entry in store.entries()}
    assert (by_hash[one].name, by_hash[one].pinned) == ("kept", True)


def test_a_result_of_another_text_is_absent_until_it_is_put_again(where, open_store, monkeypatch):
    """A result of a text with another fingerprint is absent until it is put again."""
    store = open_store(where)
    result = of_a_text()
    key = result.experiment.hash
    with monkeypatch.context() as other:
        other.setattr(type(result.experiment.task), "fingerprint", "another text")
        assert store.put(*result.to_blobs()) is True
    assert store.result(key) is None
    assert store.put(*result.to_blobs()) is True
    assert store.result(key).to_blobs() == result.to_blobs()


def test_a_row_whose_snapshot_cannot_be_checked_is_put_again(where, open_store):
    """A row with a wrong checksum of its snapshot is replaced by the next put."""
    store = open_store(where)
    (one,) = put(store, 1)
    alter(where, one, snapshot_checksum="0" * 32)
    assert store.snapshot(one) is None
    assert store.put(*made(1).to_blobs()) is True
    assert store.snapshot(one) is not None


def test_an_experiment_is_known_by_its_hash(where, open_store):
    """An experiment that is unknown, altered or of a foreign task reads as None."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    assert store.experiment(one) == made(1).experiment
    assert store.experiment(UNKNOWN) is None
    assert store.experiment("' OR 1=1 --") is None
    alter(where, one, text=made(2).experiment.to_json())
    assert store.experiment(one) is None
    foreign = made(2).experiment.to_json().replace("directed", "theirs")
    alter(where, two, text=foreign, hash=hash_of(foreign))
    assert store.experiment(hash_of(foreign)) is None


def test_a_row_under_another_hash_is_absent(where, open_store):
    """A whole row under another hash is absent."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    store.delete(one)
    blobs = made(2).to_blobs()
    checksums = {"checksum": checksum(one, *blobs), "snapshot_checksum": checksum(one, blobs[0])}
    alter(where, two, hash=one, **checksums)
    assert store.result(one) is None
    assert store.snapshot(one) is None
    assert store.entries() == []


def test_an_altered_entry_is_left_out(where, open_store):
    """A row with altered settings or an impossible date is left out of the list."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    alter(where, one, text=made(2).experiment.to_json())
    assert stored(store) == {two}
    alter(where, two, created_at=2**62)
    assert store.entries() == []


@pytest.mark.parametrize("value", ["'text'", "x'ff'", "1e300", "-7"])
@pytest.mark.parametrize("column", [c.name for c in RESULTS.c if c.name != "hash"])
def test_a_value_of_another_type_does_no_harm(tmp_path, open_store, column, value):
    """A value of another type in any column of SQLite affects its own row only."""
    store = open_store(tmp_path)
    one, two = put(store, 1, 2)
    with connected(tmp_path) as connection:
        connection.execute(text(f"UPDATE results SET {column} = {value} WHERE hash = '{one}'"))
    if column == "snapshot_checksum":
        assert store.snapshot(one) is None
    elif column in ("snapshot", "parameters", "checksum"):
        assert store.result(one) is None
    assert store.result(two) is not None
    assert two in stored(store)
    assert store.n_bytes() > 0
    store.put(*made(1).to_blobs())
    assert store.put(*made(3).to_blobs()) is True
    assert store.result(one) is not None
    assert store.notes == []
