"""Scheduler: rules for which experiments train and which wait, without a clock or a process.

Experiments train in turns, and three resources are scarce: turns, memory and places in the queue.
They are shared among addresses first, because a script can open any number of tabs but has one
address, although a whole class may share one, too. Four known schemes do that:

- Dominant resource fairness (Ghodsi et al., 2011): the next experiment to begin is of the address
  that holds the smallest share of the scarce resources. Addresses also take turns with each other,
  so that each has an equal part of the time during which it trains anything.
- Dynamic thresholds (Choudhury and Hahne, 1998): an address that trains something may begin more
  only while enough is left free for others. So a newcomer finds room, and an address that is alone
  is hardly limited.
- Highest response ratio next (Brinch Hansen, 1971), within an address: small experiments overtake
  large ones, and a large one that has waited for long goes first in the end.
- EASY backfilling (Lifka, 1995): an experiment too large to begin now is overtaken only by those
  that end before enough memory is free for it.

If the queue is full, the address with most places in it loses one (longest queue drop).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attnkit.service.server import ServerSettings

OVERTAKE_SECONDS = 60.0
"""Waiting time during which any smaller experiment may overtake one too large to begin now."""

TURNS_FOR_EACH_FREE = 15
"""Turns that an address may take for each turn that it leaves free: 30 of 32 if it is alone."""

MEGABYTES_FOR_EACH_FREE = 3
"""Megabytes that an address may hold for each that it leaves free: three quarters if alone."""

MOST_RATIO = 10.0
"""Largest response ratio. An experiment that has reached it is overtaken by no newer one."""

LEAST_SECONDS = 1.0
"""Smallest training time in a response ratio, which keeps ratios finite."""


@dataclass(eq=False, slots=True)
class Demand:
    """Demand of one experiment for turns and memory.

    Attributes:
        id: Id of the job.
        visitor: Id of the browser; empty if limits of a visitor do not apply.
        megabytes: Estimated memory.
        seconds: Estimated training time left, if it were alone.
        waited: Seconds since its submission.
        paused: Whether it holds memory without taking turns.
        address: Address of the browser; empty if limits of an address do not apply.
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
        """Waiting time divided by training time; the highest begins next, then the oldest."""
        return min(MOST_RATIO, self.waited / max(self.seconds, LEAST_SECONDS))


@dataclass(frozen=True)
class Outlook:
    """Expected progress of one experiment.

    Attributes:
        place: Place in the queue, from 1; 0 if it has begun.
        n_active: Number of experiments that take turns now.
        begins: Seconds until it begins; infinite if unknown.
        ends: Seconds until it is finished; infinite if unknown.
    """

    place: int
    n_active: int
    begins: float
    ends: float


class _Room:
    """Turns, memory and places in use, by address and visitor, and those still free."""

    def __init__(self, holding: Sequence[Demand], settings: ServerSettings) -> None:
        self._settings = settings
        self._holding: list[Demand] = []
        # by address, and of all addresses with the key None
        self._megabytes: defaultdict[str | None, float] = defaultdict(float)
        self._turns: Counter[str | None] = Counter()
        self._n_demands: Counter[str | None] = Counter()
        self._n_of_visitor: Counter[str] = Counter()
        for demand in holding:
            self.take(demand)

    def take(self, demand: Demand, sign: int = 1) -> None:
        """Meet a demand; with the sign −1, take everything back."""
        (self._holding.append if sign > 0 else self._holding.remove)(demand)
        for key in (demand.address, None):
            self._megabytes[key] += sign * demand.megabytes
            self._turns[key] += sign * (not demand.paused)
            self._n_demands[key] += sign
        self._n_of_visitor[demand.visitor] += sign

    def share(self, address: str) -> float:
        """Return the dominant share of an address: that of turns or of memory, the larger one."""
        turns = self._turns[address] / self._settings.max_active
        return max(turns, self._megabytes[address] / self._settings.training_megabytes)

    @property
    def is_full(self) -> bool:
        """Whether no experiment can begin, however small it is."""
        settings = self._settings
        most = settings.max_active + settings.max_waiting  # including paused ones
        return self._turns[None] >= settings.max_active or self._n_demands[None] >= most

    def visitor_has_enough(self, demand: Demand) -> bool:
        """Return whether the visitor has as many experiments training as one visitor may."""
        limit = self._settings.visitor_active
        return bool(demand.visitor) and self._n_of_visitor[demand.visitor] >= limit

    def has_memory(self, demand: Demand) -> bool:
        """Return whether there is memory for a demand; one larger than all memory begins alone."""
        most = self._settings.training_megabytes
        return not self._n_demands[None] or self._megabytes[None] + demand.megabytes <= most

    def leaves_memory(self, demand: Demand) -> bool:
        """Return whether the address, with this demand, leaves memory for other addresses."""
        most, ratio = self._settings.training_megabytes, MEGABYTES_FOR_EACH_FREE
        return self._leaves(demand, self._megabytes, demand.megabytes, most, ratio)

    def leaves_turns(self, demand: Demand) -> bool:
        """Return whether the address, with this demand, leaves turns and places for others."""
        turns, ratio = self._settings.max_active, TURNS_FOR_EACH_FREE
        places = turns + self._settings.max_waiting
        return all(
            self._leaves(demand, held, 1, most, ratio)
            for held, most in ((self._turns, turns), (self._n_demands, places))
        )

    def _leaves(
        self,
        demand: Demand,
        held: Mapping[str | None, float],
        more: float,
        most: float,
        ratio: int,
    ) -> bool:
        """Return whether the address of a demand stays below its dynamic threshold.

        Args:
            demand: The demand. An address that holds nothing may always begin one.
            held: Amount in use by each address, and by all with the key None.
            more: Amount that the demand adds.
            most: Amount that exists.
            ratio: Amount that an address may hold for each unit that stays free.
        """
        address = demand.address
        if not address or not self._n_demands[address]:
            return True
        return held[address] + more <= ratio * (most - held[None] - more)

    def seconds_until_free(self, demand: Demand) -> float:
        """Return the training time after which enough others have ended for a demand to begin.

        All take equal turns, so those with less time left end first. Infinite if paused experiments
        are in the way.
        """
        later = _Room(self._holding, self._settings)
        for other in sorted(self._holding, key=lambda other: other.seconds):
            if not other.paused:
                later.take(other, sign=-1)
                if later.has_memory(demand) and later.leaves_memory(demand):
                    return other.seconds
        return float("inf")

    def fits_beside(self, demand: Demand, other: Demand) -> bool:
        """Return whether there is memory for a demand after another one has begun."""
        self.take(other)
        fits = self.has_memory(demand) and self.leaves_memory(demand)
        self.take(other, sign=-1)
        return fits


