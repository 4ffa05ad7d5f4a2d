"""Turns of the training process: addresses share its time, whatever one of them asks for.

Time is that of a clock that the work itself puts forward: building, training and answering take
drawn seconds and compute nothing.
"""

import random
from types import SimpleNamespace

import pytest
from threaded import MemoryWorker
from waiting import small

from attnkit.analysis.inspection.request import Inspection
from attnkit.foundation import slices
from attnkit.foundation.slices import pause
from attnkit.service import protocol, worker
from attnkit.service.protocol import Inspect, Start, Steer, Withdraw

LONGEST = 0.5
"""Longest piece of work in seconds, such as one step of a large training."""


class Clock:
    """A clock that work puts forward."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        """Return the time."""
        return self.now


class FakeTraining:
    """A training whose steps take so many seconds."""

    def __init__(self, clock, experiment, per_step):
        self.experiment, self.step, self.seconds = experiment, 0, 0.0
        self.finished, self._clock, self._per_step = False, clock, per_step

    def advance(self, n_steps):
        """Let the time of some steps pass."""
        self._clock.now += n_steps * self._per_step
        self.step += n_steps

    def snapshot(self, status=None):
        """Let a little time pass."""
        self._clock.now += 0.05
        return SimpleNamespace(to_bytes=lambda: b"")


class TimedWorker(MemoryWorker):
    """A worker with fake work; commands come at the times of a plan, sorted by time.

    Attributes:
        turns: Time at which each turn began, and whose it was.
        built: Jobs that were built.
        answered: Number of answers that were computed.
    """

    def __init__(self, patch, seed, plan, end=60.0):
        super().__init__()
        self.clock, self.turns, self.built, self.answered = Clock(), [], [], 0
        self._plan, self._until, self._draw = plan, end, random.Random(seed)
        for module in (worker, slices):
            patch.setattr(module, "time", self.clock)
        patch.setattr(worker, "build", self.build)
        self._archive = SimpleNamespace(answer=self.answer, keep=lambda *_: None)
        self.clock.now = -1.0
        self._feed()

    def build(self, experiment, engine):
        """Let the time of a building pass, piece by piece."""
        for _ in range(self._draw.randint(1, 6)):
            self.clock.now += self._draw.uniform(0.0, LONGEST)
            pause()
        self.built.append(experiment)
        training = FakeTraining(self.clock, experiment, self._draw.uniform(0.01, LONGEST))
        return training, SimpleNamespace(n_steps_left=0, record_frame=lambda: None)

    def answer(self, request):
        """Let the time of an inspection pass, piece by piece."""
        self.answered += 1
        for _ in range(self._draw.randint(1, 40)):
            self.clock.now += self._draw.uniform(0.0, LONGEST)
            pause()
        return b""

    def write(self, message):
        """Note whose turn it is, and give the commands whose time has come."""
        super().write(message)
        if isinstance(self.messages[-1], protocol.Turn):
            self.turns.append((self.clock.now, self.messages[-1].ids[0]))
            self._feed()
            if self.clock.now > self._until:
                raise BrokenPipeError

    def _feed(self):
        while self._plan and self._plan[0][0] <= max(self.clock.now, 0.0):
            self.commands.put(self._plan.pop(0)[1])

    def run_to_end(self):
        """Work until the time is over."""
        with pytest.raises(BrokenPipeError):
            self.work()
        return self

    def least_share(self, ids, since, window=5.0):
        """Return the smallest share of the time that these jobs had in any window."""
        ends = [at for at, _ in self.turns[1:]]
        spans = [(at, end, name) for (at, name), end in zip(self.turns, ends, strict=False)]
        starts = [at for at, _, _ in spans if since <= at <= self.clock.now - window]
        return min(
            sum(
                max(0.0, min(end, start + window) - max(at, start))
                for at, end, name in spans
                if name in ids
            )
            / window
            for start in starts
        )


def start(name, address, number=0):
    """Return the command that starts a job."""
    return Start(job=name, experiment=small(50, number).to_json(), address=address)


def look(name, address, visitor="", view="attention", **fields):
    """Return a request to inspect a job."""
    inspection = Inspection(view, **fields).to_dict()
    return Inspect(request=name, address=address, visitor=visitor, job="j", inspection=inspection)


def resets(draw, address):
    """Return starts, each of which is stopped again by the next press."""
    plan, at = [], 0.0
    while at < 60.0:
        name = f"{address} {at}"
        plan.append((at, start(name, address, draw.randrange(9))))
        at += draw.uniform(0.05, 1.0)
        plan.append((at, Steer(name, "stop", 1)))
    return plan


def inspections(draw, address):
    """Return the requests of eight tabs, each of which asks for something else again and again."""
    return [
        (draw.uniform(0.0, 60.0), look(f"{address} {n}", address, f"browser {n % 8}", example=n))
        for n in range(200)
    ]


def trainings(draw, address):
    """Return the starts of eight experiments that train side by side."""
    return [(draw.uniform(0.0, 5.0), start(f"{address} {n}", address, n)) for n in range(8)]


def presses(draw, address):
    """Return a job that is paused and continued all the time."""
    times = sorted(draw.uniform(0.1, 60.0) for _ in range(300))
    steers = [
        (at, Steer(address, draw.choice(["pause", "resume", "step"]), number))
        for number, at in enumerate(times, 1)
    ]
    return [(0.0, start(address, address)), *steers]


FLOODS = {"resets": resets, "inspections": inspections, "trainings": trainings, "presses": presses}


@pytest.mark.parametrize("flood", [*FLOODS, "a mixture"])
def test_an_address_that_floods_leaves_others_their_share(monkeypatch, seed, flood):
    """Another's training has at least half of its fair share of any five seconds."""
    draw = random.Random(f"{seed} {flood}")
    plan, addresses = [(0.0, start("home", "home"))], ["script"]
    if flood == "a mixture":
        addresses = ["script", "another", "a third"]
    for address in addresses:
        for kind in draw.sample([*FLOODS], 2) if flood == "a mixture" else [flood]:
            plan += FLOODS[kind](draw, address)
    plan.sort(key=lambda entry: entry[0])
    worked = TimedWorker(monkeypatch, f"{seed} {flood}", plan).run_to_end()
    since = next(at for at, name in reversed(worked.turns) if name == "home" and at < 10.0)
    assert worked.least_share({"home"}, since) >= 0.5 / (1 + len(addresses))


