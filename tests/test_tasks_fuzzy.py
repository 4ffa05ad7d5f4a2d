"""Fuzzy phone book against a slow reference, and a million books against its promises."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.tasks.base import is_held_out
from attnkit.tasks.fuzzy import FuzzyPhonebook


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def names_of(task, tokens):
    """(…, n, letters) letters of every name, blank or not."""
    return tokens[..., :-1] - torch.arange(task.n_letters) * task.n_alphabet


def differences(one, other):
    """In how many places two names differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def answers(task, tokens):
    """(labels, targets) of one example, from its tokens alone: the nearest entry of all."""
    names = names_of(task, tokens).tolist()
    first_value = task.n_letters * task.n_alphabet
    entries = names[: task.n_entries]
    labels, targets = [], []
    for asked in names[task.n_entries :]:
        far = [differences(asked, entry) for entry in entries]
        assert far.count(min(far)) == 1
        targets.append(far.index(min(far)))
        labels.append(tokens[targets[-1], -1].item() - first_value)
    return labels, targets


@st.composite
def sizes(draw):
    """A task of any allowed size."""
    n_wrong = draw(st.integers(0, 3))
    dials = {
        "n_letters": draw(st.integers(max(3, 2 * n_wrong + 1), 8)),
        "n_alphabet": draw(st.integers(8, 26)),
        "n_wrong": n_wrong,
        "n_values": draw(st.integers(4, 64)),
    }
    try:
        return FuzzyPhonebook(**dials, n_entries=draw(st.integers(2, 16)))
    except ValidationError as error:
        (finding,) = error.errors()
        most = int(finding["ctx"]["allowed"].split()[2].rstrip(":"))
        return FuzzyPhonebook(**dials, n_entries=most)


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_the_nearest_entry_answers(task, seed):
    """It is the only nearest, wrong in so many letters, at any size."""
    examples = task.make_examples(5, seeded(seed))
    names = names_of(task, examples.tokens)
    for b, tokens in enumerate(examples.tokens):
        labels, targets = answers(task, tokens)
        assert examples.labels[b].tolist() == labels
        assert examples.target[b].tolist() == targets
        for asked, target in zip(names[b, task.n_entries :].tolist(), targets, strict=True):
            assert differences(asked, names[b, target].tolist()) == task.n_wrong


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_names_of_a_book_differ_enough(task, seed):
    """No two entries are nearer than twice the wrong letters and one; letters are letters."""
    examples = task.make_examples(5, seeded(seed))
    names = names_of(task, examples.tokens)
    assert 0 <= names.min() <= names.max() < task.n_alphabet
    for book in names[:, : task.n_entries].tolist():
        for one, other in itertools.combinations(book, 2):
            assert differences(one, other) >= 2 * task.n_wrong + 1


@pytest.mark.long
def test_a_million_books():
    """The entry that is meant is at distance one, all others at two or more; each is asked once."""
    task, generator = FuzzyPhonebook(), seeded(1)
    n = task.n_entries
    itself = 9 * torch.eye(n, dtype=torch.uint8)[:, :, None]
    for _ in range(250):
        examples = task.make_examples(4000, generator)
        names = names_of(task, examples.tokens).to(torch.uint8).permute(2, 1, 0)  # letters, n, b
        far = (names[:, n:, None] != names[:, None, :n]).sum(0, dtype=torch.uint8)
        nearest = far.min(1)
        assert (nearest.values == 1).all()
        assert torch.equal(nearest.indices.T, examples.target)
        assert ((far <= 1).sum(1) == 1).all()
        apart = (names[:, :n, None] != names[:, None, :n]).sum(0, dtype=torch.uint8)
        assert (apart + itself >= 3).all()
        assert (examples.target.sort(1).values == torch.arange(n)).all()
        values = examples.tokens[:, :n, -1] - task.n_letters * task.n_alphabet
        assert torch.equal(values.gather(1, examples.target), examples.labels)
        assert (examples.tokens[:, n:, -1] == task.d_vocab - 1).all()


def test_names_are_uniform_among_those_far_enough():
    """With three letters and one wrong, the second name differs everywhere, in all ways alike."""
    task = FuzzyPhonebook(n_entries=2, n_letters=3, n_alphabet=8)
    names = names_of(task, task.make_examples(34_300, seeded()).tokens[:, :2])
    first, turns = names[:, 0], (names[:, 1] - names[:, 0]) % 8
    assert (turns > 0).all()
    ways = (turns - 1) @ torch.tensor([49, 7, 1])
    assert (ways.bincount(minlength=343) - 100).abs().max() < 50  # five sigma
    for place in range(3):
        assert (first[:, place].bincount(minlength=8) - 34_300 / 8).abs().max() < 300


