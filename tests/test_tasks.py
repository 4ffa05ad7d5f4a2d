"""Laws that every registered task keeps, at any allowed dials; what one alone promises stands
in the files test_tasks_….py.
"""

import inspect
import math
import re
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.experiment.experiment import Experiment, Size, Training
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks import FAMILIES, NOTHING, TASKS, Examples, Task, register_task
from attnkit.tasks.base import HELD_OUT_ONE_IN, NAMES, choose, in_order, is_held_out
from attnkit.tasks.phonebook import Phonebook

every_task = pytest.mark.parametrize("cls", TASKS.values(), ids=TASKS)
a_few = settings(max_examples=7)


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def limits(info):
    """A dial's bounds and step, by name."""
    return {
        key: getattr(meta, key)
        for meta in info.metadata
        for key in ("ge", "le", "multiple_of")
        if hasattr(meta, key)
    }


def smallest(info):
    """A dial's first choice or lowest value."""
    choices, known = get_args(info.annotation), limits(info)
    if choices or info.annotation is bool:
        return choices[0] if choices else False
    step = known.get("multiple_of", 1)
    return known["ge"] if info.annotation is float else math.ceil(known["ge"] / step) * step


def values(info):
    """Any value that a dial allows."""
    choices, known = get_args(info.annotation), limits(info)
    if choices or info.annotation is bool:
        return st.sampled_from(choices or (False, True))
    if info.annotation is float:
        return st.floats(known["ge"], known["le"])
    step = known.get("multiple_of", 1)
    return st.integers(math.ceil(known["ge"] / step), known["le"] // step).map(lambda n: n * step)


def changed(task, name, value):
    """The task with one dial turned; as it was, where that disagrees with the others."""
    try:
        return type(task)(**{**task.model_dump(), name: value})
    except ValidationError as error:
        if {finding["type"] for finding in error.errors()} != {"disagreement"}:
            raise
        return task


@st.composite
def configured(draw, cls):
    """A task with any dials, turned one after another in any order."""
    task = cls()
    for name in draw(st.permutations(list(cls.model_fields))):
        task = changed(task, name, draw(values(cls.model_fields[name])))
    return task


@st.composite
def drawn(draw, cls):
    """A task with any dials and examples of it."""
    task = draw(configured(cls))
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


def tiny(cls):
    """The task with every dial as low as it goes."""
    task = cls()
    for name, info in cls.model_fields.items():
        task = changed(task, name, smallest(info))
    return task


def parts(examples):
    """The tensors of a batch."""
    own = [examples.tokens, examples.labels, examples.target, examples.reverse]
    return [part for part in own if part is not None]


def contents(task, *batches):
    """What must not be in two batches: each example's book as a set, or else all of the example."""
    if type(task).draw is Task.draw:
        books = torch.cat([task.book(examples.tokens) for examples in batches])
        _, entry = books.flatten(0, 1).unique(dim=0, return_inverse=True)
        rows = entry.view(len(books), -1).sort(1).values
    else:
        own = [torch.cat([each.tokens.flatten(1), each.labels], 1) for each in batches]
        rows = torch.cat(own)
    sides = rows.split([len(examples.tokens) for examples in batches])
    return [{row.tobytes() for row in side.numpy()} for side in sides]


# The registry


def test_registry_names_are_the_tasks_own():
    """A task is found under its name, and no two share a name or a title."""
    assert all(name == cls.name for name, cls in TASKS.items())
    assert len({cls.title for cls in TASKS.values()}) == len(TASKS)
    assert {"directed", "mutual", "phonebook"} <= set(TASKS)


def test_tasks_are_listed_by_family():
    """In the order of the headings they are shown under."""
    shown = [FAMILIES.index(cls.family) for cls in TASKS.values()]
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, "source: Own has none, allowed a text"),
        ({"name": "My task"}, "name: got 'My task', allowed small letters, digits and underscores"),
        (
            {"name": "phonebook"},
            "name: got 'phonebook' from test_tasks.Own, but attnkit.tasks.phonebook.Phonebook has",
        ),
    ],
)
def test_a_task_that_cannot_be_registered_is_told_why(changes, message):
    """And the registry stays as it is."""
    before = dict(TASKS)
    own = type("Own", (Phonebook,), {"name": "own", "__annotations__": {}, **changes})
    with pytest.raises(ValueError, match=re.escape(message)):
        register_task(own)
    assert before == TASKS


@every_task
def test_setting_names_do_not_collide(cls):
    """Settings are written flat, so a dial must not be called like another setting."""
    others = {*Experiment.model_fields, *Size.model_fields, *Training.model_fields}
    assert not others & set(cls.model_fields)
    assert not set(Size.model_fields) & set(Training.model_fields)


