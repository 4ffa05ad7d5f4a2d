"""The benchmark: what it compares is the same work, and its report says what was found."""

import dataclasses
import itertools

import pytest
import torch
from benchmark.cases import CASES, N_RUNS
from benchmark.compare import Comparison, Rates
from benchmark.contenders import BUILDERS, CHECKED_STEPS, Team
from benchmark.parts import measure_parts
from benchmark.report import Report, describe_machine

TINY = dataclasses.replace(CASES["phonebook"].resized(n_entries=2, d_head=8), batch_size=16)


def test_parts_and_bounds_are_measured(monkeypatch, threads):
    """Every part of a training takes time; bounds count steps times runs."""
    for case, n_runs in itertools.product(CASES.values(), N_RUNS):
        assert case.experiment(n_runs).n_runs == n_runs
    monkeypatch.setattr("benchmark.parts._TRIED_SECONDS", 0.0)
    monkeypatch.setattr("benchmark.contenders.prepare_for_training", lambda: None)
    parts = measure_parts(TINY)
    assert set(parts.per_step) == {"data", "gradients", "Adam"}
    assert all(value > 0 for value in [*parts.per_step.values(), *parts.others.values()])
    threads(torch.get_num_threads())  # set back after the test
    for bound in ("bound, whole", "bound, split", "true bound"):
        assert BUILDERS[bound](TINY, 10).run(3) == 30, bound


@pytest.mark.server
def test_all_ways_reach_the_same_losses(monkeypatch):
    """The cohort, the clean loop, the fused loop of a process, and a team."""
    monkeypatch.setattr("benchmark.contenders.prepare_for_training", lambda: None)
    names = ("cohort", "clean loop, 1 threads", "process 0")
    cohort, *others = (BUILDERS[name](TINY, 5).losses(CHECKED_STEPS) for name in names)
    for losses in others:
        assert losses == pytest.approx(cohort, rel=1e-5)
    with Team(["cohort"], TINY, 5) as team:
        assert team.turn(2).model_steps == 10
        assert team.losses() == pytest.approx(cohort)


def test_ratios_are_of_the_same_round_and_reported():
    """Median, smallest and largest over rounds; the best baseline counts, growth is told."""
    loops = {f"clean loop, {n} threads": [20.0 / n] * 3 for n in (1, 2)}
    bounds = {"bound, whole": [90.0] * 3, "bound, split": [100.0] * 3}
    own = {"cohort": [60.0, 80.0, 70.0], "processes": [40.0, 40.0, 35.0]}
    found = Comparison("phonebook", 15, Rates(own | bounds | loops), loss_gap=1e-7, memory=100.0)
    rounds = {name: ratio.rounds for name, ratio in found.ratios.items() if ratio}
    assert rounds == {
        "of_bound": (0.6, 0.8, 0.7),
        "over_clean_loop": (3.0, 4.0, 3.5),
        "over_processes": (1.5, 2.0, 2.0),
        "bound_over_clean_loop": (5.0, 5.0, 5.0),
    }
    larger = dataclasses.replace(found, n_runs=60, memory=390.0)
    report = Report(describe_machine(), [found, larger])
    text = report.to_markdown()
    assert "| phonebook | 15 | 70 | 0.70 (0.60–0.80) |  | 3.50 (3.00–4.00) |" in text
    assert "1.00 ×" in text
    assert "390 MiB" in text
    assert report.to_dict()["comparisons"][0]["over_processes"] == 2.0
