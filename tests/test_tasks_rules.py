"""Each task against its slow reference, its chance and plateau, its odds and its labels."""

import inspect
import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import configured, seeded, smallest_task
from scipy.stats import binom, chisquare
from searching import briefly
from task_rules import CONTENT, GUESS, LISTS, REFERENCES, distance, numbers_in_book, numbers_of

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import full_size
from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.dual_role import DualRole
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.fuzzy_recall import FuzzyRecall
from attnkit.tasks.induction import Induction
from attnkit.tasks.k_hop import KHop
from attnkit.tasks.lists import Copy, Reverse, Sort, Subtract, Swap
from attnkit.tasks.mad import LETTERS, NoisyRecall, SelectiveCopy
from attnkit.tasks.mqar import Mqar
from attnkit.tasks.neighbours import MEMBERS, Neighbours
from attnkit.tasks.phonebook import Phonebook
from attnkit.tasks.relations import Directed, Mutual
from attnkit.tasks.transfer import Before, Transfer
from attnkit.tasks.translation import Dictionary


def every(table):
    """Run a test for every task of a table."""
    return pytest.mark.parametrize("cls", table, ids=lambda cls: cls.name)


def without_fill(task):
    """Return the task without random tokens that its reference could take for keys."""
    return task.model_copy(update={"random_fill": False}) if isinstance(task, Mqar) else task


# Answers, chance and the side of the split


@every(REFERENCES)
@briefly(20)
@given(st.data())
def test_answers_are_those_of_the_slow_reference(cls, data):
    """Labels, targets, reverses and groups follow from the tokens, at any dials."""
    task = without_fill(data.draw(configured(cls)))
    examples = task.make_examples(4, seeded(data.draw(st.integers(0, 999))))
    groups = task.slices(examples)
    for b, tokens in enumerate(examples.tokens.tolist()):
        expected = REFERENCES[cls](task, tokens)
        assert examples.labels[b].tolist() == expected.labels
        assert examples.target[b].tolist() == expected.target
        assert (examples.reverse is None) == (expected.reverse is None)
        if expected.reverse is not None:
            assert examples.reverse[b].tolist() == expected.reverse
        assert bool(task.slice_names) == (expected.groups is not None)
        if expected.groups is not None:
            asked = examples.labels[b] != NOTHING
            assert [task.slice_names[group] for group in groups[b][asked]] == expected.groups


def near_zero(surplus):
    """Assert that independent numbers have a mean of zero, within five sigma."""
    surplus = surplus.double()
    assert abs(surplus.mean().item()) <= 5 * surplus.std().item() / math.sqrt(len(surplus)) + 1e-12


@every(GUESS)
@briefly(4)
@given(st.data())
def test_chance_is_what_the_guess_of_the_docstring_scores(cls, data):
    """Guesses are right as often as `chance` says, and more often halfway on the plateau."""
    task = smallest_task(cls) if data.draw(st.booleans()) else data.draw(configured(cls))
    n_examples = min(2000, 40_000 // task.n_ctx + 50)
    examples = task.make_examples(n_examples, seeded(data.draw(st.integers(0, 99))))
    asked = examples.labels != NOTHING
    right = asked & (GUESS[cls](task, examples, seeded(7)) == examples.labels)
    near_zero(right.sum(1) - task.chance * asked.sum(1))
    assert (task.plateau is None) == (examples.reverse is None)
    if task.plateau is not None:
        coin = torch.rand(examples.target.shape, generator=seeded(8)) < 0.5
        picked = torch.where(coin, examples.target, examples.reverse)
        right = numbers_in_book(task, examples).gather(1, picked) == examples.labels
        near_zero(right.double().mean(1) - task.plateau)


@every(CONTENT)
def test_the_content_alone_decides_the_side(cls, seed):
    """Equal content is on one side, whatever else differs; about one in eight is held out."""
    for task, n_examples in ((smallest_task(cls), 1000), (cls(), 300)):
        examples = task.make_examples(n_examples, seeded(seed))
        sides = {}
        held_out = is_held_out(task.book(examples.tokens)).tolist()
        for tokens, side in zip(examples.tokens.tolist(), held_out, strict=True):
            assert sides.setdefault(CONTENT[cls](task, tokens), side) == side
        share = sum(sides.values()) / len(sides)
        assert share == pytest.approx(1 / 8, abs=5 * math.sqrt(7 / 64 / len(sides)))


@every([cls for cls in CONTENT if CONTENT[cls].__name__ in ("entries", "in_row")])
def test_all_that_is_read_and_nothing_else_decides_the_side(cls, seed):
    """Every field counts, the order of entries and the questions do not, that of rows does."""
    task = cls()
    tokens = task.make_examples(1500, seeded(seed)).tokens
    n_read = task.answers_from or task.n_ctx
    first, rest = tokens[:, :n_read], tokens[:, n_read:]

    def moved(*other):
        held_out = (is_held_out(task.book(batch)) for batch in (tokens, torch.cat(other, 1)))
        return torch.ne(*held_out).double().mean().item()

    independent = pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.06)
    assert moved(first, rest.flip(1)) == 0
    turned = moved(first.flip(1), rest)
    assert turned == (0 if CONTENT[cls].__name__ == "entries" else independent)
    for field in range(task.n_fields):
        changed = first.clone()
        changed[:, 1, field] += 1
        assert moved(changed, rest) == independent


