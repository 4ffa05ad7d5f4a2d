"""The gate: what opens it, and how often anybody may try."""

import pytest

from attnkit.gate import MOST_WRONG, WINDOW_SECONDS, Gate

SECRET = "correct horse"


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self):
        """The time."""
        return self.now


@pytest.fixture
def clock():
    """A clock that stands still until it is set."""
    return Clock()


@pytest.fixture
def gate(clock):
    """A gate that nobody has tried."""
    return Gate(SECRET, clock)


def try_wrong(gate, times):
    """Try a wrong secret so often."""
    for number in range(times):
        assert not gate.opens(f"wrong {number}")


def test_opens_for_its_secret_only(gate):
    """Nothing before, after or beside it."""
    for wrong in ("", "correct", "correct horse ", "CORRECT HORSE", "\ud800"):
        assert not Gate(SECRET).opens(wrong)
    assert gate.opens(SECRET)


def test_without_a_secret_nothing_opens_it():
    """An empty secret is none."""
    assert not Gate("").opens("")


def test_secrets_of_any_alphabet_open(clock):
    """Comparison is by bytes."""
    assert Gate("über-Ångström", clock).opens("über-Ångström")


def test_too_many_wrong_ones_shut_it_for_everybody(gate, clock):
    """Also for the right one, and for as long as the window."""
    try_wrong(gate, MOST_WRONG)
    assert not gate.opens(SECRET)
    clock.now += WINDOW_SECONDS - 1
    assert gate.shut_seconds == pytest.approx(1)
    assert not gate.opens(SECRET)
    clock.now += 1
    assert gate.shut_seconds == 0
    assert gate.opens(SECRET)


def test_trying_while_it_is_shut_does_not_lengthen_the_wait(gate, clock):
    """The owner gets in a minute after the last wrong one that counted."""
    try_wrong(gate, MOST_WRONG + 20)
    clock.now += WINDOW_SECONDS
    assert gate.opens(SECRET)


def test_few_wrong_ones_leave_it_open(gate):
    """A slip of the finger costs nothing."""
    try_wrong(gate, MOST_WRONG - 1)
    assert gate.opens(SECRET)


def test_a_right_one_forgives_those_before(gate):
    """Whoever knows the secret did not guess."""
    try_wrong(gate, MOST_WRONG - 1)
    assert gate.opens(SECRET)
    try_wrong(gate, MOST_WRONG - 1)
    assert gate.opens(SECRET)


def test_wrong_ones_far_apart_do_not_shut_it(gate, clock):
    """Only so many within the window do."""
    for _ in range(4 * MOST_WRONG):
        try_wrong(gate, 1)
        clock.now += WINDOW_SECONDS / (MOST_WRONG - 2)
    assert gate.opens(SECRET)


def test_guesses_in_an_hour_are_few(gate, clock):
    """However fast somebody tries: the secrets compared are counted."""
    compared = 0
    for _ in range(3600):
        clock.now += 1
        for _ in range(10):
            compared += gate.shut_seconds == 0
            gate.opens("wrong")
    assert compared <= 60 * MOST_WRONG
