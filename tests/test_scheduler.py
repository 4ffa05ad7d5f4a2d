"""Who trains and who waits: shares of addresses, memory, and equal turns."""

from itertools import count

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from searching import briefly

from attnkit.service.scheduler import (
    MOST_RATIO,
    OVERTAKE_SECONDS,
    Demand,
    admitted,
    displaced,
    outlooks,
)
from attnkit.service.server import ServerSettings

SETTINGS = ServerSettings(max_active=3, training_megabytes=100, visitor_active=1, visitor_waiting=1)

CLAIMS = st.builds(
    Demand,
    id=st.uuids().map(str),
    visitor=st.sampled_from(["", "Anna", "Bert", "Cleo"]),
    megabytes=st.floats(1, 150),
    seconds=st.floats(0, 1000),
    waited=st.floats(0, 200),
    paused=st.booleans(),
    address=st.sampled_from(["", "home", "school", "script"]),
)

HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})


def claims(*sizes, **others):
    """Claims of nobody, named a, b, c … of so many megabytes."""
    return [Demand(name, "", size, **others) for name, size in zip("abcdefg", sizes, strict=False)]


def ids(found):
    """The names of claims."""
    return "".join(claim.id for claim in found)


def test_the_first_to_ask_are_the_first_to_begin():
    """As many as may take turns."""
    assert ids(admitted(claims(1, 1, 1, 1), [], SETTINGS)) == "abc"


def test_what_is_larger_than_all_memory_begins_alone():
    """Otherwise it would wait for ever."""
    assert ids(admitted(claims(150, 1), [], SETTINGS)) == "a"
    assert not admitted(claims(150), [Demand("x", "", 1)], SETTINGS)


def test_small_ones_overtake_a_large_one_for_a_while():
    """Then all wait, so that its turn comes."""
    held = [Demand("x", "", 60)]
    assert ids(admitted(claims(50, 30), held, SETTINGS)) == "b"
    patient = claims(50, 30, waited=OVERTAKE_SECONDS + 1)
    assert not admitted(patient, held, SETTINGS)


def test_a_visitor_s_second_waits_for_their_first_and_for_nobody_else():
    """Others overtake it."""
    waiting = [Demand("a", "Anna", 1), Demand("b", "Bert", 1), Demand("c", "", 1)]
    assert ids(admitted(waiting, [Demand("x", "Anna", 1)], SETTINGS)) == "bc"


def test_what_is_paused_holds_memory_but_no_turn():
    """Three others take turns beside it."""
    held = [Demand("x", "", 60, paused=True)]
    assert ids(admitted(claims(10, 10, 10), held, SETTINGS)) == "abc"
    assert not admitted(claims(50), held, SETTINGS)


def test_equal_ones_that_take_turns_end_together():
    """Each has a third of the machine."""
    found = outlooks([], claims(1, 1, 1, seconds=10), SETTINGS)
    assert [round(outlook.ends) for outlook in found.values()] == [30, 30, 30]
    assert {outlook.place for outlook in found.values()} == {0}


def test_a_short_one_does_not_wait_for_a_long_one():
    """It ends after twice its time, the long one after the sum."""
    both = [Demand("long", "", 1, seconds=100), Demand("short", "", 1, seconds=5)]
    found = outlooks([], both, SETTINGS)
    assert (found["short"].ends, found["long"].ends) == (10, 105)


def test_who_waits_begins_when_the_first_ends():
    """Place and time are told."""
    holding = [Demand(name, "", 1, seconds=s) for name, s in (("x", 2), ("y", 4), ("z", 4))]
    found = outlooks(claims(1, 1, seconds=6), holding, SETTINGS)
    assert (found["a"].place, found["b"].place) == (1, 2)
    assert (found["a"].begins, found["b"].begins) == (6, 12)
    assert found["a"].n_active == 3


def test_nobody_knows_how_long_a_paused_one_is_in_the_way():
    """The wait is endless, not wrong."""
    paused = [Demand("x", "", 90, seconds=5, paused=True)]
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


# Addresses


def tabs(address, n, megabytes, seconds, **others):
    """Claims of as many visitors of one address."""
    names = [f"{address} {number}" for number in range(n)]
    return [Demand(x, x, megabytes, seconds, address=address, **others) for x in names]


def begin(waiting, holding=(), settings=HOSTED):
    """Return the claims that have begun once all that may begin has, and those that wait."""
    found = admitted(waiting, holding, settings)
    return [*holding, *found], [claim for claim in waiting if claim not in found]


LOADS = st.lists(
    st.builds(
        Demand,
        id=st.uuids().map(str),
        visitor=st.uuids().map(str),
        megabytes=st.floats(1, HOSTED.max_megabytes),
        seconds=st.floats(1, 600),
        waited=st.floats(0, 5000),
        address=st.just("script"),
    ),
    max_size=60,
)
"""All that one address may ask for, in any number of tabs."""


@briefly(50)
@given(LOADS, st.floats(0, 1))
def test_a_small_job_of_another_address_never_waits_for_a_script(load, part):
    """It begins at once, and ends within twice the time that it takes alone.

    Small is a quarter of what the address leaves: its largest experiment may be all that it has.
    """
    holding, waiting = begin(load)
    free = HOSTED.training_megabytes - sum(claim.megabytes for claim in holding)
    if len(holding) != 1:
        assert free >= HOSTED.training_megabytes / 4
    small = Demand("small", "Anna", part * min(free, 300), 5, address="home")
    found = outlooks([*waiting, small], holding, HOSTED)["small"]
    assert found.begins == 0
    assert found.ends <= 2 * small.seconds + 1e-6