def test_jobs_of_an_address_share_its_turns_and_a_pause_counts_for_nothing(monkeypatch, seed):
    """Whoever was away does not catch up."""
    plan = [(0.0, start(name, "script", n)) for n, name in enumerate("abc")]
    plan += [(0.0, start("d", "home")), (20.0, Steer("d", "pause", 1))]
    plan += [(40.0, Steer("d", "resume", 2))]
    worked = TimedWorker(monkeypatch, seed, plan).run_to_end()
    for since, until, of_d in ((5.0, 20.0, 0.5), (22.0, 39.0, 0.0), (43.0, 60.0, 0.5)):
        seconds = dict.fromkeys("abcd", 0.0)
        for (at, name), (end, _) in zip(worked.turns, worked.turns[1:], strict=False):
            if since <= at < until:
                seconds[name] += end - at
        total = sum(seconds.values())
        assert seconds["d"] / total == pytest.approx(of_d, abs=0.06)
        of_script = [seconds[name] / total for name in "abc"]
        assert max(of_script) - min(of_script) < 0.08


def test_requests_do_not_keep_jobs_of_their_own_address_from_training(monkeypatch, seed):
    """Both take turns, however many requests come."""
    plan = [(0.0, start("job", "home"))]
    plan += [(n / 4, look(f"request {n}", "home", "Anna", example=n)) for n in range(240)]
    worked = TimedWorker(monkeypatch, seed, plan).run_to_end()
    assert worked.least_share({"job"}, 10.0) >= 0.25


def test_what_is_stopped_or_withdrawn_before_its_turn_is_never_computed(monkeypatch, seed):
    """All commands that have come are read before the next turn; each job is told to be stopped."""
    plan = []
    for number in range(61):
        plan += [(0.0, start(f"job {number}", "home")), (0.0, Steer(f"job {number}", "stop", 1))]
        plan += [(0.0, look(f"request {number}", "home", example=number))]
        plan += [(0.0, Withdraw(f"request {number}"))]
    plan += [(0.0, start("last", "home"))]
    worked = TimedWorker(monkeypatch, seed, plan, end=5.0).run_to_end()
    assert (len(worked.built), worked.answered) == (1, 0)
    stopped = [(update.job, update.state) for update in worked.of(protocol.Update)][:61]
    assert stopped == [(f"job {number}", "stopped") for number in range(61)]


def test_what_is_dropped_in_the_middle_leaves_nothing(monkeypatch, seed):
    """A building that is stopped and an inspection that is withdrawn take no more turns."""
    plan = [(0.0, start("other", "home"))]
    plan += [(1.0, look("request", "away")), (1.0, start("job", "away"))]
    plan += [(1.3, Withdraw("request")), (1.3, Steer("job", "stop", 1))]
    worked = TimedWorker(monkeypatch, seed, plan, end=9.0).run_to_end()
    assert {name for at, name in worked.turns if at > 2.5} == {"other"}
    assert worked.of(protocol.Answer) == []


def test_equal_requests_are_computed_once(monkeypatch, seed):
    """All who have asked get the answer, also those who ask while it is computed."""
    ids = [f"request {n}" for n in range(20)]
    plan = [(n / 50, look(name, f"address {n % 3}", f"visitor {n}")) for n, name in enumerate(ids)]
    plan += [(0.0, look("else", "home", example=3)), (0.0, Withdraw(ids[0]))]
    plan += [(0.0, start("job", "home"))]
    plan.sort(key=lambda entry: entry[0])
    worked = TimedWorker(monkeypatch, seed, plan).run_to_end()
    answers = worked.of(protocol.Answer)
    assert worked.answered == len(answers) <= 3
    assert {name for answer in answers for name in answer.requests} >= {*ids[1:], "else"}
