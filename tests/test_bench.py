"""The benchmark: what it compares is the same work, and its report says what was found."""

import dataclasses

import pytest
from benchmark.cases import CASES
from benchmark.compare import Comparison, Rates
from benchmark.contenders import BUILDERS, CHECKED_STEPS, Team
from benchmark.report import Report, describe_machine

TINY = dataclasses.replace(CASES["phonebook"].resized(n_entries=2, d_head=8), batch_size=16)


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
    """Median, smallest and largest over rounds; the best baseline counts."""
    loops = {f"clean loop, {n} threads": [20.0 / n] * 3 for n in (1, 2)}
    own = {"cohort": [60.0, 80.0, 70.0], "processes": [40.0, 40.0, 35.0]}
    found = Comparison("phonebook", 15, Rates(own | loops), loss_gap=1e-7, memory=100.0)
    rounds = {name: ratio.rounds for name, ratio in found.ratios.items() if ratio}
    assert rounds == {
        "over_clean_loop": (3.0, 4.0, 3.5),
        "over_processes": (1.5, 2.0, 2.0),
    }
    larger = dataclasses.replace(found, n_runs=60, memory=390.0)
    report = Report(describe_machine(), [found, larger])
    text = report.to_markdown()
    assert "| phonebook | 15 | 70 | 3.50 (3.00–4.00) |" in text
    assert "1.00 ×" in text
    assert "390 MiB" in text
    assert report.to_dict()["comparisons"][0]["over_processes"] == 2.0
