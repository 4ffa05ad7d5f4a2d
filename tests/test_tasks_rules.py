"""Each task against a slow reference, its chance and plateau, its odds and its labels.

A reference gets a task and the tokens of one example as lists of fields. It asserts what the
docstring promises of the tokens, and returns `Answers`. `CONTENT` says what decides the side of the
split, `GUESS` how somebody at chance answers.
"""

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_tasks import configured, every_task, seeded, smallest_task
from scipy.stats import chisquare
from searching import briefly

from attnkit.tasks import NOTHING, TASKS
from attnkit.tasks.base import is_held_out
from attnkit.tasks.mad import NoisyRecall
from attnkit.tasks.mqar import Mqar
from attnkit.tasks.neighbours import MEMBERS, Neighbours
from attnkit.tasks.translation import Dictionary

LISTS = ("reverse", "sort", "swap", "sub", "copy")


class Answers(NamedTuple):
    """Labels, targets and reverses, and names of groups where a task has them."""

    labels: list[int]
    target: list[int]
    reverse: list[int] | None = None
    groups: list[str] | None = None


def differ(items):
    """Assert that no item is there twice, and return how many there are."""
    items = list(items)
    assert len(set(items)) == len(items)
    return len(items)


def phonebook(task, rows):
    """A question is an entry of which one half, the name or the number, stands for a blank."""
    hidden = 0 if task.name == "transfer" else 1
    entries, asked = rows[: task.n_entries], rows[task.n_entries :]
    known = [entry[1 - hidden] for entry in entries]
    assert differ(known) == task.n_entries
    target = [known.index(row[1 - hidden]) for row in asked]
    differ(target)
    transfers = "transfer" in task.name
    if transfers:
        differ(entry[hidden] for entry in entries)
        assert all(name < task.n_names <= number < task.n_classes for name, number in entries)
    assert {row[hidden] for row in asked} == {task.d_vocab - 2 + hidden}
    first = 0 if transfers else task.n_names
    return Answers([entries[t][hidden] - first for t in target], target)


def relation(task, rows):
    """Each name asks another one; following them ends where it began, after so many entries."""
    names, n = [row[0] for row in rows], len(rows)
    others = [name - name % 3 + (name + 1) % 3 for name in names]
    if task.name != "dual_role":
        others = [row[1] - task.n_names for row in rows]
    target = [names.index(other) for other in others]
    assert differ(names) == differ(target) == n
    for start in range(n):
        here, met = start, []
        while here not in met:
            met.append(here)
            here = target[here]
        assert len(met) == {"mutual": 2, "dual_role": 3}.get(task.name, n)
    labels = [rows[t][-1] - (len(rows[0]) - 1) * task.n_names for t in target]
    reverse = None if task.name == "mutual" else [target.index(i) for i in range(n)]
    return Answers(labels, target, reverse)


def fuzzy(task, rows):
    """Find the nearest of all names, which is wrong in so many letters."""
    names = np.array([row[:-1] for row in rows]) - task.n_alphabet * np.arange(task.n_letters)
    assert ((names >= 0) & (names < task.n_alphabet)).all()
    far = (names[:, None] != names[: task.n_entries]).sum(2)
    among, target = far[: task.n_entries], far[task.n_entries :].argmin(1)
    assert (among + 99 * np.eye(len(among)) >= 2 * task.n_wrong + 1).all()
    assert ((far[task.n_entries :] == task.n_wrong).sum(1) == 1).all()
    assert (far[task.n_entries :].min(1) == task.n_wrong).all()
    differ(target)
    first = task.n_letters * task.n_alphabet
    assert {row[-1] for row in rows[task.n_entries :]} == {task.d_vocab - 1}
    return Answers([rows[t][-1] - first for t in target], target.tolist())


