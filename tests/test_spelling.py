"""Suggestions for misspelt names."""

import difflib
import random

from random_links import NAMES, misspelt
from searching import times

from attnkit.foundation.spelling import nearest_name


def test_a_slip_is_recognised_as_difflib_does(seed):
    """One letter left out, doubled or wrong: the name itself, or one that is as similar."""
    rng = random.Random(seed)
    for _ in range(times(200)):
        typed = misspelt(rng, rng.choice(NAMES))
        (expected,) = difflib.get_close_matches(typed, NAMES, 1, 0.0)
        similarity = difflib.SequenceMatcher(None, expected, typed).ratio()
        assert nearest_name(typed, NAMES) == (expected if similarity >= 0.6 else None), typed


def test_what_is_like_no_name_gets_no_suggestion():
    """Also nothing, and long texts with the letters of all names."""
    for typed in ("", "utm", "ξένος", "".join(NAMES), "z" * 200):
        assert nearest_name(typed, NAMES) is None, typed
    assert nearest_name("steps", []) is None
