"""A phone book of one's own: whatever is typed, there are entries or a message that says why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.analysis import custom_phone_book as custom_book
from attnkit.analysis.custom_phone_book import (
    MOST_CHARACTERS,
    MOST_SHOWN,
    ask,
    is_phone_book,
    most_entries,
    read_book,
    same_name,
    shortened,
)
from attnkit.tasks import TASKS

EXACT = TASKS["phonebook"]()
FUZZY = TASKS["fuzzy_phonebook"]()
BOTH = pytest.mark.parametrize("task", [EXACT, FUZZY], ids=["exact", "fuzzy"])


def pairs(book):
    """Names and numbers that were read."""
    return [(entry.name, entry.number) for entry in book.entries]


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
}


def test_a_line_is_a_name_and_a_number():
    """However they are parted."""
    for line, parts in LINES.items():
        book = read_book(f"{line}\nBen 1", EXACT)
        assert pairs(book)[0] == parts
        assert not book.problems


def test_names_are_compared_as_the_task_reads_them():
    """A label with any letters, in full; or four letters without case and accents."""
    long = "A" * 300
    book = read_book(f"Jindřich 31\n李 14\n🙂 25\n{long} 1\n{long}b 2", EXACT)
    assert not book.problems
    for asked, right in [("JINDŘICH", 0), ("Jindr\u030cich", 0), ("🙂", 2), (long + "B", 4)]:
        assert ask(book, asked, EXACT).right == [right]
    assert len(shortened(long)) == MOST_SHOWN
    names = {
        "Jindřich": "JIND",
        "Ü": "U···",
        "Søren": "SORE",
        "O'Neil": "ONEI",
        "李 小龍": "李小龍·",
    }
    assert {name: same_name(name, FUZZY) for name in names} == names
    book = read_book("Anna 1\nAnnabell 2\nBen 3", FUZZY)
    assert len(book.entries) == 2
    assert "the models read both “Anna” and “Annabell” as ANNA" in book.notes[0]
    assert read_book("Ada 31\n🙂 25\nBen 1", FUZZY).problems == [
        "Line 2: got the name “🙂”, allowed a name with letters or digits, of any alphabet."
    ]


@BOTH
def test_of_a_name_that_stands_twice_the_first_is_kept(task):
    """And both lines are named."""
    book = read_book("Ada 31\n\nBen 14\n ADA  25", task)
    assert pairs(book) == [("Ada", "31"), ("Ben", "14")]
    assert not book.problems
    assert book.notes == ["Lines 1 and 4: “ADA” occurs twice; line 1 is kept, line 4 left out."]


@BOTH
def test_lines_without_a_name_or_a_number_are_named(task):
    """Line, value, what is allowed."""
    problems = read_book("Ada 31\nBen\n42\nCem 7", task).problems
    assert len(problems) == 2
    assert problems[0].startswith("Line 2: got “Ben”, which has no number; allowed is a name")
    assert problems[1].startswith("Line 3: got “42”, which has no name; allowed is a name")
    problems = read_book("Ada: 31a\nBen, x\nCem; 7", EXACT).problems
    assert [problem[:6] for problem in problems] == ["Line 1", "Line 2"]
    for text in ("", "   \n\t\n  ", "\u200b\n\u202e"):
        assert read_book(text, task).problems[0].startswith("The book: got no entries, allowed at")
    book = read_book("Ada 31\nBen 14", task)
    for name in ("", "  ", "\x00"):
        assert ask(book, name, task).problems[0].startswith("The question: got “”, allowed a name")


@BOTH
def test_too_many_entries_are_told_with_the_first_line_too_many(task):
    """The most that the dial allows."""
    most = most_entries(task)
    lines = "\n".join(f"{chr(97 + i // 26)}{chr(97 + i % 26)} 7" for i in range(most + 2))
    problem = read_book(lines, task).problems[0]
    assert f"got {most + 2} entries, allowed at most {most}" in problem
    assert f"from line {most + 1} on" in problem


def test_more_numbers_or_names_than_ids_are_told():
    """With the dial that decides."""
    small = TASKS["phonebook"](n_entries=4, n_values=4, n_names=4)
    book = read_book("\n".join(f"n{chr(97 + i)} {i}" for i in range(6)), small)
    assert any("6 different numbers, allowed at most 4" in text for text in book.problems)
    assert any("6 names, allowed at most 4" in text for text in book.problems)


@BOTH
def test_a_long_paste_is_answered(task):
    """One line of 10,000 characters, or more than is read."""
    problem = read_book("a" * 10_000, task).problems[0]
    assert len(problem) < 200
    assert problem.startswith("Line 1: got “aaa")
    assert "allowed at most" in read_book("a" * (MOST_CHARACTERS + 1), task).problems[0]


def test_a_long_line_of_digits_and_a_letter_is_no_number():
    """It is read from its end, so that not every digit of it is tried; this would take minutes."""
    assert custom_book._split_line("1 " * 500_000 + "x")[1] == ""
    assert "has no number" in read_book("1 " * 9_000 + "x", EXACT).problems[0]


def test_control_characters_are_left_out_and_told():
    """A name is what can be seen of it."""
    book = read_book("A\x00d\u202ea 31\nBen\x07 14", EXACT)
    assert pairs(book) == [("Ada", "31"), ("Ben", "14")]
    assert book.notes == ["Invisible control characters were removed from 2 lines."]
    book = read_book("Ad\x00a 31\nBen 14", EXACT)
    assert book.notes == ["Invisible control characters were removed from 1 line."]


def test_an_exact_question_asks_every_name_once():
    """As in training; the numbers are the task's own ids."""
    book = read_book("Ada 31\nBen 14\nCem 31", EXACT)
    question = ask(book, "ben", EXACT)
    assert question.right == [1]
    assert question.row == 1
    names, values = question.tokens.T
    assert names.tolist() == [0, 1, 2, 0, 1, 2]
    assert (values - EXACT.n_names).tolist() == [0, 1, 0, *[EXACT.n_values] * 3]
    assert question.classes == {0: "31", 1: "14"}