def neighbours(task, rows):
    """Ask for the members of one's family that are entries, in their order."""
    entries, target, groups = rows[: task.n_entries], [], []
    differ(name for name, _ in entries)
    differ(number for _, number in entries)
    for name, asked in rows[task.n_entries :]:
        of_family = [n // MEMBERS == name // MEMBERS for n, _ in entries]
        alike = sorted((n, place) for place, (n, _) in enumerate(entries) if of_family[place])
        assert name not in dict(alike)
        assert len(alike) == task.n_alike
        rank = asked - task.n_names - task.n_values
        target.append(alike[rank][1])
        groups.append(("1st", "2nd", "3rd")[rank])
    differ(target)
    return Answers([entries[t][1] - task.n_names for t in target], target, None, groups)


def mqar(task, rows):
    """Return labels, targets and groups of MQAR: each token after the pairs that is not 0 asks."""
    tokens, n, half = [token for (token,) in rows], task.n_pairs, task.n_tokens // 2
    keys, values = tokens[: 2 * n : 2], tokens[1 : 2 * n : 2]
    assert differ(keys) == differ(values) == n
    assert all(1 <= k < half <= v < task.n_tokens for k, v in zip(keys, values, strict=True))
    labels, target, groups = ([NOTHING] * (task.n_ctx - 2 * n) for _ in range(3))
    for place, token in enumerate(tokens[2 * n :]):
        if token:
            assert place % 2 == 0
            labels[place], home = values[keys.index(token)] - half, 2 * keys.index(token)
            target[place], far = home + 1, place + 2 * n - home
            bounds = {name: [*map(int, name.split("–"))] for name in task.slice_names}
            (groups[place],) = (name for name, (a, b) in bounds.items() if a <= far <= b)
    assert differ(t for t in target if t != NOTHING) == n
    return Answers(labels, target, None, [group for group in groups if group != NOTHING])


def noisy_recall(task, rows):
    """Read the stream token by token: a key that was there has its value again."""
    tokens, first_noise = [token for (token,) in rows], task.n_keys + task.n_values
    places, labels, target, groups = {}, [], [], []
    for place, token in enumerate(tokens):
        known = places.get(token, [])
        labels.append(tokens[known[0]] - task.n_keys if known else NOTHING)
        target.append(known[0] if len(known) == 1 else NOTHING)
        if known:
            groups.append(("once", "twice", "more often")[min(len(known), 3) - 1])
        if token < task.n_keys and place < len(tokens) - 1:
            assert all(tokens[other] == tokens[place + 1] for other in known)
            places[token] = [*known, place + 1]
    for key, value in zip(tokens[:-1:2], tokens[1::2], strict=True):
        assert key < task.n_keys <= value < first_noise or min(key, value) >= first_noise
    assert max(tokens[0], tokens[-1]) < task.n_keys
    assert labels[-1] != NOTHING
    return Answers(labels[2:], target[2:], None, groups)


def selective_copy(task, rows):
    """Say what is no blank, up to the mark, which follows the last token at once."""
    tokens, blank = [token for (token,) in rows], task.n_tokens - 2
    stream = tokens[: tokens.index(blank + 1)]
    target = [place for place, token in enumerate(stream) if token != blank]
    assert stream[-1] != blank
    assert tokens[len(stream) + 1 :] == [blank] * task.n_copied
    quarters = ("first quarter", "second quarter", "third quarter", "last quarter")
    groups = [quarters[int(4 * rank / len(target))] for rank in range(len(target))]
    return Answers([stream[place] for place in target], target, None, groups)


def fuzzy_recall(task, rows):
    """Read keys and values of several tokens; ask at every token what comes next of a value."""
    tokens, start = [token for (token,) in rows], task.answers_from
    book = read_pairs(task, tokens[:start])
    values = {tuple(key): (value, places) for key, value, places in book}
    sizes = sorted(1 + place % task.n_longest for place in range(task.n_pairs))
    assert sorted(map(len, values)) == sizes
    assert sorted(len(value) for value, _ in values.values()) == sizes
    for key, (value, _) in values.items():
        assert differ(key)
        assert differ(value)
    last_value = values[tuple(read_pairs(task, tokens[start:])[-1][0])][0]
    asked = read_pairs(task, [*tokens[start:], last_value[-1]])
    assert sorted(tuple(key) for key, _, _ in asked) == sorted(values)
    n, groups = task.n_ctx - start, []
    labels, target = [NOTHING] * n, [NOTHING] * n
    for key, value, places in asked:
        right, homes = values[tuple(key)]
        assert value == right
        for token, place, home in zip(value, places, homes, strict=True):
            labels[place - 1], target[place - 1] = token - task.n_keys, home
            groups.append(f"{len(key)}")
    return Answers(labels, target, None, groups)


def read_pairs(task, tokens):
    """Return (key, value, places of the value), from where a value ends and a key begins."""
    pairs = []
    for place, token in enumerate(tokens):
        if token >= task.n_keys:
            pairs[-1][1].append(token)
            pairs[-1][2].append(place)
        elif not pairs or pairs[-1][1]:
            pairs.append(([token], [], []))
        else:
            pairs[-1][0].append(token)
    return pairs


def induction(task, rows):
    """Find what followed in the row."""
    tokens = [token for (token,) in rows]
    row, asked = tokens[: task.n_seen], tokens[task.n_seen :]
    assert differ(row) == task.n_seen
    assert sorted(asked) == sorted(row[:-1])
    target = [row.index(token) + 1 for token in asked]
    return Answers([row[place] for place in target], target)


def k_hop(task, rows):
    """Follow the entries one by one."""
    n, labels, target, groups = task.n_names, [], [], []
    place_of = {name: place for place, (name, _) in enumerate(rows[:n])}
    to = {name: other - n for name, other in rows[:n]}
    here, met = rows[0][0], set()
    while here not in met:
        met.add(here)
        here = to[here]
    assert len(met) == len(to) == n
    differ(name for name, _ in rows[n:])
    for here, more in rows[n:]:
        hops = more - 2 * n + task.fewest_hops
        for _ in range(hops):
            asked_last, here = here, to[here]
        labels.append(here)
        target.append(place_of[asked_last])
        groups.append(f"{hops}")
    return Answers(labels, target, None, groups)


@cache
def numbers_of(n_vocab):
    """Return the number of every name, found out by looking at many sentences."""
    examples = Dictionary(n_vocab=n_vocab, n_words=8).make_examples(500, seeded(77))
    found = examples.tokens[:, :, 0].gather(1, examples.target)
    pairs = set(zip(found.flatten().tolist(), examples.labels.flatten().tolist(), strict=True))
    assert differ(name for name, _ in pairs) == differ(number for _, number in pairs) == n_vocab
    return dict(pairs)


def lists(task, rows):
    """Answer one list, one place at a time; a sentence is one of names that are translated."""
    symbols = [symbol for (symbol,) in rows]
    n = task.n_words if isinstance(task, Dictionary) else len(rows)
    turned = task.name == "reverse" or getattr(task, "order", "") == "reversed"
    target = list(range(n))[:: -1 if turned else 1]
    if task.name == "swap":
        target = [(i + n // 2) % n for i in range(n)]
    labels = [symbols[place] for place in target]
    if task.name == "sort":
        labels = sorted(symbols)
        target = [symbols.index(x) if symbols.count(x) == 1 else NOTHING for x in labels]
    if task.name == "sub":
        labels = [task.n_symbols - 1 - symbol for symbol in symbols]
    if isinstance(task, Dictionary):  # the decoder reads a start, then the right numbers so far
        assert differ(symbols[:n]) == n == task.n_source
        labels = [numbers_of(task.n_vocab)[name] for name in labels]
        written = [task.n_vocab + label for label in labels[:-1]]
        assert symbols[n:] == [2 * task.n_vocab, *written]
    return Answers(labels, target, None, [f"{i}" for i in range(1, n + 1)])


REFERENCES = {
    **dict.fromkeys(("phonebook", "transfer", "before_transfer"), phonebook),
    **dict.fromkeys(("directed", "mutual", "dual_role"), relation),
    "fuzzy_phonebook": fuzzy,
    "neighbours": neighbours,
    "mqar": mqar,
    "noisy_recall": noisy_recall,
    "selective_copy": selective_copy,
    "fuzzy_recall": fuzzy_recall,
    "induction": induction,
    "k_hop": k_hop,
    **dict.fromkeys(("dictionary", *LISTS), lists),
}
CLASSES = [type(TASKS["transfer"]().earlier), *(TASKS[n] for n in REFERENCES if n in TASKS)]
every_reference = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.name)


def in_row(task, rows):
    """Return the tokens before the answers as a tuple, in their order."""
    return tuple(map(tuple, rows[: task.answers_from or task.n_ctx]))


def entries(task, rows):
    """The entries in any order, however they are asked."""
    return frozenset(in_row(task, rows))


def pairs_of_keys(task, rows):
    """Keys with their values; noise, order and repetition do not count."""
    tokens = [token for (token,) in rows]
    end = 2 * task.n_pairs - isinstance(task, NoisyRecall)
    n_keys = task.n_keys if isinstance(task, NoisyRecall) else task.n_tokens
    pairs = zip(tokens[:end:2], tokens[1:end:2], strict=False)
    return frozenset(pair for pair in pairs if pair[0] < n_keys)


CONTENT = {
    **dict.fromkeys(("phonebook", "directed", "mutual", "fuzzy_phonebook", "dual_role"), entries),
    **dict.fromkeys(("neighbours", "k_hop", "transfer"), entries),
    **dict.fromkeys(("dictionary", "fuzzy_recall", "induction", *LISTS), in_row),
    **dict.fromkeys(("mqar", "noisy_recall"), pairs_of_keys),
    "selective_copy": lambda task, rows: tuple(x for (x,) in rows if x < task.n_classes),
}


def by_entry(examples):
    """Return the class that the entry of every position holds, (b, n)."""
    return torch.zeros_like(examples.labels).scatter(1, examples.target, examples.labels)


def any_entry(task, examples, generator):
    """Answer with the number of an entry picked at random; each entry is asked for once."""
    asked = examples.labels != NOTHING
    numbers = examples.labels[asked].view(len(asked), -1)
    picked = torch.randint(numbers.shape[1], examples.labels.shape, generator=generator)
    return numbers.gather(1, picked)


def other_of(row, place, generator):
    """Answer with a field of the row, any but the one at this place."""
    n = row.shape[1]
    shift = torch.randint(1, n, place.shape, generator=generator)
    return row.gather(1, (place + shift) % n)


def earlier_pair(task, examples, generator):
    """Answer with the value of an earlier pair that is no noise."""
    tokens, n = examples.tokens[:, :, 0], task.n_pairs - 1
    keys, values = tokens[:, :-1:2], tokens[:, 1::2] - task.n_keys
    lots = torch.rand(len(tokens), n, n, generator=generator)
    earlier = torch.ones(n, n).tril().bool()
    lots = lots.masked_fill(~(earlier & (keys < task.n_keys)[:, None, :]), -1)
    guesses = torch.zeros_like(examples.labels)
    guesses[:, ::2] = values.gather(1, lots.argmax(2))
    return guesses


GUESS = {
    **dict.fromkeys(
        ("directed", "mutual", "dual_role"),
        lambda task, e, g: other_of(by_entry(e), torch.arange(task.n_ctx).expand_as(e.labels), g),
    ),
    "induction": lambda task, e, g: other_of(e.tokens[:, : task.n_seen, 0], e.target - 1, g),
    "k_hop": lambda task, e, g: other_of(
        torch.arange(task.n_names).expand(len(e.tokens), -1), e.tokens[:, task.n_names :, 0], g
    ),
    "noisy_recall": earlier_pair,
    **dict.fromkeys(
        LISTS, lambda task, e, g: torch.randint(task.n_symbols, (len(e.labels), 1), generator=g)
    ),
}


@every_reference
@briefly(20)
@given(st.data())
def test_answers_are_those_of_the_slow_reference(cls, data):
    """Labels, targets, reverses and groups follow from the tokens, at any dials, also as shown."""
    task = data.draw(configured(cls))
    if cls is Mqar:  # without random tokens that its reference could take for keys
        task = task.model_copy(update={"random_fill": False})
    examples = task.make_examples(4, seeded(data.draw(st.integers(0, 999))))
    groups = task.slices(examples)
    for b, tokens in enumerate(examples.tokens.tolist()):
        expected = REFERENCES[cls.name](task, tokens)
        assert examples.labels[b].tolist() == expected.labels
        assert examples.target[b].tolist() == expected.target
        assert (examples.reverse is None) == (expected.reverse is None)
        if expected.reverse is not None:
            assert examples.reverse[b].tolist() == expected.reverse
        assert bool(task.slice_names) == (expected.groups is not None)
        labels = task.label(np.array(tokens))
        for answer, place in zip(expected.labels, expected.target, strict=True):
            if place != NOTHING and cls.name != "sub":  # what is shown there tells the answer
                assert task.answer_text(answer) in labels[place].full
        if expected.groups is not None:
            asked = examples.labels[b] != NOTHING
            assert [task.slice_names[group] for group in groups[b][asked]] == expected.groups


def near_zero(surplus):
    """Assert that independent numbers have a mean of zero, within five sigma."""
    surplus = surplus.double()
    assert abs(surplus.mean().item()) <= 5 * surplus.std().item() / math.sqrt(len(surplus)) + 1e-12


@every_reference
@briefly(4)
@given(st.data())
def test_chance_is_what_the_guess_of_the_docstring_scores(cls, data):
    """Guesses are right as often as `chance` says, and more often halfway on the plateau."""
    task = smallest_task(cls) if data.draw(st.booleans()) else data.draw(configured(cls))
    n_examples = min(2000, 40_000 // task.n_ctx + 50)
    examples = task.make_examples(n_examples, seeded(data.draw(st.integers(0, 99))))
    asked = examples.labels != NOTHING
    right = asked & (GUESS.get(cls.name, any_entry)(task, examples, seeded(7)) == examples.labels)
    near_zero(right.sum(1) - task.chance * asked.sum(1))
    assert (task.plateau is None) == (examples.reverse is None)
    if task.plateau is not None:
        coin = torch.rand(examples.target.shape, generator=seeded(8)) < 0.5
        picked = torch.where(coin, examples.target, examples.reverse)
        right = by_entry(examples).gather(1, picked) == examples.labels
        near_zero(right.double().mean(1) - task.plateau)


@every_task
def test_sides_share_no_content_and_are_alike(cls, seed):
    """Content, not questions or noise, decides the side; one in eight is held out."""
    content = CONTENT.get(cls.name, in_row)
    for task, n in ((smallest_task(cls), 200), (cls(), 600)):
        sides = [task.draw(n, seeded(seed + i), held_out=bool(i)) for i in (0, 1)]
        trained, held_out = (
            {
                (content(task, row), next_one if cls.name == "language" else 0)
                for row, next_one in zip(s.tokens.tolist(), s.labels[:, -1].tolist(), strict=True)
            }
            for s in sides
        )
        assert trained
        assert held_out
        assert not trained & held_out
        if cls.name in CONTENT:
            tokens = task.make_examples(n, seeded(seed)).tokens
            contents = [content(task, row) for row in tokens.tolist()]
            drawn = dict(zip(contents, is_held_out(task.book(tokens)).tolist(), strict=True))
            share = sum(drawn.values()) / len(drawn)
            assert share == pytest.approx(1 / 8, abs=5 * math.sqrt(7 / 64 / len(drawn)))
    if task.earlier is not None:  # it has the same books on the same side
        ours, theirs = (each.make_examples(300, seeded()).tokens for each in (task, task.earlier))
        assert torch.equal(task.book(ours), task.earlier.book(theirs))
    shares = [s.labels[s.labels != NOTHING].bincount(minlength=task.n_classes) for s in sides]
    one, other = (counts / counts.sum() for counts in shares)
    assert (one - other).abs().max() < 0.07


@briefly(15)
@given(configured(Neighbours), st.sampled_from([16, 32, 112]), st.integers(0, 999))
def test_cosines_of_neighbours_are_as_the_dial_says(task, d_model, seed):
    """Within a family the cosine, at equal places of two families the rest, else none."""
    ids, rows = task.fixed_embedding(d_model, seeded(seed))
    assert ids.tolist() == list(range(task.n_names))
    family, member = ids // MEMBERS, ids % MEMBERS
    expected = task.cosine * (family[:, None] == family).double()
    expected += (1 - task.cosine) * (member[:, None] == member)
    unit = (rows / rows.norm(dim=1, keepdim=True)).double()
    assert (unit @ unit.T - expected).abs().max() < 2e-6
    # A token's two vectors have a root mean square of one half together.
    assert (rows.square().mean(1) - 0.25 / 2).abs().max() < 1e-6


# Columns of tasks in which not every token and target is even.
DRAWN_EVENLY = {
    "mqar": lambda task, e: e.tokens[:, : 2 * task.n_pairs, 0],
    "selective_copy": lambda task, e: e.labels,
    "noisy_recall": lambda task, e: e.tokens[:, :2, 0],
    "fuzzy_recall": lambda task, e: e.tokens[:, :1, 0],
    "sort": lambda task, e: e.tokens[:, :, 0],
}


@every_reference
def test_what_is_drawn_is_drawn_evenly(cls, seed):
    """By chi-square, which would be as large by chance once in ten million draws."""
    task = cls()
    examples = task.make_examples(10_000, seeded(seed))
    unused = 1 if "transfer" in task.name else 0  # what stands for a hidden half
    assert len(examples.tokens.unique()) == task.d_vocab - unused
    read = DRAWN_EVENLY.get(cls.name, lambda _, e: torch.cat([e.tokens.flatten(1), e.target], 1))
    columns = [*read(task, examples).T.contiguous()]
    if task.name not in ("mutual", "k_hop"):  # in these one target decides another
        columns += [one * 100 + other for one, other in pairwise(columns)]
    for place, column in enumerate(columns):
        counts = column.unique(return_counts=True)[1]
        assert len(counts) == 1 or chisquare(counts).pvalue > 1e-7, (place, counts)


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1.0])
def test_slots_of_mqar_are_drawn_in_proportion_without_replacement(power_a, seed):
    """Both queries' slots together against p_i p_j / (1 − p_i), and i^(a−1) makes p."""
    task = Mqar(n_pairs=2, length=16, power_a=power_a, random_fill=False)
    odds = np.array([i ** (power_a - 1) for i in range(1, 7)])
    p = odds / odds.sum()
    expected = p[:, None] * p[None, :] / (1 - p[:, None])
    np.fill_diagonal(expected, 0)
    target = task.make_examples(50_000, seeded(seed)).target
    first, second = ((target == place).int().argmax(1) // 2 for place in (1, 3))
    seen = (first * 6 + second).bincount(minlength=36).numpy()
    possible = expected.flatten() > 0
    assert not seen[~possible].any()
    assert chisquare(seen[possible], 50_000 * expected.flatten()[possible]).pvalue > 1e-6
