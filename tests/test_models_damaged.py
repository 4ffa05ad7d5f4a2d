"""Damaged model files and the command `models`: one line, or a table with gaps and their reason."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
from damaged_files import ROWS, SIZES, WRITERS, damaged, damaged_values, intact, write
from model_files import gguf_file
from searching import times
from time_limits import TooLongError, at_most

SECONDS = 10.0
"""Processor time that one command may take."""

OPTIONS = (
    (), ("--fold",), ("--offset", "7"), ("--offset", "-999999"), ("--fold", "--offset", "999999"),
    ("--every-setting",),
)  # fmt: skip

GAPS = [f"{name}_{role}" for name in ("norm", "rank") for role in "qkv"]
"""Columns that have a number for every head, unless the file is damaged."""


def messages_of(errors):
    """Return the lines on standard error that are no progress bars."""
    lines = re.split(r"[\r\n]+", errors)
    return [line for line in lines if line.strip() and not re.search(r"s/layer|layer/s", line)]


def wrong_message(path, errors):
    """Return an error that is not one short line about a file or a setting; otherwise ""."""
    lines = messages_of(errors)
    begins = len(lines) == 1 and lines[0].startswith("attnkit: error: ")
    tells = re.search(r"\w(Error|Exception)\b|Traceback|array\(", errors)
    names = (path.name, path.parent.name, "config.json", "part.safetensors", "offset")
    is_named = any(name in errors for name in names)
    return "" if begins and is_named and not tells and len(lines[0]) < 1300 else errors


def wrong_table(table, errors):
    """Return what is wrong in a table; each head with a gap must have a reason among the notes."""
    heads = table[table["head"].notna()]
    if np.isinf(table.select_dtypes("float32")).any(axis=None):
        return "infinite numbers"
    reasons = ("in single precision", "is zero")
    has_gap = heads[GAPS].isna().any(axis=None)
    return "gaps without a reason" if has_gap and not any(r in errors for r in reasons) else ""


def fault_of(run, path, *options):
    """Return what is wrong with how the command ends on a file; "" if nothing is."""
    table, portraits = path.parent / "out.parquet", path.parent / "out.safetensors"
    outputs = ("--out", str(table), "--portraits", str(portraits))
    try:
        with at_most(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            code, output, errors = run("models", *options, *outputs, "--", str(path))
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    if caught:
        return f"warning: {caught[0].message} in {caught[0].filename}:{caught[0].lineno}"
    if code == 2:
        return wrong_message(path, errors) or output
    return f"exit code {code}: {errors}" if code else wrong_table(pd.read_parquet(table), errors)


def test_a_damaged_file_gives_one_line_or_a_table_with_gaps(run, tmp_path, seed):
    """Values, headers and settings of every format, drawn; with every option of the command."""
    rng, names, wrong = np.random.default_rng(seed), list(WRITERS), []
    for case in range(times(150)):
        name = names[case % len(names)]
        has_values = rng.random() < 0.7
        what, file = damaged_values(rng, name) if has_values else damaged(rng, intact(name))
        path = write(tmp_path, case, file)
        options = OPTIONS[rng.integers(len(OPTIONS))]
        if fault := fault_of(run, path, *options):
            wrong.append((seed, case, name, what[:200], options, fault))
    assert wrong == [], f"{len(wrong)} of {times(150)}"


NAMES = ("two\nlines", "=HYPERLINK(1)", "a|b", "\x1b[31mred", "byte\udcff", "<b>&amp;", "-x", " ")
"""Names of files that a terminal, a table or a file of tables would not show as they are."""


def test_a_models_name_is_one_line_of_text(run, tmp_path):
    """On the terminal, in the table and in its file; a name in the file is used as that of it."""
    for case, name in enumerate(NAMES):
        inner = {"general.name": (8, name.replace("\udcff", "\0"))}
        for i, (stem, keys) in enumerate(((name, {}), ("model", inner))):
            file = replace(gguf_file(SIZES, ROWS, keys=keys), name=f"{stem}.gguf")
            path, out = write(tmp_path, f"{case} {i}", file), tmp_path / "out.parquet"
            code, output, errors = run("models", "--out", str(out), "--", str(path))
            assert code == 0, errors
            [found] = pd.read_parquet(out)["model"].unique()
            assert found.isprintable()
            assert found.strip() == found != ""
            assert [line.count("|") for line in output.splitlines()] == [7] * 3 + [0] * 3 + [5] * 3
            assert "<b>" not in output
            assert output.replace("\n", "").isprintable()


def test_a_damaged_model_costs_no_other_one(run, tmp_path):
    """The models before it are saved and printed; the message names the damaged one."""
    whole, rows = write(tmp_path, "whole", intact("gguf")), SIZES.drawn(np.random.default_rng(7))
    rows[1]["v"][0, 0] = np.nan
    path, out = write(tmp_path, "broken", intact("gguf", rows=rows)), tmp_path / "out.parquet"
    code, output, errors = run("models", str(whole), str(path), "--out", str(out))
    assert code == 2
    assert "model.gguf is damaged: 'blk.1.attn_v.weight' has values" in messages_of(errors)[-1]
    assert set(pd.read_parquet(out)["model"]) == {"model"}
    assert "model causal (8)" in output


def test_the_reason_for_a_gap_names_how_many_heads_and_one_of_them(run, tmp_path):
    """Gains that overflow, and a head of zeros."""
    rows = SIZES.drawn(np.random.default_rng(7))
    rows[0]["gain"] = np.full(SIZES.d_model, 3e38, np.float32)
    rows[1]["q"][2:4] = 0
    path = write(tmp_path, 0, intact("gguf", rows=rows))
    code, _, errors = run("models", str(path), "--every-setting")
    assert code == 0
    assert messages_of(errors) == [
        "model: In 4 of 8 heads, such as causal layer 0, head 0, weights or their products with "
        "other numbers of the file do not fit in single precision, so that numbers are missing.",
        "model: In 1 of 8 heads, such as causal layer 1, head 1, W_Q, W_K, W_V or W_Q W_Kᵀ is "
        "zero, so that comparisons are missing.",
    ]
