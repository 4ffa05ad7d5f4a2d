"""The longer test: a model's accuracy on examples that are longer than those of its training."""

import numpy as np
import pytest
import torch
from kinds import tiny
from same import assert_same

from attnkit.claims.measures import MEASURES
from attnkit.experiment import Experiment
from attnkit.experiment.longer_test import longer_experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.model import Model
from attnkit.sweeps import Sweep
from attnkit.sweeps.values import InvalidSweep
from attnkit.tasks import TASKS
from attnkit.training.data import held_out_examples
from attnkit.training.metrics import accuracy
from attnkit.training.training import Training

# Sizes of which twice as many are possible, where those of the default are too large.
SHORT = {"mutual": {"n_entries": 4}, "neighbours": {"n_asking": 3}, "dual_role": {"n_circles": 2}}

CPU = torch.device("cpu")

TIMES = 2

SHARING = ["QKV d_k=6", "Q=K positions=rope", "QKV n_heads=2 positions=alibi", "QKV tie=K=V"]


def asked_of_six(**given):
    """A phone book of three names of seven, tested on six, in which widths are made equal."""
    sizes = {"n_entries": 3, "n_names": 7, "n_eval": 48, "d_head": 8, "equal": "multiply_adds"}
    return tiny("phonebook", **{"sharing": SHARING, "longer_test": TIMES, **sizes, **given})


def trained(experiment, engine="kernel"):
    """Train an experiment to its last step."""
    training = Training(experiment, "cpu", engine)
    training.advance(experiment.training.steps)
    return training


def problem_of(**given):
    """Return the only problem of wrong settings."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**given)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("task", TASKS)
def test_longer_examples_have_the_same_vocabulary(task):
    """Every length is multiplied; a task without lengths refuses the longer test."""
    lengths = TASKS[task].lengths
    given = {"task": task, "positions": "none", "longer_test": TIMES}
    if not lengths:
        assert problem_of(**given).allowed == "1: all examples have one length here"
        return
    experiment = Experiment(**given, **SHORT.get(task, {}))
    longer = longer_experiment(experiment)
    assert {name: getattr(longer.task, name) for name in lengths} == {
        name: TIMES * getattr(experiment.task, name) for name in lengths
    }
    assert longer.task.n_ctx > experiment.task.n_ctx
    for name in ("d_vocab", "n_classes", "n_fields"):
        assert getattr(longer.task, name) == getattr(experiment.task, name)
    n_tokens = experiment.training.n_eval * experiment.task.n_ctx
    assert longer.training.n_eval * longer.task.n_ctx <= 1.2 * n_tokens


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_longer_test_is_the_accuracy_of_the_same_weights(engine):
    """Compared with a model that is made for the longer examples; it changes nothing else."""
    training = trained(asked_of_six(), engine)
    snapshot, parameters = training.snapshot(), training.result().parameters
    experiment = training.experiment.replace(longer_test=1, equal="nothing", n_entries=6)
    for run, (variant, seed) in enumerate(training.experiment.runs):
        adjusted = training.experiment.adjusted(variant).size
        alone = experiment.replace(
            sharing=[variant.stages[-1]], n_seeds=1, first_seed=seed, n_eval=16
        ).replace(d_head=adjusted.d_head, d_mlp=adjusted.d_mlp)
        model = Model(alone, [seed], CPU, drawn=False)
        for name, value in model.run_parameters(0).items():
            value.copy_(torch.tensor(parameters[run][name]))
        examples = held_out_examples(alone, [seed], CPU)
        expected = accuracy(model.logits(examples.tokens), examples.labels)
        assert snapshot.latest("longer_accuracy")[run] == pytest.approx(float(expected[0]))
    latest, last = snapshot.latest("longer_accuracy"), training.experiment.training.steps
    read = MEASURES["longest_accuracy"].read  # of what was tested on longer examples, or not
    np.testing.assert_array_equal(read(snapshot, last), latest.astype(float))
    plain = trained(asked_of_six(longer_test=1), engine)
    accuracy_of_all = plain.snapshot().latest("accuracy").astype(float)
    np.testing.assert_array_equal(read(plain.snapshot(), last), accuracy_of_all)
    # Weights and all other metrics have the same bits as without; alone, a run has its numbers.
    with_test, without = training, plain
    assert_same(with_test.result().parameters, without.result().parameters)
    history, expected = (dict(one.snapshot().history) for one in (with_test, without))
    assert np.isnan(expected.pop("longer_accuracy")).all()
    longer = history.pop("longer_accuracy")
    assert_same(history, expected)
    alone = trained(asked_of_six(sharing=SHARING[-1:], n_seeds=1, equal="nothing"), engine)
    beside = trained(asked_of_six(equal="nothing"), engine)
    run = beside.experiment.runs.index((SHARING[-1], 0))
    found = alone.snapshot().history["longer_accuracy"][:, 0]
    np.testing.assert_array_equal(found, beside.snapshot().history["longer_accuracy"][:, run])
    assert longer.shape == history["accuracy"].shape


def test_what_is_too_long_is_named():
    """Learned positions, a setting that would be too large, and a longer test of a sweep."""
    for name in ("learned", "relative", "key_bias", "learned_plus"):
        for given in ({"positions": name}, {"sharing": ["QKV", f"QKV positions={name}"]}):
            problem = problem_of(task="phonebook", longer_test=2, **given)
            assert problem.field == "longer_test"
            assert f"positions={name}" in problem.allowed
    mqar = {"task": "mqar", "positions": "rope"}
    large = {"n_tokens": 256, "n_pairs": 16, "length": 128, "n_heads": 8, "n_seeds": 40}
    for given, named in (
        ({"task": "phonebook", "longer_test": 8}, "n_entries would be 64"),
        ({"task": "phonebook", "longer_test": 4, "n_names": 31}, "n_entries would be 32"),
        ({**mqar, "n_pairs": 6, "longer_test": 6}, "n_pairs would"),
        ({**mqar, **large, "longer_test": 4, "n_eval": 2048}, "n_seeds would be 40"),
    ):
        problem = problem_of(**given)
        assert problem.field == "longer_test"
        assert named in problem.allowed
    with pytest.raises(InvalidSweep, match="longer_test"):
        Sweep(base={"task": "phonebook", "longer_test": 2})
    # So the hashes of cells stay those of earlier versions.
    assert Sweep(base={"task": "phonebook"}).cell_hashes()[0, 0] == b"26a31f89fb177cfd"
