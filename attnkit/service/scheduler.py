"""Rules for who trains, who waits, and for how long: no clock and no process.

Experiments train in turns, and three things are scarce: turns, memory and places to wait. They are
shared over addresses first, because one script opens any number of tabs but has one address, while
a whole class may have one, too. Four known schemes do that:

- Dominant resource fairness (Ghodsi et al., 2011): the next to begin is of the address that holds
  the smallest share of what is scarce. Addresses also take turns with each other, so that each has
  an equal part of the time in which it trains anything.
- Dynamic thresholds (Choudhury and Hahne, 1998): an address that trains something begins more only
  while enough is left free for others. So a newcomer finds room, and an address alone is hardly
  limited.
- Highest response ratio next (Brinch Hansen, 1971), within an address: small experiments overtake
  large ones, and a large one that has waited long goes first in the end.
- EASY backfilling (Lifka, 1995): what is too large to begin now is overtaken only by experiments
  that end before enough memory is free for it.

If the waiting room is full, the address with most places in it gives one up (longest queue drop).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attnkit.service.server import ServerSettings

OVERTAKE_SECONDS = 60.0
"""What is too large to begin now may be overtaken by any smaller one for so long."""

TURNS_FOR_EACH_FREE = 15
"""Turns that an address may take for each that it leaves free: 30 of 32 if it is alone."""

MEGABYTES_FOR_EACH_FREE = 3
"""The same for memory: three quarters if it is alone."""

MOST_RATIO = 10.0
"""What has waited for so many times its training time is overtaken by nothing that came later."""

LEAST_SECONDS = 1.0
"""Training time that is taken into account at least, so that ratios stay finite."""


@dataclass(eq=False, slots=True)
class Demand:
    """One experiment's claim to a turn.

    Attributes:
        visitor: The browser that asked; empty if limits of a visitor do not apply.
        megabytes: Estimated memory.
        seconds: Estimated training time left, if it were alone.
        waited: Seconds since it was asked for.
        paused: Whether it holds memory and takes no turns.
        address: The address that asked; empty if limits of an address do not apply.
    """

    id: str
    visitor: str
    megabytes: float
    seconds: float = 0.0
    waited: float = 0.0
    paused: bool = False
    address: str = ""

    @property
    def response_ratio(self) -> float:
        """Waiting time in units of the training time; the highest goes next, then the oldest."""
        return min(MOST_RATIO, self.waited / max(self.seconds, LEAST_SECONDS))


@dataclass(frozen=True)
class Outlook:
    """Expected progress of one experiment.

    Attributes:
        place: Place in the queue, from 1; 0 if it trains.
        n_active: Number of experiments that take turns now.
        begins: Seconds until its turn comes.
        ends: Seconds until it is finished.
    """

    place: int
    n_active: int
    begins: float
    ends: float


class _Room:
    """Turns, memory and places that addresses and visitors hold, and how much of each is left."""

    def __init__(self, holding: Sequence[Demand], settings: ServerSettings) -> None:
        self._settings = settings
        self._holding: list[Demand] = []
        self._megabytes: defaultdict[str | None, float] = defaultdict(float)  # None: of all
        self._turns: Counter[str | None] = Counter()
        self._claims: Counter[str | None] = Counter()
        self._of_visitor: Counter[str] = Counter()
        for claim in holding:
            self.take(claim)

    def take(self, claim: Demand, sign: int = 1) -> None:
        """Give a claim what it asks for; with the sign −1, take it back."""
        (self._holding.append if sign > 0 else self._holding.remove)(claim)
        for key in (claim.address, None):
            self._megabytes[key] += sign * claim.megabytes
            self._turns[key] += sign * (not claim.paused)
            self._claims[key] += sign
        self._of_visitor[claim.visitor] += sign

    def share(self, address: str) -> float:
        """Return the dominant share of an address: its part of turns or of memory, the larger."""
        turns = self._turns[address] / self._settings.max_active
        return max(turns, self._megabytes[address] / self._settings.training_megabytes)

    @property
    def is_full(self) -> bool:
        """Whether no claim can begin, however small it is."""
        settings = self._settings
        most = settings.max_active + settings.max_waiting  # of those that are paused, too
        return self._turns[None] >= settings.max_active or self._claims[None] >= most

    def visitor_has_enough(self, claim: Demand) -> bool:
        """Whether a claim waits for another one of its own visitor."""
        limit = self._settings.visitor_active
        return bool(claim.visitor) and self._of_visitor[claim.visitor] >= limit

    def has_memory(self, claim: Demand) -> bool:
        """Whether a claim fits; one larger than all memory begins alone."""
        most = self._settings.training_megabytes
        return not self._claims[None] or self._megabytes[None] + claim.megabytes <= most

    def leaves_memory(self, claim: Demand) -> bool:
        """Whether a claim's address, with this claim, leaves memory for other addresses."""
        own, more, most = claim.address, claim.megabytes, self._settings.training_megabytes
        if not own or not self._claims[own]:
            return True
        return _leaves(self._megabytes, own, more, most, MEGABYTES_FOR_EACH_FREE)

    def leaves_turns(self, claim: Demand) -> bool:
        """Whether a claim's address, with this claim, leaves turns and places for others."""
        own, settings = claim.address, self._settings
        if not own or not self._claims[own]:
            return True
        most = settings.max_active + settings.max_waiting
        return _leaves(self._turns, own, 1, settings.max_active, TURNS_FOR_EACH_FREE) and _leaves(
            self._claims, own, 1, most, TURNS_FOR_EACH_FREE
        )

    def seconds_until_free(self, claim: Demand) -> float:
        """Return the training time after which enough that trains has ended for a claim to begin.

        All take equal turns, so whatever has less time left ends before that. Infinite if what is
        paused is in the way.
        """
        later = _Room(self._holding, self._settings)
        for other in sorted(self._holding, key=lambda other: other.seconds):
            if not other.paused:
                later.take(other, sign=-1)
                if later.has_memory(claim) and later.leaves_memory(claim):
                    return other.seconds
        return float("inf")

    def fits_beside(self, claim: Demand, other: Demand) -> bool:
        """Whether there is memory for a claim once another one has begun, too."""
        self.take(other)
        found = self.has_memory(claim) and self.leaves_memory(claim)
        self.take(other, sign=-1)
        return found


