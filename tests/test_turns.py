"""Who trains and who waits: the order of asking, memory, and equal turns."""

from hypothesis import given
from hypothesis import strategies as st

from attnkit.live.turns import OVERTAKE_SECONDS, Claim, admitted, outlooks
from attnkit.server import ServerSettings

SETTINGS = ServerSettings(max_active=3, training_megabytes=100, visitor_active=1, visitor_waiting=1)

CLAIMS = st.builds(
    Claim,
    id=st.uuids().map(str),
    visitor=st.sampled_from(["", "Anna", "Bert", "Cleo"]),
    megabytes=st.floats(1, 150),
    seconds=st.floats(0, 1000),
    waited=st.floats(0, 200),
    paused=st.booleans(),
)


def claims(*sizes, **others):
    """Claims of nobody, named a, b, c … of so many megabytes."""
    return [Claim(name, "", size, **others) for name, size in zip("abcdefg", sizes, strict=False)]


def ids(found):
    """The names of claims."""
    return "".join(claim.id for claim in found)


def test_the_first_to_ask_are_the_first_to_begin():
    """As many as may take turns."""
    assert ids(admitted(claims(1, 1, 1, 1), [], SETTINGS)) == "abc"


def test_what_is_larger_than_all_memory_begins_alone():
    """Otherwise it would wait for ever."""
    assert ids(admitted(claims(150, 1), [], SETTINGS)) == "a"
    assert not admitted(claims(150), [Claim("x", "", 1)], SETTINGS)


def test_small_ones_overtake_a_large_one_for_a_while():
    """Then all wait, so that its turn comes."""
    held = [Claim("x", "", 60)]
    assert ids(admitted(claims(50, 30), held, SETTINGS)) == "b"
    patient = claims(50, 30, waited=OVERTAKE_SECONDS + 1)
    assert not admitted(patient, held, SETTINGS)


def test_a_visitor_s_second_waits_for_their_first_and_for_nobody_else():
    """Others overtake it."""
    waiting = [Claim("a", "Anna", 1), Claim("b", "Bert", 1), Claim("c", "", 1)]
    assert ids(admitted(waiting, [Claim("x", "Anna", 1)], SETTINGS)) == "bc"


def test_what_is_paused_holds_memory_but_no_turn():
    """Three others take turns beside it."""
    held = [Claim("x", "", 60, paused=True)]
    assert ids(admitted(claims(10, 10, 10), held, SETTINGS)) == "abc"
    assert not admitted(claims(50), held, SETTINGS)


def test_equal_ones_that_take_turns_end_together():
    """Each has a third of the machine."""
    found = outlooks([], claims(1, 1, 1, seconds=10), SETTINGS)
    assert [round(outlook.ends) for outlook in found.values()] == [30, 30, 30]
    assert {outlook.place for outlook in found.values()} == {0}


def test_a_short_one_does_not_wait_for_a_long_one():
    """It ends after twice its time, the long one after the sum."""
    both = [Claim("long", "", 1, seconds=100), Claim("short", "", 1, seconds=5)]
    found = outlooks([], both, SETTINGS)
    assert (found["short"].ends, found["long"].ends) == (10, 105)


def test_who_waits_begins_when_the_first_ends():
    """Place and time are told."""
    holding = [Claim(name, "", 1, seconds=s) for name, s in (("x", 2), ("y", 4), ("z", 4))]
    found = outlooks(claims(1, 1, seconds=6), holding, SETTINGS)
    assert (found["a"].place, found["b"].place) == (1, 2)
    assert (found["a"].begins, found["b"].begins) == (6, 12)
    assert found["a"].n_active == 3


def test_nobody_knows_how_long_a_paused_one_is_in_the_way():
    """The wait is endless, not wrong."""
    paused = [Claim("x", "", 90, seconds=5, paused=True)]
    assert outlooks(claims(50), paused, SETTINGS)["a"].begins == float("inf")


@given(st.lists(CLAIMS, max_size=8), st.lists(CLAIMS, max_size=8))
def test_limits_hold_whatever_is_asked(waiting, holding):
    """Turns, memory and visitors' shares are never exceeded by those who begin."""
    found = admitted(waiting, holding, SETTINGS)
    active = [claim for claim in [*holding, *found] if not claim.paused]
    assert len(found) == 0 or len(active) <= max(
        SETTINGS.max_active + sum(claim.paused for claim in found), 1
    )
    megabytes = sum(claim.megabytes for claim in [*holding, *found])
    alone = len(found) == 1 and not holding
    assert not found or alone or megabytes <= SETTINGS.training_megabytes
    assert found == [claim for claim in waiting if claim in found]


@given(st.lists(CLAIMS, max_size=8), st.lists(CLAIMS, max_size=8))
def test_everybody_who_waits_or_trains_has_an_outlook(waiting, holding):
    """Nobody ends before they begin, and all ends are told."""
    found = outlooks(waiting, holding, SETTINGS)
    expected = {claim.id for claim in waiting} | {c.id for c in holding if not c.paused}
    assert found.keys() == expected
    assert all(0 <= outlook.begins <= outlook.ends for outlook in found.values())
