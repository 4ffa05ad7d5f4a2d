"""The Lab with its training process: finished examples, training to the end, and what it shows."""

import random
import re

import pytest
from visiting import (
    FRESH_SEED,
    PATIENCE,
    UNENDING,
    await_example,
    columns,
    disabled,
    drawn,
    job_of,
    plain_text,
    press,
    show,
    status,
    switch,
    visit,
    visit_small,
    watch,
    widgets,
)

import attnkit as ak
from attnkit.experiment.experiment import Experiment, settings
from attnkit.service.jobs import Watcher
from attnkit.service.service import TrainingService
from attnkit.tasks import TASKS
from attnkit.training.summary import percent
from attnkit.ui.lab.task_examples import shipped_example
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.variants.sharing import Sharing

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_every_task_opens_with_its_question_its_dials_and_a_finished_example(seed, long):
    """One with an earlier task, one with a full size, and one that is drawn; nothing is warned."""
    drawn_task = random.Random(seed).choice(list(TASKS))
    for task in TASKS if long else {"transfer", "reverse", drawn_task}:
        tab = await_example(visit(v="1", task=task))
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
        (rule,) = (text.help for text in tab.markdown if plain_text(text).startswith("Solved by "))
        assert "99%" in rule or task not in ("transfer", "reverse")


def test_a_variant_or_setting_without_numbers_has_none_of_the_example(seed):
    """Columns are those of the switches, in their order; variants are drawn."""
    names = [*(sharing.value for sharing in Sharing), "QKV n_heads=4 kv_heads=1"]
    chance = random.Random(seed)
    for steps in (600, 70):
        chosen = [name for name in names if chance.random() < 0.6] or ["Q=K"]
        tab = visit(v="1", sharing=",".join(chosen), steps=str(steps))
        assert [column["text"] for column in columns(tab)] == chosen
        for column in columns(tab):
            known = steps == 600 and column["text"] in names[:5]
            assert (column["value"] != "–") == (column["curve"] is not None) == known
            assert bool(column["scores"]) == bool(column["asymmetry_value"]) == known
        complete = steps == 600 and names[5] not in chosen
        assert ("ot trained yet" in status(tab)) != complete


def finished(**params):
    """Return a tab that shows a small experiment, trained to its end."""
    return watch(press(visit_small(**params), "train"), lambda job: job.over)


def test_train_runs_to_the_end_on_every_kind_of_task(seed, long):
    """Train leads to the finished tables: with an earlier task, a corpus, and one that is drawn."""
    tiny = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "steps": "4", "evaluate_every": "2"}
    drawn_task = random.Random(seed).choice(sorted(TASKS.keys() - {"transfer", "language"}))
    for task in TASKS if long else ("transfer", "language", drawn_task):
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
        trained_on = chosen.corpus or "n_train" in more
        for column in columns(tab):
            assert ("on training examples" in column["facts"]) == trained_on, task
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


def test_a_value_typed_just_before_a_press_is_trained(monkeypatch):
    """If it is right; where no example ships, planned cards take its place."""
    monkeypatch.setattr("attnkit.ui.lab.lab.shipped_example", lambda _: None)
    tab = visit_small(task="phonebook", steps="20")
    assert status(tab).startswith("Not trained yet")
    assert {card["note"] for card in columns(tab)} == {"not trained yet"}
    tab.number_input(key="set_n_names").set_value(5)
    press(tab, "train")
    assert (bool(tab.error), job_of(tab)) == (True, None)
    tab.number_input(key="set_n_names").set_value(11)
    show(tab)
    for width, key in enumerate(("train", "step", "reset", "new_seeds"), 4):
        tab.number_input(key="set_d_head").set_value(width)
        watch(press(tab, key), lambda job: job.settled)
        assert job_of(tab).experiment.size.d_head == width
    tab.number_input(key="set_first_seed").set_value(999_999)  # the last one
    assert job_of(press(tab, "new_seeds")).experiment.first_seed == 0
    assert "first_seed" not in tab.query_params


def test_what_was_trained_before_is_shown_at_once(monkeypatch):
    """Its link opens it finished, also after a restart; Train on it trains anew."""
    first = finished(steps="20")
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
    monkeypatch.setattr("attnkit.ui.session.watcher", lambda: Watcher("another tab", "another"))
    other = press(visit(**running.query_params), "pause")
    assert status(other).startswith("Paused: Step")
    assert disabled(other) == {"pause", "step"}
    assert not status(press(other, "train")).startswith("Paused")
    assert disabled(press(other, "stop")) == {"pause", "stop"}
    assert training_service().job(job_id).active
    running.number_input(key="set_n_names").set_value(4)
    assert show(running).error
    assert disabled(running) == {"train", "step", "reset", "new_seeds"}
    assert not running.dataframe  # tables wait until it stops
    running.number_input(key="set_n_names").set_value(11)
    switch(running, "mutual")
    assert job_of(running) is None
    assert training_service().job(job_id).state == "stopped"


