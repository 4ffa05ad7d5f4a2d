"""A book of one's own, looked up in stages: in its own words, by the formulas."""

from dataclasses import replace

import pytest
import torch
from filming import film_of
from reference import Reference
from test_inspection_lookup import check_array, inspected

from attnkit.analysis.custom_phone_book import ask, read_book
from attnkit.analysis.inspection.lookup import UNKNOWN, inspect_attention
from attnkit.analysis.inspection.request import Inspection
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import NOTHING

BOOK = "Ida 12\nJon 34\nMia 12\nTom 56"


def custom_phone_book_area(film, name="Jon"):
    """A book of four entries with three numbers, and a question, as a page asks."""
    task = film.experiment.task
    book = read_book(BOOK, task)
    question = ask(book, name, task)
    return {
        "tokens": tuple(map(tuple, question.tokens.tolist())),
        "names": tuple(entry.name for entry in book.entries),
        "numbers": tuple(question.classes[answer] for answer in sorted(question.classes)),
        "right": tuple(question.right),
        "query_index": question.row,
    }


def test_a_book_of_ones_own_is_looked_up():
    """Rows are its questions, columns its entries; what models answer is that of the formula."""
    film = film_of("phonebook")
    asked = custom_phone_book_area(film)
    found = inspected(film, **asked)
    header, told = found.header, found.header["layers"][0]
    assert header["is_asked"]
    assert told["row_positions"] == [4, 5, 6, 7]
    assert told["column_positions"] == [0, 1, 2, 3]
    sized_film = replace(film, experiment=film.experiment.replace(n_entries=4))
    for place, variant in enumerate(film.experiment.sharing):
        weights = film.frames[-1].parameters[place].items()
        own = {name: torch.from_numpy(array).double() for name, array in weights}
        reference = Reference(sized_film.experiment, variant)
        answers = reference.logits(own, torch.tensor(asked["tokens"])[None])[0].argmax(-1)
        assert found.framed[f"{place}.answers"][-1].tolist() == answers.tolist()
        right = found.framed[f"{place}.right"][-1]
        assert right.tolist() == (answers == torch.tensor([0, 1, 0, 2])).tolist()
        pattern = reference.stages[0]["pattern"][0, 0, 4:]
        shown = torch.cat([pattern[:, :4], pattern[:, 4:].sum(1, keepdim=True)], 1)
        check_array("map", found.framed[f"{place}.map"][-1], shown.numpy())


def test_a_book_of_ones_own_is_told_in_its_own_words():
    """Names, numbers, and what is right, as far as it is known."""
    film = film_of("phonebook")
    header = inspected(film, **custom_phone_book_area(film)).header
    told = header["layers"][0]
    assert told["columns"] == ["Ida", "Jon", "Mia", "Tom", "rest"]
    assert told["column_titles"][:2] == ["Ida, 12", "Jon, 34"]
    assert told["rows"] == ["Ida ?", "Jon ?", "Mia ?", "Tom ?"]
    assert (told["right"], told["target"]) == ([0, 1, 0, 2], [0, 1, 2, 3])
    assert (header["row"], header["right_text"], header["target"]) == (1, "34", 1)
    assert [header["texts"][str(answer)] for answer in range(3)] == ["12", "34", "56"]
    assert header["texts"]["3"] == "a number not in the book"


def test_of_a_question_about_nobody_nothing_is_right():
    """It stands in the last place, and has no right entry; a bare book has none at all."""
    film = film_of("phonebook")
    asked = custom_phone_book_area(film, "Nobody")
    header = inspected(film, **asked).header
    told = header["layers"][0]
    assert told["rows"] == ["Ida ?", "Jon ?", "Mia ?", "your question"]
    assert (told["right"], told["target"]) == ([0, 1, 0, NOTHING], [0, 1, 2, NOTHING])
    bare = inspected(film, tokens=asked["tokens"])
    told = bare.header["layers"][0]
    assert set(told["right"]) == set(told["target"]) == {NOTHING}
    assert (bare.framed["0.right"] == UNKNOWN).all()


def test_who_cannot_read_a_book_of_that_size_says_why():
    """Learnt positions are of the size trained on; the others answer."""
    film = film_of("phonebook", ("QKV", "QKV positions=learned"))
    found = inspected(film, **custom_phone_book_area(film))
    refusals = [own["refusal"] for own in found.header["variants"]]
    assert refusals[0] == ""
    assert refusals[1].startswith(
        "It answers books of 8 entries only: how it tells positions apart"
    )
    assert "0.map" in found.framed
    assert {name for name in found.framed if name.startswith("1.")} == {"1.mass"}


def test_a_book_that_the_task_does_not_allow_is_refused():
    """By the task's own words."""
    film = film_of("phonebook")
    with pytest.raises(InvalidExperiment, match="n_entries: got 1, allowed a whole number from 2"):
        inspect_attention(film, Inspection("attention", tokens=((0, 40), (0, 64))))
