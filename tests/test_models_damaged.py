"""Damaged model files and the command `models`: one line, or a table with gaps and their reason."""

import re
import signal
import warnings

import numpy as np
import pandas as pd
from damaged_files import WRITERS, damaged, damaged_values, intact, write
from searching import times

SECONDS = 10.0
"""Processor time that one command may take."""

OPTIONS = (
    (), ("--fold",), ("--offset", "7"), ("--offset", "-999999"), ("--fold", "--offset", "999999"),
    ("--every-setting",),
)  # fmt: skip

GAPS = [f"{name}_{role}" for name in ("norm", "rank") for role in "qkv"]
"""Columns that have a number for every head, unless the file is damaged."""


class TooLongError(BaseException):
    """Not an Exception, so that no reader takes it for a fault of the file."""


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
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            code, output, errors = run("models", *options, *outputs, "--", str(path))
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if caught:
        return f"warning: {caught[0].message} in {caught[0].filename}:{caught[0].lineno}"
    if code == 2:
        return wrong_message(path, errors) or output
    return f"exit code {code}: {errors}" if code else wrong_table(pd.read_parquet(table), errors)


def test_a_damaged_file_gives_one_line_or_a_table_with_gaps(run, tmp_path, seed):
    """Values, headers and settings of every format, drawn; with every option of the command."""
    rng, names, wrong = np.random.default_rng(seed), list(WRITERS), []

    def stop(*_):
        raise TooLongError

    handler = signal.signal(signal.SIGPROF, stop)
    try:
        for case in range(times(150)):
            name = names[case % len(names)]
            has_values = rng.random() < 0.7
            what, file = damaged_values(rng, name) if has_values else damaged(rng, intact(name))
            path = write(tmp_path, case, file)
            options = OPTIONS[rng.integers(len(OPTIONS))]
            if fault := fault_of(run, path, *options):
                wrong.append((seed, case, name, what[:200], options, fault))
    finally:
        signal.signal(signal.SIGPROF, handler)
    assert wrong == [], f"{len(wrong)} of {times(150)}"
