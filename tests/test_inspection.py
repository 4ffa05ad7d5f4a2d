"""Inspections: what every view promises, and every number of a lookup from the weights again."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from filming import experiment_of, film_of, film_of_shape, reference_of
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, every_task
from numpy.testing import assert_allclose
from reference import Reference
from same import assert_same
from searching import briefly

from attnkit.analysis.attention_map import MOST_COLUMNS, MOST_ROWS, marked_pair
from attnkit.analysis.custom_phone_book import ask, read_book
from attnkit.analysis.inspection import lookup, replay
from attnkit.analysis.inspection.inspected_example import N_EXAMPLES, InspectedExample, examples_of
from attnkit.analysis.inspection.lookup import UNKNOWN
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.inspection.views import VIEWS, inspect
from attnkit.analysis.reasons import headline
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.answers import drop_oldest
from attnkit.tasks import NOTHING
from attnkit.training import Training, train
from attnkit.training.film import MOST_BYTES, MOST_FRAMES, film_megabytes, filmed_steps
from attnkit.training.loops import Recorder, record

NEAR = 1e-5  # of the largest magnitude of an array, which counts as 0.1 at least
FILMED = {
    "attention": ("token", "scores", "logits"),
    "symmetry": ("eigenvalues", "shares", "stages", "gap", "weight_symmetry"),
    "similarity": ("alike",),
}


# What every view promises


@pytest.mark.parametrize("view", VIEWS)
def test_a_blob_holds_everything_and_nothing_new_has_no_arrays(view):
    """Header and arrays are read as they were, to the bit, whatever stands in them."""
    film = film_of(causal=True, d_head=6)
    found = inspect(film, Inspection(view))
    assert found.header["steps"] in (film.steps, [4])
    if view == "attention":
        assert np.isinf(found.framed["0.masked"]).any()
    read = InspectionResult.from_bytes(found.to_bytes())
    assert read.header == json.loads(json.dumps(found.header))
    assert_same((read.framed, read.fixed), (found.framed, found.fixed))
    nothing = inspect(film, Inspection(view, since=4))
    assert (nothing.framed, nothing.fixed, nothing.header["steps"]) == ({}, {}, [])


@pytest.mark.parametrize("view", FILMED)
def test_frames_do_not_depend_on_what_is_computed_with_them(view, monkeypatch):
    """Frames since a step, in parts for little memory, and beside weights that diverged agree."""
    film = film_of()
    whole = inspect(film, Inspection(view))
    later = inspect(film, Inspection(view, since=0))
    assert later.header["steps"] == [2, 4]
    monkeypatch.setattr(replay, "_MOST_NUMBERS", 1)
    parts = inspect(replace(film, frames=[replace(f) for f in film.frames]), Inspection(view))
    monkeypatch.undo()
    for first, found in ((1, later), (0, parts)):
        for name, array in (whole.framed | whole.fixed).items():
            wanted = array[first:] if name in whole.framed else array
            own = (found.framed | found.fixed)[name]
            assert_allclose(own, wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    last = film.frames[-1]
    lost = {name: np.full_like(array, np.nan) for name, array in last.parameters[0].items()}
    broken = replace(last, parameters=[lost, *last.parameters[1:]])
    found = inspect(replace(film, frames=[*film.frames[:-1], broken]), Inspection(view)).framed
    for name in FILMED[view]:
        assert np.isnan(found[f"0.{name}"][-1]).all(), name
    for name in found:
        rows = slice(-1) if name.startswith("0.") else slice(None)
        assert_allclose(found[name][rows], whole.framed[name][rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", FILMED)
def test_what_does_not_exist_is_refused(view):
    """The message names the field, what was given, and what is allowed."""
    last = N_EXAMPLES - 1
    for name, wrong, most in (("layer", 1, 0), ("head", 2, 1), ("example", N_EXAMPLES, last)):
        with pytest.raises(ValueError, match=f"{name}: got {wrong}, allowed 0 to {most}"):
            inspect(film_of(), Inspection(view, **{name: wrong}))
    for name, wrong in (("view", "all"), ("layer", -1), ("head", 0.5)):
        with pytest.raises(ValueError, match=f"{name}: got {wrong!r}, allowed "):
            Inspection(**{"view": view, name: wrong})


# Lookups


@cache
def inspected(film, **asked):
    """Return what the inspection of attention finds in a film."""
    return inspect(film, Inspection("attention", **asked))


def expected(film, place, frame, header):
    """Every array of a variant at a frame, from the stages of the reference."""
    reference, logits, own = reference_of(film, place, frame)
    task, layer, head = film.experiment.task, header["layer"], header["head"]
    examples, example = examples_of(task), header["request"]["example"]
    found, told, n_heads = {}, header["layers"][layer], reference.n_heads
    for other, axes in enumerate(header["layers"]):
        asks, looks, *_ = reference.layers[other]
        columns = [looks.index(position) for position in axes["column_positions"]]
        rows = [asks.index(position) for position in axes["row_positions"]]
        pattern = reference.stages[other]["pattern"][example][:, rows]
        shown = pattern[:, :, columns]
        if axes["rest"]:
            rest = [j for j in range(pattern.shape[-1]) if j not in columns]
            shown = torch.cat([shown, pattern[:, :, rest].sum(-1, keepdim=True)], -1)
        found[f"grid.{other}"] = (shown.clamp(0, 1) * 255).round()
        if other == layer:
            patterns, js, i = shown, columns, rows[header["row"]]
            position = asks[i]
    stages = {name: rows[example] for name, rows in reference.stages[layer].items()}
    found |= {"token": stages["x"][position], "normed": stages["rows"][position]}
    found["added"] = stages["added"][i]
    if head < n_heads:
        n_maps = len(stages["q"]) // n_heads
        home = 0 if "shared_layers" in reference.given else layer
        maps = slice(head * n_maps, (head + 1) * n_maps)
        factor = own[f"{home}.w_plus"].sum() if "plus" in reference.positions else 1
        through = own.get(f"{home}.W_O", torch.eye(film.experiment.size.d_model).double())
        found |= {
            "map": patterns[head],
            "weights": patterns[head, header["row"]],
            "q": stages["q"][maps, i] * factor,
            "k": stages["k"][maps][:, js],
            "v": stages["v"][head, js],
            "products": stages["products"][maps, i][:, js] * factor,
            "scores": stages["scores"][head, :, i][:, js],
            "masked": stages["masked"][head, :, i][:, js],
            "z": stages["z"][head, i],
            "head_out": stages["z"][head, i] @ through.unflatten(0, (n_heads, -1))[head],
        }
    answers, labels = logits.argmax(-1)[example], examples.labels[example]
    asked = [row - task.answers_from for row in told["row_positions"] if told["is_asked"]]
    nothing = [NOTHING] * (len(told["row_positions"]) - len(asked))
    found["answers"] = torch.tensor([*answers[asked], *nothing])
    right = (answers[asked] == labels[asked]).int()
    found["right"] = torch.tensor([*right, *[UNKNOWN for _ in nothing]])
    if asked:
        final = logits[example, asked[header["row"]]]
        found |= {"logits": final[header["classes"]], "total": final.exp().sum().log()}
        found["top"] = final.max()
    masses = [mass_of(reference, n, examples) for n in range(len(header["layers"]))]
    return found | {"mass": torch.stack(masses)}


def mass_of(reference, layer, examples):
    """Attention on right and reversed entries of every head, (h, 2)."""
    asks, looks, *_ = reference.layers[layer]
    pattern = reference.stages[layer]["pattern"][:, :, -examples.labels.shape[1] :]
    found = []
    for positions in (examples.target, examples.reverse):
        if positions is None or asks.stop < reference.n_ctx:
            found.append(torch.full(pattern.shape[1:2], torch.nan).double())
            continue
        held = positions[:, None, :, None] == torch.tensor(list(looks))
        found.append((pattern * held).sum((0, 2, 3)) / held.sum())
    return torch.stack(found, -1)


def check(film, place, found):
    """Hold every array of a variant against the reference at every frame."""
    named = {tuple(name.split(".", 1)): array for name, array in found.framed.items()}
    own = {name[1]: array for name, array in named.items() if name[0] == str(place)}
    for frame in range(len(film.frames)):
        wanted = expected(film, place, frame, found.header)
        assert own.keys() == wanted.keys()
        for name, values in wanted.items():
            check_array(name, own[name][frame], values.numpy())
        if "masked" in own:
            masks, seen = wanted["masked"].numpy(), wanted["masked"].numpy() > -1e4
            masked, scores = own["masked"][frame], own["scores"][frame]
            assert (masked[seen] == scores[seen]).all()
            assert_allclose(masked[~seen], masks[~seen], rtol=NEAR)


def check_array(name, found, wanted):
    """Hold one array against that of the reference; what is masked, against the scores."""
    assert found.shape == wanted.shape, name
    if name in ("answers", "right"):
        assert (found == wanted).all(), name
    elif name.startswith("grid"):
        assert np.abs(found - wanted).max() <= 1, name  # of 255
    elif name != "masked":
        largest = np.abs(wanted[~np.isnan(wanted)]).max(initial=0.0)
        assert_allclose(found, wanted, rtol=0, atol=NEAR * max(largest, 0.1), err_msg=name)


HEADS = "three heads"
PLACES = [(HEADS, 0, 2, 3, 0), (HEADS, 1, 0, 1, 5), ("answers at the end", 2, 1, 4, 1)]


@pytest.mark.parametrize(("shape", "layer", "head", "query_index", "example"), PLACES)
def test_every_number_is_that_of_the_formula(shape, layer, head, query_index, example):
    """Variants with every mechanism are checked before and after training."""
    film = film_of_shape(shape)
    found = inspected(film, layer=layer, head=head, query_index=query_index, example=example)
    for place in range(len(film.experiment.sharing)):
        check(film, place, found)


@every_task
def test_every_number_is_that_of_the_formula_on_every_task(task):
    """First and last layer are checked, also a head that variants lack; other views open, too."""
    film = film_of(task, **KINDS.get(task, {}))
    for layer in {0, len(film.experiment.layer_specs) - 1}:
        found = inspected(film, layer=layer, head=1, query_index=2, example=3)
        for place, own in enumerate(found.header["variants"]):
            assert str(own["n_heads"]) in own["lacking"]
            check(film, place, found)
    for view, name in {"symmetry": "stages", "similarity": "alike"}.items():
        found = inspect(film.at(4), Inspection(view))
        assert found.framed["accuracy"].shape == (1, len(film.experiment.sharing))
        assert np.isfinite(found.framed[f"1.{name}"][0, 0, 0]).all()


def test_who_is_asked_is_named_as_in_the_lab():
    """Rows are those who ask, with the right class, and where the right entry stands."""
    film = film_of()
    found, examples = inspected(film, example=4, query_index=3), examples_of(film.experiment.task)
    header, told = found.header, found.header["layers"][0]
    labels = film.experiment.task.label(examples.tokens[4].numpy())
    assert told["rows"] == [label.query for label in labels]
    assert [asked["label"] for asked in header["askable"]] == told["rows"]
    for name, positions in (("right", examples.labels), ("target", examples.target)):
        assert told[name] == positions[4].tolist()
        assert header[name] == told[name][3]
    assert told["reverse"] == examples.reverse[4].tolist()
    assert (header["row"], header["query_index"]) == (3, 3)
    assert header["right_text"] == header["texts"][str(header["right"])]
    assert {str(answer) for answer in found.framed["0.answers"].flatten()} <= header["texts"].keys()
    assert inspected(film, query_index=99).header["query_index"] == 7  # the last one
    many = film_of("mqar", ("QKV",), n_tokens=600)
    found, held = inspected(many, query_index=1), examples_of(many.experiment.task).labels[0]
    assert found.header["classes"] == sorted(held[held != NOTHING].tolist())
    check(many, 0, found)


def test_rows_of_long_examples_come_in_pages():
    """The page holds who is followed; columns that are hidden from all its rows go first."""
    film = film_of("language", ("QKV",), length=64, d_mlp=0, n_layers=1)
    for query_index in (0, 20, 63):
        found = inspected(film, query_index=query_index)
        told, row = found.header["layers"][0], found.header["row"]
        first = query_index // MOST_ROWS * MOST_ROWS
        assert told["row_positions"] == list(range(first, first + MOST_ROWS))
        assert told["row_positions"][row] == query_index
        assert told["rest"]
        last = min(told["row_positions"][-1] + 1, len(told["column_positions"]) + query_index)
        assert told["column_positions"][-1] == last - 1
        assert len(told["column_positions"]) == min(MOST_COLUMNS, last)
        check(film, 0, found)
    assert [own["row"] for own in found.header["askable"]].count(NOTHING) == 64 - MOST_ROWS


@pytest.mark.parametrize("task", ["directed", "mqar"])
def test_examples_tell_what_is_wrong_first(task):
    """They are sorted by the wrong answers of all variants at the last frame."""
    film = film_of(task)
    found = inspect(film, Inspection("examples"))
    examples, n_wrong = examples_of(film.experiment.task), np.zeros(N_EXAMPLES, int)
    asked = (examples.labels != NOTHING).numpy()
    for place in range(len(film.experiment.sharing)):
        _, logits, _ = reference_of(film, place, len(film.frames) - 1)
        right = (logits.argmax(-1) == examples.labels).numpy()
        assert (found.fixed[f"{place}.right"] == np.where(asked, right, UNKNOWN)).all()
        n_wrong += (asked & ~right).sum(1)
    told, order = found.header["examples"], found.header["order"]
    assert [own["n_wrong"] for own in told] == n_wrong.tolist()
    assert [own["n_asked"] for own in told] == asked.sum(1).tolist()
    assert order == sorted(range(N_EXAMPLES), key=lambda place: -n_wrong[place])


@pytest.mark.parametrize(("task", "size"), [("directed", "n_entries"), ("dual_role", "n_circles")])
def test_the_lookup_that_is_opened_first_is_the_one_that_the_lab_speaks_of(task, size):
    """Both name the same question, at any size of the book."""
    for number in (4, 5):
        experiment = Experiment(task=task, **{size: number})
        asked = InspectedExample.at(experiment, Inspection("attention"))
        assert asked.query_position == marked_pair(experiment.task, asked.example)[1]
    snapshot = load_example(task)
    asked = InspectedExample.at(snapshot.experiment, Inspection("attention"))
    assert f"Asked for {asked.labels[asked.query_position].short}" in headline(snapshot, 0).sentence


# A book of one's own


def test_a_book_of_ones_own_is_looked_up():
    """Answers are those of the formula; who has learnt positions of another size says so."""
    film = film_of("phonebook", ("QKV", "Q=K", "QKV positions=learned"))
    task = film.experiment.task
    book = read_book("Ida 12\nJon 34\nMia 12\nTom 56", task)

    def asked_for(name):  # as a page asks
        question = ask(book, name, task)
        return {
            "tokens": tuple(map(tuple, question.tokens.tolist())),
            "names": tuple(entry.name for entry in book.entries),
            "numbers": tuple(question.classes[answer] for answer in sorted(question.classes)),
            "right": tuple(question.right),
            "query_index": question.row,
        }

    asked, sized = asked_for("Jon"), film.experiment.replace(n_entries=4)
    found, alike = (inspect(film, Inspection(v, **asked)) for v in ("attention", "similarity"))
    symmetry = inspect(film_of("phonebook", ("QKV", "Q=K")), Inspection("symmetry", **asked))
    for place, variant in enumerate(film.experiment.sharing[:2]):
        reference, own = Reference(sized, variant), reference_of(film, place, -1)[2]
        answers = reference.logits(own, torch.tensor(asked["tokens"])[None])[0].argmax(-1)
        assert found.framed[f"{place}.answers"][-1].tolist() == answers.tolist()
        right = found.framed[f"{place}.right"][-1]
        assert right.tolist() == (answers == torch.tensor([0, 1, 0, 2])).tolist()
        pattern = reference.stages[0]["pattern"][0, 0, 4:]
        shown = torch.cat([pattern[:, :4], pattern[:, 4:].sum(1, keepdim=True)], 1)
        check_array("map", found.framed[f"{place}.map"][-1], shown.numpy())
    header, told = found.header, found.header["layers"][0]
    assert told["columns"] == ["Ida", "Jon", "Mia", "Tom", "rest"]
    assert told["column_titles"][:2] == ["Ida, 12", "Jon, 34"]
    assert told["rows"] == ["Ida ?", "Jon ?", "Mia ?", "Tom ?"]
    assert (told["right"], told["target"]) == ([0, 1, 0, 2], [0, 1, 2, 3])
    assert (header["row"], header["right_text"], header["target"]) == (1, "34", 1)
    assert [header["texts"][str(answer)] for answer in range(3)] == ["12", "34", "56"]
    for view in (symmetry, alike):  # the other views show it, too
        assert view.header["target"] == [NOTHING] * 4 + [0, 1, 2, 3]
        assert view.header["labels"][3:5] == ["Tom", "Ida ?"]
    for view, notes, shown in (
        (found, header["variants"], "map"),
        (alike, alike.header["notes"], "vectors"),
    ):
        assert [bool(note["refusal"]) for note in notes] == [False, False, True]
        assert "8 entries" in notes[2]["refusal"]
        assert [f"{p}.{shown}" in view.framed for p in range(3)] == [True, True, False]
    told = inspected(film, **asked_for("Nobody")).header["layers"][0]
    assert (told["right"], told["target"]) == ([0, 1, 0, NOTHING], [0, 1, 2, NOTHING])
    bare = inspected(film, tokens=asked["tokens"])  # without names and numbers
    assert {*bare.header["layers"][0]["right"], *bare.header["layers"][0]["target"]} == {NOTHING}
    assert (bare.framed["0.right"] == UNKNOWN).all()
    with pytest.raises(InvalidExperiment, match=r"n_entries: got 1, allowed .* 2"):
        inspected(film, tokens=((0, 40), (0, 64)))


# Films


SETTINGS = {"task": "directed", "sharing": ["QKV", "Q=K", "MQA n_heads=2", "QKV tie=K=V"]}


def test_a_seed_filmed_beside_others_is_the_seed_filmed_alone(seed):
    """It may be looked at more often than frames are due; frames are copies."""
    chosen, experiment = seed % 3, experiment_of(**SETTINGS, steps=8)
    training = Training(experiment.replace(n_seeds=3))
    recorder = Recorder(training, chosen)
    while not training.finished:
        training.advance(1)
        recorder.record_frame()
    together = recorder.film
    assert_same(together, record(experiment.replace(n_seeds=3), chosen))
    assert_same(together, record(experiment.replace(first_seed=chosen)))
    first, last = (together.frames[place].parameters[0]["0.W_Q"] for place in (0, -1))
    assert (first != last).any()


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_frames_are_those_of_the_evaluations(monkeypatch, engine):
    """They have its steps and measures, name the engine, and end with the result's weights."""
    monkeypatch.setenv("ATTNKIT_ENGINE", engine)
    experiment = experiment_of(**SETTINGS, steps=7)
    film, result = record(experiment), train(experiment)
    assert film.steps == result.snapshot.eval_steps.tolist() == [0, 2, 4, 6, 7]
    for name, history in result.snapshot.history.items():
        assert_same(film.metric(name), history)
    assert_same(film.head_symmetry[-1], result.snapshot.head_symmetry)
    assert_same(film.frames[-1].parameters, result.parameters)
    assert (film.engine, film.processor, film.versions) == result.snapshot.maker
    assert film.engine == film.at(0).engine == engine


