"""Texts in comma-separated values are never formulas, and numbers stay numbers."""

import csv
import io
import random
import re

import pandas as pd

from attnkit.foundation.tables import csv_of_frame, csv_table, without_formula

PLAIN = ["Q=K", "", "K-V", "-3.5", "+1e-05", "-inf", ".5", "a; b", "it's", "2026-11-26"]


FORMULAS = "=HYPERLINK(1)|@SUM(1)|-x|+1+1|\t=1|\r1|＝1| =1|-1\n|a;=1|a\n@b".split("|")


def is_computed(text):
    """Return whether a spreadsheet may compute a part of this text."""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text):
        return False
    starts = {part.lstrip(" ")[:1] for part in re.split("[;\t\r\n]", text)}
    return text.startswith(("\t", "\r", "\n")) or bool(starts & set("=+-@＝＋－＠"))


def test_texts_of_tables_are_never_formulas(seed):
    """An apostrophe goes before each part that begins a formula; other texts and numbers stay."""
    draw, letters = random.Random(seed), "=+-@\t\r\n; ab1.e,\"'＝－"
    drawn = ["".join(draw.choices(letters, k=draw.randrange(9))) for _ in range(2000)]
    assert [text for text in FORMULAS if not is_computed(text)] == []
    assert [text for text in PLAIN if without_formula(text) != text] == []
    for text in (*FORMULAS, *drawn):
        safe = without_formula(text)
        assert not is_computed(safe), text
        assert without_formula(safe) == safe
        assert is_computed(text) or safe == text, text
        assert safe.replace("'", "") == text.replace("'", "")
    frame = pd.DataFrame({"=name": drawn[:40], "score": -1.5, "mixed": ["=x", 1] * 20})
    frame["few"] = frame["mixed"].astype(str).astype("category")
    for text in (csv_of_frame(frame), csv_table(list(frame.columns), frame.to_numpy().tolist())):
        head, *rows = csv.reader(io.StringIO(text))
        assert head == ["'=name", "score", "mixed", "few"]
        expected = [without_formula(name).replace("\r\n", "\n") for name in drawn[:40]]
        assert [row[0] for row in rows] == [name.replace("\r", "\n") for name in expected]
        assert {tuple(row[1:]) for row in rows} == {("-1.5", "'=x", "'=x"), ("-1.5", "1", "1")}
    assert csv_of_frame(pd.DataFrame({"a": [None, 1.0]})) == 'a\n""\n1.0\n'
