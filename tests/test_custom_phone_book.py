"""A phone book of one's own: whatever is typed, there are entries or a message that says why."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.analysis import custom_phone_book as custom_book
from attnkit.analysis.custom_phone_book import (
    MOST_CHARACTERS,
    MOST_SHOWN,
    is_phone_book,
    most_entries,
    read_book,
    same_name,
    shortened,
)
from attnkit.analysis.phone_book_question import ask
from attnkit.tasks import TASKS

EXACT = TASKS["phonebook"]()
FUZZY = TASKS["fuzzy_phonebook"]()
BOTH = pytest.mark.parametrize("task", [EXACT, FUZZY], ids=["exact", "fuzzy"])

LINES = {
    "Ada 31": ("Ada", "31"),
    "Ada, 31": ("Ada", "31"),
    "Ada;31": ("Ada", "31"),
    "Ada\t31": ("Ada", "31"),
    "  Ada Lovelace   31  ": ("Ada Lovelace", "31"),
    "Ada +49 (30) 123-45": ("Ada", "+49 (30) 123-45"),
    "Ada 31,": ("Ada", "31"),
    "Ada ٣١": ("Ada", "٣١"),
    "Smith, John: 31": ("Smith, John", "31"),
    "Smith: John, 31": ("Smith: John", "31"),
    "Ada: (+49) 30": ("Ada", "(+49) 30"),
    "A1 2": ("A1", "2"),
    "Ada, ext. 31": ("Ada, ext.", "31"),
    "A\x00d\u202ea 31": ("Ada", "31"),
}


def pairs(book):
    """Names and numbers that were read."""
    return [(entry.name, entry.number) for entry in book.entries]


def test_a_line_is_a_name_and_a_number():
    """However they are parted; control characters are left out and told."""
    for line, parts in LINES.items():
        book = read_book(f"{line}\nBen 1", EXACT)
        assert pairs(book)[0] == parts
        assert not book.problems
    assert book.notes == ["Invisible control characters were removed from 1 line."]


def test_names_are_compared_as_the_task_reads_them():
    """A label with any letters, in full; or four letters without case and accents."""
    long = "A" * 300
    book = read_book(f"Jindřich 31\n李 14\n🙂 25\n{long} 1\n{long}b 2", EXACT)
    assert not book.problems
    for asked, right in [("JINDŘICH", 0), ("Jindr\u030cich", 0), ("🙂", 2), (long + "B", 4)]:
        assert ask(book, asked, EXACT).right == [right]
    assert len(shortened(long)) == MOST_SHOWN
    keys = {
        "Jindřich": "JIND",
        "Ü": "U···",
        "Søren": "SORE",
        "O'Neil": "ONEI",
        "李 小龍": "李小龍·",
    }
    assert {name: same_name(name, FUZZY) for name in keys} == keys
    book = read_book("Anna 1\nAnnabell 2\nBen 3", FUZZY)
    assert len(book.entries) == 2
    assert "the models read both “Anna” and “Annabell” as ANNA" in book.notes[0]


@BOTH
def test_what_is_wrong_with_a_book_is_told_in_short(task):
    """Line, value, and what is allowed; or the most that the dial allows."""
    most = most_entries(task)
    lines = [f"{chr(97 + i // 26)}{chr(97 + i % 26)} 7" for i in range(most + 2)]
    for text, told in {
        "Ada 31\nBen\n42\nCem 7": (
            "Line 2: got “Ben”, which has no number; allowed is a name",
            "Line 3: got “42”, which has no name; allowed is a name",
        ),
        "a" * 10_000: ("Line 1: got “aaa",),
        "1 " * 9_000 + "x": ("Line 1: got “1 1",),
        "a" * (MOST_CHARACTERS + 1): ("The text: got",),
        "\n".join(lines): (f"The book: got {most + 2} entries, allowed at most {most}",),
        "": ("The book: got no entries, allowed at",),
        "\u200b\n \t\u202e": ("The book: got no entries, allowed at",),
        "Ada 1": ("The book: got 1 entry, allowed at",),
    }.items():
        problems = read_book(text, task).problems
        assert len(problems) == len(told)
        for problem, beginning in zip(problems, told, strict=True):
            assert problem.startswith(beginning)
            assert len(problem) < 200
    assert f"from line {most + 1} on" in read_book("\n".join(lines), task).problems[0]
    assert not read_book("\n".join(lines[:most]), task).problems
    book = read_book("Ada 31\n\nBen 14\n ADA  25", task)
    assert pairs(book) == [("Ada", "31"), ("Ben", "14")]
    assert not book.problems
    assert book.notes == ["Lines 1 and 4: “ADA” occurs twice; line 1 is kept, line 4 left out."]
    for name in ("", "  ", "\x00"):
        assert ask(book, name, task).problems[0].startswith("The question: got “”, allowed a name")


def test_a_book_needs_letters_and_no_more_ids_than_the_dials_give():
    """The dial that decides is named."""
    small = TASKS["phonebook"](n_entries=4, n_values=4, n_names=4)
    letters = TASKS["fuzzy_phonebook"](n_alphabet=8, n_entries=2, n_wrong=0)
    (problem,) = read_book("Ada 31\n🙂 25\nBen 1", FUZZY).problems
    assert problem.startswith("Line 2: got the name “🙂”, allowed a name with letters or digits")
    problems = " ".join(read_book("a: 1x\nb, y\nc; 7", EXACT).problems)
    assert ("Line 1" in problems, "Line 2" in problems, "Line 3" in problems) == (True, True, False)
    problems = read_book("\n".join(f"n{chr(97 + i)} {i}" for i in range(6)), small).problems
    assert "6 different numbers, allowed at most 4" in problems[0]
    assert "6 names, allowed at most 4" in problems[1]
    book = read_book("\n".join(f"{letter}xyz {i}" for i, letter in enumerate("abcdefghi")), letters)
    problem = ask(book, "axyz", letters).problems[0]
    assert "9 different letters in place 1, allowed at most 8 (the setting Alphabet)" in problem


def test_a_long_line_of_digits_and_a_letter_is_no_number():
    """It is read from its end, so that not every digit of it is tried; this would take minutes."""
    assert custom_book._split_line("1 " * 500_000 + "x")[1] == ""


def test_an_exact_question_asks_every_name_once():
    """As in training, with the task's own ids; an unknown name takes a free label, with a note."""
    book = read_book("Ada 31\nBen 14\nCem 31", EXACT)
    question = ask(book, "ben", EXACT)
    assert question.right == [1]
    assert question.row == 1
    names, values = question.tokens.T
    assert names.tolist() == [0, 1, 2, 0, 1, 2]
    assert (values - EXACT.n_names).tolist() == [0, 1, 0, *[EXACT.n_values] * 3]
    assert question.classes == {0: "31", 1: "14"}
    question = ask(book, "Zoe", EXACT)
    assert question.right == []
    assert "“Zoe” is not in the book" in question.notes[0]
    assert question.tokens[3 + question.row, 0] == 3
    full = TASKS["phonebook"](n_entries=4, n_names=4)
    book = read_book("a 1\nb 2\nc 3\nd 4", full)
    assert "allowed a name of the book" in ask(book, "e", full).problems[0]


