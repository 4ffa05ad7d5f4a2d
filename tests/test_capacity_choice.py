"""What the page Capacity shows and chooses: cells, axes, variants, and what the Lab gets."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import failed, made_sweep, without
from searching import briefly

from attnkit.sweeps import Sweep, SweepResult
from attnkit.ui.sweeps.cell_card import lab_experiment, numbers_of, row_of, take_mark
from attnkit.ui.sweeps.choice import OWN, SECTIONS, CapacityChoice, Cell, cells_of
from attnkit.ui.sweeps.phase import table_of
from attnkit.variants import Variant

TINY = {"task": "directed", "n_values": 7, "d_model": 16}
TINY |= {"steps": 6, "evaluate_every": 3, "batch_size": 16, "n_eval": 16}

AXES = {"d_head": [2, 4, 8], "n_entries": [6, 8], "n_layers": [1, 2]}

KV = Variant("K=V")
WIDE, NARROW = Cell((8, 6), KV), Cell((2, 6), KV)


@cache
def made_up(n_axes=2):
    """Return a result in which QKV solves the task in heads 3 wide, K=V 6 wide, Q=K never."""
    needed = {"QKV": 3, "K=V": 6, "Q=K": 100}
    return made_sweep(
        lambda sharing, point: float(point["d_head"] >= needed[sharing]),
        sharing=needed,
        axes=dict(list(AXES.items())[:n_axes]),
        n_seeds=2,
        base=TINY,
    )


def test_cells_are_named_by_links_one_to_one_and_a_pressed_mark_chooses_one():
    """A mark is named by the index of its row; anything else is ignored."""
    result = made_up()
    cells = cells_of(result.sweep)
    assert len(set(map(str, cells))) == len(cells) == len(table_of(result))
    choice = CapacityChoice()
    for mark in ([int(row_of(result, WIDE).name)], 10**6, "cell"):
        take_mark(choice, result, mark)
        assert choice.cell == WIDE


def test_numbers_of_a_cell_are_those_of_its_row():
    """Accuracy, seeds that solve it, steps, costs and learning rate; or that it was not run."""
    result = made_up()
    row, text = row_of(result, WIDE), numbers_of(result, row_of(result, WIDE))
    costs = f"{row['parameters']:,} parameters"
    solved = "solved by 2 of 2 seeds, these after 200 steps"
    assert all(told in text for told in ("Accuracy 100%", solved, costs, "Learning rate 0.005"))
    assert row_of(without(result, d_head=8, n_entries=6), WIDE) is None
    assert numbers_of(result, None).startswith("Not run")
    lost = failed(result, d_head=8, sharing="K=V")
    assert "could not be trained" in numbers_of(lost, row_of(lost, WIDE))


def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv():
    """With all seeds, the settings of the point, and the learning rate of each variant."""
    both = (Variant("QKV"), KV)
    for result in (made_up(), failed(made_up(), d_head=2, sharing="Q=K")):
        experiment = lab_experiment(result, WIDE)
        assert experiment.sharing == both
        assert list(experiment.seeds) == list(result.sweep.seeds)
        assert (experiment.size.d_head, experiment.task.n_entries) == (8, 6)
    assert lab_experiment(failed(made_up(), d_head=8, sharing="QKV"), WIDE).sharing == (KV,)
    runs = made_up().runs.copy()
    runs.loc[runs["sharing"] == "K=V", "learning_rate"] = 0.02
    tuned = lab_experiment(SweepResult(made_up().sweep, runs), WIDE)
    assert tuned.training.learning_rate == 0.005
    assert tuned.sharing == (Variant("QKV"), Variant("K=V learning_rate=0.02"))


@given(st.data())
@briefly(50)
def test_a_link_keeps_every_choice_that_is_shown(data):
    """A link of a sweep with one, two or three axes opens the same choice for another visitor."""
    draw, sweep = data.draw, made_up(data.draw(st.sampled_from([1, 2, 3]))).sweep
    sent, found = CapacityChoice(), CapacityChoice()
    sent.read_for(sweep)
    sent.measure = draw(st.sampled_from(["accuracy", "steps_to_threshold", "solved"]))
    sent.section = draw(st.sampled_from(["", *SECTIONS]))
    sent.take_axis("x", draw(st.sampled_from(list(sweep.axes))))
    names = st.sampled_from(sweep.sharing)
    sent.variants = tuple(draw(st.lists(names, min_size=1, unique=True)))
    sent.one, sent.other = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    sent.fixed = {name: draw(st.sampled_from(values)) for name, values in sweep.axes.items()}
    sent.cell = draw(st.none() | st.sampled_from(cells_of(sweep)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapacityChoice, "set_link", lambda self, link: setattr(self, "link", link))
        sent.write_link()
        found.follow(dict(sent.link))
        found.read_for(sweep)
        assert not found.problems
        for name in ("measure", "section", "x", "y", "beside", "variants", "cell"):
            assert getattr(found, name) == getattr(sent, name), name
        if sent.section in ("difference", "matching"):
            assert (found.one, found.other) == (sent.one, sent.other)
        found.write_link()
    assert found.link == sent.link


def test_what_a_sweep_does_not_have_is_a_default_and_told_if_a_link_asked_for_it():
    """Choosing the axis of the other side exchanges both. Another sweep needs no message."""
    choice = CapacityChoice()
    choice.follow({})
    choice.read_for(made_up().sweep)
    for _ in range(2):
        choice.take_axis("x", "n_entries")
        assert (choice.x, choice.y) == ("n_entries", "d_head")
    choice.cell = WIDE
    other = Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.read_for(other)
    assert (choice.x, choice.y, choice.cell) == ("n_heads", "", None)
    assert set(choice.variants) <= set(other.sharing)
    assert {choice.one, choice.other} == set(other.sharing)
    assert not choice.problems
    wrong = {"sweep": OWN, "measure": "beauty", "x": "colour", "show": "all", "cost": "gold"}
    wrong |= {"variants": "QKV,Q=P", "cell": "3/6/QKV", "one": "Q=P", "n_entries": "7"}
    choice.follow(wrong)
    choice.read_for(made_up().sweep)
    told = [problem.split("'. Allowed: ")[0] for problem in choice.problems]
    unknown = {**wrong, "variants": "Q=P"}
    expected = [f"The link has {name}='{text}" for name, text in unknown.items() if text != OWN]
    assert sorted(told) == sorted(expected)
    assert (choice.x, choice.variants, choice.cell) == ("d_head", (Variant("QKV"),), None)