# What the tables above cannot tell


@pytest.mark.parametrize("power_a", [0.01, 1.0])
def test_random_fill_of_mqar_asks_nothing(power_a, seed):
    """Each key is asked once at the first token of a slot, whatever fills the others."""
    task = Mqar(power_a=power_a)
    examples = task.make_examples(2000, seeded(seed))
    n, tokens, asked = task.n_pairs, examples.tokens[:, :, 0], examples.labels != NOTHING
    assert (asked.sum(1) == n).all()
    assert not asked[:, 1::2].any()
    queries, target = tokens[:, 2 * n :][asked].view(-1, n), examples.target[asked].view(-1, n)
    assert torch.equal(tokens.gather(1, target - 1), queries)
    assert torch.equal(tokens.gather(1, target) - 32, examples.labels[asked].view(-1, n))
    assert chisquare(tokens[:, 2 * n :][~asked].bincount(minlength=64)).pvalue > 1e-6
    assert Mqar(length=24).slice_names == ("2–8", "10–16", "18–22")


def test_a_dictionary_stays_as_it_is():
    """Links and results of other days mean the same."""
    assert [numbers_of(8)[name] for name in range(8)] == [7, 6, 0, 5, 2, 1, 4, 3]


def test_the_earlier_task_of_transfer_has_the_same_books_on_the_same_side():
    """What evaluates the later task was not trained on in the earlier one either."""
    task = Transfer()
    ours, theirs = (each.make_examples(300, seeded()).tokens for each in (task, task.earlier))
    assert torch.equal(task.book(ours), task.earlier.book(theirs))
    training = Experiment(task="transfer").training
    assert 0 < training.earlier_steps < training.steps


def test_symmetric_scores_prefer_the_next_name_at_most_twice():
    """Whatever the order of the three scores of a circle, as the docstring of dual role proves."""
    orders = itertools.permutations(range(3))
    right = [(s01 > s20) + (s12 > s01) + (s20 > s12) for s01, s12, s20 in orders]
    assert set(right) == {1, 2}


def test_the_set_up_of_lists_is_the_published_one():
    """The cell has two epochs, heads that fill the width, an MLP of four times it, a final norm."""
    for cls in LISTS:
        published = full_size(cls.name).settings()
        epoch = math.ceil(published["n_train"] / published["batch_size"])
        assert published["steps"] == 2 * epoch
        assert published["n_heads"] * published["d_head"] == published["d_model"]
        assert published["d_mlp"] == 4 * published["d_model"]
        assert (published["blocks"], published["length"]) == ("final_norm", 16)
    assert FuzzyRecall(n_pairs=16).n_ctx < 128 < FuzzyRecall(n_pairs=17).n_ctx  # published


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


# Odds


def columns(values, n):
    """Return the counts of every column."""
    return [column.bincount(minlength=n) for column in values.T]


def cycles(task, examples):
    """Return how often each of the 120 cycles of six names is drawn."""
    names, others = examples.tokens[:, :6].unbind(-1)
    to = torch.zeros_like(names).scatter(1, names, others - 6)
    counts = (to[:, :5] * 6 ** torch.arange(5)).sum(1).bincount()
    assert (counts > 0).sum() == math.factorial(5)
    return [
        counts[counts > 0],
        *columns(names, 6),
        *columns(examples.tokens[:, 6:, 0], 6),
        task.slices(examples).flatten().bincount(minlength=5),
    ]


