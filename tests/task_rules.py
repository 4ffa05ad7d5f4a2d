"""Slow references of the tasks: answers to one example, read from its tokens alone.

A reference gets a task and the tokens as lists of fields. It asserts what the docstring promises
of the tokens, and returns `Answers`. `CONTENT` says what decides the side of the split, `GUESS`
how somebody at chance answers.
"""

from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch
from random_tasks import seeded

from attnkit.tasks import NOTHING
from attnkit.tasks.dual_role import DualRole
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.fuzzy_recall import FuzzyRecall
from attnkit.tasks.induction import Induction
from attnkit.tasks.k_hop import KHop
from attnkit.tasks.lists import Copy, Reverse, Sort, Subtract, Swap
from attnkit.tasks.mad import NoisyRecall, SelectiveCopy
from attnkit.tasks.mqar import Mqar
from attnkit.tasks.neighbours import MEMBERS, Neighbours
from attnkit.tasks.phonebook import Phonebook
from attnkit.tasks.relations import Directed, Mutual
from attnkit.tasks.transfer import Before, Transfer
from attnkit.tasks.translation import Dictionary

LISTS = (Reverse, Sort, Swap, Subtract, Copy)


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
    """Questions repeat the names with a blank."""
    entries, asked = rows[: task.n_entries], rows[task.n_entries :]
    places = [name for name, _ in entries]
    assert differ(places) == task.n_entries
    target = [places.index(name) for name, _ in asked]
    differ(target)
    assert {blank for _, blank in asked} == {task.d_vocab - 1}
    return Answers([entries[t][1] - task.n_names for t in target], target)


def relation(task, rows):
    """Follow the second field of every entry; of a directed relation there is one cycle."""
    names = [name for name, _, _ in rows]
    target = [names.index(other - task.n_names) for _, other, _ in rows]
    labels = [rows[t][2] - 2 * task.n_names for t in target]
    differ(names)
    differ(target)
    if isinstance(task, Mutual):
        assert all(target[t] == i != t for i, t in enumerate(target))
        return Answers(labels, target)
    here, met = 0, []
    while here not in met:
        met.append(here)
        here = target[here]
    assert len(met) == len(rows)
    return Answers(labels, target, [target.index(i) for i in range(len(rows))])


def fuzzy(task, rows):
    """Find the nearest of all names, which is wrong in so many letters."""
    names = [[x - i * task.n_alphabet for i, x in enumerate(row[:-1])] for row in rows]
    assert all(0 <= letter < task.n_alphabet for name in names for letter in name)
    entries, target = names[: task.n_entries], []
    for one, other in combinations(entries, 2):
        assert distance(one, other) >= 2 * task.n_wrong + 1
    for asked in names[task.n_entries :]:
        far = [distance(asked, entry) for entry in entries]
        assert far.count(min(far)) == 1
        assert min(far) == task.n_wrong
        target.append(far.index(min(far)))
    differ(target)
    first = task.n_letters * task.n_alphabet
    assert {row[-1] for row in rows[task.n_entries :]} == {task.d_vocab - 1}
    return Answers([rows[t][-1] - first for t in target], target)


def distance(one, other):
    """Return in how many places two names differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def dual_role(task, rows):
    """Look up the next name of the circle; the one before is the reverse."""
    names = [name for name, _ in rows]
    differ(names)
    target = [names.index(name - name % 3 + (name + 1) % 3) for name in names]
    reverse = [target.index(i) for i in range(len(rows))]
    assert all(differ([i, target[i], reverse[i]]) for i in range(len(rows)))
    return Answers([rows[t][1] - task.n_names for t in target], target, reverse)


def neighbours(task, rows):
    """Ask for the members of one's family that are entries, in their order."""
    entries, target, groups = rows[: task.n_entries], [], []
    differ(name for name, _ in entries)
    differ(number for _, number in entries)
    for name, asked in rows[task.n_entries :]:
        alike = sorted(
            (other, i)
            for i, (other, _) in enumerate(entries)
            if other // MEMBERS == name // MEMBERS
        )
        assert name not in [other for other, _ in alike]
        assert len(alike) == task.n_alike
        rank = asked - task.n_names - task.n_values
        target.append(alike[rank][1])
        groups.append(("1st", "2nd", "3rd")[rank])
    differ(target)
    return Answers([entries[t][1] - task.n_names for t in target], target, None, groups)


