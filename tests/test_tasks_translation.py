"""Translation: the stock of names, how they are written, and in which passes they are drawn."""

import csv
import io
from collections import Counter
from typing import get_args

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_tasks import seeded
from searching import briefly

from attnkit.foundation.corpus import TRANSLATED_NAMES
from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.translation import Language, Translation


@st.composite
def translations(draw):
    """A translation task of any allowed size."""
    language = draw(st.sampled_from(get_args(Language)))
    return Translation(language=language, max_length=draw(st.integers(8, 24)))


def read(task, tokens, labels):
    """Return (English, written so far, to be written) of one example, as their labels show them."""
    labelled = task.label(tokens.numpy())
    shown = [label.short for label in labelled]
    written = labelled[task.n_source :]
    assert [label.query for label in written] == [f"{label.short} →" for label in written]
    asked = [task.answer_text(label) for label in labels.tolist() if label != NOTHING]
    return shown[: task.n_source], shown[task.n_source :], asked


@briefly(15)
@given(translations(), st.integers(0, 999))
def test_a_name_is_written_letter_by_letter(task, seed):
    """Filled up with blanks; the end is asked for, and nothing after it.

    Its group is whether both names are alike; chance is the commonest letter of all answers.
    """
    examples = task.make_examples(25, seeded(seed))
    pairs = {english.replace(" ", "␣"): foreign for english, foreign in task.pairs}
    rows = zip(examples.tokens, examples.labels, task.slices(examples), strict=True)
    for tokens, labels, groups in rows:
        source, written, asked = read(task, tokens, labels)
        english = "".join(source).rstrip("·")
        foreign = pairs[english].replace(" ", "␣").replace("\xa0", "␣")
        assert source == [*english.ljust(task.max_length, "·")]
        assert written == ["start", *foreign.ljust(task.max_length, "·")]
        assert asked == [*foreign, "end"]
        assert (labels[len(asked) :] == NOTHING).all()
        expected = "as in English" if english == pairs[english].replace(" ", "␣") else "other"
        assert {task.slice_names[group] for group in groups.tolist()} == {expected}
    assert (examples.target == NOTHING).all()
    answers = Counter(letter for _, foreign in task.pairs for letter in [*foreign, "end"])
    assert task.chance == pytest.approx(max(answers.values()) / answers.total())


@pytest.mark.parametrize("language", get_args(Language))
def test_pairs_are_names_of_the_same_thing(language):
    """A territory, language or currency has these names; letters are Latin and can be read."""
    names = pd.read_csv(io.StringIO(TRANSLATED_NAMES.read()), sep="\t", quoting=csv.QUOTE_NONE)
    known = set(names[["English", language]].dropna().itertuples(index=False, name=None))
    task = Translation(language=language, max_length=24)
    often = Counter(name for name, _ in known)
    expected = [(a, b) for a, b in known if often[a] == 1 and max(len(a), len(b)) <= 24]
    assert list(task.pairs) == sorted(expected)
    assert len({english for english, _ in task.pairs}) == len(task.pairs) > 1000
    *texts, end = (task.answer_text(answer) for answer in range(task.n_classes))
    assert end == "end"
    assert all(len(text) == 1 and not text.isspace() for text in texts)
    letters = {letter for pair in Translation(language=language).pairs for letter in "".join(pair)}
    assert 50 < Translation(language=language).n_classes < 90
    assert max(map(ord, letters)) < 0x2020


@pytest.mark.parametrize("held_out", [False, True])
def test_pairs_are_drawn_in_passes(held_out):
    """Every one of a side once before any again, in another order; other names change all."""
    task = Translation()
    n_pairs = 90 if held_out else 643
    sides = is_held_out(task.book(torch.from_numpy(task._stock.tokens)))
    assert (sides == held_out).sum() == n_pairs
    examples = task.draw(3 * n_pairs + 7, seeded(), held_out=held_out)
    rows = [row.tobytes() for row in examples.tokens.numpy()]
    passes = [rows[start : start + n_pairs] for start in range(0, 3 * n_pairs, n_pairs)]
    assert len(set(rows)) == n_pairs
    assert all(set(each) == set(rows) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    assert len(set(rows[3 * n_pairs :])) == 7
