"""The gate: what opens it, and how often anybody may try."""

from hypothesis import given
from hypothesis import strategies as st

from attnkit.service.gate import DAY, FIRST_WAIT, LANE_SECONDS, LONGEST_DELAY, Gate

SECRET, HERE = "correct horse", "203.0.113.5"


class Timed(Gate):
    """A gate whose clock a test sets; attempts come one after the other, or all at once."""

    def __init__(self, secret=SECRET, *, at_once=True):
        self.now, self.delays = 1000.0, []

        def sleep(seconds):
            self.delays.append(seconds)
            self.now += 0 if at_once else seconds

        super().__init__(secret, lambda: self.now, sleep)


def test_opens_for_its_secret_only():
    """Nothing before, after or beside it, in any alphabet; an empty secret is none."""
    for wrong in ("", "correct", "correct horse ", "CORRECT HORSE", "\ud800"):
        assert not Timed().opens(wrong)
    assert not Timed("").opens("")
    for secret in (SECRET, "über-Ångström"):
        assert Timed(secret).opens(secret, HERE)


def test_a_wrong_secret_makes_its_address_wait():
    """Twice as long after each, at most ten minutes; the right secret and a day forgive."""
    gate, waits = Timed(), []
    for _ in range(12):
        assert not gate.opens("wrong", HERE)
        waits.append(gate.shut_seconds(HERE))
        assert not any([gate.opens("wrong", HERE), gate.opens(SECRET, HERE)])
        gate.now += waits[-1]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]
    assert gate.opens(SECRET, HERE)
    for seconds in (LANE_SECONDS, DAY):
        gate.now += seconds
        assert not gate.opens("wrong", HERE)
        assert gate.shut_seconds(HERE) == FIRST_WAIT


def test_the_owner_gets_in_while_others_guess_at_full_speed():
    """From an address that did not guess, within the seconds of one lane, at any moment."""
    gate = Timed(at_once=False)
    for number in range(100):
        for guesser in range(100):
            gate.opens("wrong", f"198.51.100.{guesser}")
        if number % 20 == 19:
            assert gate.shut_seconds(f"192.0.2.{number}") == 0
            assert gate.opens(SECRET, f"192.0.2.{number}")
            assert gate.delays[-1] <= LANE_SECONDS
        gate.now += LANE_SECONDS


def test_attempts_of_many_addresses_are_delayed_and_then_refused():
    """The right secret among them too, so that the time of an answer tells nothing."""
    gate = Timed()
    opened = [gate.opens(SECRET, f"192.0.2.{number}") for number in range(20)]
    assert opened == [True] * 11 + [False] * 9
    assert gate.delays == list(range(11))
    assert gate.shut_seconds("203.0.113.9") == LANE_SECONDS


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=300))
def test_guesses_of_all_addresses_are_bounded(attempts):
    """Whoever guesses when: no more than the lanes let through are compared."""
    gate = Timed()
    for address, seconds in attempts:
        gate.opens("wrong", str(address))
        gate.now += seconds
    passed = gate.now - 1000.0
    assert len(gate.delays) <= 2 * ((passed + LONGEST_DELAY) / LANE_SECONDS + 1)
    assert all(delay <= LONGEST_DELAY for delay in gate.delays)


def test_addresses_that_are_remembered_are_bounded(monkeypatch):
    """The one that was wrong longest ago is forgotten first."""
    monkeypatch.setattr("attnkit.service.gate.MOST_ADDRESSES", 2)
    gate = Timed()
    for address in "abc":
        gate.opens("wrong", address)
    assert [gate.shut_seconds(address) > 0 for address in "abc"] == [False, True, True]
