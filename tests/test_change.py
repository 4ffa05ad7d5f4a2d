"""A changed set of variants trains only what is new, and loses nothing that is there."""

from dataclasses import replace

import numpy as np
import pytest
from kinds import SMALL
from threaded import MemoryWorker
from visiting import columns, job_of, press, show, turn_to, visit_small, watch
from waiting import assert_same_bits, wait_until, wait_until_still

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.figures.tying import tying_results
from attnkit.service import jobs, worker
from attnkit.service.protocol import Start, Steer
from attnkit.training import train
from attnkit.training.memory import peak_megabytes
from attnkit.ui.server.storage import result_store
from attnkit.variants import Variant

pytestmark = pytest.mark.server

WIDE = Variant("QKV n_heads=2 d_head=2")


def experiment(*sharing, **settings):
    """A small experiment of two seeds that trains in a moment."""
    given = {**SMALL, "n_seeds": 2, "steps": 33, "evaluate_every": 11, **settings}
    return Experiment(**{**given, "sharing": sharing})


@pytest.fixture
def service(pages_service):
    """The service of the pages, which has a store."""
    return pages_service


def finished(service, wanted, **how):
    """The job of an experiment, trained to its end."""
    job = wait_until(service, service.submit(wanted, **how), lambda job: job.over)
    assert job.state == "finished", job.error
    return job


def test_only_the_new_variant_is_trained_and_nothing_that_is_known(service):
    """The others keep their ends and bits, all is stored as one result, any choice is shown."""
    before = experiment("QKV", "Q=K")
    old = finished(service, before)
    after = before.replace(sharing=[*before.sharing, WIDE])
    job_id = service.submit(after, paused=True, reuse=True)
    held = wait_until_still(service, job_id, "paused").snapshot
    accuracy = held.per_sharing(held.history["accuracy"])
    assert (held.step, np.isfinite(accuracy[:, :2]).all()) == (0, True)
    assert np.isfinite(accuracy[:, 2]).any(1).tolist() == [True] + [False] * (len(accuracy) - 1)
    service.resume(job_id)
    new = wait_until(service, job_id, lambda job: job.over)
    assert new.trains.sharing == (WIDE,)
    assert new.seconds < new.snapshot.seconds
    assert_same_bits(new.snapshot, train(after, "cpu").snapshot)
    assert_same_bits(result_store().snapshot(after.hash), new.snapshot)
    other = finished(service, before.replace(sharing=["K=V"]))
    both = before.replace(sharing=["Q=K", "K=V"])
    shown = service.find(both)
    assert (shown.state, shown.snapshot.experiment) == ("finished", both)
    assert shown.trainers["K=V"] == other.id
    assert shown.trainers["Q=K"] in (old.id, new.id)
    assert service.job(old.id).snapshot is not None
    assert service.find(before).id == old.id


def test_a_result_that_is_not_in_memory_lends_its_runs(service, monkeypatch):
    """What is known costs nothing, estimates and limits count what is new; one asks for reuse."""
    monkeypatch.setattr(jobs, "MAX_LENT_BYTES", 1)
    known = finished(service, experiment("QKV", "Q=K", first_seed=30))
    assert known.result is None
    more, alone = (experiment(*names, first_seed=30) for names in (("QKV", "Q=K", "Q=V"), ("Q=V",)))
    assert service.estimate(known.experiment) == 0
    assert service.estimate(more) == pytest.approx(service.estimate(alone))
    new = finished(service, more, reuse=True)
    assert new.trains.sharing == ("Q=V",)
    assert new.megabytes == peak_megabytes(alone)
    assert finished(service, known.experiment).reused is None


def test_joined_variants_are_looked_into_together(service):
    """Films and models that there are serve, each with its own seeds; nothing is trained for it."""
    book = experiment("QKV", "Q=K", first_seed=75, task="phonebook", n_entries=3)
    old = finished(service, book)
    new = finished(service, book.replace(sharing=["QKV", "Q=K", WIDE]), reuse=True)
    film = service.film(new.experiment.replace(n_seeds=1))
    assert film == new.id
    found = InspectionResult.from_bytes(service.inspect(film, Inspection("attention")))
    names = [variant["name"] for variant in found.header["variants"]]
    assert names == [variant.value for variant in new.experiment.sharing]
    assert found.header["steps"] == [0, 11, 22, 33]
    tokens = service.example(book, 30.0).tokens
    before, after = service.ask(old.id, tokens), service.ask(new.id, tokens)
    assert len(after.variants) == 3
    for one, other in zip(before.variants, after.variants, strict=False):
        assert np.array_equal(one.answers, other.answers)
    before, after = (
        tying_results(InspectionResult.from_bytes(service.inspect(job.id, Inspection("tying"))))
        for job in (old, new)
    )
    assert [result.variant for result in after[0]] == ["QKV", WIDE]
    assert [result.seeds for result in after[0]] == [(75, 76), (75, 76)]
    np.testing.assert_array_equal(before[0][0].mixed, after[0][0].mixed)


