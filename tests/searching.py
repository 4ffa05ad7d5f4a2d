"""How long Hypothesis searches in expensive tests: briefly, and ten times as long with `--long`."""

from hypothesis import settings


def briefly(n_examples):
    """Return settings with so many examples, or ten times as many when all tests run."""
    if settings.get_current_profile_name() == "long":
        n_examples *= 10
    return settings(max_examples=n_examples)