def test_a_name_that_is_not_in_the_book_is_asked_with_a_note():
    """As long as there is a free label for it."""
    book = read_book("Ada 31\nBen 14", EXACT)
    question = ask(book, "Zoe", EXACT)
    assert question.right == []
    assert "“Zoe” is not in the book" in question.notes[0]
    assert question.tokens[2 + question.row, 0] == 2
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


def test_more_letters_than_the_alphabet_are_told():
    """In which place, and which dial decides."""
    small = TASKS["fuzzy_phonebook"](n_alphabet=8, n_entries=2, n_wrong=0)
    book = read_book("\n".join(f"{letter}xyz {i}" for i, letter in enumerate("abcdefghi")), small)
    problem = ask(book, "axyz", small).problems[0]
    assert "9 different letters in place 1, allowed at most 8 (the setting Alphabet)" in problem


def test_only_phone_books_can_be_asked():
    """A book of one's own needs names and numbers."""
    assert {name for name, task in TASKS.items() if is_phone_book(task())} == {
        "phonebook",
        "fuzzy_phonebook",
    }


NAMES = st.text("abcXYZřö李", min_size=1, max_size=6)
BOOKS = st.lists(NAMES, min_size=2, max_size=12).map(
    lambda names: "\n".join(f"{name} {i}" for i, name in enumerate(names))
)


@given(text=st.text(max_size=300) | BOOKS, name=st.text(max_size=20) | NAMES)
@BOTH
def test_anything_typed_gives_a_question_or_a_message(task, text, name):
    """Never an exception, and ids stay within the vocabulary."""
    book = read_book(text, task)
    if book.problems:
        return
    question = ask(book, name, task)
    if not question.problems:
        assert question.tokens.shape == (2 * len(book.entries), task.n_fields)
        assert np.all((question.tokens >= 0) & (question.tokens < task.d_vocab))
        assert all(0 <= place < len(book.entries) for place in question.right)