def families(task, examples):
    """Return how often who asks and who is an entry, and every place of an answer."""
    asker = examples.tokens[:, task.n_entries, 0] % MEMBERS
    own = examples.target[:, : task.n_alike]
    found = examples.tokens[:, :, 0].gather(1, own) % MEMBERS
    ways = torch.cat([asker[:, None], found], 1).unique(dim=0, return_counts=True)[1]
    assert len(ways) == {2: 12, 3: 4}[task.n_alike]
    return [ways, *columns(examples.target, task.n_entries)]


def stream(task, examples):
    """Return counts of keys, values and noise, and check the share of noise."""
    tokens = examples.tokens[:, 2:-1, 0]
    counts = tokens.flatten().bincount(minlength=task.d_vocab)
    near_zero((tokens[:, ::2] >= task.n_keys).double().mean(1) - task.noise_share)
    keys = examples.tokens[:, :-1:2, 0]
    there = (keys[:, :, None] == torch.arange(task.n_keys)).any(1)
    near_zero((examples.tokens[:, -1, 0] == keys[:, 0]).double() - 1 / there.sum(1))
    n_keys, n_all = task.n_keys, task.n_keys + task.n_values
    return [counts[:n_keys], counts[n_all:], *columns(examples.tokens[:, 1:2, 0] - n_keys, 8)]


def names_far_apart(task, examples):
    """Return ways in which the second of two names differs from the first, and first letters."""
    names = examples.tokens[:, :2, :-1] - torch.arange(3) * 8
    turns = (names[:, 1] - names[:, 0]) % 8
    assert (turns > 0).all()
    return [
        ((turns - 1) @ torch.tensor([49, 7, 1])).bincount(minlength=343),
        *columns(names[:, 0], 8),
    ]


def wrong_letters(task, examples):
    """Return where letters are wrong, and by how much."""
    names = examples.tokens[..., :-1] - torch.arange(5) * 16
    turns = (names[:, 1] - names[:, 0]) % 16
    return [(turns > 0).sum(0), turns[turns > 0].bincount(minlength=16)[1:]]


def motifs(task, examples):
    """Return counts of all keys of two tokens, and of all values of three."""
    codes = {2: [], 3: []}
    for tokens in examples.tokens[:, : task.answers_from, 0]:
        key = tokens < task.n_keys
        for is_key, run in itertools.groupby(
            zip(key.tolist(), tokens.tolist(), strict=True), lambda t: t[0]
        ):
            own = [token - (0 if is_key else task.n_keys) for _, token in run]
            if len(own) == (2 if is_key else 3):
                codes[len(own)].append(sum(token * 7**i for i, token in enumerate(own)))
    found = [torch.tensor(code).bincount() for code in codes.values()]
    assert [int((counts > 0).sum()) for counts in found] == [7 * 6, 7 * 6 * 5]
    return [counts[counts > 0] for counts in found]


ODDS = [
    (DualRole(n_circles=2, n_names=12), lambda _, e: columns(e.tokens[:, :, 0], 12)),
    (Neighbours(n_alike=2, n_asking=2, n_families=2), families),
    (Neighbours(n_alike=3, n_asking=2, n_families=2), families),
    (KHop(n_names=6, n_hops=5), cycles),
    (Directed(n_entries=5), lambda _, e: columns(e.tokens[:, :, 2] - 64, 32)),
    (
        Induction(n_seen=5, n_tokens=8),
        lambda _, e: [*columns(e.tokens[:, :5, 0], 8), *columns(e.target - 1, 4)],
    ),
    (Mqar(n_tokens=16, n_pairs=3, length=12), lambda _, e: columns(e.tokens[:, 1:6:2, 0] - 8, 8)),
    (Reverse(length=6), lambda _, e: columns(e.labels, 10)),
    (NoisyRecall(noise_share=0.4), stream),
    (SelectiveCopy(n_copied=5, length=19), lambda _, e: columns(e.labels, 14)),
    (FuzzyPhonebook(n_entries=2, n_letters=3, n_alphabet=8), names_far_apart),
    *(
        (
            FuzzyPhonebook().model_copy(update={"n_entries": 1, "n_letters": 5, "n_wrong": n}),
            wrong_letters,
        )
        for n in (1, 2)  # one entry, so that nothing else decides
    ),
    (FuzzyRecall(n_pairs=6, n_values=7), motifs),
]


@pytest.mark.parametrize(("task", "counts_of"), ODDS, ids=lambda value: getattr(value, "name", ""))
def test_what_is_drawn_is_drawn_evenly(task, counts_of, seed):
    """By chi-square, which would be as large by chance once in a million draws."""
    n_examples = 3000 if isinstance(task, FuzzyRecall) else 30_000
    for counts in counts_of(task, task.make_examples(n_examples, seeded(seed))):
        assert chisquare(counts).pvalue > 1e-6


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