@every_task
def test_overrides_name_sizes_and_training(cls):
    """A task overrides what exists, with allowed values."""
    assert set(cls.overrides) <= {*Size.model_fields, *Training.model_fields}
    assert Experiment(task=cls.name).settings().items() >= cls.overrides.items()
    assert Experiment(task=cls.name, **cls.preset).settings().items() >= cls.preset.items()


@every_task
def test_every_dial_says_what_it_is(cls):
    """Each field brings its label and help, a number its bounds, and the default is allowed."""
    for name, info in cls.model_fields.items():
        assert info.title
        assert info.description.endswith(".")
        if info.annotation in (int, float):
            assert {"ge", "le"} <= limits(info).keys()
        else:
            assert info.annotation is bool or get_args(info.annotation)
        assert getattr(cls(**{name: info.default}), name) == info.default


@every_task
def test_a_task_is_frozen(cls):
    """Configuration does not change."""
    name, info = next(iter(cls.model_fields.items()))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(cls(), name, info.default)


@every_task
def test_title_question_and_source_are_shown_as_they_are(cls):
    """The title is a phrase, the question a sentence, the source goes on in one."""
    assert cls.title[0].isupper()
    assert cls.question.endswith("?")
    assert cls.source
    assert not cls.source.endswith(".")
    assert bool(cls.slice_title) == bool(cls().slice_names)


@every_task
def test_the_docstring_draws_an_example(cls):
    """As a table whose cells stand under those of the first line; lines without a name go on."""
    tables = re.findall(r"```\n(.*?)```", inspect.cleandoc(cls.__doc__), re.DOTALL)
    assert tables
    for table in tables:
        head, *rows = (
            {cell.start(): cell[0] for cell in re.finditer(r"\S+(?: \S+)*", line)}
            for line in table.splitlines()
        )
        names = [row[0] for row in (head, *rows) if 0 in row]
        assert len(set(names)) == len(names) >= 3
        assert "label" in names
        for row in rows:
            assert row.keys() <= head.keys(), table


