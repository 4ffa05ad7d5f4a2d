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
def drawn_by(monkeypatch):
    """Train an experiment, and return the bytes of all examples that it draws, in their order."""
    seen = []

    def recording(draw):
        def recorded(self, n_examples, generator, *, held_out):
            examples = draw(self, n_examples, generator, held_out=held_out)
            seen.append((held_out, examples.tokens.numpy().tobytes()))
            return examples

        return recorded

    def drawn(kind, **given):
        seen.clear()
        trained(tiny(kind, **given))
        return list(seen)

    for task in {Task, *(task for task in TASKS.values() if "draw" in vars(task))}:
        monkeypatch.setattr(task, "draw", recording(task.draw))
    return drawn


@every_kind
def test_pairing_of_data(kind, drawn_by):
    """Every sharing of a seed sees the same examples; two seeds share the probe alone.

    Both draw the same together and apart. The probe is held out, and every experiment shows it.
    """
    one, same, other = (
        drawn_by(kind, sharing=sharing, n_seeds=1, first_seed=seed)
        for sharing, seed in (("QKV", 0), ("Q=K=V", 0), ("QKV", 1))
    )
    assert len(one) >= 3
    assert same == one
    together = drawn_by(kind, sharing=["QKV", "K=V", "Q=K=V"], n_seeds=2)
    assert set(together) == {*one, *other}  # once per cohort
    shared = {*one} & {*other}
    assert shared
    assert all(held_out for held_out, _ in shared)
