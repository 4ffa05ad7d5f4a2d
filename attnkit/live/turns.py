"""Who trains and who waits, and how long: pure rules, no clock and no process.

Experiments are admitted in the order of asking, as far as memory allows; those admitted take
turns of equal time, so that many short ones do not wait for a long one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attnkit.server import ServerSettings

OVERTAKE_SECONDS = 60.0
"""What is too large to begin now may be overtaken by smaller ones for so long, then no more."""


@dataclass(frozen=True)
class Claim:
    """One experiment's claim to a turn.

    Attributes:
        visitor: who asked; empty: nobody whom limits concern.
        megabytes: estimated memory.
        seconds: estimated training time left, if it were alone.
        waited: seconds since it was asked for.
        paused: it holds memory and takes no turns.
    """

    id: str
    visitor: str
    megabytes: float
    seconds: float = 0.0
    waited: float = 0.0
    paused: bool = False


@dataclass(frozen=True)
class Outlook:
    """What a job may expect.

    Attributes:
        place: its place in the queue, from 1; 0: it trains.
        n_active: experiments that take turns now.
        begins: seconds until its turn comes. ends: seconds until it is finished.
    """

    place: int
    n_active: int
    begins: float
    ends: float


def admitted(
    waiting: Sequence[Claim], holding: Sequence[Claim], settings: ServerSettings
) -> list[Claim]:
    """Those that may begin now, in the order of asking.

    Args:
        waiting: in the order of asking. holding: what has begun and is not over.
    """
    n_active = sum(not claim.paused for claim in holding)
    megabytes = sum(claim.megabytes for claim in holding)
    of_visitor = Counter(claim.visitor for claim in holding)
    found: list[Claim] = []
    most = settings.max_active + settings.max_waiting  # of those that are paused, too
    for claim in waiting:
        if n_active >= settings.max_active or len(holding) + len(found) >= most:
            break
        if claim.visitor and of_visitor[claim.visitor] >= settings.visitor_active:
            continue  # it waits for its own visitor's, so nobody waits for it
        if megabytes and megabytes + claim.megabytes > settings.training_megabytes:
            if claim.waited > OVERTAKE_SECONDS:
                break
            continue
        found.append(claim)
        n_active += 1
        megabytes += claim.megabytes
        of_visitor[claim.visitor] += 1
    return found


def outlooks(
    waiting: Sequence[Claim], holding: Sequence[Claim], settings: ServerSettings
) -> dict[str, Outlook]:
    """What each may expect if nobody asks for anything any more and all goes as estimated."""
    n_active = sum(not claim.paused for claim in holding)
    places = {claim.id: number for number, claim in enumerate(waiting, 1)}
    queue, running = list(waiting), [claim for claim in holding if not claim.paused]
    paused = [claim for claim in holding if claim.paused]
    left = {claim.id: max(claim.seconds, 0.0) for claim in [*queue, *running]}
    begins = dict.fromkeys((claim.id for claim in running), 0.0)
    found: dict[str, Outlook] = {}
    now = 0.0
    while running or queue:
        for claim in admitted(queue, [*running, *paused], settings):
            begins[claim.id] = now
            running.append(claim)
            queue.remove(claim)
        if not running:  # what is paused is in the way: nobody knows for how long
            for claim in queue:
                found[claim.id] = Outlook(places[claim.id], n_active, float("inf"), float("inf"))
            break
        first = min(running, key=lambda claim: left[claim.id])
        passed = left[first.id]
        now += passed * len(running)
        for claim in running:
            left[claim.id] -= passed
        running.remove(first)
        found[first.id] = Outlook(places.get(first.id, 0), n_active, begins[first.id], now)
    return found