def test_tasks_do_without_torch():
    """A page builds and describes all of them before torch is there."""
    program = """if True:
        import sys
        sys.modules["torch"] = None
        from attnkit.tasks import TASKS
        for cls in TASKS.values():
            task = cls()
            task.chance, task.d_vocab, task.loss_to_beat, task.loss_floor, task.slice_names
            task.plateau, task.earlier, task.sparse, task.ordered, task.answer_text(0)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# What a task says of itself


@every_task
@a_few
@given(st.data())
def test_numbers_of_a_task_go_together(cls, data):
    """Positions, classes, levels."""
    task = data.draw(configured(cls))
    assert 0 <= task.n_source <= task.answers_from < task.n_ctx
    assert task.n_fields >= 1
    assert task.d_vocab >= 1
    assert task.n_classes >= 2
    assert 0 < task.chance < 1
    assert task.plateau is None or task.chance < task.plateau < 1
    floor, beaten = task.loss_floor or 0.0, task.loss_to_beat
    assert 0 <= floor < math.log(task.n_classes)
    assert beaten is None or floor < beaten < math.log(task.n_classes)


@every_task
@a_few
@given(st.data())
def test_dials_are_kept_as_plain_values(cls, data):
    """A task is made again from its numbers, and equal to itself."""
    task = data.draw(configured(cls))
    again = cls(**task.model_dump())
    assert again == task
    assert hash(again) == hash(task)
    assert all(isinstance(value, (bool, int, float, str)) for value in task.model_dump().values())


@every_task
@a_few
@given(st.data())
def test_an_earlier_task_shares_the_embedding(cls, data):
    """Tokens mean the same, and positions are as many; it has none before itself."""
    task = data.draw(configured(cls))
    if task.earlier is not None:
        shared = ("d_vocab", "n_ctx", "n_fields", "n_source")
        assert all(getattr(task, name) == getattr(task.earlier, name) for name in shared)
        assert task.earlier.earlier is None


@every_task
def test_a_fixed_embedding_is_one_row_for_each_of_some_ids(cls):
    """The same for the same generator."""
    task = cls()
    fixed, again = (task.fixed_embedding(32, seeded(3)) for _ in range(2))
    if fixed is not None:
        ids, rows = fixed
        assert rows.shape == (len(ids), 32)
        assert rows.isfinite().all()
        assert len(set(ids.tolist())) == len(ids)
        assert 0 <= ids.min() <= ids.max() < task.d_vocab
        assert torch.equal(rows, again[1])
        assert torch.equal(ids, again[0])


# What a batch of examples is


@every_task
@a_few
@given(st.data())
def test_examples_have_the_promised_shapes(cls, data):
    """(b, i, fields) tokens; as many answers as positions that may answer."""
    task, examples = data.draw(drawn(cls))
    n_answers = task.n_ctx - task.answers_from
    assert examples.tokens.shape == (5, task.n_ctx, task.n_fields)
    assert all(part.shape == (5, n_answers) for part in parts(examples)[1:])
    assert all(part.dtype == torch.int64 for part in parts(examples))


@every_task
@a_few
@given(st.data())
def test_ids_stay_in_their_ranges(cls, data):
    """Tokens below d_vocab, labels below n_classes, targets among the positions."""
    task, examples = data.draw(drawn(cls))
    tokens, labels, *positions = parts(examples)
    assert 0 <= tokens.min() <= tokens.max() < task.d_vocab
    assert (NOTHING if task.sparse else 0) <= labels.min() <= labels.max() < task.n_classes
    for position in positions:
        assert NOTHING <= position.min() <= position.max() < task.n_ctx


@every_task
@a_few
@given(st.data())
def test_every_example_asks_something(cls, data):
    """And where nothing is asked, nothing is the target."""
    _, examples = data.draw(drawn(cls))
    asked = examples.labels != NOTHING
    assert asked.any(1).all()
    assert (examples.target[~asked] == NOTHING).all()


@every_task
@a_few
@given(st.data())
def test_every_token_and_answer_has_a_text(cls, data):
    """On the axis, beside its row and in full; answers can be told apart."""
    task, examples = data.draw(drawn(cls))
    for tokens in examples.tokens.numpy():
        labels = task.label(tokens)
        assert len(labels) == task.n_ctx
        for label in labels:
            assert label.short.strip()
            assert label.asking.strip()
            assert label.full.strip()
            assert len(label.short) <= 12
    answers = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert all(text.strip() for text in answers)
    assert len(set(answers)) == len(answers)


@every_task
@a_few
@given(st.data())
def test_slices_are_groups_of_what_is_asked(cls, data):
    """Each answer is in one, and each has a name."""
    task, examples = data.draw(drawn(cls))
    names = task.slice_names
    assert len(set(names)) == len(names)
    assert all(names)
    if names:
        group = task.slices(examples)
        assert group.shape == examples.labels.shape
        asked = group[examples.labels != NOTHING]
        assert 0 <= asked.min() <= asked.max() < len(names)


@every_task
@a_few
@given(st.data())
def test_same_generator_state_gives_the_same_examples(cls, data):
    """The generator is the only source of randomness."""
    task = data.draw(configured(cls))
    first, again = (task.make_examples(11, seeded(3)) for _ in range(2))
    assert all(map(torch.equal, parts(first), parts(again)))


@every_task
def test_the_generator_is_advanced(cls):
    """Two draws differ, and so do two seeds."""
    generator = seeded(3)
    first, second = (cls().draw(11, generator, held_out=False) for _ in range(2))
    other = cls().draw(11, seeded(4), held_out=False)
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, other.tokens)


@every_task
def test_global_random_state_is_left_alone(cls):
    """Nothing is drawn from torch's or numpy's own generators."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    cls().draw(5, seeded(), held_out=False)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@every_task
def test_drawing_does_not_change_what_was_drawn(cls):
    """Nothing is handed out that a later draw writes into."""
    generator = seeded()
    first = cls().draw(5, generator, held_out=False)
    kept = [part.clone() for part in parts(first)]
    cls().draw(5, generator, held_out=False).tokens.zero_()
    assert all(map(torch.equal, parts(first), kept))


@every_task
def test_examples_can_be_taken_by_position(cls):
    """All parts of an example go together."""
    examples = cls().make_examples(5, seeded())
    taken = examples.take(torch.tensor([4, 1]))
    for part, some in zip(parts(examples), parts(taken), strict=True):
        assert torch.equal(some, part[[4, 1]])


def test_examples_are_frozen():
    """A batch is a value."""
    examples = Phonebook().make_examples(1, seeded())
    assert isinstance(examples, Examples)
    with pytest.raises(AttributeError):
        examples.tokens = None


# The split


@every_task
@a_few
@given(st.data())
def test_draw_gives_as_many_examples_as_asked(cls, data):
    """No more, no fewer, at any dials, however many fall on the side."""
    task = data.draw(configured(cls))
    n_examples, seed = data.draw(st.integers(1, 19)), data.draw(st.integers(0, 99))
    for held_out in (False, True):
        examples = task.draw(n_examples, seeded(seed), held_out=held_out)
        assert {len(part) for part in parts(examples)} == {n_examples}


@every_task
def test_the_smallest_allowed_sizes_can_be_split(cls):
    """No dial within its bounds is too small."""
    for held_out in (False, True):
        assert len(tiny(cls).draw(16, seeded(), held_out=held_out).tokens) == 16


