"""Fair shares of processor time, with work of drawn lengths."""

import random

import pytest

from attnkit.service.fair_shares import FairShares, NestedShares


def test_work_of_any_length_is_shared_equally(seed):
    """Nobody who waits all the time falls behind another by more than two pieces of work."""
    draw, shares = random.Random(seed), FairShares()
    longest = {"builds": 2.0, "inspects": 0.5, "trains": 0.1}
    used = dict.fromkeys(longest, 0.0)
    for _ in range(2000):
        name = shares.next(used)
        seconds = draw.uniform(0.0, longest[name])
        shares.charge(name, seconds)
        used[name] += seconds
        assert max(used.values()) - min(used.values()) <= 2 * max(longest.values())


def test_a_newcomer_enters_level_and_nobody_gains_by_leaving():
    """Hours alone are no debt, hours away no credit, and a piece of work is not forgotten."""
    shares = FairShares()
    for _ in range(100):
        assert shares.next(["alone"]) == "alone"
        shares.charge("alone", 10.0)
    order = []
    for _ in range(100):
        order.append(shares.next(["alone", "newcomer"]))
        shares.charge(order[-1], 1.0)
    assert 45 <= order.count("newcomer") <= 60
    used = {"stays": 0.0, "leaves": 0.0}
    for turn in range(200):
        waiting = ["stays", "leaves"] if turn % 2 else ["stays"]
        name = shares.next(waiting)
        seconds = 5.0 if name == "leaves" else 0.5
        shares.charge(name, seconds)
        used[name] += seconds
    assert used["leaves"] <= used["stays"] + 10.0


def test_addresses_share_first_and_their_members_then(seed):
    """An address with many tabs receives as much as one with a single tab."""
    draw, shares = random.Random(seed), NestedShares()
    waiting = [("class", f"tab {number}") for number in range(9)] + [("home", "tab")]
    used = dict.fromkeys(waiting, 0.0)
    for _ in range(4000):
        key = shares.next(waiting)
        seconds = draw.uniform(0.1, 0.3)
        shares.charge(key, seconds)
        used[key] += seconds
    home = used.pop(("home", "tab"))
    assert home == pytest.approx(sum(used.values()), rel=0.02)
    assert max(used.values()) == pytest.approx(min(used.values()), rel=0.1)


def test_answers_have_half_of_an_address_beside_any_number_of_trainings(seed):
    """Whoever looks inside a run does not wait until the whole class has trained."""
    draw, shares = random.Random(seed), NestedShares()
    trainings = [("class", "trainings", f"{number}") for number in range(draw.randint(2, 30))]
    answers = [("class", "answers", f"{number}") for number in range(draw.randint(1, 5))]
    used = dict.fromkeys([*trainings, *answers], 0.0)
    for _ in range(4000):
        path = shares.next(used)
        shares.charge(path, 0.1)
        used[path] += 0.1
    assert sum(used[path] for path in answers) == pytest.approx(200.0, rel=0.05)
