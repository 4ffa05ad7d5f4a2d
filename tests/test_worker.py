"""The worker of the training process: fair turns, failures, kept weights, signs of life."""

import random
import threading
from types import SimpleNamespace

import pytest
from kinds import SMALL
from threaded import MemoryWorker
from waiting import PATIENCE, small

from attnkit.analysis.inspection.request import Inspection
from attnkit.experiment import Experiment, from_text
from attnkit.foundation import slices
from attnkit.foundation.slices import pause
from attnkit.service import answers, protocol, worker
from attnkit.service.protocol import Inspect, Start, Steer, Withdraw
from attnkit.training import Training

LONGEST = 0.5  # seconds of a piece of work, such as one step of a large training


class TimedWorker(MemoryWorker):
    """A worker with fake work on a clock of its own, and commands at the times of a plan."""

    def __init__(self, patch, seed, plan, end=60.0):
        super().__init__()
        self.clock = SimpleNamespace(now=-1.0)
        self.clock.monotonic = lambda: self.clock.now
        self.turns, self.n_built, self.n_answered = [], 0, 0
        self._plan, self._until = sorted(plan, key=lambda entry: entry[0]), end
        self._draw = random.Random(seed)
        for module in (worker, slices):
            patch.setattr(module, "time", self.clock)
        patch.setattr(worker, "build", self.build)
        self._archive = SimpleNamespace(answer=self.answer, keep=lambda *_: None)
        self._feed()
        with pytest.raises(BrokenPipeError):
            self.work()

    def build(self, start, engine):
        """Let the time of a building pass, piece by piece, and later that of each step."""
        self._pass(1, 6)
        self.n_built += 1
        per_step = self._draw.uniform(0.01, LONGEST)
        training = SimpleNamespace(
            experiment=from_text(start.experiment), step=0, seconds=0.0, finished=False
        )

        def advance(n_steps):
            self.clock.now += n_steps * per_step
            training.step += n_steps

        training.advance = advance
        training.snapshot = lambda status=None: SimpleNamespace(to_bytes=lambda: b"")
        return training, SimpleNamespace(n_steps_left=0, record_frame=lambda: None)

    def answer(self, request):
        """Let the time of an inspection pass: always more than a withdrawal in its middle needs."""
        self.n_answered += 1
        self._pass(10, 40)
        return b""

    def _pass(self, least, most):
        for _ in range(self._draw.randint(least, most)):
            self.clock.now += self._draw.uniform(0.0, LONGEST)
            pause()

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

    def share(self, name, since, until):
        """Return the share of a job in the seconds of all turns that began in this time."""
        seconds = {False: 0.0, True: 0.0}
        for (at, whose), (end, _) in zip(self.turns, self.turns[1:], strict=False):
            if since <= at < until:
                seconds[whose == name] += end - at
        return seconds[True] / sum(seconds.values())


def start(name, address, number=0):
    """Return the command that starts a job."""
    return Start(job=name, experiment=small(50, number).to_json(), address=address)


def look(name, address, visitor="", **fields):
    """Return a request to inspect a job."""
    inspection = Inspection("attention", **fields).to_dict()
    return Inspect(request=name, address=address, visitor=visitor, job="j", inspection=inspection)


def flood(draw, address):
    """Return all that a script does: starts that it stops again, inspections, long trainings."""
    plan = [(draw.uniform(0.0, 5.0), start(f"{address} {n}", address, n)) for n in range(8)]
    for n in range(150):
        at, name = draw.uniform(0.0, 60.0), f"{address} reset {n}"
        plan += [(at, start(name, address, n % 9)), (at + draw.random(), Steer(name, "stop", 1))]
        asked = look(f"{address} look {n}", address, f"browser {n % 8}", example=n)
        plan += [(draw.uniform(0.0, 60.0), asked)]
    return plan


def test_an_address_that_floods_leaves_others_their_share(monkeypatch, seed):
    """Beside two scripts, a training has at least half of its fair share of any ten seconds."""
    draw = random.Random(seed)
    plan = [(0.0, start("home", "home")), *flood(draw, "script"), *flood(draw, "robot")]
    worked = TimedWorker(monkeypatch, seed, plan)
    first = next(at for at, name in reversed(worked.turns) if name == "home" and at < 10.0)
    starts = [at for at, _ in worked.turns if first <= at <= worked.clock.now - 10.0]
    shares = [worked.share("home", at, at + 10.0) for at in starts]
    assert min(shares) >= 0.5 / 3 - 0.05  # turns may end later


def test_addresses_take_equal_turns_and_a_pause_counts_for_nothing(monkeypatch, seed):
    """Three jobs of one address share its turns, and whoever was away does not catch up."""
    plan = [(0.0, start(name, "script", n)) for n, name in enumerate("abc")]
    plan += [(0.0, start("d", "home")), (20.0, Steer("d", "pause", 1))]
    plan += [(40.0, Steer("d", "resume", 2))]
    worked = TimedWorker(monkeypatch, seed, plan, end=80.0)
    for since, until, of_d in ((5, 20, 0.5), (22, 39, 0.0), (43, 80, 0.5)):
        shares = {name: worked.share(name, since, until) for name in "abcd"}
        assert shares.pop("d") == pytest.approx(of_d, abs=0.07)
        assert max(shares.values()) - min(shares.values()) < 0.1


