"""Sweeps as values: their text, their points, and errors that name the key."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.sweeps import Sweep
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.values import InvalidSweep

RANGE = "[axes]\nd_head = {{from = {}, to = {}, count = {}{}}}"

WIDE = "{from = 1, to = 1000, count = 1000}"

BAD = {
    "n_seeds = ": "specification 'bad.toml'",
    f"n_seeds = {'[' * 10_000}": "specification 'bad.toml'",
    f"{'a.' * 10_000}b = 1": "specification 'bad.toml'",
    f"n_seeds = 0x{'f' * 10_000}": "n_seeds",
    f"[base]\ntask = 0x{'f' * 10_000}": "base.task",
    f"n_seeds = 1{'0' * 10_000}": "specification 'bad.toml'",
    f"n_seeds = 1{' ' * 2**20}": "specification 'bad.toml'",
    "n_seed = 5": "n_seed",
    "n_seeds = 0": "n_seeds",
    "engine = 'steam'": "engine in 'bad.toml'",
    "base = 3": "base",
    "[base]\ntask = 'phonebok'": "base.task",
    "[base]\nd_hed = 3": "base.d_hed",
    "[base]\nd_head = 1.5": "base.d_head",
    "[base]\nd_head = 0": "base.d_head",
    "[base]\nd_head = true": "base.d_head",
    f"[base]\nd_head = 1{'0' * 400}": "base.d_head",
    "[base]\nlearning_rate = inf": "base.learning_rate",
    "[base]\npositions = 'somewhere'": "base.positions",
    "[base]\nn_seeds = 3": "base.n_seeds",
    "[base]\nn_entries = 40": "base.n_entries",
    "axes = 1": "axes",
    "[axes]\ntask = [['phonebook']]": "axes.task",
    "[axes]\ntask = ['phonebook', 'x']": "axes.task",
    "[axes]\nd_head = []": "axes.d_head",
    "[axes]\nd_head = 4": "axes.d_head",
    "[axes]\nd_head = [4, 65]": "axes.d_head",
    "[axes]\nwidth = [4]": "axes.width",
    "[axes]\nsharing = ['QKV']": "axes.sharing",
    "[axes]\ncausal = {from = 0, to = 1, count = 2}": "axes.causal",
    "[axes]\nd_head = {from = 1, to = 8}": "axes.d_head.count",
    RANGE.format(1, 8, 1, ""): "axes.d_head.count",
    RANGE.format("1e308", "-1e308", 3, ""): "axes.d_head.from",
    RANGE.format(0, 8, 2, ", scale = 'log'"): "axes.d_head",
    RANGE.format(1, 8, 2, ", scale = 'cubic'"): "axes.d_head.scale",
    RANGE.format(1, 8, 2, ", step = 2"): "axes.d_head.step",
    "[axes]\nn_entries = [8, 16]\n[base]\nn_names = 12": "axes.n_entries",
    f"[axes]\nsteps = {WIDE}\nevaluate_every = {WIDE}\nearlier_steps = {WIDE}": "axes",
    "sharing = []": "sharing",
    "sharing = ['QKV learning_rate=0.1']": "sharing",
    "sharing = ['QKV', 'QKV kv_heads=2']": "sharing",
    "rates = [1]": "rates",
    "[rates]\nmultiples = []": "rates.multiples",
    "[rates]\nmultiples = [0]": "rates.multiples",
    "[rates]\ntuning_seeds = 0": "rates.tuning_seeds",
    "[rates]\nmultiples = [1, 2]\n[axes]\nlearning_rate = [0.1, 0.2]": "rates.multiples",
    "[budget]\ncore_hours = -1": "budget.core_hours",
}
"""Specification → key that the message must name first."""


@pytest.fixture
def refusal(run):
    """Run the command `sweep`, which must refuse: its only line, without the program's name."""

    def line_of(*arguments):
        code, output, errors = run("sweep", *map(str, arguments))
        assert (code, output, errors.count("\n")) == (2, "", 1), (arguments, errors)
        return errors.removeprefix("attnkit: error: ")

    return line_of


def test_a_bad_specification_ends_with_one_line_that_names_the_key(tmp_path, refusal):
    """Nothing is written."""
    file = tmp_path / "bad.toml"
    for text, key in BAD.items():
        file.write_text(text)
        assert refusal(file).startswith(f"{key}: "), text
        assert list(tmp_path.iterdir()) == [file], text


