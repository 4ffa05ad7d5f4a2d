"""Dictionary and translation against slow references, a million sentences, and the stock of names.

The laws of all tasks stand in test_tasks.py, test_tasks_examples.py and test_tasks_split.py.
"""

import math
from collections import Counter
from typing import get_args

import numpy as np
import pytest
import torch
from babel import Locale
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.tasks import NOTHING
from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.translation import Dictionary, Language, Translation

CODES = {
    "German": "de",
    "French": "fr",
    "Spanish": "es",
    "Italian": "it",
    "Dutch": "nl",
    "Swedish": "sv",
}


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


# Dictionary


@st.composite
def dictionaries(draw):
    """A dictionary task of any allowed size."""
    n_words = draw(st.integers(2, 16))
    n_vocab = draw(st.integers(max(8, n_words), 64))
    order = draw(st.sampled_from(["same", "reversed"]))
    return Dictionary(n_words=n_words, n_vocab=n_vocab, order=order)


def dictionary_of(task):
    """Every name's number, found out by looking at many sentences."""
    examples = task.make_examples(2000, seeded(77))
    found = examples.tokens[:, :, 0].gather(1, examples.target)
    return dict(zip(found.flatten().tolist(), examples.labels.flatten().tolist(), strict=True))


@settings(max_examples=50)
@given(dictionaries(), st.integers(0, 999))
def test_a_sentence_is_written_number_by_number(task, seed):
    """The decoder has a start, then the right numbers so far; the label is the next one."""
    numbers = dictionary_of(task)
    examples = task.make_examples(5, seeded(seed))
    n = task.n_words
    assert task.n_source == task.answers_from == n
    for b, tokens in enumerate(examples.tokens[:, :, 0].tolist()):
        source, written = tokens[:n], tokens[n:]
        assert len(set(source)) == n
        places = list(range(n) if task.order == "same" else range(n - 1, -1, -1))
        labels = [numbers[source[place]] for place in places]
        assert examples.labels[b].tolist() == labels
        assert examples.target[b].tolist() == places
        assert written == [2 * task.n_vocab, *[task.n_vocab + label for label in labels[:-1]]]


@settings(max_examples=20)
@given(dictionaries())
def test_a_dictionary_is_one_to_one(task):
    """Every name has a number, and no two the same."""
    numbers = dictionary_of(task)
    assert sorted(numbers) == sorted(numbers.values()) == list(range(task.n_vocab))


def test_a_dictionary_stays_as_it_is():
    """Links and results of other days mean the same."""
    numbers = dictionary_of(Dictionary(n_vocab=8, n_words=2))
    assert [numbers[name] for name in range(8)] == [7, 6, 0, 5, 2, 1, 4, 3]


@pytest.mark.long
def test_a_million_sentences():
    """Words differ, labels are the source's translations in either order."""
    generator = seeded(1)
    for order in ("same", "reversed"):
        task = Dictionary(order=order)
        numbers = torch.tensor([number for _, number in sorted(dictionary_of(task).items())])
        for _ in range(125):
            examples = task.make_examples(4000, generator)
            source, written = examples.tokens[:, :, 0].split(task.n_words, 1)
            assert (source.sort(1).values.diff() > 0).all()
            translated = numbers[source]
            asked = translated if order == "same" else translated.flip(1)
            assert torch.equal(examples.labels, asked)
            assert torch.equal(written[:, 1:] - task.n_vocab, asked[:, :-1])
            assert (written[:, 0] == task.d_vocab - 1).all()
            assert torch.equal(translated.gather(1, examples.target), examples.labels)


@settings(max_examples=10)
@given(dictionaries())
def test_chance_is_what_a_random_name_of_the_sentence_scores(task):
    """Monte Carlo."""
    examples = task.make_examples(3000, seeded())
    picked = torch.randint(task.n_words, examples.target.shape, generator=seeded(7))
    right = (picked == examples.target).double().mean().item()
    assert right == pytest.approx(task.chance, abs=0.04)


def test_sentences_of_few_words_can_be_held_out():
    """In this order; the same words in another are another sentence."""
    task = Dictionary(n_words=2, n_vocab=8)
    sides = []
    for held_out in (False, True):
        one, again = (task.draw(2000, seeded(3), held_out=held_out) for _ in range(2))
        assert torch.equal(one.tokens, again.tokens)
        assert torch.equal(one.labels, again.labels)
        sides.append(set(map(tuple, one.tokens[:, :2, 0].tolist())))
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 56


