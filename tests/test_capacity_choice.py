"""What the page Capacity shows and chooses: cells, axes, variants, and what the Lab gets."""

from functools import cache

import numpy as np
import pandas as pd
from test_live_sweep import TINY

from attnkit.sweeps import Sweep, SweepResult
from attnkit.ui.capacity_card import lab_experiment, numbers_of, row_of, take_mark
from attnkit.ui.capacity_choice import CapacityChoice, Cell, cells_of
from attnkit.ui.capacity_sections import table_of
from attnkit.variants import Variant

NEEDED = {"QKV": 3, "K=V": 6, "Q=K": 100}
"""Head width from which a made-up variant solves the task."""

AXES = {"d_head": [2, 4, 8], "n_entries": [6, 8], "n_layers": [1, 2]}

WIDE = Cell((8, 6), Variant("K=V"))
NARROW = Cell((2, 6), Variant("K=V"))


@cache
def made_up(rate_of_kv=0.005, without=None, n_axes=2):
    """Return a result in which a variant solves the task from a head width on.

    Args:
        rate_of_kv: Learning rate of K=V; that of the others is 0.005.
        without: Point (d_head, n_entries) that was not run.
        n_axes: Number of axes: head width, entries, layers.
    """
    sweep = Sweep(
        base={k: v for k, v in TINY.items() if k != "n_names"},
        axes=dict(list(AXES.items())[:n_axes]),
        sharing=list(NEEDED),
        n_seeds=2,
        first_seed=40,
    )
    rows = []
    for point in sweep.points():
        for variant in sweep.sharing:
            for seed in sweep.seeds:
                solved = point["d_head"] >= NEEDED[variant]
                costs = sweep.experiment(point, [variant]).costs(variant)
                row = {
                    "sharing": str(variant),
                    "seed": seed,
                    "accuracy": 1.0 if solved else 0.25 + 0.01 * (seed - 40),
                    "steps_to_threshold": 100.0 if solved else np.nan,
                    "loss": 0.1,
                    "learning_rate": rate_of_kv if variant == "K=V" else 0.005,
                    "parameters": costs.parameters,
                    "kv_cache_floats_per_token": costs.kv_cache,
                    "multiply_adds_per_token": costs.multiply_adds,
                    "error": None,
                    "cell": sweep.cell_hash(point, variant),
                }
                if tuple(point.values()) != without:
                    rows.append(row)
    return SweepResult.of(sweep, pd.DataFrame(rows))


def test_cells_are_named_by_links_one_to_one():
    """Every cell has a name of its own."""
    cells = cells_of(made_up().sweep)
    assert len({cell.link for cell in cells}) == len(cells) == len(table_of(made_up()))


def test_a_pressed_mark_chooses_its_cell():
    """A mark is named by the index of its row; anything else is ignored."""
    choice, result = CapacityChoice(), made_up()
    index = int(row_of(result, WIDE).name)
    take_mark(choice, result, [index])
    assert choice.cell == WIDE
    take_mark(choice, result, 10**6)
    take_mark(choice, result, "cell")
    assert choice.cell == WIDE


def test_numbers_of_a_cell_are_those_of_its_row():
    """Accuracy, seeds that solve it, steps, costs and learning rate; or that it was not run."""
    result = made_up()
    row = row_of(result, WIDE)
    text = numbers_of(result, row)
    assert "Accuracy 100%" in text
    assert "solved by 2 of 2 seeds, these after 100 steps" in text
    assert f"{row['parameters']:,} parameters" in text
    assert "Learning rate 0.005" in text
    assert row_of(made_up(without=(8, 6)), WIDE) is None
    assert numbers_of(result, None).startswith("Not run")


def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv():
    """With all seeds, the settings of the point, and the learning rate of each variant."""
    experiment = lab_experiment(made_up(), WIDE)
    assert experiment.sharing == (Variant("QKV"), Variant("K=V"))
    assert list(experiment.seeds) == [40, 41]
    assert (experiment.size.d_head, experiment.task.n_entries) == (8, 6)
    tuned = lab_experiment(made_up(rate_of_kv=0.02), WIDE)
    assert tuned.training.learning_rate == 0.005
    assert tuned.sharing == (Variant("QKV"), Variant("K=V learning_rate=0.02"))


def test_axes_change_places_and_another_sweep_has_its_own():
    """Choosing the axis of the other side exchanges both; what the sweep lacks is a default.

    Neither needs a message: the link did not ask for it.
    """
    choice = CapacityChoice()
    choice.follow({})
    choice.settle(made_up().sweep)
    for _ in range(2):
        choice.take_axis("x", "n_entries")
        assert (choice.x, choice.y) == ("n_entries", "d_head")
    choice.cell = WIDE
    other = Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.settle(other)
    assert (choice.x, choice.y, choice.cell) == ("n_heads", "", None)
    assert set(choice.variants) <= set(other.sharing)
    assert {choice.one, choice.other} == set(other.sharing)
    assert not choice.problems
