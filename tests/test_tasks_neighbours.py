"""Neighbours against a slow reference, a million books, and the cosines of the given vectors."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.neighbours import MEMBERS, Neighbours


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def answers(task, tokens):
    """(labels, targets) of one example, from its tokens alone."""
    rows = tokens.tolist()
    entries = rows[: task.n_entries]
    labels, targets = [], []
    for name, asked in rows[task.n_entries :]:
        alike = [
            (other, place)
            for place, (other, _) in enumerate(entries)
            if other // MEMBERS == name // MEMBERS
        ]
        assert name not in [other for other, _ in alike]
        assert len(alike) == task.n_alike
        targets.append(sorted(alike)[asked - task.n_names - task.n_values][1])
        labels.append(entries[targets[-1]][1] - task.n_names)
    return labels, targets


@st.composite
def sizes(draw):
    """A task of any allowed size."""
    n_asking, n_alike = draw(st.integers(2, 6)), draw(st.integers(2, 3))
    return Neighbours(
        n_asking=n_asking,
        n_families=draw(st.integers(n_asking, 12)),
        n_alike=n_alike,
        cosine=draw(st.floats(0.6, 0.99)),
        n_values=draw(st.integers(n_asking * n_alike, 64)),
    )


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_each_neighbour_answers_in_turn(task, seed):
    """The one asked for by its place in the family, with its own number."""
    examples = task.make_examples(5, seeded(seed))
    for b, tokens in enumerate(examples.tokens):
        labels, targets = answers(task, tokens)
        assert examples.labels[b].tolist() == labels
        assert examples.target[b].tolist() == targets


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_a_book_has_some_members_of_each_family(task, seed):
    """Entries differ in names and numbers; one member that is none asks for all of them."""
    for tokens in task.make_examples(5, seeded(seed)).tokens:
        entries, questions = tokens.split(task.n_entries)
        names, numbers = entries.T.tolist()
        assert len(set(names)) == len(set(numbers)) == task.n_entries
        families = Counter(name // MEMBERS for name in names)
        assert set(families.values()) == {task.n_alike}
        assert len(families) == task.n_asking
        asked = {(name, rank - task.n_names - task.n_values) for name, rank in questions.tolist()}
        askers = {name for name, _ in asked}
        assert not askers & set(names)
        assert {name // MEMBERS for name in askers} == families.keys()
        assert asked == {(name, rank) for name in askers for rank in range(task.n_alike)}


@pytest.mark.long
def test_a_million_books():
    """The label is the number at the target, of the right family and rank; targets differ."""
    task, generator = Neighbours(), seeded(1)
    n = task.n_entries
    for _ in range(250):
        examples = task.make_examples(4000, generator)
        names, seconds = examples.tokens.unbind(-1)
        found = names[:, :n].gather(1, examples.target)
        assert torch.equal(found // MEMBERS, names[:, n:] // MEMBERS)
        assert (found != names[:, n:]).all()
        assert (found[:, 0::2] < found[:, 1::2]).all()
        assert torch.equal(
            seconds[:, :n].gather(1, examples.target), task.n_names + examples.labels
        )
        assert (examples.target.sort(1).values == torch.arange(n)).all()
        assert torch.equal(task.slices(examples), torch.arange(2).repeat(4000, task.n_asking))
        assert (examples.labels.sort(1).values.diff() > 0).all()


@pytest.mark.parametrize("n_alike", [2, 3])
def test_every_choice_of_a_family_is_as_likely(n_alike):
    """Who asks and who is an entry: 12 ways with two neighbours, 4 with three."""
    task = Neighbours(n_alike=n_alike, n_asking=2, n_families=2)
    examples = task.make_examples(6000, seeded())
    names = examples.tokens[:, :, 0]
    asker = names[:, task.n_entries]
    found = names.gather(1, examples.target[:, :n_alike]) % MEMBERS
    ways = Counter(map(tuple, torch.cat([asker[:, None] % MEMBERS, found], 1).tolist()))
    assert len(ways) == {2: 12, 3: 4}[n_alike]
    expected = 6000 / len(ways)
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in ways.values())


def test_entries_stand_anywhere():
    """Every entry is the one asked for first equally often."""
    target = Neighbours().make_examples(8000, seeded()).target
    assert (target[:, 0].bincount(minlength=8) - 1000).abs().max() < 150  # five sigma


# Vectors


@settings(max_examples=30)
@given(sizes(), st.sampled_from([16, 32, 112]), st.integers(0, 999))
def test_cosines_are_as_the_dial_says(task, d_model, seed):
    """Within a family the cosine, at equal places of two families the rest, else none."""
    ids, rows = task.fixed_embedding(d_model, seeded(seed))
    assert ids.tolist() == list(range(task.n_names))
    assert rows.dtype == torch.float32
    unit = rows / rows.norm(dim=1, keepdim=True)
    for one in range(task.n_names):
        for other in range(task.n_names):
            family = task.cosine * (one // MEMBERS == other // MEMBERS)
            place = (1 - task.cosine) * (one % MEMBERS == other % MEMBERS)
            assert unit[one] @ unit[other] == pytest.approx(family + place, abs=2e-6)


@pytest.mark.parametrize("d_model", [16, 112])
def test_vectors_are_as_long_as_learned_ones(d_model):
    """A token's two vectors are to have a root mean square of one half together."""
    _, rows = Neighbours().fixed_embedding(d_model, seeded())
    assert torch.allclose(rows.square().mean(1), torch.tensor(0.25 / 2))