@every_task
@pytest.mark.parametrize("size", ["default", "tiny"])
def test_held_out_and_training_examples_are_disjoint(cls, size):
    """Nothing is on both sides, even where there is little to draw from."""
    task = cls() if size == "default" else tiny(cls)
    trained, held_out = contents(
        task, *(task.draw(1000, seeded(side), held_out=bool(side)) for side in (0, 1))
    )
    assert trained
    assert held_out
    assert not trained & held_out


@pytest.mark.parametrize("cls", [cls for cls in TASKS.values() if cls.draw is Task.draw])
def test_about_one_book_in_eight_is_held_out(cls):
    """The hash spreads books evenly; a task that draws by itself decides the side by itself."""
    books = cls().book(cls().make_examples(2000, seeded()).tokens)
    different = len(books.unique(dim=0))
    share = is_held_out(books).double().mean().item()
    five_sigma = 5 * math.sqrt((1 / HELD_OUT_ONE_IN) * (1 - 1 / HELD_OUT_ONE_IN) / different)
    assert share == pytest.approx(1 / HELD_OUT_ONE_IN, abs=five_sigma)


@every_task
def test_the_sides_are_alike(cls):
    """Held-out answers are spread over classes as those of training."""
    shares = []
    for held_out in (False, True):
        labels = cls().draw(1000, seeded(5), held_out=held_out).labels
        counts = labels[labels != NOTHING].bincount(minlength=cls().n_classes)
        shares.append(counts / counts.sum())
    assert (shares[0] - shares[1]).abs().max() < 0.05


def test_the_order_of_a_books_entries_does_not_decide_its_side():
    """Books are sets; with positions as a field of their own they are lists."""
    book = torch.randint(99, (400, 4, 2), generator=seeded())
    turned = book.flip(1)
    assert torch.equal(is_held_out(book), is_held_out(turned))
    moved = (is_held_out(in_order(book)) != is_held_out(in_order(turned))).double().mean()
    assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.1)


def test_in_order_adds_the_position_as_a_field():
    """The other fields stay."""
    book = torch.randint(99, (3, 5, 2), generator=seeded())
    ordered = in_order(book)
    assert torch.equal(ordered[:, :, :2], book)
    assert ordered[:, :, 2].tolist() == [[0, 1, 2, 3, 4]] * 3


def test_a_space_with_one_book_is_too_small():
    """One side has no book at all: an error says which task."""
    task = Phonebook.model_construct(n_entries=2, n_names=2, n_values=1)
    empty = not is_held_out(task.book(task.make_examples(1, seeded()).tokens)).item()
    task.draw(3, seeded(), held_out=not empty)
    with pytest.raises(ValueError, match="phonebook: too few different examples to hold some out"):
        task.draw(3, seeded(), held_out=empty)


# Chance


@every_task
@pytest.mark.parametrize("size", ["default", "tiny"])
def test_no_constant_answer_beats_chance(cls, size):
    """Whatever guess chance is of, it is not worse than to say the commonest class each time."""
    task = cls() if size == "default" else tiny(cls)
    seen, asked = (task.make_examples(1500, seeded(seed)).labels for seed in (1, 2))
    commonest = seen[seen != NOTHING].bincount().argmax()
    n_right, n_asked = ((asked == commonest).sum(1), (asked != NOTHING).sum(1))
    share = n_right.sum() / n_asked.sum()
    spread = (n_right - share * n_asked).std() / n_asked.double().mean()  # between examples
    assert share <= task.chance + 5 * spread / math.sqrt(len(asked))


# What generators are made of


@given(st.integers(1, 7), st.integers(0, 999))
def test_choose_draws_without_replacement(n_chosen, seed):
    """Rows hold different items."""
    for row in choose(5, 7, n_chosen, seeded(seed)).tolist():
        assert len(set(row)) == n_chosen
        assert set(row) <= set(range(7))


def test_choose_is_uniform():
    """Every item stands first, and last, about equally often."""
    rows = choose(7000, 7, 3, seeded())
    for column in (0, 2):
        assert (rows[:, column].bincount(minlength=7) - 1000).abs().max() < 150  # five sigma


def test_names_are_distinct_and_suffice():
    """As many short names as the largest book space needs."""
    assert len(set(NAMES)) == len(NAMES) == 64
    assert all(2 <= len(name) <= 4 and name.isalpha() and name[0].isupper() for name in NAMES)


def test_a_disagreement_names_its_fields():
    """The field, its value, what is allowed, and whom it disagrees with."""
    error = disagreement("n_entries", 9, "at most n_names (8)", "n_names")
    assert error.message() == "n_entries: got 9, allowed at most n_names (8)"
    assert error.context["others"] == ("n_names",)


def test_a_dial_carries_its_text():
    """Label, help and bounds are read from the field."""
    info = dial(3, "Label", "Help.", ge=2, le=5)
    assert (info.default, info.title, info.description) == (3, "Label", "Help.")
    assert limits(info) == {"ge": 2, "le": 5}