@pytest.mark.parametrize("n_wrong", [1, 2])
def test_wrong_letters_are_uniform(n_wrong):
    """Every place is wrong equally often, and every other letter stands there equally often."""
    task = FuzzyPhonebook(n_entries=2, n_letters=5, n_alphabet=16, n_wrong=n_wrong)
    task = task.model_copy(update={"n_entries": 1})  # so that nothing else decides
    names = names_of(task, task.make_examples(45_000, seeded()).tokens)
    turns = (names[:, 1] - names[:, 0]) % 16
    places = (turns > 0).long().sum(0) / 45_000
    assert (places - n_wrong / 5).abs().max() < 0.012  # five sigma
    share = turns[turns > 0].bincount(minlength=16)[1:] / (45_000 * n_wrong)
    assert (share - 1 / 15).abs().max() < 0.006


def test_without_wrong_letters_names_are_asked_as_they_are():
    """Then it is a phone book."""
    task = FuzzyPhonebook(n_wrong=0)
    examples = task.make_examples(100, seeded())
    entries, questions = examples.tokens.split(task.n_entries, 1)
    index = examples.target[:, :, None].expand(-1, -1, task.n_letters)
    assert torch.equal(questions[:, :, :-1], entries[:, :, :-1].gather(1, index))


@settings(max_examples=10)
@given(sizes())
def test_chance_is_what_a_random_entry_scores(task):
    """Monte Carlo."""
    examples = task.make_examples(3000, seeded())
    values = examples.tokens[:, : task.n_entries, -1] - task.n_letters * task.n_alphabet
    picked = torch.randint(task.n_entries, examples.target.shape, generator=seeded(7))
    right = (values.gather(1, picked) == examples.labels).double().mean().item()
    assert right == pytest.approx(task.chance, abs=0.04)


def test_sides_share_no_book_and_same_generators_give_the_same():
    """A held-out book is not trained on in any order."""
    task = FuzzyPhonebook(n_entries=2, n_letters=3, n_alphabet=8, n_values=4)
    books = []
    for held_out in (False, True):
        one, again = (task.draw(5000, seeded(3), held_out=held_out) for _ in range(2))
        assert torch.equal(one.tokens, again.tokens)
        assert torch.equal(one.labels, again.labels)
        assert (is_held_out(task.book(one.tokens)) == held_out).all()
        books.append({frozenset(map(tuple, book)) for book in task.book(one.tokens).tolist()})
    assert not books[0] & books[1]


@pytest.mark.parametrize(
    ("dials", "message"),
    [
        ({"n_wrong": 2}, "n_wrong: got 2, allowed at most 1: else another name could be as near"),
        ({"n_letters": 3, "n_alphabet": 8}, "n_entries: got 8, allowed at most 2: there are"),
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(dials, message):
    """By letters or by number."""
    with pytest.raises(ValidationError, match=message):
        FuzzyPhonebook(**dials)


def test_half_of_all_names_are_left_for_the_last_entry():
    """Counted one by one: names nearer than three to a name are at most 1/2 of all per others."""
    task = FuzzyPhonebook(n_entries=2, n_letters=3, n_alphabet=16)
    all_names = list(itertools.product(range(16), repeat=3))
    too_near = sum(differences(name, (0, 0, 0)) < 3 for name in all_names)
    most = max(n for n in range(1, 17) if 2 * (n - 1) * too_near <= len(all_names))
    FuzzyPhonebook(**{**task.model_dump(), "n_entries": most})
    with pytest.raises(ValidationError, match=f"at most {most}"):
        FuzzyPhonebook(**{**task.model_dump(), "n_entries": most + 1})


def test_two_names_can_always_differ_enough():
    """Few letters all of which must differ leave a third of all names for the second entry."""
    task = FuzzyPhonebook(n_entries=2, n_letters=7, n_alphabet=8, n_wrong=3)
    assert (7 / 8) ** 7 > 1 / 3
    names = names_of(task, task.make_examples(1000, seeded()).tokens[:, :2])
    assert (names[:, 0] != names[:, 1]).all()


def test_labels_of_the_worked_example():
    """As the docstring writes it."""
    task = FuzzyPhonebook(n_entries=3, n_alphabet=26)
    rows = "ANTO 31, BRIM 14, KEVA 25, BRAM ?, KEVO ?, UNTO ?"
    tokens = []
    for name, number in (row.split() for row in rows.split(", ")):
        value = task.n_values if number == "?" else int(number) - 10
        letters = [26 * place + ord(letter) - ord("A") for place, letter in enumerate(name)]
        tokens.append([*letters, 4 * 26 + value])
    labels = task.label(torch.tensor(tokens).numpy())
    assert [label.full for label in labels] == rows.split(", ")
    assert [label.short for label in labels[:3]] == ["ANTO", "BRIM", "KEVA"]
    expected = ([4, 15, 21], [1, 2, 0])
    assert answers(task, torch.tensor(tokens)) == expected
    assert [task.answer_text(label) for label in expected[0]] == ["14", "25", "31"]
