"""Sweeps as values: their text, their points, and errors that name the key."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.command.main import run
from attnkit.sweeps import Sweep
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.values import InvalidSweep

BAD = {
    "base = 3": "base",
    "[base]\ntask = 'phonebok'": "base.task",
    "[base]\ntask = 5": "base.task",
    "[base]\nd_hed = 3": "base.d_hed",
    "[base]\nd_head = 'wide'": "base.d_head",
    "[base]\nd_head = 1.5": "base.d_head",
    "[base]\nd_head = 0": "base.d_head",
    "[base]\nd_head = true": "base.d_head",
    "[base]\nsteps = -1": "base.steps",
    "[base]\nlearning_rate = inf": "base.learning_rate",
    "[base]\npositions = 'somewhere'": "base.positions",
    "[base]\ncausal = 'yes'": "base.causal",
    "[base]\nn_seeds = 3": "base.n_seeds",
    "[base]\nequal = 'parameters'": "base.equal",
    "[base]\nbatch_size = 17": "base.batch_size",
    "[base]\nn_entries = 40": "base.n_entries",
    "axes = 1": "axes",
    "[axes]\ntask = []": "axes.task",
    "[axes]\ntask = [['phonebook']]": "axes.task",
    "[axes]\nd_head = {from = 1e308, to = -1e308, count = 3}": "axes.d_head.from",
    f"[base]\nd_head = 1{'0' * 400}": "base.d_head",
    "sharing = ['QKV learning_rate=0.1']": "sharing",
    "[axes]\nd_head = []": "axes.d_head",
    "[axes]\nd_head = 4": "axes.d_head",
    "[axes]\nd_head = [4, 'x']": "axes.d_head",
    "[axes]\nd_head = [4, 999]": "axes.d_head",
    "[axes]\nwidth = [4]": "axes.width",
    "[axes]\nsharing = ['QKV']": "axes.sharing",
    "[axes]\ntask = ['phonebook', 'x']": "axes.task",
    "[axes]\ncausal = {from = 0, to = 1, count = 2}": "axes.causal",
    "[axes]\nd_head = {from = 1, to = 8}": "axes.d_head.count",
    "[axes]\nd_head = {from = 1, to = 8, count = 1}": "axes.d_head.count",
    "[axes]\nd_head = {from = 'a', to = 8, count = 2}": "axes.d_head.from",
    "[axes]\nd_head = {from = 0, to = 8, count = 2, scale = 'log'}": "axes.d_head",
    "[axes]\nd_head = {from = 1, to = 8, count = 2, scale = 'cubic'}": "axes.d_head.scale",
    "[axes]\nd_head = {from = 1, to = 8, count = 2, step = 2}": "axes.d_head.step",
    "[axes]\nn_entries = [8, 16]\n[base]\nn_names = 12": "axes.n_entries",
    "sharing = []": "sharing",
    "sharing = ['QKW']": "sharing",
    "n_seeds = 0": "n_seeds",
    "n_seeds = 'five'": "n_seeds",
    "n_seed = 5": "n_seed",
    "first_seed = -1": "first_seed",
    "engine = 'steam'": "engine in bad.toml",
    "rates = [1]": "rates",
    "[rates]\nmultiples = []": "rates.multiples",
    "[rates]\nmultiples = [0]": "rates.multiples",
    "[rates]\ntuning_seeds = 0": "rates.tuning_seeds",
    "[rates]\nmultiples = [1, 2]\n[axes]\nlearning_rate = [0.1, 0.2]": "rates.multiples",
    "[budget]\ncore_hours = -1": "budget.core_hours",
    "[budget]\nprice_per_core_hour = 'cheap'": "budget.price_per_core_hour",
    "n_seeds = ": "specification",
}
"""Specification → key that the message must name first."""


def test_a_bad_specification_ends_with_one_line_that_names_the_key(tmp_path, capsys):
    """The command returns 2 and prints the key, and nothing is written."""
    file = tmp_path / "bad.toml"
    for text, key in BAD.items():
        file.write_text(text)
        assert run(["sweep", str(file)]) == 2, text
        error = capsys.readouterr().err
        assert error.count("\n") == 1, text
        assert re.match(rf"attnkit: error: {re.escape(key)}: ", error), error
        assert list(tmp_path.iterdir()) == [file], text


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["missing.toml"], "missing.toml"),
        (["--engine", "slurm"], "--engine"),
        (["--retry-failed"], "--retry-failed"),
        (["--check", "0"], "--check"),
        (["--check", "x"], "error: --check: got 'x'"),
        (["--check", "3"], "error: --check: the folder has no finished run"),
        (["--out", "unknown://place"], "--out"),
    ],
)
def test_a_bad_argument_ends_with_one_line_that_names_it(arguments, key, tmp_path, capsys):
    """Options are checked before anything is trained."""
    file = tmp_path / "good.toml"
    file.write_text("n_seeds = 1\n[base]\nsteps = 5\n")
    named = arguments if arguments[0].endswith(".toml") else [str(file), *arguments]
    assert run(["sweep", *named]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert key in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--out: .* holds a sweep already; --resume continues it"),
        (["--resume"], r"engine in mine\.toml: got 'torch', allowed 'kernel'"),
    ],
)
def test_a_folder_in_use_is_told_in_words_of_the_command(options, message, tmp_path, capsys):
    """The engine is a key of the file: the option --engine says where to train."""
    file = tmp_path / "mine.toml"
    file.write_text('engine = "torch"\n')
    SweepFolder(str(tmp_path / "mine")).write_specification(Sweep(engine="kernel"))
    assert run(["sweep", str(file), *options]) == 2
    assert re.match(f"attnkit: error: {message}", capsys.readouterr().err)


def test_a_toml_text_is_read_back_as_the_same_sweep():
    """Ranges become lists, and everything else stays."""
    sweep = Sweep(
        base={"task": "phonebook", "steps": 30},
        axes={
            "d_head": {"from": 1, "to": 64, "count": 7, "scale": "log"},
            "learning_rate": {"from": 0.001, "to": 0.1, "count": 3, "scale": "log"},
            "positions": ["none", "learned"],
        },
        sharing=["K=V", "QKV"],
        budget={"core_hours": 2},
    )
    assert sweep.axes["d_head"] == (1, 2, 4, 8, 16, 32, 64)
    assert sweep.axes["learning_rate"] == (0.001, 0.01, 0.1)
    assert Sweep.from_toml(sweep.to_toml()) == sweep
    assert sweep.n_cells == 7 * 3 * 2 * 2


def test_values_that_are_equal_make_equal_cells():
    """Neither another way of writing a number nor a default that is spelled out changes a hash."""
    sweep = Sweep(base={"task": "phonebook"}, axes={"d_head": [4, 8]})
    other = Sweep(base={"task": "phonebook", "n_entries": 8.0}, axes={"d_head": [8.0]}, n_seeds=3)
    assert other.cell_hashes()[0].tolist() == sweep.cell_hashes()[1].tolist()


def test_cells_with_other_settings_have_other_hashes():
    """The learning-rate rule and the engine are part of a cell."""
    sweeps = [
        Sweep(axes={"d_head": [4, 8]}),
        Sweep(axes={"d_head": [4, 8]}, engine="torch"),
        Sweep(axes={"d_head": [4, 8]}, rates={"multiples": [1, 2]}),
        Sweep(axes={"d_head": [4, 8]}, rates={"multiples": [1, 2], "tuning_seeds": 3}),
        Sweep(base={"steps": 5}, axes={"d_head": [4, 8]}),
    ]
    hashes = {name for sweep in sweeps for name in sweep.cell_hashes().ravel().tolist()}
    assert len(hashes) == sum(sweep.n_cells for sweep in sweeps)


def test_a_variant_must_be_possible_somewhere():
    """A variant that shares keys across heads may stand beside others in a sweep over heads."""
    sharing = ["QKV", "QKV kv_heads=2"]
    assert Sweep(axes={"n_heads": [1, 2]}, sharing=sharing).n_cells == 4
    with pytest.raises(InvalidSweep, match=r"sharing: got 'QKV kv_heads=2', but"):
        Sweep(axes={"d_head": [1, 2]}, sharing=sharing)


@given(st.lists(st.integers(2, 5), min_size=0, max_size=3), st.data())
def test_points_are_the_product_of_the_axes(lengths, data):
    """The last axis varies fastest, as in `itertools.product`."""
    names = ["d_head", "n_heads", "n_layers"][: len(lengths)]
    axes = {name: list(range(1, n + 1))[:4] for name, n in zip(names, lengths, strict=True)}
    sweep = Sweep(axes=axes)
    index = data.draw(st.integers(0, sweep.n_points - 1))
    number = 0
    for name, value in sweep.point(index).items():
        number = number * len(sweep.axes[name]) + sweep.axes[name].index(value)
    assert number == index


def test_a_value_that_no_experiment_allows_is_an_error_in_python_too():
    """The class raises its own error, whose message names the key."""
    with pytest.raises(InvalidSweep, match=r"axes\.d_head: got 65, allowed"):
        Sweep(axes={"d_head": [65]})


def test_conditions_are_what_all_cells_have_in_common():
    """Settings that an axis varies are not among them."""
    sweep = Sweep(base={"task": "phonebook"}, axes={"d_head": [2]}, rates={"multiples": [1, 2]})
    assert sweep.conditions == (
        "Phone book, 600 steps, 5 seeds for each cell, the best of 2 learning rates for each cell, "
        "chosen on other seeds"
    )
    other = Sweep(axes={"steps": [30], "learning_rate": [0.1], "task": ["phonebook"]}, n_seeds=1)
    assert other.conditions == "1 seed for each cell"
