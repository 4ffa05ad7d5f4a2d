"""Fields of settings: texts, bounds, and errors about two of them."""

from random_tasks import limits

from attnkit.foundation.settings import dial, disagreement


def test_a_disagreement_names_its_fields():
    """A disagreement names the field, its value, what is allowed, and the other field."""
    error = disagreement("n_entries", 9, "at most n_names (8)", "n_names")
    assert error.message() == "n_entries: got 9, allowed at most n_names (8)"
    assert error.context["others"] == ("n_names",)


def test_a_dial_carries_its_text():
    """The default, label, help and bounds of a dial are read from its field."""
    info = dial(3, "Label", "Help.", ge=2, le=5)
    assert (info.default, info.title, info.description) == (3, "Label", "Help.")
    assert limits(info) == {"ge": 2, "le": 5}
