"""Determinism: the same experiment gives the same bits.

Bits are compared on a CPU, as bytes: equal numbers that were rounded differently do not pass.
"""

import torch
from kinds import tiny
from random_experiments import TINY
from trained_runs import all_bits, every_kind, trained

from attnkit.experiment.experiment import Experiment, from_text
from attnkit.training import Training, stream
from attnkit.training import training as training_module


@every_kind
def test_an_experiment_trains_to_the_same_bits_again(kind):
    """Also read from its link or JSON, and whatever the global seed of torch is."""
    experiment = tiny(
        kind, n_layers=2, steps=6, sharing=["Q=K", "QKV tie=K=V"], schedule="cosine", clip=0.25
    )
    expected = all_bits(trained(experiment))
    for seed, text in enumerate((experiment.to_text(), experiment.to_json())):
        torch.manual_seed(seed)
        assert all_bits(trained(from_text(text))) == expected


@every_kind
def test_bits_do_not_depend_on_the_threads_of_torch(kind, threads):
    """A lone run of default size has the same bits with one and with two threads."""
    found = []
    for n_threads in (1, 2):
        threads(n_threads)
        lone = Experiment(task=kind, sharing="QKV", n_seeds=1, n_eval=64)
        found.append(all_bits(trained(lone, 3)))
    assert found[0] == found[1]


def test_bits_do_not_depend_on_the_number_of_workers(monkeypatch):
    """Cohorts have the same bits one after another and at the same time."""
    experiment = Experiment(n_seeds=5, steps=20, **TINY)
    expected = all_bits(trained(experiment))
    for n_workers in (1, 2, 5):
        monkeypatch.setattr(training_module, "n_cores", lambda n=n_workers: n)
        assert all_bits(trained(experiment)) == expected


@every_kind
def test_looking_changes_no_number(kind):
    """Snapshots at every step, streaming, and one long advance end in the same bits.

    Weights do not depend on the number of evaluations either.
    """
    experiment = tiny(kind, steps=10, evaluate_every=4)
    expected = trained(experiment)
    watched = Training(experiment, "cpu")
    while not watched.finished:
        watched.advance(1)
        watched.snapshot()
    assert all_bits(watched.result()) == all_bits(expected)
    *_, last = stream(experiment, "cpu")
    assert last.eval_steps.tolist() == expected.snapshot.eval_steps.tolist()
    for name, values in last.history.items():
        assert values.tobytes() == expected.snapshot.history[name].tobytes()
    often = trained(experiment.replace(evaluate_every=1))
    for one, other in zip(often.parameters, expected.parameters, strict=True):
        assert all(one[name].tobytes() == other[name].tobytes() for name in other)