def test_vectors_differ_by_seed_only():
    """The same generator, the same vectors."""
    first, again, other = (Neighbours().fixed_embedding(32, seeded(s))[1] for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.1)


# Chance, split, refusals, labels


@settings(max_examples=10)
@given(sizes())
def test_chance_is_what_a_random_entry_scores(task):
    """Monte Carlo; a random neighbour's number is right once in as many as there are."""
    examples = task.make_examples(3000, seeded())
    n = task.n_entries
    names, seconds = examples.tokens.unbind(-1)
    numbers = seconds[:, :n] - task.n_names
    picked = torch.randint(n, examples.target.shape, generator=seeded(7))
    right = (numbers.gather(1, picked) == examples.labels).double().mean().item()
    assert right == pytest.approx(task.chance, abs=0.03)
    alike = names[:, n:, None] // MEMBERS == names[:, None, :n] // MEMBERS
    neighbour = alike.double().flatten(0, 1).multinomial(1, generator=seeded(7)).view_as(picked)
    right = (numbers.gather(1, neighbour) == examples.labels).double().mean().item()
    assert right == pytest.approx(1 / task.n_alike, abs=0.04)


def test_sides_share_no_book_and_same_generators_give_the_same():
    """A held-out book is not trained on, whoever asks."""
    task = Neighbours(n_asking=2, n_families=2, n_values=4)
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
        ({"n_families": 3}, r"n_asking: got 4, allowed at most n_families \(3\)"),
        ({"n_values": 7}, "n_values: got 7, allowed at least 8: the numbers of a book differ"),
        ({"n_alike": 4}, "n_alike"),
        ({"cosine": math.nan}, "cosine"),
    ],
)
def test_dials_that_disagree_are_refused(dials, message):
    """With a reason."""
    with pytest.raises(ValidationError, match=message):
        Neighbours(**dials)


def test_labels_of_the_worked_example():
    """As the docstring writes it."""
    task = Neighbours(n_asking=2)
    text = "Ben2 14, Ada4 31, Ben1 25, Ada1 19, Ada2 1st, Ada2 2nd, Ben3 1st, Ben3 2nd"
    tokens = []
    for name, second in (part.split() for part in text.split(", ")):
        asked = "1st 2nd".split().index(second) if second[1:].isalpha() else None
        number = int(second) - 10 if asked is None else task.n_values + asked
        member = int(name[-1]) - 1
        tokens.append((MEMBERS * NAMES.index(name[:-1]) + member, task.n_names + number))
    tokens = torch.tensor(tokens)
    labels = task.label(tokens.numpy())
    assert [label.query for label in labels] == text.split(", ")
    assert [label.short for label in labels[2:5]] == ["Ben1", "Ada1", "Ada2 ?"]
    assert labels[4].full == "Ada2, 1st neighbour?"
    expected, targets = answers(task, tokens)
    assert [task.answer_text(answer) for answer in expected] == ["19", "31", "25", "14"]
    assert targets == [3, 1, 2, 0]


@pytest.mark.parametrize("n_alike", [2, 3])
def test_slices_are_the_neighbours_asked_for(n_alike):
    """By what the question says, not by where it stands."""
    task = Neighbours(n_alike=n_alike)
    examples = task.make_examples(5, seeded())
    assert len(task.slice_names) == n_alike
    for tokens, groups in zip(examples.tokens, task.slices(examples), strict=True):
        queries = [label.query.split()[1] for label in task.label(tokens.numpy())]
        assert [task.slice_names[group] for group in groups] == queries[task.answers_from :]
