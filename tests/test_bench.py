"""The benchmark: what it compares is the same work, and its report says what was found."""

import dataclasses
import itertools
import os
import signal
from collections import Counter

import pytest
import torch
from benchmark.cases import CASES, N_RUNS
from benchmark.compare import Comparison, Rates, Ratio
from benchmark.contenders import BUILDERS, CHECKED_STEPS, Team
from benchmark.loop import Loop, PeerTransformer
from benchmark.parts import measure_parts
from benchmark.report import Report, describe_machine
from benchmark.true_bound import needed_products

from attnkit.model.kernel.description import describe
from attnkit.model.model import Model

TINY = dataclasses.replace(CASES["phonebook"].resized(n_entries=2, d_head=8), batch_size=16)


@pytest.fixture
def ways(monkeypatch):
    """All contenders, in this process, whose memory and environment stay as they are."""
    monkeypatch.setattr("benchmark.contenders.prepare_for_training", lambda: None)
    return BUILDERS


def test_the_true_bound_counts_what_a_step_needs():
    """Counted by hand for one run of QKV: only answering positions ask, forward and back."""
    experiment = TINY.experiment(1)
    model = Model(experiment, [0], torch.device("cpu"))
    variant = model.variants[0]
    given = model.wirings[variant], model.layer_specs, model.task, model.offsets(variant)
    asked, looked, m, d, c = 16 * 2, 16 * 4, 32, 8, 32  # rows of one chunk
    expected = Counter([(asked, m, c), (m, asked, c), (asked, c, m)])
    for n_rows, n_in, n_out in ((asked, m, d), (looked, m, d), (looked, m, d), (asked, d, m)):
        expected.update([(n_rows, n_in, n_out), (n_in, n_rows, n_out), (n_rows, n_out, n_in)])
    for shape in ((2, d, 4), (2, 4, d), (2, d, 4), (4, 2, d), (4, 2, d), (2, 4, d)):
        expected[shape] += 16
    assert needed_products(describe(*given, model.block(0).stop), n_batch=16) == expected


def test_parts_and_bounds_are_measured(monkeypatch, ways, threads):
    """Every part of a training takes time; bounds count steps times runs."""
    for case, n_runs in itertools.product(CASES.values(), N_RUNS):
        assert case.experiment(n_runs).n_runs == n_runs
    with pytest.raises(ValueError, match="n_runs: got 7"):
        CASES["phonebook"].experiment(7)
    monkeypatch.setattr("benchmark.parts._TRIED_SECONDS", 0.0)
    parts = measure_parts(TINY)
    assert set(parts.per_step) == {"data", "gradients", "Adam"}
    assert all(value > 0 for value in [*parts.per_step.values(), *parts.others.values()])
    threads(torch.get_num_threads())  # set back after the test
    for bound in ("bound, whole", "bound, split", "true bound"):
        assert ways[bound](TINY, 10).run(3) == 30, bound


@pytest.mark.long(seconds=8)
@pytest.mark.usefixtures("ways")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what x-transformers itself imports
def test_peers_take_the_same_sizes():
    """A peer trains on the same data; it has no sharing, so it is one run."""
    case = dataclasses.replace(CASES["REVERSE"].resized(length=4), batch_size=16)
    loop = Loop(case.experiment(1), [0], PeerTransformer)
    assert loop.run(2) == 2
    assert loop.losses(2)["QKV"] > 0


@pytest.mark.server
@pytest.mark.usefixtures("interruptible")
def test_all_ways_reach_the_same_losses(ways):
    """The cohort, the clean loop, the fused loop of a process, and a team."""
    names = ("cohort", "clean loop, 1 threads", "process 0")
    cohort, *others = (ways[name](TINY, 5).losses(CHECKED_STEPS) for name in names)
    for losses in others:
        assert losses == pytest.approx(cohort, rel=1e-5)
    with Team(["cohort"], TINY, 5) as team:
        (process,) = team._processes
        os.kill(process.pid, signal.SIGINT)
        assert team.turn(2).model_steps == 10
        assert team.losses() == pytest.approx(cohort)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ratios_are_of_the_same_round_and_reported():
    """Median, smallest and largest over rounds; the best baseline counts, growth is told."""
    loops = {f"clean loop, {n} threads": [20.0 / n] * 3 for n in (1, 2)}
    bounds = {"bound, whole": [90.0] * 3, "bound, split": [100.0] * 3}
    own = {"cohort": [60.0, 80.0, 70.0], "processes": [40.0, 40.0, 35.0]}
    found = Comparison("phonebook", 15, Rates(own | bounds | loops), loss_gap=1e-7, memory=100.0)
    rounds = {name: ratio and ratio.rounds for name, ratio in found.ratios.items()}
    assert rounds == {
        "of_bound": (0.6, 0.8, 0.7),
        "of_true_bound": None,
        "over_clean_loop": (3.0, 4.0, 3.5),
        "over_processes": (1.5, 2.0, 2.0),
        "over_peer": None,
        "bound_over_clean_loop": (5.0, 5.0, 5.0),
    }
    assert str(Ratio((1.0, 3.0, 2.0))) == "2.00 (1.00–3.00)"
    report = Report(
        describe_machine(), [found, dataclasses.replace(found, n_runs=60, memory=390.0)]
    )
    text = report.to_markdown()
    assert "| phonebook | 15 | 70 | 0.70 (0.60–0.80) |  | 3.50 (3.00–4.00) |" in text
    assert "1.00 ×" in text
    assert "390 MiB" in text
    assert report.to_dict()["comparisons"][0]["over_processes"] == 2.0