def test_a_sentence_needs_enough_names():
    """None is repeated."""
    with pytest.raises(ValidationError, match=r"n_words: got 9, allowed at most n_vocab \(8\)"):
        Dictionary(n_words=9, n_vocab=8)


def test_labels_of_a_sentence():
    """Names with their numbers, the start, and what was written so far."""
    task = Dictionary(n_words=3)
    numbers = dictionary_of(task)
    tokens = [2, 0, 1, 2 * 32, 32 + numbers[2], 32 + numbers[0]]
    labels = task.label(np.array(tokens)[:, None])
    cem, ada, ben = (task.answer_text(numbers[name]) for name in (2, 0, 1))
    assert [label.short for label in labels] == ["Cem", "Ada", "Ben", "start", cem, ada]
    assert labels[2].full == f"Ben ({ben})"
    assert [label.query for label in labels[3:]] == ["start →", f"{cem} →", f"{ada} →"]
    assert NAMES[:3] == ("Ada", "Ben", "Cem")


# Translation


every_language = pytest.mark.parametrize("language", get_args(Language))


@st.composite
def translations(draw):
    """A translation task of any allowed size."""
    language = draw(st.sampled_from(get_args(Language)))
    return Translation(language=language, max_length=draw(st.integers(8, 24)))


def read(task, tokens, labels):
    """(English, written so far, to be written) of one example, as their labels show them."""
    shown = [label.short for label in task.label(tokens.numpy())]
    source, written = shown[: task.n_source], shown[task.n_source :]
    asked = [task.answer_text(label) for label in labels.tolist() if label != NOTHING]
    return source, written, asked


@settings(max_examples=30)
@given(translations(), st.integers(0, 999))
def test_a_name_is_written_letter_by_letter(task, seed):
    """Filled up with blanks; the end is asked for, and nothing after it."""
    examples = task.make_examples(5, seeded(seed))
    pairs = {english.replace(" ", "␣"): foreign for english, foreign in task.pairs}
    longest = task.max_length
    for tokens, labels in zip(examples.tokens, examples.labels, strict=True):
        source, written, asked = read(task, tokens, labels)
        english = "".join(source).rstrip("·")
        assert source == [*english, *["·"] * (longest - len(english))]
        foreign = pairs[english].replace(" ", "␣").replace("\xa0", "␣")
        assert asked == [*foreign, "end"]
        assert (labels[len(asked) :] == NOTHING).all()
        assert written == ["start", *foreign, *["·"] * (longest - len(foreign))]
    assert (examples.target == NOTHING).all()
    assert examples.target.shape == examples.labels.shape


@every_language
def test_pairs_are_names_of_the_same_thing(language):
    """A territory, language or currency of that English name has that name in the other."""
    english, foreign = Locale("en"), Locale(CODES[language])
    known = set()
    for kind in ("territories", "languages", "currencies"):
        here, there = getattr(english, kind), getattr(foreign, kind)
        known |= {(here[code], there[code]) for code in here if code in there}
    pairs = Translation(language=language, max_length=24).pairs
    assert set(pairs) <= known
    often = Counter(name for name, _ in known)
    expected = [(a, b) for a, b in known if often[a] == 1 and max(len(a), len(b)) <= 24]
    assert list(pairs) == sorted(expected)
    assert len({english for english, _ in pairs}) == len(pairs) > 1000


@every_language
def test_letters_are_latin(language):
    """And each side has about as many as an alphabet in both cases."""
    task = Translation(language=language)
    assert 50 < task.n_classes < 90
    letters = {letter for pair in task.pairs for word in pair for letter in word}
    assert max(map(ord, letters)) < 0x2020


def test_the_stock_of_names_is_the_one_we_know():
    """Another Babel would change tasks, splits and results."""
    task = Translation()
    sides = Counter(is_held_out(task.book(torch.from_numpy(task._stock.tokens))).tolist())
    assert (len(task.pairs), sides[True]) == (733, 90)
    assert ("Sweden", "Schweden") in task.pairs