def test_what_is_stopped_or_withdrawn_is_not_computed(monkeypatch, seed):
    """All commands are read before the next turn; what is dropped in the middle takes no more."""
    plan = [(1.0, look("request", "away")), (1.0, start("job", "away")), (0.0, start("last", "x"))]
    plan += [(1.3, Withdraw("request")), (1.3, Steer("job", "stop", 1))]
    names = [f"{number}" for number in range(61)]
    for n, name in enumerate(names):
        plan += [(0.0, start(name, "home")), (0.0, Steer(name, "stop", 1))]
        plan += [(0.0, look(f"look {n}", "home", example=n)), (0.0, Withdraw(f"look {n}"))]
    worked = TimedWorker(monkeypatch, seed, plan, end=9.0)
    assert worked.n_built <= 2
    assert worked.n_answered <= 1
    assert {name for at, name in worked.turns if at > 2.5} == {"last"}
    assert worked.of(protocol.Answer) == []
    stopped = [update.job for update in worked.of(protocol.Update) if update.state == "stopped"]
    assert stopped == [*names, "job"]


def test_equal_requests_are_computed_once(monkeypatch, seed):
    """All who have asked get the answer, also those who ask while it is computed."""
    ids = [f"request {n}" for n in range(20)]
    plan = [(n / 50, look(name, f"address {n % 3}", f"visitor {n}")) for n, name in enumerate(ids)]
    plan += [(0.0, look("else", "home", example=3)), (0.0, Withdraw(ids[0]))]
    plan += [(0.0, start("job", "home"))]
    worked = TimedWorker(monkeypatch, seed, plan)
    found = worked.of(protocol.Answer)
    assert worked.n_answered == len(found) <= 3
    assert {name for answer in found for name in answer.requests} >= {*ids[1:], "else"}


def test_jobs_begin_on_torch_while_the_kernel_is_compiled(monkeypatch):
    """Jobs after the compilation train on the kernel, whose pace is told."""
    monkeypatch.setattr(worker, "ready_engine", lambda device: "kernel")
    monkeypatch.setattr(worker, "measure_pace", lambda engine: 1.0)
    in_memory = MemoryWorker().work(("first", small(5)))
    worker._compile(in_memory, in_memory.commands)
    in_memory.work(("second", small(5)))
    engines = {one.job: one.decode()[0].engine for one in in_memory.of(protocol.Update)}
    assert engines == {"first": "torch", "second": "kernel"}
    assert [pace.engine for pace in in_memory.of(protocol.Pace)] == ["kernel"]


@pytest.mark.parametrize(
    ("deed", "error", "reason"),
    [
        ("begin", None, "steps: got 0"),
        ("advance", RuntimeError("out of paper"), "out of paper"),
        ("snapshot", MemoryError(), "more memory"),
        ("result", RuntimeError("[enforce fail] can't allocate memory: 9 bytes"), "more memory"),
    ],
)
def test_a_job_that_breaks_fails_alone(monkeypatch, deed, error, reason):
    """An error in the training, snapshot or result of one job leaves the next one alone."""
    broken = Start(job="broken", experiment='{"steps": 0}')
    if error is not None:
        do, broken = getattr(Training, deed), ("broken", small(5))

        def fail_if_short(training, *given):
            if training.experiment.training.steps == 5:
                raise error
            return do(training, *given)

        monkeypatch.setattr(Training, deed, fail_if_short)
    updates = MemoryWorker().work(broken, ("whole", small(33))).of(protocol.Update)
    last = {update.job: update for update in updates}
    assert (last["broken"].state, last["whole"].state) == ("failed", "finished")
    assert reason in last["broken"].error


def test_what_cannot_be_drawn_is_told_and_the_pace_of_the_engine():
    """The worker goes on; the pace is asked for before any job."""
    texts = ('{"steps": 0}', small(5).to_json())
    examples = [protocol.DrawExample(experiment=text) for text in texts]
    worked = MemoryWorker().work(protocol.MeasurePace(), *examples, ("j", small(5)))
    (pace,) = worked.of(protocol.Pace)
    assert (pace.engine, pace.pace > 0) == ("torch", True)
    failed, drawn = worked.of(protocol.Answer)
    assert "steps: got 0" in failed.error
    assert (failed.blob, drawn.error, len(drawn.blob) > 0) == (b"", "", True)
    assert worked.messages[-1].state == "finished"


def test_only_the_weights_of_the_last_jobs_are_kept(monkeypatch):
    """Kept weights are bounded by their size; a job that is too large by itself drops no others."""
    book = Experiment(task="phonebook", **{**SMALL, "steps": 5})
    monkeypatch.setattr(answers, "KEPT_BYTES", 2 * answers.Weights.of(Training(book)).n_bytes)
    in_memory = MemoryWorker().work(*((name, book) for name in "abc"))
    ended = [update.job for update in in_memory.of(protocol.Update) if update.state == "finished"]
    kept = in_memory._archive
    assert list(kept.weights) == ended[1:]
    in_memory.work(("two seeds", book.replace(n_seeds=2)), ("large", book.replace(n_seeds=3)))
    assert list(kept.weights) == ["two seeds"]
    assert kept.films.keys() == {*"abc", "two seeds", "large"}
    weights = kept.weights["two seeds"]
    assert [len(weights.of_variant(v)) for v in weights.experiment.sharing] == [2, 2]


def test_signs_of_life_come_in_the_middle_of_a_step(monkeypatch):
    """A thread sends signs of life until the server is gone."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.001)
    in_memory, do, beats, busy = MemoryWorker(), Training.advance, [], threading.Event()

    def write(message):
        MemoryWorker.write(in_memory, message)
        if isinstance(in_memory.messages[-1], protocol.Beat) and busy.is_set():
            beats.append(message)
            if len(beats) == 3:
                raise BrokenPipeError

    monkeypatch.setattr(in_memory, "write", write)
    thread = threading.Thread(target=in_memory.beat, daemon=True)

    def advance(training, n_steps):
        busy.set()
        thread.join(PATIENCE)
        return do(training, n_steps)

    monkeypatch.setattr(Training, "advance", advance)
    thread.start()
    in_memory.work(("a", small(1)))
    assert len(beats) == 3
