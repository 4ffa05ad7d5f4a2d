"""The text: what is kept of it, where windows may begin, what is asked; slow references."""

import gzip
import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest
import torch
from random_tasks import seeded

from attnkit.experiment import Experiment
from attnkit.foundation.corpus import TOPICS
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import NOTHING, language, translation
from attnkit.tasks.language import HIDDEN, RARE, Language, corpus_of, read_corpus, starts_of


def readable(ids):
    """Ids as text."""
    characters = read_corpus().characters
    return "".join(characters[i] for i in ids)


# The text


def test_the_text_is_the_shipped_one_with_every_paragraph_once():
    """In the order of the shipped topics; its fingerprint tells whether numbers are of it."""
    paragraphs = [paragraph.strip("\n") for paragraph in TOPICS.read().split("\n\n")]
    kept = read_corpus().text.split("\n\n")
    places = [paragraphs.index(paragraph) for paragraph in kept]
    assert places == sorted(set(places))
    assert set(kept) == set(paragraphs)
    assert Language().fingerprint == "a48bdf0f4e2d2200"


@pytest.mark.parametrize("damage", ["a byte", "the end", "another text", "all"])
@pytest.mark.parametrize(
    ("module", "name", "readers"),
    [
        (language, "TOPICS", [read_corpus]),
        (translation, "TRANSLATED_NAMES", [translation._names, translation._stock]),
    ],
    ids=["language", "translation"],
)
def test_a_damaged_text_is_named(monkeypatch, tmp_path, damage, module, name, readers):
    """No experiment is made of another text than the one that is shipped."""
    shipped, file = getattr(module, name), tmp_path / "text.gz"
    content, task = shipped.file.read_bytes(), module.__name__.rpartition(".")[2]
    at = np.random.default_rng(38).integers(10, len(content))  # ten bytes describe the file
    changed = {
        "a byte": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        "the end": content[:at],
        "another text": gzip.compress(b"Another text."),
    }
    if damage in changed:
        file.write_bytes(changed[damage])
    monkeypatch.setattr(module, name, replace(shipped, file=file))
    for reader in readers:
        monkeypatch.setattr(module, reader.__name__, cache(reader.__wrapped__))
    with pytest.raises(InvalidExperiment, match=re.escape(str(file))) as error:
        Experiment(task=task)
    (problem,) = error.value.problems
    assert (problem.field, problem.value) == ("task", task)


def test_common_characters_are_told_apart_and_rare_ones_are_one():
    """The hundred commonest have ids of their own; among those as rare, the first stay."""
    corpus = read_corpus()
    common = sorted(c for c, _ in Counter(sorted(corpus.text)).most_common(100))
    assert corpus.characters == (*common, RARE)
    assert readable(corpus.ids) == "".join(c if c in common else RARE for c in corpus.text)
    corpus = corpus_of("hello")
    assert (corpus.characters, corpus.ids.tolist()) == (("e", "h", "l", "o"), [1, 0, 2, 2, 3])
    corpus = corpus_of("".join(chr(200 + i) * (3 - i // 50) for i in range(120)))
    assert corpus.characters == (*(chr(200 + i) for i in range(100)), RARE)
    assert corpus.ids[-20:].tolist() == [100] * 20


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


# The split and its windows


def test_the_side_of_a_block_is_that_of_its_hash():
    """About one block in eight; a block is on one side as a whole."""
    corpus = read_corpus()
    for at in range(0, len(corpus.text), 2000):
        digest = blake2b(corpus.text[at : at + 2000].encode(), digest_size=8).hexdigest()
        assert (corpus.held_out[at : at + 2000] == (int(digest, 16) % 8 == 0)).all()


@pytest.mark.parametrize("n_characters", [17, 129])
def test_windows_begin_wherever_one_side_goes_on_long_enough(n_characters):
    """In training all such places; held out those that cannot be read in training."""
    corpus = read_corpus()
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


@pytest.mark.parametrize(("share", "n_hidden"), [(0.05, 1), (0.15, 2), (0.5, 8)])
def test_so_many_characters_are_hidden(share, n_hidden):
    """Exactly the share, rounded, evenly; what is hidden is asked, and nothing else."""
    task = Language(objective="masked", length=16, masked_share=share)
    examples = task.make_examples(20_000, seeded())
    hidden = examples.tokens[:, :, 0] == task.d_vocab - 1
    assert (hidden.sum(1) == n_hidden).all()
    assert torch.equal(hidden, examples.labels != NOTHING)
    places = hidden.sum(0) / hidden.sum()
    assert (places - 1 / 16).abs().max() < 6 * math.sqrt(1 / 16 / hidden.sum().item())


def test_the_objective_decides_which_models_fit():
    """Who sees the next character need not guess it; what is hidden may be seen from both sides."""
    following, masked = Language(), Language(objective="masked")
    assert (following.ordered, masked.ordered) == (True, False)
    with pytest.raises(InvalidExperiment, match="causal: got False"):
        Experiment(task="language", causal=False)
    assert not Experiment(task="language", objective="masked", causal=False).size.causal


def test_every_character_is_seen():
    """Spaces and line breaks have a sign, and no sign is a character of the text itself."""
    task = Language(objective="masked")
    shown = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert all(len(text) == 1 and text.isprintable() and not text.isspace() for text in shown)
    assert not set(read_corpus().text) & {"␣", "⏎", RARE, HIDDEN}
    characters = (*read_corpus().characters, HIDDEN)
    tokens = np.array([[characters.index(character)] for character in f"T{HIDDEN}e \n"])
    labels = task.label(tokens)
    assert [label.short for label in labels] == ["T", "■", "e", "␣", "⏎"]
    assert [label.query for label in labels] == ["T ?", "■ ?", "e ?", "␣ ?", "⏎ ?"]
    assert [label.full for label in labels] == ["T", "■ hidden", "e", "␣ space", "⏎ line break"]
