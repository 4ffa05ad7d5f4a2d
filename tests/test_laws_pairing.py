"""Pairing: the same seed gives every sharing the same data and initial numbers."""

import pytest
import torch
from hypothesis import given
from kinds import tiny
from random_experiments import mixed
from searching import briefly
from torch.testing import assert_close
from trained_runs import every_kind, trained

from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.tasks.base import Task

CPU = torch.device("cpu")


@given(mixed())
@briefly(7)
def test_pairing_of_initial_numbers(experiment):
    """A parameter of one name and shape starts with the same numbers in all runs of a seed only.

    A bias does so up to a factor: its spread depends on the number of inputs of its matrix.
    """
    drawn = {}
    for stage in (experiment.replace(sharing=[v]) for v in experiment.sharing):
        model = Model(stage, experiment.seeds, CPU)
        weights = model.wirings[model.variants[0]].weights
        copies = {name for name, weight in weights.items() if weight.like}
        for run, seed in enumerate(experiment.seeds):
            for name, value in model.run_parameters(run).items():
                if name.partition(".")[2] not in copies:
                    first = drawn.setdefault((seed, name, value.shape), value)
                    if name.rpartition(".")[2].startswith("b_"):
                        factor = float(value.norm() / first.norm()) if value.any() else 1.0
                        assert_close(first * factor, value, rtol=1e-5, atol=1e-7)
                    else:
                        assert torch.equal(first, value), (name, stage.sharing)
    for (seed, name, shape), value in drawn.items():
        other = drawn.get((seed + 1, name, shape))
        assert other is None or "W_" not in name or not torch.equal(value, other)


@pytest.fixture
def draws(monkeypatch):
    """Record the bytes of all examples that tasks draw, in the order of drawing."""
    seen = []

    def recording(draw):
        def recorded(self, n_examples, generator, *, held_out):
            examples = draw(self, n_examples, generator, held_out=held_out)
            seen.append((held_out, examples.tokens.numpy().tobytes()))
            return examples

        return recorded

    for task in {Task, *(task for task in TASKS.values() if "draw" in vars(task))}:
        monkeypatch.setattr(task, "draw", recording(task.draw))
    return seen


def drawn_by(draws, experiment):
    """Return the bytes of all examples that one experiment draws."""
    draws.clear()
    trained(experiment)
    return list(draws)


@every_kind
def test_pairing_of_data(kind, draws):
    """Every sharing of a seed sees the same training and held-out examples."""
    qkv, other, together = (
        drawn_by(draws, tiny(kind, sharing=sharing, n_seeds=1, steps=20))
        for sharing in ("QKV", "Q=K=V", ["QKV", "K=V", "Q=K=V"])
    )
    assert len(qkv) >= 3
    assert other == qkv
    assert set(together) == set(qkv)  # once per cohort


@every_kind
def test_seeds_have_their_own_data(kind, draws):
    """Two seeds share the probe alone, and draw the same examples together and apart."""
    two, one, other = (
        set(drawn_by(draws, tiny(kind, sharing="QKV", steps=20, **given)))
        for given in ({"n_seeds": 2}, {"n_seeds": 1}, {"n_seeds": 1, "first_seed": 1})
    )
    assert one | other == two
    shared = one & other  # what the probe is chosen from, which every experiment shows
    assert shared
    assert all(held_out for held_out, _ in shared)
