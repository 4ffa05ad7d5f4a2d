"""Structured texts of unknown origin: read within limits, or refused for a reason in one line."""

import json
import random
import tomllib

import pytest
from searching import times

from attnkit.foundation.documents import (
    MOST_LEVELS,
    BadDocument,
    check_depth,
    parse_json,
    parse_toml,
    read_file,
)

DEEP = [
    *("[" * 10**6, '{"a":' * 10**6, "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1)),
    *("a = " + "[" * 10**5, "a = " + "{a = " * 10**5, "a." * 10**5 + "b = 1"),
    *('"a" . ' * 10**5 + "b = 1", f"[{'a.' * 10**5}b]", f"x = {{ {'a.' * 10**5}b = 1 }}"),
]
REFUSED = [
    *(("deep", text) for text in DEEP),
    ("large", " " * (2**23 + 1)),
    *(("long", text) for text in ("[" + "1" * 5000 + "]", "a = " + "1" * 5000)),
    ("twice", '{"a": 1, "b": {"c": 1, "c": 2}}'),
    *(("byte 5", text) for text in (b'a = "\xff"', b'[   "\xff"]')),
    *(("is not", text) for text in ("", "{", "a = 1\na = 2", "[1,]", "\0")),
    ("is not", b"\xef\xbb\xbf\xef\xbb\xbf[]"),
]
WORDS = (*"[]{}.=,:1#\n", "a.b", '"x"', "'y.z'", '"""')


def test_what_is_refused_has_a_reason():
    """It is short, and says what is allowed where that is not plain."""
    for reason, text in REFUSED:
        reasons = []
        for parse in (parse_json, parse_toml):
            try:
                parse(text)
            except BadDocument as error:
                reasons.append(str(error))
        assert any(reason in told for told in reasons), (text[:40], reasons)
        assert all(len(told) < 200 for told in reasons)


def test_drawn_texts_are_read_as_the_libraries_do(seed):
    """Small texts in JSON and TOML, with a mark of the byte order or without one."""
    rng = random.Random(seed)
    n_read = 0
    for _ in range(times(2000)):
        text = "".join(rng.choices(WORDS, k=rng.randrange(1, 9)))
        for parse, loads in ((parse_json, json.loads), (parse_toml, tomllib.loads)):
            try:
                expected = loads(text)
            except ValueError:
                with pytest.raises(BadDocument):
                    parse(text)
            else:
                n_read += 1
                assert parse(text) == parse(b"\xef\xbb\xbf" + text.encode()) == expected
    assert n_read > 100
    # A value that holds itself is too deep; it is looked at in time of its size.
    value = []
    value.append(value)
    with pytest.raises(BadDocument):
        check_depth(value)
    billions = []
    for _ in range(MOST_LEVELS - 1):
        billions = [billions] * 10
    check_depth(billions)


def test_only_files_are_read(tmp_path):
    """A pipe would wait for ever, and a device may never end."""
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert read_file(file, 3) == b"abc"
    with pytest.raises(BadDocument, match="2 bytes"):
        read_file(file, 2)
    for path, kind in ((tmp_path, "a folder"), ("/dev/zero", "a pipe or a device")):
        with pytest.raises(BadDocument, match=kind):
            read_file(path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing")