def test_variants_of_other_heads_and_widths_train_beside_each_other():
    """Maps name a head that a variant does not have."""
    variants = ["QKV", "QKV n_heads=2 d_k=4 diff", "QKV n_heads=4 kv_heads=1"]
    tab = finished(sharing=",".join(variants), d_head="4", steps="20")
    assert status(tab).startswith("Finished: Step 20 of 20, 3 models in")
    head = next(box for box in tab.selectbox if box.label == "Head")
    assert len(head.options) == 5
    head.set_value(2)
    lacking = [column["map"]["lacking"] for column in columns(show(tab))]
    assert [re.findall(r"\d", text) for text in lacking] == [["1"], ["2"], []]


def test_a_task_that_fails_loses_its_thumbnail_only(monkeypatch):
    """All other tasks have theirs, whatever fails in it."""

    def fail(*_):
        raise KeyError("mine")

    wrong = [{"label": fail}, {"overrides": {"steps": -1}}, {"d_vocab": property(fail)}]
    for number, members in enumerate(wrong):
        own = {"__annotations__": {}, "name": f"broken{number}", **members}
        monkeypatch.setitem(TASKS, own["name"], type("Own", (TASKS["phonebook"],), own))
    tab = visit()
    for name in ("phonebook", "directed"):
        training_service().example(Experiment(task=name), PATIENCE)
    families = drawn(show(tab), "gallery")["families"]
    cards = {card["name"]: card["thumbnail"] for one in families for card in one["tasks"]}
    assert [cards[f"broken{number}"] for number in range(3)] == [""] * 3
    assert cards["phonebook"] > ""
    assert cards["directed"] > ""


BOOK = "Jindřich 731\nAnna 204\nBernd 518"


def answers_to(tab, task, book, name):
    """Type a book and a query, and return the answers as HTML."""
    tab.text_area(key=f"book_{task}").set_value(book)
    tab.text_input(key=f"asked_{task}").set_value(name)
    return drawn(show(tab), "custom_book_answers")["diagram"]


def test_finished_examples_answer_a_book_of_ones_own(monkeypatch):
    """They answer it before any training, and once while nothing changes; faults are plain text."""
    for task, name, n_right in [("fuzzy_phonebook", "Amna", 1), ("phonebook", "anna", 5)]:
        tab = visit(v="1", task=task)
        html = answers_to(tab, task, f"{BOOK}\nKim 1\nOtto 2\nVera 3\nYusuf 4", name)
        assert re.sub(r"<[^>]*>", " ", html).count("204 ✓") >= n_right, task
        assert job_of(tab) is None
    tab.text_area(key="book_phonebook").set_value("<b>x</b> $1$ `a` *b*\nBen")
    assert "Line 2: got “Ben”" in plain_text(show(tab).error[0])
    assert "custom_book_answers" not in {one.key for one in tab.get("bidi_component")}
    book = "<img src=x onerror=alert(1)> 1\n**B** 2"
    html = answers_to(tab, "phonebook", book, "<script>alert(1)$x$")
    assert ("<img" in html, "&lt;img" in html) == (False, True)
    assert not [caption for caption in tab.caption if "<script>" in caption.value]
    answers_to(tab, "phonebook", "Ada 1\nBen 2", "Ada")
    monkeypatch.setattr(TrainingService, "ask_example", lambda *_, **given: "Busy")
    for name, right in (("Ada", "1 ✓"), ("Ben", "2 ✓")):  # every name was asked at once
        assert right in re.sub(r"<[^>]*>", " ", answers_to(tab, "phonebook", "Ada 1\nBen 2", name))
    tab.text_area(key="book_phonebook").set_value("Ada 1\nBen 2\nCem 3")
    assert plain_text(show(tab).warning[-1]) == "Busy."


def test_own_models_answer_a_book_once_they_are_trained():
    """Models with learned positions answer the trained size only; other tasks have no book."""
    assert not visit_small(task="mutual").text_area
    learned = {"sharing": "QKV,QKV positions=learned", "n_entries": "4", "n_names": "8"}
    tab = visit(v="1", task="phonebook", n_seeds="2", steps="250", first_seed="77", **learned)
    assert any("not trained" in info.value for info in tab.info)
    watch(press(tab, "train"), lambda job: job.over)
    text = re.sub(r"<[^>]*>", " ", answers_to(tab, "phonebook", BOOK, "anna"))
    assert ("204 ✓" in text, text.count("4 entries only"), text.count("2 of 2")) == (True, 1, 1)
    assert "entries only" not in answers_to(tab, "phonebook", f"{BOOK}\nKim 1", "anna")
