"""A phone book of one's own: whatever is typed, there are entries or a message that says why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.analysis import custom_phone_book as books
from attnkit.analysis.custom_phone_book import ask
from attnkit.tasks import TASKS

EXACT, FUZZY = TASKS["phonebook"](), TASKS["fuzzy_phonebook"]()


def test_a_line_is_a_name_and_a_number_and_names_are_read_as_the_task_reads_them():
    """However they are parted; a label with any letters, or four without case and accents."""
    for line, name in {
        "Ada, 31": "Ada",
        "  Ada Lovelace \t  31  ": "Ada Lovelace",
        "Smith, John: 31": "Smith, John",
        "A\x00d\u202ea 31": "Ada",
    }.items():
        book = books.read_book(f"{line}\nBen 1", EXACT)
        assert (book.entries[0].name, book.entries[0].number, book.problems) == (name, "31", [])
    for task in (EXACT, FUZZY):
        book = books.read_book("Ada 31\n\nBen 14\n ADA  25", task)
        assert ([entry.number for entry in book.entries], book.problems) == (["31", "14"], [])
        assert all(part in book.notes[0] for part in ("“ADA”", "line 1", "line 4"))
    long = "A" * 300
    book = books.read_book(f"Jindřich 31\n🙂 25\n{long} 1\n{long}b 2", EXACT)
    for asked, right in [("JINDŘICH", 0), ("Jindr\u030cich", 0), ("🙂", 1), (long + "B", 3)]:
        assert ask(book, asked, EXACT).right == [right]
    assert len(books.shortened(long)) == books.MOST_SHOWN
    keys = {"Jindřich": "JIND", "Ü": "U···", "Søren": "SORE", "O'Neil": "ONEI", "李龍": "李龍··"}
    assert {name: books.same_name(name, FUZZY) for name in keys} == keys
    book = books.read_book("Anna 1\nAnnabell 2\nBen 3", FUZZY)
    assert len(book.entries) == 2
    assert all(part in book.notes[0] for part in ("“Anna”", "“Annabell”", "ANNA"))


@pytest.mark.parametrize("task", [EXACT, FUZZY], ids=["exact", "fuzzy"])
def test_what_is_wrong_with_a_book_is_told_in_short(task):
    """Line and value, or the most that the dial allows, which is named."""
    most = books.most_entries(task)
    lines = [f"{chr(97 + i // 26)}{chr(97 + i % 26)} 7" for i in range(most + 2)]
    for text, told in {
        "Ada 31\nBen\n42\nCem 7": ("Line 2: got “Ben”", "Line 3: got “42”"),
        "a" * 10_000: ("Line 1: got “aaa",),
        "a" * (books.MOST_CHARACTERS + 1): ("The text: got",),
        "\n".join(lines): (f"The book: got {most + 2} entries, allowed at most {most}",),
        "\u200b\n \t\u202e": ("The book: got no entries",),
        "Ada 1": ("The book: got 1 entry",),
    }.items():
        problems = books.read_book(text, task).problems
        for problem, beginning in zip(problems, told, strict=True):
            assert (problem.startswith(beginning), len(problem) < 200) == (True, True)
    assert f"line {most + 1} " in books.read_book("\n".join(lines), task).problems[0]
    assert not books.read_book("\n".join(lines[:most]), task).problems
    with pytest.raises(ValueError, match="got “”"):
        ask(books.read_book("Ada 31\nBen 14", task), " \x00", task)
    small = TASKS["phonebook"](n_entries=4, n_values=4, n_names=4)
    problems = books.read_book("\n".join(f"n{chr(97 + i)} {i}" for i in range(6)), small).problems
    assert ["6 different numbers" in problems[0], "6 names" in problems[1]] == [True, True]
    with pytest.raises(ValueError, match="all 4 name ids"):
        ask(books.read_book("a 1\nb 2\nc 3\nd 4", small), "e", small)
    assert (
        books.read_book("Ada 31\n🙂 25", FUZZY).problems[0].startswith("Line 2: got the name “🙂”")
    )
    letters = TASKS["fuzzy_phonebook"](n_alphabet=8, n_entries=2, n_wrong=0)
    book = books.read_book(
        "\n".join(f"{letter}xyz {i}" for i, letter in enumerate("abcdefghi")), letters
    )
    with pytest.raises(ValueError, match=r"9 different letters in place 1, .* 8 .*Alphabet"):
        ask(book, "axyz", letters)


def test_a_question_asks_for_the_name_or_the_nearest_one():
    """With the task's own ids; an unknown name takes a free label, and a note tells of it."""
    book = books.read_book("Ada 31\nBen 14\nCem 31", EXACT)
    question = ask(book, "ben", EXACT)
    assert (question.right, question.row, question.classes) == ([1], 1, {0: "31", 1: "14"})
    names, values = question.tokens.T
    assert names.tolist() == [0, 1, 2, 0, 1, 2]
    assert (values - EXACT.n_names).tolist() == [0, 1, 0, *[EXACT.n_values] * 3]
    question = ask(book, "Zoe", EXACT)
    assert (question.right, "“Zoe”" in question.notes[0]) == ([], True)
    assert question.tokens[3 + question.row, 0] == 3
    book = books.read_book("Jindřich 31\nAnna 25\nBernd 14", FUZZY)
    question = ask(book, "Jintrich", FUZZY)
    letters = question.tokens[:, :-1]
    assert (question.right, (letters[3] != letters[0]).sum()) == ([0], 1)
    close = books.read_book("Jana 1\nJona 2", FUZZY)  # no such books are trained
    for one, name, noted in (
        (book, "Jintrich", "“JINT”"),
        (book, "Xyzq", "Even the nearest"),
        (close, "Jana", "1 of 4"),
    ):
        assert noted in " ".join(ask(one, name, FUZZY).notes)


NAMES = st.text("abcXYZřö李", min_size=1, max_size=6)


@given(names=st.lists(NAMES, max_size=12), text=st.text(max_size=99), name=st.text(max_size=20))
@briefly(50)
def test_anything_typed_gives_a_question_or_a_message(names, text, name):
    """Never an exception, and ids stay within the vocabulary."""
    text = "\n".join([*(f"{one} {i}" for i, one in enumerate(names)), *[text] * (len(names) < 2)])
    refusals = list[str]()
    for task in (EXACT, FUZZY):
        book = books.read_book(text, task)
        if book.problems:
            continue
        try:
            question = ask(book, name, task)
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert question.tokens.shape == (2 * len(book.entries), task.n_fields)
            assert np.all((question.tokens >= 0) & (question.tokens < task.d_vocab))
            assert all(0 <= place < len(book.entries) for place in question.right)
    assert all(refusal.startswith("The ") for refusal in refusals)