def test_other_runs_train_all_anew(service):
    """Runs of other seeds, and of widths that depend on the other variants."""
    for number, own in enumerate(({"n_seeds": 1}, {"equal": "parameters"})):
        first_seed = 40 + 10 * number
        known = experiment("QKV", "Q=K", first_seed=first_seed, **own if number else {})
        finished(service, known)
        wanted = known.replace(sharing=["QKV", "Q=K", "K=V"], **own)
        assert service.find(wanted) is None
        new = finished(service, wanted, reuse=True)
        assert (new.trains, new.reused) == (wanted, None)


def test_what_another_machine_trained_is_not_joined(service):
    """The parts of a result have one engine: what it cannot repeat it does not join."""
    known = experiment("QKV", "Q=K", first_seed=60)
    job = finished(service, known)
    foreign = replace(job.snapshot, processor="another kind of processor")
    with service._changed:
        service._queue.update(job.id, snapshot=foreign)
    new = finished(service, known.replace(sharing=["QKV", "Q=K", "K=V"]), reuse=True)
    assert (new.reused, new.snapshot.processor != foreign.processor) == (None, True)


@pytest.mark.parametrize("held", [True, False])
def test_a_stopped_job_goes_on_where_it_was_stopped(service, held):
    """If it is not held any more, it is trained to its step again, and ends with the same bits."""
    whole = experiment("QKV", "Q=K", first_seed=110 + held, steps=300)
    part = service.submit(whole, paused=True)
    wait_until_still(service, part, "paused")
    for _ in range(3):
        service.step(part)
        wait_until_still(service, part, "paused")
    service.stop(part)
    stopped = wait_until(service, part, lambda job: job.settled)
    again = service.submit(
        whole, paused=True, resumes=stopped if held else replace(stopped, id="forgotten")
    )
    if held:
        assert service.job(again).snapshot is stopped.snapshot
        assert wait_until_still(service, again, "paused").step == stopped.step
    service.step(again)
    job = wait_until(service, again, lambda job: job.state == "paused" and job.step > stopped.step)
    assert job.step == stopped.step + 11
    service.resume(again)
    ended = wait_until(service, again, lambda job: job.over)
    assert ended.seconds > stopped.seconds
    assert_same_bits(ended.snapshot, train(whole, "cpu").snapshot)


def test_only_so_many_stopped_trainings_are_held(monkeypatch):
    """Memory is bounded by their size; the newest stay."""
    experiments = [experiment("QKV", first_seed=seed) for seed in (1, 2, 3)]
    monkeypatch.setattr(worker, "HELD_MEGABYTES", 2.5 * peak_megabytes(experiments[0]))
    own = MemoryWorker()
    for name, wanted in zip("abc", experiments, strict=True):
        own.work(Start(job=name, experiment=wanted.to_json(), paused=True))
        own.work(Steer(name, "stop", 1))
    assert list(own._held) == ["b", "c"]


@pytest.mark.usefixtures("pages_service")
def test_the_lab_trains_what_is_new():
    """A variant that is added trains alone; one that is switched off and on is there at once."""
    tab = watch(press(visit_small(steps="30"), "train"), lambda job: job.over)
    whole, numbers = job_of(tab), [column["value"] for column in columns(tab)]
    for variants in (["QKV"], ["QKV", "Q=K"], ["QKV", "Q=K", "K=V"]):
        tab.session_state["set_sharing"] = variants
        show(tab)
        if len(variants) < 3:
            assert job_of(tab).state == "finished"
            assert list(job_of(tab).snapshot.experiment.sharing) == variants
        assert (job_of(tab).id == whole.id) == (len(variants) > 1)
    assert tab.button(key="train").label == "Train what is new"
    *known, new = columns(tab)
    assert [column["value"] for column in known] == numbers
    assert "lacking" in new["map"]
    tab = watch(press(tab, "train"), lambda job: job.over)
    assert job_of(tab).trains.sharing == ("K=V",)
    assert list(job_of(tab).snapshot.experiment.sharing) == ["QKV", "Q=K", "K=V"]
    assert tab.session_state["lab"].previous is None


@pytest.mark.usefixtures("pages_service")
def test_changed_settings_train_by_themselves_if_that_is_wanted():
    """Not without the switch, nor what takes long; whatever page was open in between."""
    tab = watch(press(visit_small(steps="30"), "train"), lambda job: job.over)
    before = job_of(tab).id
    for steps, trains in ((40, False), (20_000, False), (20, True), (10, True)):
        tab.number_input(key="set_steps").set_value(steps)
        show(tab)
        assert (job_of(tab).id != before) == trains
        if trains:
            tab = watch(tab, lambda job: job.over)
            assert job_of(tab).step == steps
            turn_to(turn_to(tab, "guide"), "lab")
        elif steps == 40:
            tab.toggle(key="train_automatically").set_value(True)
        assert tab.toggle(key="train_automatically").value