def test_a_bad_argument_ends_with_one_line_that_names_it(tmp_path, refusal):
    """Options are checked before anything is trained; `engine` is also a key of the file."""
    file, folder = tmp_path / "mine.toml", tmp_path / "used"
    file.write_text('engine = "torch"\nn_seeds = 1\n[base]\nsteps = 5\n')
    SweepFolder(str(folder)).write_specification(Sweep(engine="kernel"))
    for arguments, message in (
        (["missing.toml"], ".*missing.toml"),
        ([file, "--engine", "slurm"], "--engine: "),
        ([file, "--retry-failed"], "--retry-failed: "),
        ([file, "--check", "0"], "--check: "),
        ([file, "--check", "x"], "--check: got 'x'"),
        ([file, "--check", "3"], "--check: the folder has no finished run"),
        ([file, "--out", "unknown://place"], "--out: "),
        ([file, "--out", folder], "--out: .* holds a sweep already; --resume continues it"),
        (
            [file, "--out", folder, "--resume"],
            r"engine in 'mine\.toml': got 'torch', allowed 'kern",
        ),
    ):
        assert re.match(message, refusal(*arguments)), arguments


def test_a_toml_text_is_read_back_as_the_same_sweep():
    """Ranges become lists, and everything else stays."""
    sweep = Sweep(
        base={"task": "phonebook", "steps": 30},
        axes={
            "d_head": {"from": 1, "to": 64, "count": 7, "scale": "log"},
            "learning_rate": {"from": 0.001, "to": 0.1, "count": 3, "scale": "log"},
            "n_entries": {"from": 2, "to": 8, "count": 3},
            "positions": ["none", "learned"],
        },
        sharing=["K=V", "QKV"],
        budget={"core_hours": 2},
    )
    assert sweep.axes["d_head"] == (1, 2, 4, 8, 16, 32, 64)
    assert sweep.axes["learning_rate"] == (0.001, 0.01, 0.1)
    assert sweep.axes["n_entries"] == (2, 5, 8)
    assert Sweep.from_toml(sweep.to_toml()) == sweep
    assert sweep.n_cells == 7 * 3 * 3 * 2 * 2


def test_cells_are_named_by_all_that_decides_their_numbers():
    """Not by the way a number is written, nor by a default that is spelled out, nor by seeds."""
    axes = {"d_head": [4, 8]}
    sweep = Sweep(base={"task": "phonebook"}, axes=axes)
    other = Sweep(base={"task": "phonebook", "n_entries": 8.0}, axes={"d_head": [8.0]}, n_seeds=3)
    assert other.cell_hashes()[0].tolist() == sweep.cell_hashes()[1].tolist()
    sweeps = [
        Sweep(axes=axes),
        Sweep(axes=axes, engine="torch"),
        Sweep(axes=axes, rates={"multiples": [1, 2]}),
        Sweep(axes=axes, rates={"multiples": [1, 2], "tuning_seeds": 3}),
        Sweep(base={"steps": 5}, axes=axes),
    ]
    hashes = {name for sweep in sweeps for name in sweep.cell_hashes().ravel().tolist()}
    assert len(hashes) == sum(sweep.n_cells for sweep in sweeps)


def test_a_value_and_a_variant_must_be_possible_somewhere():
    """A variant that shares keys across heads may stand beside others in a sweep over heads."""
    sharing = ["QKV", "QKV kv_heads=2"]
    assert Sweep(axes={"n_heads": [1, 2]}, sharing=sharing).n_cells == 4
    with pytest.raises(InvalidSweep, match=r"sharing: got 'QKV kv_heads=2', but"):
        Sweep(axes={"d_head": [1, 2]}, sharing=sharing)


@given(st.lists(st.integers(1, 4), max_size=3))
def test_points_are_the_product_of_the_axes(lengths):
    """The last axis varies fastest."""
    names = ["d_head", "n_heads", "n_layers"]
    axes = {name: list(range(1, n + 1)) for name, n in zip(names, lengths, strict=False)}
    points = [tuple(point.values()) for point in Sweep(axes=axes).points()]
    assert points == list(product(*axes.values()))


def test_conditions_are_what_all_cells_have_in_common():
    """Settings that an axis varies are not among them."""
    sweep = Sweep(base={"task": "phonebook"}, axes={"d_head": [2]}, rates={"multiples": [1, 2]})
    assert sweep.conditions == (
        "Phone book, 600 steps, 5 seeds for each cell, the best of 2 learning rates for each cell, "
        "chosen on other seeds"
    )
    other = Sweep(axes={"steps": [30], "learning_rate": [0.1], "task": ["phonebook"]}, n_seeds=1)
    assert other.conditions == "1 seed for each cell"