@given(st.integers(1, 3000), st.integers(1, 50))
@briefly(30)
def test_a_film_has_so_many_frames_at_most(steps, every):
    """They are chosen evenly among the evaluations, with the first and the last."""
    every = min(every, steps)
    found = filmed_steps(Experiment(steps=steps, evaluate_every=every))
    evaluated = [*range(0, steps, every), steps]
    assert len(found) == min(len(evaluated), MOST_FRAMES)
    assert (found[0], found[-1]) == (0, steps)
    gaps = np.diff([evaluated.index(step) for step in found])
    assert gaps.max() - gaps.min() <= 1


def test_films_are_small_and_are_cut_by_steps():
    """Of large models there are few frames, of many films the last; ends stay in thinned ones."""
    large = Experiment(d_model=512, n_heads=8, d_head=64, n_layers=4, d_mlp=512, sharing=["QKV"])
    middle = large.replace(d_model=128, d_mlp=0, n_layers=1)
    assert filmed_steps(large) == [0, 600]
    assert 2 < len(filmed_steps(middle)) < 61
    assert film_megabytes(middle) * 2**20 <= MOST_BYTES
    experiment = experiment_of("directed", sharing=["QKV", "Q=K", "Q=K=V"], steps=8)
    film = record(experiment)
    assert film.n_bytes == film_megabytes(experiment) * 2**20  # it is foretold exactly
    assert (film.steps, film.after(4).steps) == ([0, 2, 4, 6, 8], [6, 8])
    assert film.at(5).steps == film.at(4).steps == [4]
    assert (film.thinned(3).steps, film.thinned(1).steps) == ([0, 4, 8], [0, 8])
    kept = dict.fromkeys("abc", film)  # the one that was looked at least recently goes first
    drop_oldest(kept, 1, least=1)
    assert list(kept) == ["c"]


def test_large_inspections_are_thinned(monkeypatch):
    """The first and the last frame stay, and the header says so."""
    film = film_of()
    whole = inspected(film)
    n_bytes = sum(array.nbytes for array in whole.framed.values())
    monkeypatch.setattr(lookup, "MOST_BYTES", 2 * n_bytes // len(film.frames))
    found = inspect(film, Inspection("attention"))
    assert (whole.header["thinned"], found.header["thinned"]) == (False, True)
    assert found.header["steps"] == [0, 4]
    assert all(len(array) == 2 for array in found.framed.values())
