"""How many examples searches draw: as many as tests say, or many times as many at night."""

from hypothesis import HealthCheck, settings

_USUAL = 100
"""Examples of a property that does not say how many it needs."""

_times = 1


def set_size(times):
    """Let all searches draw so many times as many examples; called before tests are read."""
    global _times
    _times = times
    size = times * _USUAL
    settings.register_profile(
        "attnkit",
        deadline=None,
        max_examples=size,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # the machine may be busy
    )
    settings.load_profile("attnkit")


def times(n_examples):
    """Return how many examples to draw where a quick run draws `n_examples`."""
    return _times * n_examples


def briefly(n_examples):
    """Return settings of Hypothesis for an expensive property that draws few examples."""
    return settings(max_examples=times(n_examples))