def test_every_blank_falls_before_any_token(seed):
    """So many before the first, and before the second, as coins would put there."""
    task, n_blanks, n = SelectiveCopy(n_copied=5, length=19), 8, 50_000
    target = task.make_examples(n, seeded(seed)).target
    expected = n * binom.pmf(np.arange(n_blanks + 1), n_blanks, 1 / 5)
    for before in (target[:, 0], target[:, 1] - target[:, 0] - 1):
        counts = before.bincount(minlength=n_blanks + 1).numpy()
        seen, wanted = (np.append(a[:5], a[5:].sum()) for a in (counts, expected))
        assert chisquare(seen, wanted).pvalue > 1e-6


# Dials that disagree


@pytest.mark.parametrize(
    ("cls", "dials", "message"),
    [
        (Phonebook, {"n_names": 7}, "n_entries: got 8, allowed at most n_names (7)"),
        (Mutual, {"n_names": 7}, "n_entries: got 8, allowed at most n_names (7)"),
        (FuzzyPhonebook, {"n_wrong": 2}, "n_wrong: got 2, allowed at most 1: else another name"),
        (FuzzyPhonebook, {"n_letters": 3, "n_alphabet": 8}, "n_entries: got 8, allowed at most 2:"),
        (DualRole, {"n_names": 6}, "n_circles: got 3, allowed at most 2, a third of n_names"),
        (Neighbours, {"n_families": 3}, "n_asking: got 4, allowed at most n_families (3)"),
        (Neighbours, {"n_values": 7}, "n_values: got 7, allowed at least 8: the numbers of a book"),
        (Neighbours, {"cosine": math.nan}, "cosine"),
        (Transfer, {"n_names": 5}, "n_entries: got 8, allowed at most n_names (5)"),
        (Before, {"n_values": 6}, "n_entries: got 8, allowed at most n_values (6)"),
        (Dictionary, {"n_words": 9, "n_vocab": 8}, "n_words: got 9, allowed at most n_vocab (8)"),
        (Mqar, {"n_pairs": 7}, "length: got 24, allowed at least 28, four for every pair"),
        (Mqar, {"n_tokens": 16, "n_pairs": 8, "length": 32}, "n_pairs: got 8, allowed at most 7,"),
        (SelectiveCopy, {"n_copied": 8}, "length: got 16, allowed at least 18, two for every"),
        (FuzzyRecall, {"n_pairs": 8, "n_longest": 1}, "allowed at most n_longest × n_keys (7)"),
        (Induction, {"n_seen": 9, "n_tokens": 8}, "n_seen: got 9, allowed at most n_tokens (8)"),
        (KHop, {"fewest_hops": 3}, "fewest_hops: got 3, allowed at most n_hops (2)"),
        (KHop, {"n_names": 6, "n_hops": 6}, "n_hops: got 6, allowed at most 5, below n_names"),
        (Swap, {"length": 7}, "multiple of 2"),
    ],
)
def test_dials_that_disagree_are_told(cls, dials, message):
    """With the value and what is allowed."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        cls(**dials)


def test_half_of_all_names_are_left_for_the_last_entry_of_a_fuzzy_book():
    """Counted one by one: names nearer than three to a name are at most 1/2 of all per others."""
    all_names = list(itertools.product(range(16), repeat=3))
    too_near = sum(distance(name, (0, 0, 0)) < 3 for name in all_names)
    most = max(n for n in range(1, 17) if 2 * (n - 1) * too_near <= len(all_names))
    dials = {"n_letters": 3, "n_alphabet": 16, "n_entries": most}
    FuzzyPhonebook(**dials)
    with pytest.raises(ValidationError, match=f"at most {most}"):
        FuzzyPhonebook(**{**dials, "n_entries": most + 1})
    task = FuzzyPhonebook(n_entries=2, n_letters=7, n_alphabet=8, n_wrong=3)  # always allowed
    assert len(task.make_examples(100, seeded()).tokens) == 100


# Worked examples


def spelt(name, value):
    """Return the tokens of a name of 26 letters, and its number or 32 for none."""
    return [
        *(26 * place + ord(letter) - ord("A") for place, letter in enumerate(name)),
        104 + value,
    ]


WORKED = {
    Phonebook: (
        {"n_entries": 3},
        [(0, 53), (1, 36), (2, 47), (1, 64), (2, 64), (0, 64)],
        "Ada|Ben|Cem|Ben ?|Cem ?|Ada ?",
        "Ada 31|Ben 14|Cem 25|Ben ?|Cem ?|Ada ?",
    ),
    Directed: (
        {"n_entries": 3},
        [(0, 34, 85), (1, 32, 68), (2, 33, 79)],
        "Ada|Ben|Cem",
        "Ada: Cem|Ben: Ada|Cem: Ben",
        "Ada: Cem, 31|Ben: Ada, 14|Cem: Ben, 25",
    ),
    Mutual: (
        {"n_entries": 4},
        [(0, 34, 85), (1, 35, 68), (2, 32, 79), (3, 33, 73)],
        "Ada|Ben|Cem|Dia",
        "Ada & Cem|Ben & Dia|Cem & Ada|Dia & Ben",
        "Ada & Cem, 31|Ben & Dia, 14|Cem & Ada, 25|Dia & Ben, 19",
    ),
    FuzzyPhonebook: (
        {"n_entries": 3, "n_alphabet": 26},
        [
            *map(spelt, ("ANTO", "BRIM", "KEVA"), (21, 4, 15)),
            *map(spelt, ("BRAM", "KEVO", "UNTO"), (32, 32, 32)),
        ],
        "ANTO|BRIM|KEVA|BRAM ?|KEVO ?|UNTO ?",
        "ANTO 31|BRIM 14|KEVA 25|BRAM ?|KEVO ?|UNTO ?",
    ),
    DualRole: (
        {"n_circles": 2},
        [(1, 51), (3, 34), (2, 45), (0, 39), (5, 60), (4, 32)],
        "Ben|Dia|Cem|Ada|Fay|Eli",
        "Ben asks Cem|Dia asks Eli|Cem asks Ada|Ada asks Ben|Fay asks Dia|Eli asks Fay",
        "Ben asks Cem, 31|Dia asks Eli, 14|Cem asks Ada, 25|Ada asks Ben, 19|Fay asks Dia, 40|"
        "Eli asks Fay, 12",
    ),
    Neighbours: (
        {"n_asking": 2},
        [(5, 36), (3, 53), (4, 47), (0, 41), (1, 64), (1, 65), (6, 64), (6, 65)],
        "Ben2|Ada4|Ben1|Ada1|Ada2 ?|Ada2 ?|Ben3 ?|Ben3 ?",
        "Ben2 14|Ada4 31|Ben1 25|Ada1 19|Ada2 1st|Ada2 2nd|Ben3 1st|Ben3 2nd",
        "Ben2 14|Ada4 31|Ben1 25|Ada1 19|Ada2, 1st neighbour?|Ada2, 2nd neighbour?|"
        "Ben3, 1st neighbour?|Ben3, 2nd neighbour?",
    ),
    Transfer: (
        {"n_entries": 3},
        [(0, 53), (1, 36), (2, 47), (64, 36), (64, 47), (64, 53)],
        "Ada|Ben|Cem|? 14|? 25|? 31",
        "Ada 31|Ben 14|Cem 25|? 14|? 25|? 31",
    ),
    Before: (
        {"n_entries": 3},
        [(0, 53), (1, 36), (2, 47), (1, 65), (2, 65), (0, 65)],
        "Ada|Ben|Cem|Ben ?|Cem ?|Ada ?",
        "Ada 31|Ben 14|Cem 25|Ben ?|Cem ?|Ada ?",
    ),
    KHop: (
        {"n_names": 3},
        [(0, 5), (1, 3), (2, 4), (2, 7), (0, 6), (1, 7)],
        "Ada|Ben|Cem|Cem+2|Ada+1|Ben+2",
        "Ada: Cem|Ben: Ada|Cem: Ben|Cem+2 ?|Ada+1 ?|Ben+2 ?",
    ),
    Induction: (
        {"n_seen": 4},
        [(5,), (1,), (10,), (2,), (10,), (5,), (1,)],
        "f|b|k|c|k ?|f ?|b ?",
        "f|b|k|c|k ?|f ?|b ?",
    ),
    FuzzyRecall: (
        {"n_pairs": 2, "n_longest": 2},
        [(2,), (0,), (11,), (0,), (9,), (7,), (0,), (9,), (7,), (2,), (0,)],
        "c|a|4|a|2|0|a|2|0|c|a",
        "c|a|4|a|2|0|a ?|a 2 ?|a 2 0 ?|c ?|c a ?",
        "key c|key a|value 4|key a|value 2|value 0|key a|value 2|value 0|key c|key a",
    ),
    NoisyRecall: (
        {"n_pairs": 6},
        [(1,), (11,), (2,), (8,), (21,), (18,), (1,), (11,), (0,), (9,), (2,)],
        "b|3|c|0|~5|~2|b|3|a|1|c",
        "b ?|3|c ?|0|~5|~2|b ?|3|a ?|1|c ?",
        "key b|value 3|key c|value 0|noise ~5|noise ~2|key b|value 3|key a|value 1|key c",
    ),
    SelectiveCopy: (
        {"n_copied": 3, "length": 10},
        [(14,), (7,), (3,), (14,), (14,), (7,), (15,), (14,), (14,), (14,)],
        "·|7|3|·|·|7|>|·|·|·",
        "·|7|3|·|·|7|>|token 1 ?|token 2 ?|token 3 ?",
        "blank|7|3|blank|blank|7|mark|token 1 ?|token 2 ?|token 3 ?",
    ),
    Mqar: (
        {"n_tokens": 14, "n_pairs": 2, "length": 12, "random_fill": False},
        [(2,), (8,), (4,), (7,), (0,), (0,), (4,), (0,), (0,), (0,), (2,), (0,)],
        "2|8|4|7|0|0|4|0|0|0|2|0",
        "2 ?|8 ?|4 ?|7 ?|0 ?|0 ?|4 ?|0 ?|0 ?|0 ?|2 ?|0 ?",
        "key 2|value 8|key 4|value 7|fill 0|fill 0|4 ?|fill 0|fill 0|fill 0|2 ?|fill 0",
    ),
    **dict.fromkeys(
        (Reverse, Swap, Subtract, Copy),
        (
            {"length": 4},
            [(3,), (1,), (4,), (7,)],
            "3|1|4|7",
            "1: 3|2: 1|3: 4|4: 7",
            "place 1: 3|place 2: 1|place 3: 4|place 4: 7",
        ),
    ),
    Sort: ({"length": 4}, [(4,), (1,), (7,), (1,)], "4|1|7|1"),
}
"""Dials, tokens, and labels: on an axis, beside a row, and in a tooltip unless it is the same."""


@every(WORKED)
def test_the_docstrings_example_is_true(cls):
    """Its tokens are shown as it says, and its labels and targets are those of the rule."""
    dials, tokens, *expected = WORKED[cls]
    task = cls().model_copy(update=dials)
    labels = task.label(np.array(tokens))
    if len(expected) == 2:
        expected.append(expected[1])
    for name, texts in zip(("short", "query", "full"), expected, strict=False):
        assert "|".join(getattr(label, name) for label in labels) == texts
    answers = REFERENCES[cls](task, [list(token) for token in tokens])
    table = inspect.cleandoc(cls.__doc__).split("```")[1]
    rows = dict(re.findall(r"^(label|target|reverse) +(.+)$", table, re.MULTILINE))
    shown = [task.answer_text(label) for label in answers.labels if label != NOTHING]
    assert rows["label"].split() == shown
    assert rows["target"].replace("–", "").split() == [f"{t}" for t in answers.target if t >= 0]
    if answers.reverse:
        assert rows["reverse"].split() == [f"{place}" for place in answers.reverse]


def test_labels_of_a_sentence():
    """Names with their numbers, the start, and what was written so far."""
    task, numbers = Dictionary(n_words=3), numbers_of(32)
    tokens = [2, 0, 1, 2 * 32, 32 + numbers[2], 32 + numbers[0]]
    labels = task.label(np.array(tokens)[:, None])
    cem, ada, ben = (task.answer_text(numbers[name]) for name in (2, 0, 1))
    assert [label.short for label in labels] == ["Cem", "Ada", "Ben", "start", cem, ada]
    assert labels[2].full == f"Ben ({ben})"
    assert [label.query for label in labels[3:]] == ["start →", f"{cem} →", f"{ada} →"]


def test_classes_read_as_numbers_names_or_letters():
    """Numbers have two digits; there is a letter for each key of the largest size."""
    assert [Directed().answer_text(n) for n in (0, 63)] == ["10", "73"]
    assert [Transfer().answer_text(n) for n in (0, 2, 32, 63)] == ["Ada", "Cem", "10", "41"]
    assert len(set(LETTERS)) == len(LETTERS) == 64
    assert Subtract().answer_text(9) == "9"
