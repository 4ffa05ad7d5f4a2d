"""The Lab with its training process: what it shows, and that nothing is trained twice."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from idle import PATIENCE
from kinds import SMALL
from same import assert_same
from visiting import (
    FRESH_SEED,
    UNENDING,
    columns,
    disabled,
    drawn,
    job_of,
    plain_text,
    press,
    show,
    status,
    switch,
    turn_to,
    visit,
    visit_small,
    watch,
    widgets,
)
from waiting import assert_same_bits, wait_until, wait_until_still

import attnkit as ak
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import settings
from attnkit.service.jobs import Watcher
from attnkit.service.service import TrainingService
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.memory import peak_megabytes
from attnkit.training.summary import percent
from attnkit.ui.lab.lab import shipped_example
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import result_store, training_service
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_every_task_opens_with_its_question_its_dials_and_a_finished_example(seed, long):
    """One with an earlier task, one with a full size, and one that is drawn; nothing is warned."""
    drawn_task = random.Random(seed).choice(list(TASKS))
    for task in TASKS if long else {"transfer", "reverse", drawn_task}:
        tab = visit(v="1", task=task)  # a browser's timer draws it again with its example
        assert training_service().example(tab.session_state["lab"].experiment, PATIENCE) is not None
        show(tab)
        assert not [*tab.warning, *tab.error]
        assert disabled(tab) == {"pause", "stop"}
        gallery, kind = drawn(tab, "gallery"), TASKS[task]
        cards = {card["name"]: card for family in gallery["families"] for card in family["tasks"]}
        assert (gallery["current"], list(cards)) == (task, ["own_data", *TASKS])
        keys = {w.key or "" for w in widgets(tab)}
        assert keys >= {f"set_{dial}" for dial in kind.model_fields}, task
        assert ("set_earlier_steps" in keys) == (kind().earlier is not None)
        assert ("set_longer_test" in keys) == bool(kind.lengths)
        assert any(b.key == "full_size" for b in tab.button) == bool(kind.full_size)
        assert len(drawn(tab, "example")["cells"]) == kind().n_ctx
        values = {card["name"]: card["value"] for card in columns(tab)}
        finished = shipped_example(task)
        accuracy = finished.per_sharing(finished.history["accuracy"][-1]).mean(-1)
        assert values == dict(zip(Sharing, map(percent, accuracy), strict=True)), task
        assert all(column["map"] for column in columns(tab))
        rules = [one.help for one in tab.markdown if plain_text(one).startswith("Solved by ")]
        assert "99%" in str(rules) or task not in ("transfer", "reverse")


def finished(**params):
    """Return a tab that shows a small experiment, trained to its end."""
    return watch(press(visit_small(**params), "train"), lambda job: job.over)


def test_train_runs_to_the_end_on_every_kind_of_task(long):
    """Train leads to the finished tables: with an earlier task, a corpus, and two sides."""
    tiny = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "steps": "4", "evaluate_every": "2"}
    for task in TASKS if long else ("transfer", "language", "translation"):
        more = {"batch_size": "16", "n_eval": "16", "first_seed": next(FRESH_SEED)}
        if TASKS[task]().earlier is not None:
            more["earlier_steps"] = "2"
        if settings(task)["n_train"].default:
            more["n_train"] = "32"
        tab = press(visit(**tiny, **more, task=task), "train")
        watch(tab, lambda job: job.over)
        assert status(tab).startswith("Finished: Step 4 of 4, 2 models in"), task
        assert disabled(tab) == {"pause", "stop"}
        assert tab.dataframe[0].value["sharing"].tolist() == ["QKV", "Q=K"]
        chosen = TASKS[task]()
        has_loss = drawn(tab, "board")["quantity"] == "loss"
        assert has_loss == (chosen.loss_to_beat is not None), task
        trained_on = bool(chosen.corpus) or "n_train" in more
        told = {"on training examples" in column["facts"] for column in columns(tab)}
        assert told == {trained_on}, task
        if chosen.slice_names:
            assert tab.dataframe[1].value.columns.tolist() == ["sharing", *chosen.slice_names]
        if "earlier_steps" in more:
            assert "Since step 2 the embedding is frozen" in status(tab)


def test_what_is_shown_of_a_run_is_that_run_until_the_next_one():
    """Pickers change the maps, the code builds it, costs are named; then its curves turn grey."""
    sizes = {"n_seeds": "2", "n_layers": "2", "n_heads": "2", "equal": "parameters"}
    tab = finished(steps="20", causal="true", learning_rate="0.01", **sizes)
    experiment = job_of(tab).experiment
    before = [column["map"] for column in columns(tab)]
    pickers = [box for box in tab.selectbox if not (box.key or "").startswith("set_")]
    assert [picker.label for picker in pickers] == ["Seed", "Layer", "Head"]
    for picker, value in zip(pickers, (experiment.seeds[1], 0, 0), strict=True):
        picker.set_value(value)
    assert [column["map"] for column in columns(show(tab))] != before
    code = re.search(r"= (.*)\nresult = ak\.train\(experiment\)", tab.code[0].value, re.S)[1]
    assert eval(code, {"ak": ak}) == experiment
    facts = {card["name"]: card["facts"] for card in columns(tab)}
    assert experiment.adjusted("Q=K").changes in facts["Q=K"]
    tab.number_input(key="set_d_head").set_value(4)
    watch(press(show(tab), "train"), lambda job: job.over)
    assert "previous experiment" in [entry["text"] for entry in drawn(tab, "board")["legend"]]
    assert all(column["curve"]["previous"] for column in columns(tab))
    tab.number_input(key="set_first_seed").set_value(999_999)  # the last one, typed just before
    assert job_of(press(tab, "new_seeds")).experiment.first_seed == 0


def test_what_was_trained_before_is_shown_at_once(monkeypatch):
    """Its link opens it finished, also after a restart; Train on it trains anew."""
    first = finished(steps="20", sharing="QKV,QKV n_heads=2 d_k=4 diff", d_head="4")
    next(box for box in first.selectbox if box.label == "Head").set_value(1)
    assert columns(show(first))[0]["map"]["lacking"]  # it lacks the head that the other has
    other = visit(**first.query_params)
    assert job_of(other).id == job_of(first).id
    assert job_of(press(other, "train")).id != job_of(first).id
    watch(other, lambda job: job.over)
    monkeypatch.setattr(training_service()._queue, "jobs", {})
    other = visit(**first.query_params)
    assert status(other).startswith("Trained earlier: Step 20 of 20, 2 models in ")
    trained_by = plain(job_of(other).snapshot.trained_by)
    assert any(f" by {trained_by}." in each.value for each in other.caption)


def test_a_pause_holds_one_s_own_view_while_others_watch(monkeypatch):
    """The job goes on for others, and stops when its owner changes the task and is alone."""
    running = watch(press(visit_small(**UNENDING), "train"), lambda job: job.step > 0)
    job_id = job_of(running).id
    monkeypatch.setattr("attnkit.ui.lab.lab.watcher", lambda: Watcher("another tab", "another"))
    other = press(visit(**running.query_params), "pause")
    assert status(other).startswith("Paused: Step")
    assert disabled(other) == {"pause", "step"}
    assert not status(press(other, "train")).startswith("Paused")
    assert disabled(press(other, "stop")) == {"pause", "stop"}
    assert training_service().job(job_id).active
    assert not running.dataframe  # tables wait until it stops
    switch(running, "mutual")
    assert job_of(running) is None
    assert training_service().job(job_id).state == "stopped"


def test_models_answer_a_book_of_ones_own(monkeypatch):
    """Finished examples do before any training, and own ones after it; faults are plain text."""

    def answers_to(tab, book, name):
        tab.text_area(key="book_phonebook").set_value(book)
        tab.text_input(key="asked_phonebook").set_value(name)
        html = drawn(show(tab), "custom_book_answers")["diagram"]
        assert "<img" not in html
        return re.sub(r"<[^>]*>", " ", html)

    tab = visit(v="1", task="phonebook")
    six = "Jindřich 731\nAnna 204\nBernd 518\nKim 1\nOtto 2\nVera 3"
    assert answers_to(tab, f"{six}\nYusuf 4", "anna").count("204 ✓") == 5
    assert job_of(tab) is None
    tab.text_area(key="book_phonebook").set_value("<b>x</b> $1$ `a` *b*\nBen")
    assert "Line 2: got “Ben”" in plain_text(show(tab).error[0])
    assert "&lt;img" in answers_to(tab, "<img src=x onerror=alert(1)> 1\n**B** 2", "<script>")
    answers_to(tab, "Ada 1\nBen 2", "Ada")
    monkeypatch.setattr(TrainingService, "ask_example", lambda *_, **given: "Busy")
    assert "2 ✓" in answers_to(tab, "Ada 1\nBen 2", "Ben")  # every name was asked at once
    tab.text_area(key="book_phonebook").set_value("Ada 1\nBen 2\nCem 3")
    assert plain_text(show(tab).warning[-1]) == "Busy."
    learned = {"sharing": "QKV positions=learned", "n_entries": "4", "n_names": "8"}
    tab = visit(v="1", task="phonebook", n_seeds="1", steps="250", first_seed="77", **learned)
    assert any("not trained" in info.value for info in tab.info)
    watch(press(tab, "train"), lambda job: job.over)
    assert "4 entries only" in answers_to(tab, six, "anna")
    assert "entries only" not in answers_to(tab, "Anna 204\nB 5\nC 1\nD 2", "anna")


def experiment(*sharing, **settings):
    """A small experiment of two seeds that trains in a moment."""
    given = {**SMALL, "n_seeds": 2, "steps": 33, "evaluate_every": 11, **settings}
    return Experiment(**{**given, "sharing": sharing})


def ended(service, wanted, **how):
    """The job of an experiment, trained to its end."""
    job = wait_until(service, service.submit(wanted, **how), lambda job: job.over)
    assert job.state == "finished", job.error
    return job


def test_only_the_new_variant_is_trained_and_nothing_that_is_known(pages_service):
    """The others keep their ends and bits, all is stored as one result, any choice is shown."""
    service, before = pages_service, experiment("QKV", "Q=K")
    old = ended(service, before)
    after = before.replace(sharing=[*before.sharing, Variant("QKV n_heads=2 d_head=2")])
    job_id = service.submit(after, paused=True, reuse=True)
    held = wait_until_still(service, job_id, "paused").snapshot
    accuracy = held.per_sharing(held.history["accuracy"])
    assert (held.step, np.isfinite(accuracy[:, :2]).all()) == (0, True)
    assert np.isfinite(accuracy[:, 2]).any(1).tolist() == [True] + [False] * (len(accuracy) - 1)
    service.resume(job_id)
    new = wait_until(service, job_id, lambda job: job.over)
    assert new.trains.sharing == after.sharing[2:]
    assert new.seconds < new.snapshot.seconds
    assert new.megabytes == peak_megabytes(new.trains)
    assert service.estimate(before) == 0
    assert_same_bits(new.snapshot, train(after, "cpu").snapshot)
    assert_same_bits(result_store().snapshot(after.hash), new.snapshot)
    other = ended(service, before.replace(sharing=["K=V"]))
    both = before.replace(sharing=["Q=K", "K=V"])
    shown = service.find(both)
    assert (shown.state, shown.snapshot.experiment) == ("finished", both)
    assert shown.trainers["K=V"] == other.id
    assert shown.trainers["Q=K"] in (old.id, new.id)
    assert service.job(old.id).snapshot is not None
    assert service.find(before).id == old.id
    known = ended(service, experiment("QKV", "Q=K", first_seed=60))
    foreign = replace(known.snapshot, processor="another kind of processor")
    with service._changed:  # what this machine cannot repeat it does not join, nor other seeds
        service._queue.update(known.id, snapshot=foreign)
    for wanted in (known.experiment.replace(sharing=["QKV", "K=V"]), after.replace(n_seeds=1)):
        alone = ended(service, wanted, reuse=True)
        assert (alone.trains, alone.reused) == (wanted, None)


@pytest.mark.parametrize("held", [True, False])
def test_a_stopped_job_goes_on_where_it_was_stopped(pages_service, held):
    """If it is not held any more, it is trained to its step again, and ends with the same bits."""
    service, whole = pages_service, experiment("QKV", "Q=K", first_seed=110 + held, steps=300)
    part = service.submit(whole, paused=True)
    wait_until_still(service, part, "paused")
    service.step(part)
    wait_until(service, part, lambda job: job.state == "paused" and job.step > 0)
    service.stop(part)
    stopped = wait_until(service, part, lambda job: job.settled)
    resumes = stopped if held else replace(stopped, id="forgotten")
    again = service.submit(whole, paused=True, resumes=resumes)
    if held:  # the training process may have begun: then its state is no longer "stopped"
        assert_same(service.job(again).snapshot, stopped.snapshot, "seconds", "state")
        assert wait_until_still(service, again, "paused").step == stopped.step
    service.step(again)
    job = wait_until(service, again, lambda job: job.state == "paused" and job.step > stopped.step)
    assert job.step == stopped.step + 11
    service.resume(again)
    ended = wait_until(service, again, lambda job: job.over)
    assert ended.seconds > stopped.seconds
    assert_same_bits(ended.snapshot, train(whole, "cpu").snapshot)


def test_the_lab_trains_what_is_new():
    """A variant that is added trains alone; one that is switched off and on is there at once."""
    tab = finished(steps="30")
    whole, numbers = job_of(tab).id, [column["value"] for column in columns(tab)]
    for variants in (["QKV"], ["QKV", "Q=K"], ["QKV", "Q=K", "K=V"]):
        tab.session_state["set_sharing"] = variants
        assert (job_of(show(tab)).id == whole) == (len(variants) > 1)
    assert tab.button(key="train").label == "Train what is new"
    *known, new = columns(tab)
    assert ([column["value"] for column in known], "lacking" in new["map"]) == (numbers, True)
    tab = watch(press(tab, "train"), lambda job: job.over)
    assert job_of(tab).trains.sharing == ("K=V",)
    assert list(job_of(tab).snapshot.experiment.sharing) == ["QKV", "Q=K", "K=V"]


def test_changed_settings_train_by_themselves_if_that_is_wanted():
    """Not without the switch, nor what takes long; whatever page was open in between."""
    tab = finished(steps="30")
    before = job_of(tab).id
    for steps, trains in ((40, False), (20_000, False), (20, True), (10, True)):
        tab.number_input(key="set_steps").set_value(steps)
        assert (job_of(show(tab)).id != before) == trains
        if trains:
            tab = watch(tab, lambda job: job.over)
            assert job_of(tab).step == steps
            turn_to(turn_to(tab, "guide"), "lab")
        elif steps == 40:
            tab.toggle(key="train_automatically").set_value(True)
