"""Short trainings on a CPU."""

from attnkit.training import Training


def trained(experiment, n_steps=None):
    """Return the result after `n_steps` steps, or after all steps of the experiment."""
    training = Training(experiment, "cpu")
    training.advance(experiment.training.steps if n_steps is None else n_steps)
    return training.result()