def transfer(task, rows):
    """Look up the half of an entry that is hidden: the name, or before that the number."""
    hidden = 0 if isinstance(task, Transfer) else 1
    entries, asked = rows[: task.n_entries], rows[task.n_entries :]
    known = [entry[1 - hidden] for entry in entries]
    differ(known)
    differ(entry[hidden] for entry in entries)
    assert all(name < task.n_names <= number < task.n_classes for name, number in entries)
    assert {row[hidden] for row in asked} == {task.n_classes + hidden}
    target = [known.index(row[1 - hidden]) for row in asked]
    differ(target)
    return Answers([entries[t][hidden] for t in target], target)


def mqar(task, rows):
    """Return labels, targets and groups of MQAR: each token after the pairs that is not 0 asks."""
    tokens, n, half = [token for (token,) in rows], task.n_pairs, task.n_tokens // 2
    keys, values = tokens[: 2 * n : 2], tokens[1 : 2 * n : 2]
    assert differ(keys) == differ(values) == n
    assert all(1 <= k < half <= v < task.n_tokens for k, v in zip(keys, values, strict=True))
    labels, target, groups = [], [], []
    for place, token in enumerate(tokens[2 * n :], 2 * n):
        labels.append(values[keys.index(token)] - half if token else NOTHING)
        target.append(2 * keys.index(token) + 1 if token else NOTHING)
        if token:
            assert place % 2 == 0
            far = place - target[-1] + 1
            bounds = {name: name.split("–") for name in task.slice_names}
            groups += [name for name, (low, high) in bounds.items() if int(low) <= far <= int(high)]
    assert differ(t for t in target if t != NOTHING) == n
    return Answers(labels, target, None, groups)


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
        is_key = token < task.n_keys
        if is_key and (not pairs or pairs[-1][1]):
            pairs.append(([], [], []))
        pairs[-1][0 if is_key else 1].append(token)
        if not is_key:
            pairs[-1][2].append(place)
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
    for name, more in rows[n:]:
        hops, here = more - 2 * n + task.fewest_hops, name
        for _ in range(hops):
            asked_last, here = here, to[here]
        labels.append(here)
        target.append(place_of[asked_last])
        groups.append(f"{hops}")
    return Answers(labels, target, None, groups)


