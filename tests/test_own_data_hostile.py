"""Files and rows that are no data: each has a message of one line, in bounded memory."""

import gzip
import io
import json
import re
import tracemalloc

import pytest
from own_tables import without_cells

import attnkit as ak
from attnkit.__main__ import main
from attnkit.foundation.data_files import MOST_BYTES, MOST_ROWS
from attnkit.tasks.table_rows import LONGEST_NAME, MOST_WORDS

MOST_MEMORY = 64 * 2**20
"""Largest number of bytes that reading a file may need, 32 times the largest file."""

GOOD = [(f"key {i}", f"value {i % 5}") for i in range(30)]
LINES = "\n".join(f"{key},{value}" for key, value in GOOD)


def parquet(columns):
    """Return the content of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def _lines(count, text="k{i},v{i}"):
    return "\n".join(text.format(i=i) for i in range(count))


FILES = {
    "empty.csv": ("", "0 different rows"),
    "blank.csv": ("\n \n,\n", "0 different rows"),
    "heading.csv": ("key,value\n", "0 different rows"),
    "few.csv": ("a,1\nb,2\n", "2 different rows, allowed a table of at least 8"),
    "same.csv": ("a,1\n" * 50, "1 different row, allowed"),
    "one_value.csv": (
        _lines(20, "k{i},v"),
        "the same answer in every row, allowed at least 2 different answers",
    ),
    "one_column.csv": (_lines(20, "k{i}"), "it has 1 column (k0), allowed 2 (key, value) or 3"),
    "four.csv": (_lines(20, "a{i},b,c,d"), "it has 4 columns (a0, b, c, d), allowed 2"),
    "wide.csv": ("," * 1_000_000, "0 different rows"),
    "wide_names.csv": ("a," * 500_000, "it has 500001 columns (a, a, a"),
    "ragged.csv": (LINES + "\na,b,c\n", "its line 31 has 3 columns, allowed 2 as in the first"),
    "short.csv": (LINES + "\nalone\n", "its line 31 has 1 column, allowed 2"),
    "hole.csv": (LINES + "\na,\n", "row 31 (a, ) with an empty cell, allowed a name in each cell"),
    "spaces.csv": (LINES + "\na,\u00a0\u200b\n", "row 31 with an empty cell"),
    "quote.csv": (LINES + '\n"a,b\n', "is not a row of a table (unexpected end of data)"),
    "quotes.csv": (LINES + '\n"a"b,c\n', "line 31 is not a row of a table"),
    "null.csv": (LINES + "\na\0b,c\n", "it has a null character"),
    "latin.csv": (LINES.encode() + b"\n\xe9,a\n", "is not of a text in UTF-8"),
    "utf16.csv": (LINES.encode("utf-16"), "its byte 0 is not of a text in UTF-8"),
    "surrogate.csv": (LINES.encode() + b"\n\xed\xa0\x80,a\n", "is not of a text in UTF-8"),
    "gzip.csv": (gzip.compress(LINES.encode()), "is not of a text in UTF-8"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n" + bytes(50), "its byte 0 is not of a text in UTF-8"),
    "long_name.csv": (LINES + "\n" + "a" * 1000 + ",b", "row 31 with a name of 1,000 characters"),
    "huge_cell.csv": (
        LINES + "\n" + "a" * 200_000 + ",b",
        "line 31 is not a row of a table",
    ),
    "marks.csv": (LINES + "\na" + "\u0301" * 999 + ",b", "row 31 with a name of 1,000 characters"),
    "rows.csv": (_lines(MOST_ROWS + 1, "{i},1"), "it has too many rows, allowed at most 20,000"),
    "words.csv": (
        _lines(MOST_WORDS + 1),
        "more different names in a column, allowed at most",
    ),
    "bytes.csv": ("a,b\n" * (MOST_BYTES // 4 + 1), "it is too large, allowed at most 2,000,000"),
    "breaks.csv": ("\n" * (MOST_BYTES - 1), "0 different rows"),
    "semicolon.tsv": (LINES, "it has 1 column"),
    "relations.csv": (_lines(20, "a{i},likes,a{i}"), "two different names in each row"),
    "empty.jsonl": ("", "0 different rows"),
    "no_json.jsonl": ("a b\n", "its line 1: it is not JSON"),
    "number.jsonl": ("17\n", "its line 1 is 17, allowed an object or a list"),
    "null.jsonl": ("null\n", "its line 1 is None, allowed an object or a list"),
    "deep.jsonl": ("[" * 5000 + "]" * 5000, "its line 1: it is too deep"),
    "nested.jsonl": ('{"a": 1, "b": [1]}\n', "row 1 with [1], allowed a text or a number"),
    "object.jsonl": ('{"a": 1, "b": {"c": 2}}\n', "row 1 with {'c': 2}, allowed a text"),
    "nothing.jsonl": ('{"a": 1, "b": null}\n', "row 1 with an empty cell"),
    "nan.jsonl": ('{"a": 1, "b": NaN}\n', "row 1 with an empty cell"),
    "twice.jsonl": ('{"a": 1, "a": 2}\n', "its line 1: its key 'a' stands twice"),
    "other_key.jsonl": ('{"a": 1, "b": 2}\n{"a": 1, "c": 2}\n', "its line 2 has no 'b', only a, c"),
    "one_key.jsonl": ('{"a": 1}\n', "it has 1 column (a)"),
    "many_keys.jsonl": (json.dumps({f"k{i}": i for i in range(500)}), "it has 500 columns (k0, k1"),
    "list.jsonl": ("[1, 2, 3, 4]\n", "it has 4 columns (1, 2, 3, 4)"),
    "mixed.jsonl": ("[1, 2]\n[1, 2, 3]\n", "row 2 with 3 cells, allowed 2 (key, value)"),
    "big.jsonl": (f'["a", {"9" * 4000}]\n', "row 1 with a huge number"),
    "bigger.jsonl": (f'["a", {"9" * 9000}]\n', "its line 1: it is not JSON (a number is too long)"),
    "line.jsonl": (json.dumps(["a" * 30_000, "b"]), "its line 1: it is too large, allowed at most"),
    "array.jsonl": (json.dumps(GOOD), "it has 30 columns (['key 0', 'value 0'],"),
    "empty.parquet": (b"", "it is no Parquet file that can be read"),
    "text.parquet": (LINES, "it is no Parquet file that can be read"),
    "cut.parquet": (parquet({"k": ["a"] * 9, "v": ["b"] * 9})[:-20], "it is no Parquet file"),
    "four.parquet": (parquet({c: [c] for c in "abcd"}), "it has 4 columns (a, b, c, d)"),
    "rows.parquet": (
        parquet({"k": list(range(MOST_ROWS + 1)), "v": [1] * (MOST_ROWS + 1)}),
        "it has 20,001 rows, allowed at most 20,000",
    ),
    "bomb.parquet": (
        parquet({"k": ["a" * 200_000] * 20_000, "v": ["b"] * 20_000}),
        "row 1 with a name of 200,000 characters",
    ),
    "huge.parquet": (
        parquet({"k": [str(i) * 3000 for i in range(1500)], "v": ["b"] * 1500}),
        "bytes",
    ),
    "nested.parquet": (
        parquet({"k": [[1, 2]], "v": [1]}),
        "its column 'k' holds list<element: int64>, allowed texts",
    ),
    "bytes.parquet": (
        parquet({"k": [b"\xff"] * 9, "v": list(range(9))}),
        "its column 'k' holds binary, allowed texts or numbers",
    ),
    "short.txt": ("To be or not to be.", "19 characters, allowed at least 2,000"),
    "empty.txt": ("", "0 characters, allowed at least 2,000"),
    "one_letter.txt": ("a" * 5000, "length"),
    "binary.txt": (bytes(range(256)) * 20, "is not of a text in UTF-8"),
    "hidden.txt": ("\u200b\u202e" * 4000, "0 characters, allowed at least 2,000"),
    "large.txt": ("a b\n" * (MOST_BYTES // 4 + 1), "it is too large, allowed at most 2,000,000"),
    "table.xlsx": (
        b"PK\x03\x04",
        "its name ends with '.xlsx, allowed .csv, .tsv,",
    ),
    "pickle.pkl": (b"\x80\x04.", "its name ends with '.pkl, allowed"),
    "nameless": (LINES, "its name ends with ', allowed .csv"),
}


def plain(text):
    """Return a message without the quotation marks around what was given."""
    return re.sub(r"(?<=got )['\"]|['\"](?=, allowed)", "", text)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_has_a_message_and_needs_little_memory(name, tmp_path, capsys):
    """One line on standard error says what is wrong; nothing is printed or written."""
    content, message = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    tracemalloc.start()
    try:
        code = main(["train", "--data", str(path), "--steps", "1"])
    except SystemExit as end:
        code = end.code
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    out, error = capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in plain(error) or message in without_cells(plain(error)), error
    assert error.startswith(
        ("attnkit: error: --data: got ", "attnkit: error: data: got ", "attnkit: ")
    )
    assert error.count("\n") == 1
    assert len(error) < 600
    assert "Traceback" not in error
    assert peak < MOST_MEMORY, f"{peak:,}"


ROWS = [
    (17, "int, allowed a list of rows, a dictionary or a data frame"),
    (None, "0 different rows"),
    (iter(GOOD), "list_iterator, allowed a list of rows"),
    (b"a\tb\n", "row 1, 97, allowed rows of two or three names"),
    (["ab", "cd"], "row 1, ab, allowed rows of two or three names"),
    ([("a",)] * 9, "row 1 with 1 cell, allowed 2"),
    ([*GOOD, ("a", "b", "c")], "row 31 with 3 cells, allowed 2"),
    ([("a", float("nan"))], "row 1 with an empty cell"),
    ([("a", object)], "row 1 with <class 'object'>, allowed a text"),
    ([("a", 2**70)], "row 1 with a huge number"),
    ({"a": {"b": 1}}, "row 1 with {'b': 1}"),
    ([("a\ud800", "\ud800")], "row 1 with an empty cell"),
    ("#0123456789abcdef", "too long for the link"),
    ([(i, i) for i in range(MOST_ROWS + 5)], "20,001 rows or more"),
    (
        [(f"{i}" + "x" * (LONGEST_NAME - 9), "y" * LONGEST_NAME) for i in range(12_000)],
        "a larger table",
    ),
]


@pytest.mark.parametrize(("rows", "message"), ROWS, ids=[text for _, text in ROWS])
def test_hostile_rows_have_a_message(rows, message):
    """The message names the setting, what was given and what is allowed."""
    with pytest.raises(ak.InvalidExperiment) as error:
        ak.Table(rows)
    assert message in without_cells(plain(str(error.value)))
    assert str(error.value).startswith("data: got ")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--columns key", "it has 1 column (key), allowed 2"),
        ("--columns key,price", "it has no column 'price', allowed key, value, other"),
        ("--task phonebook", "--task: got 'phonebook', allowed pairs for this file"),
        ("--set n_entries=99", "n_entries: got '99', allowed a whole number from 2 to 32"),
        ("--set n_entries=31", "n_entries: got 31, allowed at most 30, the different keys"),
        ("--set learn=twice", "learn: got 'twice', allowed in_context or by_heart"),
        ("--link task=pairs&data=%23" + "0" * 16, "but its data are not those of the link"),
    ],
)
def test_wrong_options_beside_a_file_are_told(options, message, tmp_path, capsys):
    """Columns are named as they stand in the first line."""
    path = tmp_path / "good.csv"
    path.write_text("key,value,other\n" + "\n".join(f"{k},{v},o" for k, v in GOOD))
    columns = [] if "--columns" in options else ["--columns", "key,value"]
    try:
        code = main(["train", "--data", str(path), *columns, *options.split()])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_what_is_no_file_is_told(tmp_path, capsys):
    """A missing file, a folder, and columns without a file."""
    (tmp_path / "folder.csv").mkdir()
    for options, message in [
        (["--data", str(tmp_path / "none.csv")], "No such file or directory"),
        (["--data", str(tmp_path / "folder.csv")], "it is a folder, allowed a file"),
        (["--columns", "a,b"], "allowed only beside --data"),
    ]:
        try:
            code = main(["train", *options])
        except SystemExit as end:
            code = end.code
        assert code == 2
        assert message in capsys.readouterr().err
