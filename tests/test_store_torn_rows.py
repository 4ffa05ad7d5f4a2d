"""Damaged and altered rows of the result store: they are absent until they are put again."""

import random

from kinds import tiny
from sqlalchemy import text
from storing import made
from table_rows import UNKNOWN, alter, connected, put, stored

from attnkit.experiment.experiment import hash_of
from attnkit.service.table import RESULTS, checksum
from attnkit.training import Training


def test_a_torn_row_is_absent_until_it_is_put_again(where, open_store):
    """A second put makes it whole and keeps name and pin; a snapshot needs its own part only."""
    store, result, other = open_store(where), made(1), made(2).to_blobs()
    one, two = put(store, 1, 2)
    store.rename(one, "kept")
    store.pin(one, True)
    torn_snapshots = [
        {"snapshot": result.to_blobs()[0][:1000]},
        {"snapshot": other[0]},
        {"checksum": "0" * 32, "snapshot_checksum": "0" * 32},
    ]
    torn_parameters = [
        {"parameters": result.to_blobs()[1][:-1]},
        {"parameters": b""},
        {"parameters": other[1]},
        {"checksum": "0" * 32},
    ]
    for change in (*torn_snapshots, *torn_parameters):
        alter(where, one, **change)
        assert store.result(one) is None, change
        assert (store.snapshot(one) is None) == (change in torn_snapshots)
        assert store.put(*result.to_blobs()) is True
        assert store.result(one).to_blobs() == result.to_blobs()
    alter(where, one, snapshot_checksum="0" * 32)
    assert store.snapshot(one) is None
    assert store.put(*result.to_blobs()) is True
    assert store.snapshot(one) is not None
    assert store.result(two) is not None
    by_hash = {entry.hash: entry for entry in store.entries()}
    assert (by_hash[one].name, by_hash[one].pinned) == ("kept", True)


def test_a_result_of_another_text_is_absent_until_it_is_put_again(
    tmp_path, open_store, monkeypatch
):
    """A text with another fingerprint is another task."""
    training = Training(tiny("language", sharing="QKV", n_seeds=1), "cpu")
    training.advance(8)
    store, result = open_store(tmp_path), training.result()
    key = result.experiment.hash
    with monkeypatch.context() as other:
        other.setattr(type(result.experiment.task), "fingerprint", "another text")
        assert store.put(*result.to_blobs()) is True
    assert store.result(key) is None
    assert store.put(*result.to_blobs()) is True
    assert store.result(key).to_blobs() == result.to_blobs()


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


def test_a_value_of_another_type_does_no_harm(tmp_path, open_store, seed):
    """A value of another type in any column of SQLite affects its own row only."""
    store, draw = open_store(tmp_path), random.Random(seed)
    one, two = put(store, 1, 2)
    for column in (c.name for c in RESULTS.c if c.name != "hash"):
        value = draw.choice(["'text'", "x'ff'", "1e300", "-7"])
        told = f"seed {seed}: {column} = {value}"
        with connected(tmp_path) as connection:
            connection.execute(text(f"UPDATE results SET {column} = {value} WHERE hash = '{one}'"))
        if column == "snapshot_checksum":
            assert store.snapshot(one) is None, told
        elif column in ("snapshot", "parameters", "checksum"):
            assert store.result(one) is None, told
        assert store.result(two) is not None, told
        assert two in stored(store), told
        assert store.n_bytes() > 0, told
        store.put(*made(1).to_blobs())
        assert store.put(*made(3).to_blobs()) is True, told
        assert store.result(one) is not None, told
        store.delete(one)
        store.delete(made(3).experiment.hash)
        put(store, 1)
    assert store.notes == []
