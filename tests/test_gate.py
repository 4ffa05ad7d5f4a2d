"""The gate: what opens it, and how often anybody may try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.service.gate import DAY, FIRST_WAIT, LANE_SECONDS, LONGEST_DELAY, LONGEST_WAIT, Gate

SECRET = "correct horse"

HERE = "203.0.113.5"


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self):
        """The time."""
        return self.now

    def sleep(self, seconds):
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock():
    """A clock that stands still until it is set."""
    return Clock()


@pytest.fixture
def gate(clock):
    """A gate that nobody has tried."""
    return Gate(SECRET, clock, lambda seconds: None)


def test_opens_for_its_secret_only(clock):
    """Nothing before, after or beside it, in any alphabet; an empty secret is none."""
    for wrong in ("", "correct", "correct horse ", "CORRECT HORSE", "\ud800"):
        assert not Gate(SECRET).opens(wrong)
    assert not Gate("").opens("")
    for secret in (SECRET, "über-Ångström"):
        assert Gate(secret, clock, lambda seconds: None).opens(secret, HERE)


def test_a_wrong_secret_makes_its_address_wait(gate, clock):
    """Twice as long after each, even for the right secret, and at most ten minutes."""
    waits = []
    for _ in range(12):
        assert not gate.opens("wrong", HERE)
        waits.append(gate.shut_seconds(HERE))
        assert not gate.opens(SECRET, HERE)
        clock.now += waits[-1]
    assert waits[:4] == [2, 4, 8, 16]
    assert waits[-1] == LONGEST_WAIT
    assert gate.opens(SECRET, HERE)


def test_guesses_during_the_wait_do_not_lengthen_it_and_are_forgotten_after_a_day(gate, clock):
    """They are not looked at; the next one then costs no more than the first."""
    for _ in range(50):
        gate.opens("wrong", HERE)
    clock.now += DAY
    gate.opens("wrong", HERE)
    assert gate.shut_seconds(HERE) == FIRST_WAIT
    clock.now += FIRST_WAIT
    assert gate.opens(SECRET, HERE)


def test_a_right_one_forgives_those_before(gate, clock):
    """Whoever knows the secret did not guess."""
    for _ in range(3):
        assert not gate.opens("wrong", HERE)
        clock.now += gate.shut_seconds(HERE)
        assert gate.opens(SECRET, HERE)
        clock.now += LANE_SECONDS


def test_the_owner_gets_in_while_others_guess_at_full_speed(clock):
    """From an address that did not guess, within the seconds of one lane, at any moment."""
    gate = Gate(SECRET, clock, clock.sleep)
    guessers = [f"198.51.100.{number}" for number in range(100)]
    for number in range(100):
        for address in guessers:
            gate.opens("wrong", address)
        clock.now += LANE_SECONDS
        if number % 20 == 19:
            for address in guessers:
                gate.opens("wrong", address)
            began = clock.now
            assert gate.shut_seconds(f"192.0.2.{number}") == 0
            assert gate.opens(SECRET, f"192.0.2.{number}")
            assert clock.now - began <= LANE_SECONDS


def test_attempts_of_many_addresses_are_delayed_and_then_refused(clock):
    """The right secret among them too, so that the time of an answer tells nothing."""
    waits = []
    gate = Gate(SECRET, clock, waits.append)
    opened = [gate.opens(SECRET, f"192.0.2.{number}") for number in range(20)]
    assert opened == [True] * 11 + [False] * 9
    assert waits == list(range(11))
    assert gate.shut_seconds("203.0.113.9") == LANE_SECONDS


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=300))
def test_guesses_of_all_addresses_are_bounded(attempts):
    """Whoever guesses when: no more than the lanes let through are compared."""
    clock, answered = Clock(), []
    gate = Gate(SECRET, clock, answered.append)
    for address, seconds in attempts:
        gate.opens("wrong", str(address))
        clock.now += seconds
    passed = clock.now - Clock.now
    assert len(answered) <= 2 * ((passed + LONGEST_DELAY) / LANE_SECONDS + 1)
    assert all(wait <= LONGEST_DELAY for wait in answered)


def test_an_hour_of_guesses_from_one_address_is_few(gate, clock):
    """A dozen, however fast somebody tries."""
    compared = 0
    for _ in range(7_200):
        clock.now += 0.5
        compared += gate.shut_seconds(HERE) == 0
        gate.opens("wrong", HERE)
    assert compared <= 15


def test_addresses_that_are_remembered_are_bounded(gate, clock, monkeypatch):
    """The one that was wrong longest ago is forgotten first."""
    monkeypatch.setattr("attnkit.service.gate.MOST_ADDRESSES", 2)
    for address in "abc":
        gate.opens("wrong", address)
    assert [gate.shut_seconds(address) > 0 for address in "abc"] == [False, True, True]
