"""Who trains and who waits: shares of addresses, memory, equal turns."""

from collections import Counter

import pytest
from hypothesis import given
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
HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})
LONG, EVER = OVERTAKE_SECONDS + 1, float("inf")


def d(name, megabytes=1, seconds=0.0, waited=0.0, visitor="", **others):
    """A demand, of nobody unless a visitor is given."""
    return Demand(name, visitor, megabytes, seconds, waited, **others)


def several(texts):
    """Return demands such as "name:megabytes,seconds,waited@address", or with a + if paused."""
    demands = []
    for text in texts.split():
        name, _, rest = text.rstrip("+").partition(":")
        numbers, _, address = rest.partition("@")
        numbers = [float(number) for number in numbers.split(",") if number]
        demands.append(d(name, *numbers, paused=text.endswith("+"), address=address))
    return demands


ADMITTED = [
    ("the first to ask begin, as many as may take turns", "abc", "a b c d", ""),
    ("what is larger than all memory begins", "a", "a:150 b", ""),
    ("but alone", "", "a:150", "x"),
    ("small ones overtake a large one", "b", "a:50 b:30", "x:60"),
    ("for a while", "", f"a:50,0,{LONG} b:30,0,{LONG}", "x:60"),
    ("what is paused takes no turn", "abc", "a:10 b:10 c:10", "x:60+"),
    ("but memory", "", "a:50", "x:60+"),
    ("who holds least is next", "a", "c:9,0,9@script a:9,0,1@home", "x:40,9@script y:10,9@home"),
]


def test_demands_begin_by_the_rules():
    """Each rule alone, on demands that it decides; where addresses meet, one more turn is free."""
    for rule, expected, waiting, holding in ADMITTED:
        limits = SETTINGS.model_copy(update={"max_active": 4 if "@" in waiting else 3})
        found = admitted(several(waiting), several(holding), limits)
        assert "".join(demand.id for demand in found) == expected, rule
    waiting = [d("a", visitor="Anna"), d("b", visitor="Bert"), d("c")]
    found = admitted(waiting, [d("x", visitor="Anna")], SETTINGS)
    assert found == waiting[1:]  # a visitor's second waits for their first, and nobody for it


@pytest.mark.parametrize(
    ("waiting", "holding", "expected"),
    [
        ("", "l:1,100 s:1,5", {"l": (0, 0, 105), "s": (0, 0, 10)}),
        (
            "a:1,6 b:1,6",
            "x:1,2 y:1,4 z:1,4",
            {"x": (0, 0, 6), "y": (0, 0, 12), "z": (0, 0, 12), "a": (1, 6, 20), "b": (2, 12, 22)},
        ),
        ("a:50,5", "x:90,5+", {"a": (1, EVER, EVER)}),
    ],
)
def test_places_and_times_are_told(waiting, holding, expected):
    """Place, begin and end by hand: turns are equal; nobody knows how long a pause is."""
    found = outlooks(several(waiting), several(holding), SETTINGS)
    n_active = sum(not demand.paused for demand in several(holding))
    assert {outlook.n_active for outlook in found.values()} == {n_active}
    assert {n: (each.place, each.begins, each.ends) for n, each in found.items()} == expected


def demands(most, **fields):
    """Return a strategy for at most so many demands."""
    drawn = {
        "id": st.uuids().map(str),
        "visitor": st.sampled_from(["", "Anna", "Bert", "Cleo"]),
        "megabytes": st.floats(1, 150),
        "seconds": st.floats(0, 1000),
        "waited": st.floats(0, 200),
        "paused": st.booleans(),
        "address": st.sampled_from(["", "home", "school", "script"]),
    }
    return st.lists(st.builds(Demand, **{**drawn, **fields}), max_size=most)


@given(demands(8), demands(8))
def test_limits_hold_whatever_is_asked_and_everybody_has_an_outlook(waiting, holding):
    """Turns and memory are never exceeded, no rule leaves the machine idle, all ends are told."""
    found = admitted(waiting, holding, SETTINGS)
    assert found == [demand for demand in waiting if demand in found]
    assert found or holding or not waiting
    together = [*holding, *found]
    alone = len(found) == 1 and not holding
    if found and not alone:
        assert sum(demand.megabytes for demand in together) <= SETTINGS.training_megabytes
        active = sum(not demand.paused for demand in together)
        assert active <= SETTINGS.max_active + sum(demand.paused for demand in found)
    told = outlooks(waiting, holding, SETTINGS)
    assert told.keys() == {d.id for d in waiting} | {d.id for d in holding if not d.paused}
    assert all(0 <= outlook.begins <= outlook.ends for outlook in told.values())


def tabs(address, n, seconds, megabytes=10):
    """Demands of as many visitors of one address."""
    names = [f"{address} {number}" for number in range(n)]
    return [d(x, megabytes, seconds, visitor=x, address=address) for x in names]


OF_SCRIPT = {"visitor": st.uuids().map(str), "paused": st.just(False), "address": st.just("script")}


@briefly(50)
@given(demands(60, **OF_SCRIPT), st.floats(0, 1))
def test_a_small_job_of_another_address_never_waits_for_a_script(load, part):
    """A small one takes a quarter of what the script leaves, which may have but one large."""
    holding = admitted(load, [], HOSTED)
    waiting = [demand for demand in load if demand not in holding]
    free = HOSTED.training_megabytes - sum(demand.megabytes for demand in holding)
    assert len(holding) == 1 or free >= HOSTED.training_megabytes / 4
    small = d("small", part * min(free, 300), 5, visitor="Anna", address="home")
    found = outlooks([*waiting, small], holding, HOSTED)["small"]
    assert found.begins == 0
    assert found.ends <= 2 * small.seconds + 1e-6


@briefly(10)
@given(st.floats(1, 100), st.floats(1, 20), st.floats(5, 40), st.sampled_from(["home", None]))
def test_nothing_starves(megabytes, seconds, size, address):
    """A large one begins though smaller ones arrive in every second, from anywhere."""
    limits = ServerSettings(max_active=4, training_megabytes=100)
    large = d("large", megabytes, 20, address="home")
    latest = max(OVERTAKE_SECONDS, MOST_RATIO * 20) + 4 * 4 * (seconds + 1)
    waiting, holding = [], []
    for now in range(int(latest) + 11):
        waiting += [d(f"{now}", size, seconds, address=address or f"street {now}")]
        waiting += [large] * (now == 10)
        begun = admitted(waiting, holding, limits)
        if large in begun:
            return
        holding += begun
        addresses = Counter(other.address for other in holding)
        for other in holding:
            other.seconds -= 1 / len(addresses) / addresses[other.address]
        holding = [other for other in holding if other.seconds > 0]
        newest = waiting[-50:]
        waiting = [o for o in waiting if o not in begun and (o is large or o in newest)]
        for other in waiting:
            other.waited += 1
    raise AssertionError


def test_a_full_queue_takes_from_the_address_that_has_most():
    """The largest there, of equal ones the newest; so a class and a script share the places."""
    assert len(admitted(tabs("school", 33, 5, megabytes=27), [], HOSTED)) == 30
    waiting = [*tabs("script", 3, 600), *tabs("school", 2, 900)]
    assert displaced(waiting).id == "script 2"
    waiting[1].seconds = 700
    assert displaced(waiting).id == "script 1"
    waiting = tabs("script", 100, 600)
    for pupil in tabs("school", 70, 600):
        waiting.append(pupil)
        waiting.remove(displaced(waiting))
    assert sum(demand.address == "school" for demand in waiting) == 50
