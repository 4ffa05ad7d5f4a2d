"""Tasks on texts, language and translation: what is kept, drawn and asked; slow references."""

import gzip
import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_tasks import seeded
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.foundation.corpus import TOPICS
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import NOTHING, language, translation
from attnkit.tasks.base import is_held_out
from attnkit.tasks.language import HIDDEN, RARE, Language, corpus_of, read_corpus, starts_of
from attnkit.tasks.translation import Translation


def readable(ids):
    """Ids as text."""
    return "".join(read_corpus().characters[i] for i in ids)


def test_the_text_is_the_shipped_one_with_every_paragraph_once():
    """The hundred commonest characters have ids of their own; among equals, the first stay."""
    paragraphs = [paragraph.strip("\n") for paragraph in TOPICS.read().split("\n\n")]
    corpus = read_corpus()
    assert corpus.text.split("\n\n") == list(dict.fromkeys(paragraphs))
    assert Language().fingerprint == "a48bdf0f4e2d2200"
    common = sorted(c for c, _ in Counter(sorted(corpus.text)).most_common(100))
    assert corpus.characters == (*common, RARE)
    assert readable(corpus.ids) == "".join(c if c in common else RARE for c in corpus.text)
    corpus = corpus_of("hello")
    assert (corpus.characters, corpus.ids.tolist()) == (("e", "h", "l", "o"), [1, 0, 2, 2, 3])


def test_a_damaged_text_is_named(monkeypatch, tmp_path, seed):
    """No experiment is made of another text than the one that is shipped, or of none."""
    file = tmp_path / "text.gz"
    for module, name, readers in (
        (language, "TOPICS", [read_corpus]),
        (translation, "TRANSLATED_NAMES", [translation._names, translation._stock]),
    ):
        shipped = getattr(module, name)
        monkeypatch.setattr(module, name, replace(shipped, file=file))
        content = bytearray(shipped.file.read_bytes())
        content[np.random.default_rng(seed).integers(10, len(content))] ^= 1
        for damaged in (None, content, content[:999], gzip.compress(b"Another text.")):
            file.unlink(missing_ok=True)
            if damaged is not None:
                file.write_bytes(damaged)
            for reader in readers:
                monkeypatch.setattr(module, reader.__name__, cache(reader.__wrapped__))
            with pytest.raises(InvalidExperiment, match=re.escape(str(file))) as error:
                Experiment(task=module.__name__.rpartition(".")[2])
            assert error.value.problems[0].field == "task"


def test_chance_and_the_loss_to_beat_are_counted_one_by_one():
    """The commonest character, and the entropy given the left neighbour."""
    shown = readable(read_corpus().ids)
    ((_, most),) = Counter(shown).most_common(1)
    assert Language().chance == pytest.approx(most / len(shown))
    singles, pairs = Counter(shown[:-1]), Counter(pairwise(shown))
    n_pairs = len(shown) - 1
    loss = -sum(n / n_pairs * math.log(n / singles[left]) for (left, _), n in pairs.items())
    for objective in ("next", "masked"):
        assert Language(objective=objective).loss_to_beat == pytest.approx(loss)
    for text, nats in (("ababab", 0.0), ("aab", math.log(2)), ("aabb", 2 / 3 * math.log(2))):
        assert corpus_of(text).bigram_entropy == pytest.approx(nats)