def test_a_class_behind_one_router_trains_beside_a_script():
    """It has half of the time, though the script came first; most pupils begin at once."""
    holding, waiting = begin(tabs("script", 140, 240, 600, waited=1000))
    assert len(holding) == 3
    pupils = tabs("school", 30, 10, 5)
    found = outlooks([*waiting, *pupils], holding, HOSTED)
    assert sum(found[claim.id].begins == 0 for claim in pupils) >= 25
    assert max(found[claim.id].ends for claim in pupils) <= 2 * 30 * 5 + 1e-6


def test_a_class_alone_trains_at_once():
    """Thirty of the default experiment; two turns and a quarter of the memory stay free."""
    holding, waiting = begin(tabs("school", 33, 27, 5))
    assert (len(holding), len(waiting)) == (30, 3)


def test_the_next_to_begin_is_of_the_address_that_holds_least():
    """Whoever asked first."""
    holding = [*tabs("script", 1, 40, 50), *tabs("home", 1, 10, 50)]
    waiting = [
        Demand("c", "Cleo", 10, waited=9, address="script"),
        Demand("a", "Anna", 10, waited=1, address="home"),
    ]
    four_turns = SETTINGS.model_copy(update={"max_active": 4})
    assert ids(admitted(waiting, holding, four_turns)) == "a"


def test_a_small_one_overtakes_large_ones_of_its_address():
    """Once it has waited for a share of its own time as long as theirs."""
    waiting = tabs("school", 5, 10, 600, waited=300)
    small = Demand("small", "Anna", 10, 5, waited=2, address="school")
    one_turn = HOSTED.model_copy(update={"max_active": 1})
    assert small not in admitted([*waiting, small], [], one_turn)
    small.waited = 3
    assert admitted([*waiting, small], [], one_turn) == [small]


def test_a_large_one_is_overtaken_only_by_those_that_end_before_it_can_begin():
    """Memory for it is free when the longer of the two that train has ended."""
    holding = [Demand("x", "", 40, 20), Demand("y", "", 40, 100)]
    large = Demand("l", "", 90, 50, waited=OVERTAKE_SECONDS + 1)
    waiting = [large, Demand("a", "", 10, 99), Demand("b", "", 10, 100)]
    assert ids(admitted(waiting, holding, SETTINGS)) == "a"


def test_a_large_one_that_waits_for_its_own_address_is_in_nobody_else_s_way():
    """Others begin, however long they take; of its own address only what ends before."""
    holding, waiting = begin(tabs("script", 6, 240, 600, waited=OVERTAKE_SECONDS + 1))
    assert len(waiting) == 3
    other = tabs("home", 1, 240, 600)
    own = tabs("script", 1, 10, 600)
    assert admitted([*waiting, *own, *other], holding, HOSTED) == other


@given(st.lists(CLAIMS, min_size=1, max_size=8))
def test_something_trains_whenever_something_waits(waiting):
    """No rule leaves the machine idle."""
    assert admitted(waiting, [], SETTINGS)


def begins_after(claim, arrivals, settings):
    """The seconds after which a claim begins, if others arrive before it and in every second."""
    waiting = [other for second in range(-10, 0) for other in arrivals(second)] + [claim]
    holding = []
    for second in range(600):
        waiting += arrivals(second)
        holding, waiting = begin(waiting, holding, settings)
        if claim in holding:
            return second
        addresses = {other.address for other in holding}
        for other in holding:
            beside = sum(one.address == other.address for one in holding)
            other.seconds -= 1 / len(addresses) / beside
        for other in waiting:
            other.waited += 1
        holding = [other for other in holding if other.seconds > 0]
        waiting = waiting[-50:] if claim in waiting[-50:] else [claim, *waiting[-49:]]
    return None


@settings(briefly(10), phases=[Phase.explicit, Phase.generate])
@given(
    st.floats(1, 100),
    st.floats(1, 20),
    st.floats(5, 40),
    st.sampled_from(["home", "school", None]),
)
def test_nothing_starves(megabytes, seconds, size, address):
    """A large one begins though smaller ones arrive faster than they can train.

    At first they may overtake; then nothing does that would be in its way.
    """
    names = count()

    def arrivals(second):
        of = f"street {second}" if address is None else address
        return [Demand(f"{next(names)}", "", size, seconds, address=of)]

    settings = ServerSettings(max_active=4, training_megabytes=100)
    large = Demand("large", "", megabytes, 20, address="home")
    begins = begins_after(large, arrivals, settings)
    assert begins is not None
    assert begins <= max(OVERTAKE_SECONDS, MOST_RATIO * 20) + 4 * 4 * (seconds + 1)


def test_a_full_queue_takes_from_the_address_that_has_most():
    """The largest there, of equal ones the newest; and never from those who have few places."""
    waiting = [*tabs("script", 3, 10, 600), *tabs("school", 2, 10, 900)]
    waiting[1].seconds = 700
    assert displaced(waiting).id == "script 1"
    waiting[1].seconds = 600
    assert displaced(waiting).id == "script 2"


def test_a_class_and_a_script_have_as_many_places():
    """Whoever came first."""
    waiting = tabs("script", 100, 10, 600)
    for pupil in tabs("school", 70, 10, 600):
        waiting.append(pupil)
        waiting.remove(displaced(waiting))
    assert sum(claim.address == "school" for claim in waiting) == 50