def test_a_fuzzy_question_is_about_the_nearest_name():
    """It stands in place of that name's question; notes say what differs from training."""
    book = read_book("Jindřich 31\nAnna 25\nBernd 14", FUZZY)
    question = ask(book, "Jintrich", FUZZY)
    assert question.right == [0]
    letters = question.tokens[:, :-1]
    assert ((letters[3] != letters[0]).sum(), (letters[4] != letters[1]).sum()) == (1, 0)
    assert any("“JINT”" in note for note in question.notes)
    assert any("Equally near" in note for note in ask(book, "Xyzq", FUZZY).notes)
    assert any("Even the nearest" in note for note in ask(book, "Xyzq", FUZZY).notes)
    book = read_book("Jana 1\nJona 2", FUZZY)  # the models were never trained on such books
    assert any("differ in 1 of 4 letters only" in note for note in ask(book, "Jana", FUZZY).notes)


NAMES = st.text("abcXYZřö李", min_size=1, max_size=6)
BOOKS = st.lists(NAMES, min_size=2, max_size=12).map(
    lambda names: "\n".join(f"{name} {i}" for i, name in enumerate(names))
)


@given(text=st.text(max_size=300) | BOOKS, name=st.text(max_size=20) | NAMES)
@briefly(50)
def test_anything_typed_gives_a_question_or_a_message(text, name):
    """Never an exception, ids stay within the vocabulary, and only phone books can be asked."""
    for task in filter(is_phone_book, (kind() for kind in TASKS.values())):
        book = read_book(text, task)
        question = None if book.problems else ask(book, name, task)
        if question is not None and not question.problems:
            assert question.tokens.shape == (2 * len(book.entries), task.n_fields)
            assert np.all((question.tokens >= 0) & (question.tokens < task.d_vocab))
            assert all(0 <= place < len(book.entries) for place in question.right)


@BOTH
def test_many_marks_on_one_letter_take_no_longer_than_letters(task):
    """Marks beyond a few on one letter are left out before the text is composed."""

    def seconds_of(text):
        begun = time.thread_time()
        read_book(text, task)
        return time.thread_time() - begun

    letters, marks = "x" * MOST_CHARACTERS, "x" + "\u0301\u0323" * (MOST_CHARACTERS // 2 - 1)
    plain = min(seconds_of(letters) for _ in range(5))
    assert min(seconds_of(marks) for _ in range(5)) < 5 * plain
    (entry, _) = read_book("Zoe" + "\u0323" * 40 + " 1\nAda 2", task).entries
    assert entry.name.startswith("Zo\u1eb9")