def test_windows_begin_wherever_one_side_goes_on_long_enough():
    """In training all such places; held out those that cannot be read in training."""
    corpus, n_characters = read_corpus(), 17
    shown, n_changes = readable(corpus.ids), np.cumsum(np.diff(corpus.held_out, prepend=False) != 0)
    last = np.arange(len(shown) - n_characters + 1)
    whole = last[n_changes[last] == n_changes[last + n_characters - 1]]
    places = [[at for at in whole.tolist() if corpus.held_out[at] == side] for side in (0, 1)]
    known = {shown[at : at + n_characters] for at in places[0]}
    places[1] = [at for at in places[1] if shown[at : at + n_characters] not in known]
    assert [found.tolist() for found in starts_of(n_characters)] == places


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("objective", ["next", "masked"])
def test_examples_are_windows_of_their_side_drawn_evenly(objective, held_out):
    """Each label follows its character or is hidden; windows begin anywhere in the text."""
    task, ids = Language(objective=objective, length=16), read_corpus().ids
    examples = task.draw(20_000, seeded(), held_out=held_out)
    tokens, labels = examples.tokens[:, :, 0], examples.labels
    if objective == "next":
        assert torch.equal(labels[:, :-1], tokens[:, 1:])
        windows = torch.cat([tokens, labels[:, -1:]], 1)
    else:
        windows = tokens.where(labels == NOTHING, labels)
    n, starts = windows.shape[1], starts_of(windows.shape[1])[held_out]
    allowed = {ids[at : at + n].tobytes() for at in starts}
    assert {window.tobytes() for window in windows.numpy()} <= allowed
    commonest = np.bincount(ids).argmax()
    expected = (ids[starts] == commonest).mean()
    assert (windows[:, 0] == commonest).double().mean() == pytest.approx(expected, abs=0.02)
    assert (examples.target == NOTHING).all()


def test_so_many_characters_are_hidden():
    """Exactly the share, rounded, evenly; what is hidden is asked."""
    for share, n_hidden in ((0.05, 1), (0.15, 2), (0.5, 8)):
        task = Language(objective="masked", length=16, masked_share=share)
        examples = task.make_examples(20_000, seeded())
        hidden = examples.tokens[:, :, 0] == task.d_vocab - 1
        assert (hidden.sum(1) == n_hidden).all()
        assert torch.equal(hidden, examples.labels != NOTHING)
        places = hidden.sum(0) / hidden.sum()
        assert (places - 1 / 16).abs().max() < 6 * math.sqrt(1 / 16 / hidden.sum().item())
    with pytest.raises(InvalidExperiment, match="causal: got False"):
        Experiment(task="language", causal=False)


def test_every_character_is_seen():
    """Spaces and line breaks have a sign, and no sign is a character of the text itself."""
    task = Language(objective="masked")
    shown = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert all(len(text) == 1 and text.isprintable() and not text.isspace() for text in shown)
    assert not set(read_corpus().text) & {"␣", "⏎", RARE, HIDDEN}
    characters = (*read_corpus().characters, HIDDEN)
    labels = task.label(np.array([[characters.index(character)] for character in f"T{HIDDEN} \n"]))
    assert [label.short for label in labels] == ["T", "■", "␣", "⏎"]


LANGUAGES = get_args(Translation.model_fields["language"].annotation)


@briefly(15)
@given(st.sampled_from(LANGUAGES), st.integers(8, 24), st.integers(0, 999))
def test_a_name_is_written_letter_by_letter(language, max_length, seed):
    """Filled up with blanks; the end is asked for, and nothing after it."""
    task = Translation(language=language, max_length=max_length)
    examples = task.make_examples(25, seeded(seed))
    pairs = {english.replace(" ", "␣"): foreign for english, foreign in task.pairs}
    rows = zip(examples.tokens, examples.labels, task.slices(examples), strict=True)
    for tokens, labels, groups in rows:
        labelled = task.label(tokens.numpy())
        shown = [label.short for label in labelled]
        source, written = shown[: task.n_source], shown[task.n_source :]
        assert [label.query for label in labelled[task.n_source :]] == [f"{x} →" for x in written]
        asked = [task.answer_text(label) for label in labels.tolist() if label != NOTHING]
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


@pytest.mark.parametrize(("held_out", "n_pairs"), [(False, 643), (True, 90)])
def test_pairs_are_drawn_in_passes(held_out, n_pairs):
    """Every one of a side once before any again, in another order."""
    task = Translation()
    sides = is_held_out(task.book(torch.from_numpy(task._stock.tokens)))
    assert (sides == held_out).sum() == n_pairs
    examples = task.draw(3 * n_pairs + 7, seeded(), held_out=held_out)
    rows = [row.tobytes() for row in examples.tokens.numpy()]
    passes = [rows[start : start + n_pairs] for start in range(0, 3 * n_pairs, n_pairs)]
    assert len(set(rows)) == n_pairs
    assert all(set(each) == set(rows) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    assert len(set(rows[3 * n_pairs :])) == 7