def _leaves(
    held: Mapping[str | None, float], own: str, more: float, capacity: float, times: int
) -> bool:
    """Whether what an address holds, with so much more, is within its dynamic threshold."""
    return held[own] + more <= times * (capacity - held[None] - more)


def admitted(
    waiting: Sequence[Demand], holding: Sequence[Demand], settings: ServerSettings
) -> list[Demand]:
    """Return the claims that may begin now.

    Args:
        waiting: Claims in the order of asking.
        holding: Claims that have begun and are not over.

    Returns:
        A part of `waiting`, in the same order.
    """
    room, queue, found = _Room(holding, settings), list(waiting), set[str]()
    while (claim := _next(queue, room)) is not None:
        room.take(claim)
        queue.remove(claim)
        found.add(claim.id)
    return [claim for claim in waiting if claim.id in found]


def _next(queue: Sequence[Demand], room: _Room) -> Demand | None:
    """Return the claim that begins next; None if none can."""
    if not queue or room.is_full:
        return None
    share = {claim.address: room.share(claim.address) for claim in queue}
    blocked: dict[str | None, Demand] = {}  # the first that is not to be delayed; None: by anybody
    able: list[Demand] = []
    for claim in sorted(queue, key=lambda claim: (share[claim.address], -claim.waited)):
        if room.visitor_has_enough(claim) or not room.leaves_turns(claim):
            continue  # it waits for its own visitor's or address's, so nobody waits for it
        fair = room.leaves_memory(claim)
        if fair and room.has_memory(claim):
            first = [blocked[key] for key in (None, claim.address) if key in blocked]
            if all(claim.seconds < room.seconds_until_free(other) for other in first):
                able.append(claim)
        elif claim.waited > OVERTAKE_SECONDS:
            # what its own address holds is in the way of that address only
            blocked.setdefault(None if fair else claim.address, claim)
    if not able:
        return None
    best = min(able, key=lambda claim: (share[claim.address], -claim.response_ratio))
    older = able[: able.index(best)]
    kept_out = (c for c in older if c.waited > OVERTAKE_SECONDS and not room.fits_beside(c, best))
    return next(kept_out, best)


def gives_way(waiting: Sequence[Demand]) -> Demand:
    """Return the claim that loses its place if too many wait.

    It is of the address with most places, there of the visitor with most, there the one with most
    training left, and the newest of equal ones.

    Args:
        waiting: Claims in the order of asking, at least one.
    """
    of_address = Counter(claim.address for claim in waiting)
    of_visitor = Counter((claim.address, claim.visitor) for claim in waiting)
    return max(
        reversed(waiting),
        key=lambda claim: (
            of_address[claim.address],
            of_visitor[claim.address, claim.visitor],
            claim.seconds,
        ),
    )


def outlooks(
    waiting: Sequence[Demand], holding: Sequence[Demand], settings: ServerSettings
) -> dict[str, Outlook]:
    """Return what each may expect if nobody asks for more and all goes as estimated.

    The place in the queue is the place in the order in which claims are expected to begin.
    """
    n_active = sum(not claim.paused for claim in holding)
    queue = [replace(claim) for claim in waiting]  # copies, in which time passes below
    paused = [claim for claim in holding if claim.paused]
    running = [replace(claim) for claim in holding if not claim.paused]
    begins = dict.fromkeys((claim.id for claim in running), 0.0)
    ends: dict[str, float] = {}
    now = 0.0
    while running or queue:
        for claim in admitted(queue, [*running, *paused], settings):
            begins[claim.id] = now
            running.append(claim)
            queue.remove(claim)
        if not running:  # what is paused is in the way: nobody knows for how long
            break
        of_address = Counter(claim.address for claim in running)
        slowness = {own: len(of_address) * number for own, number in of_address.items()}
        first = min(running, key=lambda claim: max(claim.seconds, 0.0) * slowness[claim.address])
        passed = max(first.seconds, 0.0) * slowness[first.address]
        now += passed
        running.remove(first)
        ends[first.id] = now
        for claim in running:
            claim.seconds -= passed / slowness[claim.address]
        for claim in queue:
            claim.waited += passed
    unknown = float("inf")
    order = sorted(waiting, key=lambda claim: begins.get(claim.id, unknown))
    places = {claim.id: number for number, claim in enumerate(order, 1)}
    return {
        claim.id: Outlook(
            places.get(claim.id, 0),
            n_active,
            begins.get(claim.id, unknown),
            ends.get(claim.id, unknown),
        )
        for claim in [*waiting, *holding]
        if claim.id in places or not claim.paused
    }