def admitted(
    waiting: Sequence[Demand], holding: Sequence[Demand], settings: ServerSettings
) -> list[Demand]:
    """Return the demands that may begin now, in the order of submission.

    Args:
        waiting: Demands in the order of submission.
        holding: Demands that have begun and are not over.
        settings: Limits of this copy.
    """
    room, queue, ids = _Room(holding, settings), list(waiting), set[str]()
    while (demand := _next(queue, room)) is not None:
        room.take(demand)
        queue.remove(demand)
        ids.add(demand.id)
    return [demand for demand in waiting if demand.id in ids]


def _next(queue: Sequence[Demand], room: _Room) -> Demand | None:
    """Return the demand that begins next; None if none can."""
    if not queue or room.is_full:
        return None
    share = {demand.address: room.share(demand.address) for demand in queue}
    # the first one that must not be delayed, by its own address or, with the key None, by any
    blocked: dict[str | None, Demand] = {}
    candidates: list[Demand] = []
    for demand in sorted(queue, key=lambda demand: (share[demand.address], -demand.waited)):
        if room.visitor_has_enough(demand) or not room.leaves_turns(demand):
            continue  # it waits for others of its visitor or address, so nobody waits for it
        fair = room.leaves_memory(demand)
        if fair and room.has_memory(demand):
            overtaken = [blocked[key] for key in (None, demand.address) if key in blocked]
            if all(demand.seconds < room.seconds_until_free(other) for other in overtaken):
                candidates.append(demand)
        elif demand.waited > OVERTAKE_SECONDS:
            # memory that its own address holds is in the way of this address only
            blocked.setdefault(None if fair else demand.address, demand)
    if not candidates:
        return None
    best = min(candidates, key=lambda demand: (share[demand.address], -demand.response_ratio))
    for older in candidates[: candidates.index(best)]:
        if older.waited > OVERTAKE_SECONDS and not room.fits_beside(older, best):
            return older
    return best


def displaced(waiting: Sequence[Demand]) -> Demand:
    """Return the demand that loses its place when the queue is full.

    It belongs to the address with the most places and, there, to the visitor with the most. Among
    these it has the most training left, or is the newest of equal ones. `waiting` is in the order
    of submission.
    """
    of_address = Counter(demand.address for demand in waiting)
    of_visitor = Counter((demand.address, demand.visitor) for demand in waiting)
    return max(
        reversed(waiting),
        key=lambda demand: (
            of_address[demand.address],
            of_visitor[demand.address, demand.visitor],
            demand.seconds,
        ),
    )


def outlooks(
    waiting: Sequence[Demand], holding: Sequence[Demand], settings: ServerSettings
) -> dict[str, Outlook]:
    """Return the outlook of each demand by id, if no other is submitted and estimates hold.

    The place in the queue counts demands in the order in which they are expected to begin. The
    arguments are those of `admitted`.
    """
    n_active = sum(not demand.paused for demand in holding)
    queue = [replace(demand) for demand in waiting]  # copies, in which time passes below
    paused = [demand for demand in holding if demand.paused]
    running = [replace(demand) for demand in holding if not demand.paused]
    begins = dict.fromkeys((demand.id for demand in running), 0.0)
    ends: dict[str, float] = {}
    now = 0.0
    while running or queue:
        for demand in admitted(queue, [*running, *paused], settings):
            begins[demand.id] = now
            running.append(demand)
            queue.remove(demand)
        if not running:  # paused experiments are in the way, nobody knows for how long
            break
        n_of_address = Counter(demand.address for demand in running)
        slowness = {key: len(n_of_address) * number for key, number in n_of_address.items()}
        first = min(running, key=lambda demand: max(demand.seconds, 0.0) * slowness[demand.address])
        passed = max(first.seconds, 0.0) * slowness[first.address]
        now += passed
        running.remove(first)
        ends[first.id] = now
        for demand in running:
            demand.seconds -= passed / slowness[demand.address]
        for demand in queue:
            demand.waited += passed
    unknown = float("inf")
    order = sorted(waiting, key=lambda demand: begins.get(demand.id, unknown))
    places = {demand.id: number for number, demand in enumerate(order, 1)}
    return {
        demand.id: Outlook(
            places.get(demand.id, 0),
            n_active,
            begins.get(demand.id, unknown),
            ends.get(demand.id, unknown),
        )
        for demand in [*waiting, *holding]
        if demand.id in places or not demand.paused
    }