def lists(task, rows):
    """Answer one list, one place at a time."""
    symbols, n = [symbol for (symbol,) in rows], len(rows)
    places = {Reverse: lambda i: n - 1 - i, Swap: lambda i: (i + n // 2) % n}
    target = [places.get(type(task), lambda i: i)(i) for i in range(n)]
    labels = [symbols[place] for place in target]
    if isinstance(task, Sort):
        labels = sorted(symbols)
        target = [symbols.index(x) if symbols.count(x) == 1 else NOTHING for x in labels]
    if isinstance(task, Subtract):
        labels = [task.n_symbols - 1 - symbol for symbol in symbols]
    return Answers(labels, target, None, [f"{i}" for i in range(1, n + 1)])


@cache
def numbers_of(n_vocab):
    """Return the number of every name, found out by looking at many sentences."""
    examples = Dictionary(n_vocab=n_vocab, n_words=8).make_examples(500, seeded(77))
    found = examples.tokens[:, :, 0].gather(1, examples.target)
    pairs = set(zip(found.flatten().tolist(), examples.labels.flatten().tolist(), strict=True))
    assert differ(name for name, _ in pairs) == differ(number for _, number in pairs) == n_vocab
    return dict(pairs)


def dictionary(task, rows):
    """Translate the names; the decoder reads a start, then the right numbers so far."""
    tokens, n, numbers = [token for (token,) in rows], task.n_words, numbers_of(task.n_vocab)
    assert differ(tokens[:n]) == n == task.n_source
    target = list(range(n) if task.order == "same" else range(n - 1, -1, -1))
    labels = [numbers[tokens[place]] for place in target]
    assert tokens[n:] == [2 * task.n_vocab, *[task.n_vocab + label for label in labels[:-1]]]
    return Answers(labels, target, None, [f"{i}" for i in range(1, n + 1)])


REFERENCES = {
    Phonebook: phonebook,
    Directed: relation,
    Mutual: relation,
    FuzzyPhonebook: fuzzy,
    DualRole: dual_role,
    Neighbours: neighbours,
    Transfer: transfer,
    Before: transfer,
    Dictionary: dictionary,
    Mqar: mqar,
    NoisyRecall: noisy_recall,
    SelectiveCopy: selective_copy,
    FuzzyRecall: fuzzy_recall,
    Induction: induction,
    KHop: k_hop,
    **dict.fromkeys(LISTS, lists),
}


# What decides the side of the split


def entries(task, rows):
    """The entries in any order, however they are asked."""
    return frozenset(map(tuple, rows[: task.answers_from or task.n_ctx]))


def in_row(task, rows):
    """Return the tokens before the answers as a tuple, in their order."""
    return tuple(map(tuple, rows[: task.answers_from or task.n_ctx]))


def pairs_of_keys(task, rows):
    """Keys with their values; noise, order and repetition do not count."""
    tokens = [token for (token,) in rows]
    end = 2 * task.n_pairs - isinstance(task, NoisyRecall)
    n_keys = task.n_keys if isinstance(task, NoisyRecall) else task.n_tokens
    pairs = zip(tokens[:end:2], tokens[1:end:2], strict=False)
    return frozenset(pair for pair in pairs if pair[0] < n_keys)


def copied(task, rows):
    """The tokens in their order; where the blanks are does not count."""
    return tuple(token for (token,) in rows if token < task.n_classes)


CONTENT = {
    **dict.fromkeys((Phonebook, Directed, Mutual, FuzzyPhonebook, DualRole), entries),
    **dict.fromkeys((Neighbours, KHop, Transfer, Before), entries),
    **dict.fromkeys((Dictionary, FuzzyRecall, Induction, *LISTS), in_row),
    **dict.fromkeys((Mqar, NoisyRecall), pairs_of_keys),
    SelectiveCopy: copied,
}


# How somebody at chance answers: (b, a) classes


def numbers_in_book(examples):
    """Return the class that every entry holds, (b, n); each entry is asked for once."""
    asked = examples.labels != NOTHING
    return examples.labels[asked].view(len(asked), -1)


def by_entry(examples):
    """Return the class that the entry of every position holds, (b, n)."""
    return torch.zeros_like(examples.labels).scatter(1, examples.target, examples.labels)


def any_entry(task, examples, generator):
    """Answer with the number of an entry picked at random."""
    numbers = numbers_in_book(examples)
    picked = torch.randint(numbers.shape[1], examples.labels.shape, generator=generator)
    return numbers.gather(1, picked)


def other_entry(task, examples, generator):
    """Answer with the number of another entry than one's own."""
    numbers, n = by_entry(examples), task.n_ctx
    shift = torch.randint(1, n, examples.labels.shape, generator=generator)
    return numbers.gather(1, (torch.arange(n) + shift) % n)


def other_token(task, examples, generator):
    """Answer with another token of the row than the one that asks."""
    row = examples.tokens[:, : task.n_seen, 0]
    shift = torch.randint(1, task.n_seen, examples.target.shape, generator=generator)
    return row.gather(1, (examples.target - 1 + shift) % task.n_seen)


def other_name(task, examples, generator):
    """Answer with another name than the one that asks."""
    asked = examples.tokens[:, task.n_names :, 0]
    return (asked + torch.randint(1, task.n_names, asked.shape, generator=generator)) % task.n_names


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


def any_symbol(task, examples, generator):
    """Answer with one symbol everywhere."""
    symbol = torch.randint(task.n_symbols, (len(examples.labels), 1), generator=generator)
    return symbol.expand_as(examples.labels)


GUESS = {
    **dict.fromkeys((Phonebook, FuzzyPhonebook, Neighbours, Transfer, Before), any_entry),
    **dict.fromkeys((Mqar, FuzzyRecall, SelectiveCopy, Dictionary), any_entry),
    **dict.fromkeys((Directed, Mutual, DualRole), other_entry),
    Induction: other_token,
    KHop: other_name,
    NoisyRecall: earlier_pair,
    **dict.fromkeys(LISTS, any_symbol),
}