@pytest.mark.parametrize("held_out", [False, True])
def test_pairs_are_drawn_in_passes(held_out):
    """Every one of a side once before any again, in another order."""
    task = Translation()
    n_pairs = 90 if held_out else 643
    examples = task.draw(3 * n_pairs + 7, seeded(), held_out=held_out)
    rows = [row.tobytes() for row in examples.tokens.numpy()]
    passes = [rows[start : start + n_pairs] for start in range(0, 3 * n_pairs, n_pairs)]
    assert len(set(rows)) == n_pairs
    assert all(set(each) == set(rows) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    assert len(set(rows[3 * n_pairs :])) == 7
    again = task.draw(3 * n_pairs + 7, seeded(), held_out=held_out)
    assert torch.equal(again.tokens, examples.tokens)
    assert torch.equal(again.labels, examples.labels)


@settings(max_examples=10)
@given(translations())
def test_no_english_name_is_on_both_sides(task):
    """A pair is held out by its English name, about one in eight."""
    n = len(task.pairs)
    sides = [task.draw(n, seeded(), held_out=held_out).tokens for held_out in (False, True)]
    names = [set(map(tuple, side[:, : task.n_source, 0].tolist())) for side in sides]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == n
    assert len(names[1]) / n == pytest.approx(1 / 8, abs=5 * math.sqrt(7 / 64 / n))


@pytest.mark.long
def test_a_million_names():
    """Drawn alike, and written as they are to be."""
    task, generator = Translation(), seeded(1)
    counts: Counter[int] = Counter()
    index = {row.tobytes(): place for place, row in enumerate(task._stock.tokens)}
    n_english = len(task._stock.english)
    for _ in range(50):
        examples = task.make_examples(20_000, generator)
        written = examples.tokens[:, task.n_source + 1 :, 0]
        next_one = examples.labels[:, :-1]
        end = task.n_classes - 1
        is_letter = (next_one != NOTHING) & (next_one != end)
        blank = torch.full_like(written, task.d_vocab - 1)
        assert torch.equal(written, torch.where(is_letter, next_one + n_english + 1, blank))
        assert ((examples.labels == end).sum(1) == 1).all()
        rows, often = examples.tokens[:, :, 0].unique(dim=0, return_counts=True)
        for row, count in zip(rows.numpy(), often.tolist(), strict=True):
            counts[index[row.tobytes()]] += count
    expected = 1_000_000 / len(task.pairs)
    assert len(counts) == len(task.pairs)
    assert all(abs(count - expected) < 6 * math.sqrt(expected) for count in counts.values())


@settings(max_examples=10)
@given(translations())
def test_chance_is_the_share_of_the_commonest_answer(task):
    """Counted over all pairs, letters and ends."""
    answers = Counter(letter for _, foreign in task.pairs for letter in [*foreign, "end"])
    assert task.chance == pytest.approx(max(answers.values()) / answers.total())
    assert task.loss_floor is None


@settings(max_examples=10)
@given(translations(), st.integers(0, 999))
def test_slices_tell_what_is_the_same_in_english(task, seed):
    """Letter by letter, case included; all answers of a name are in one group."""
    examples = task.make_examples(300, seeded(seed))
    groups = task.slices(examples)
    pairs = {english.replace(" ", "␣"): english == foreign for english, foreign in task.pairs}
    for tokens, labels, group in zip(examples.tokens, examples.labels, groups, strict=True):
        english = "".join(read(task, tokens, labels)[0]).rstrip("·")
        expected = "as in English" if pairs[english] else "other"
        assert {task.slice_names[place] for place in group.tolist()} == {expected}
    assert groups.shape == examples.labels.shape


@every_language
def test_answers_can_be_read(language):
    """Every class has a text of its own; a space is seen."""
    task = Translation(language=language)
    texts = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert len(set(texts)) == len(texts)
    assert texts[-1] == "end"
    assert all(len(text) == 1 and not text.isspace() for text in texts[:-1])


def test_labels_of_the_worked_example():
    """As the docstring writes it, with more blanks."""
    task = Translation()
    place = task.pairs.index(("Cuba", "Kuba"))
    labels = task.label(task._stock.tokens[place])
    shown = [label.short for label in labels]
    assert shown == [*"Cuba", *["·"] * 8, "start", *"Kuba", *["·"] * 8]
    assert [label.query for label in labels[12:15]] == ["start →", "K →", "u →"]
