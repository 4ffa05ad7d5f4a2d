"""The visitor's own data on pages: hostile inputs, names as text, examples, limits, privacy."""

import inspect
import random
import re
import typing
from contextlib import closing

import pytest
from idle import idle_service, link_of, open_page, show, visit
from searching import times
from visiting import plain_text, press, said, switch, turn_to

import attnkit as ak
from attnkit.experiment.links import link_params, read_link
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.tables import csv_table
from attnkit.service.history import changed_settings, task_title
from attnkit.service.jobs import Watcher
from attnkit.service.protocol import Update
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore
from attnkit.tasks import hash_in_link
from attnkit.tasks.own_examples import EXAMPLES
from attnkit.ui.lab.own_data_draft import (
    KINDS,
    PASTE,
    RECOGNISED,
    TYPE,
    Draft,
    in_words,
    table_of,
    text_of_table,
)
from attnkit.ui.server.service import training_service
from attnkit.ui.server.storage import result_store

GOOD = "\n".join(f"key {i}\tvalue {i % 5}" for i in range(30))
SMALL = {"task": "pairs", "n_seeds": "1", "steps": "2", "evaluate_every": "1", "sharing": "QKV"}

NAMES = [
    *("=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "$x^2$", "**b**", "[a](http://b)"),
    *("עדה", "Zoë", "👩‍🚀", "a|b", "`x`", "&amp;", ":material/home:", "http://a.b", "#0123", "@me"),
]
"""Names that are fine as they are, whatever they mean elsewhere."""

SOURCE = inspect.getsource(typing)[:60_000]

REFUSED = {
    "": "empty",
    "hello": "1 column",
    "\n".join(f"{i}\t{i % 9}" for i in range(100_000)): "too many rows",
    "x" * 2_000_001: "2,000,001 bytes",
    "שלום, " * 250_000: "bytes",
    "[" * 900 + "]" * 900: "too deep",
    "a" * 5000: "Window",
}
"""Texts that are refused, with what the message names; test_own_data_hostile has many more."""

ACCEPTED = [
    "\ufeff" + GOOD,
    GOOD.replace("\n", "\r\n"),
    GOOD.replace("\t", ";"),
    "\n".join(f'"Paris {i}, Texas";USA {i % 3}' for i in range(20)),
    "\n".join(f'"two\nlines {i}"\tx{i % 3}' for i in range(20)),
    "\n".join(f"{i}\t{i * i % 7}" for i in range(20)),
    f"key\tvalue\n{GOOD}",
    "\n".join(f'["k{i}", {i % 4}]' for i in range(20)),
    "\n".join(f"a{i}\u0301\u202e\tb{i % 3}\ufffe" for i in range(20)),
    "\n".join(f"{name}\t{other}" for name in NAMES for other in NAMES[:3]),
    SOURCE + "".join(map(chr, range(33, 2500))),
    *EXAMPLES.values(),
]


def damaged(source):
    """Return a good table of which a few characters were changed, removed or added."""
    signs = ['"', "\t", "\n", ",", ";", "\r", "\0", "\u202e", "\ud7ff", "é", "{", "=", "<b>", ""]
    text = list(source.choice(ACCEPTED[:10]))
    for _ in range(source.randint(1, 12)):
        text[source.randrange(len(text))] = source.choice(signs)
    return "".join(text)


def read(text, kind="recognised"):
    """Return the experiment on a text and the message about it."""
    draft = Draft(text=text, kind=kind)
    try:
        task, data = draft.read()
        return ak.experiment.links.with_data({"task": task}, data)[0], ""
    except (BadDocument, ak.InvalidExperiment) as error:
        said = in_words(error)
    assert len(said) < 600
    assert not re.search(r"\bak\.|--data", said)
    return None, said


def test_a_text_is_read_or_has_a_message(seed):
    """A message names the value; names are as they are typed, and a table holds the same rows."""
    for text, named in REFUSED.items():
        experiment, message = read(text)
        assert (experiment, named in message) == (None, True), message
        assert message.startswith(("Your data", "Window"))
    for text in ACCEPTED:
        experiment, message = read(text)
        assert (message, experiment is None) == ("", False)
        task = experiment.task
        if task.name != "text":
            again = Draft(text=text_of_table(table_of(Draft(text=text))))
            assert again.read() == (task.name, task.data)
        if NAMES[0] in text:
            assert task.rows.words(0) == tuple(NAMES)
    source = random.Random(seed)
    for text in (damaged(source) for _ in range(times(15))):
        for kind in KINDS:
            experiment, message = read(text, kind)
            assert bool(message) == (experiment is None)
            table_of(Draft(text=text, kind=kind))


def test_a_first_line_that_names_the_columns_is_noticed_and_columns_are_chosen(seed):
    """A first line that is a row is none; the visitor may say otherwise."""
    draw = random.Random(seed)
    for _ in range(20):
        people, relations = draw.sample(NAMES, 12), ["boss", "mentor"][: draw.randint(1, 2)]
        rows = [(who, kind, draw.choice(people)) for who in people for kind in relations]
        pairs = [(who, str(draw.randint(0, 99))) for who in people]
        for table, heading in ((rows, ("person", "kind", "other")), (pairs, ("person", "age"))):
            separator = draw.choice("\t;,")
            lines = [separator.join(f'"{cell}"' for cell in row) for row in table]
            assert not Draft(text="\n".join(lines)).has_heading
            assert Draft(text="\n".join([separator.join(heading), *lines])).has_heading
    wide = "pupil;age;boss\n" + "\n".join(f"p{i};{i};b{i % 4}" for i in range(20))
    for options, begins in (
        ({"kind": "pairs", "columns": ["pupil", "boss"]}, "p0\tb0"),
        ({"heading": True}, "p0\t0\tb0"),
        ({}, "p0\t0\tb0"),
        ({"heading": False}, "pupil"),
    ):
        assert Draft(text=wide, **options).read()[1].startswith(begins)
    assert list(table_of(Draft(text=f"{wide};more"))["column 4"].dropna())[-1] == "more"
    with pytest.raises(ak.InvalidExperiment, match="3 columns"):
        Draft(text=wide, kind="pairs").read()


def contents(tab):
    """Return all that a page holds, as text."""

    def of(block):
        for child in block.children.values():
            yield from of(child) if getattr(child, "children", None) else [str(child.proto)]

    return "\n".join(of(tab._tree))


def finish(process, job_id, result):
    """Let a job finish with a result, as the training process would."""
    process._replies.put(Update(job_id, "finished", 0, "", *result.to_blobs()))
    while not (job := training_service().job(job_id)).over:
        training_service().wait(job_id, job.version, 5)


@pytest.mark.server
def test_data_of_a_hosted_copy_are_for_their_visitor_only(tmp_path, monkeypatch):
    """A word that a visitor typed is in no file, no log, no address, no page of another visitor."""
    word, secret = "Marrakesch7431", "a long secret"
    logged = []
    monkeypatch.setattr("attnkit.service.logs._write", logged.append)
    settings = {"hosted": "true", "log_level": "info", "owner_secret": secret}
    with idle_service(tmp_path / "store", **settings) as processes:
        tab = visit(**SMALL, data="#" + "0" * 16)
        tab.text_area(key="own_text").set_value(GOOD.replace("key 0", word))
        assert word in contents(show(tab))
        press(press(tab, "use_own_data"), "train")
        lab = tab.session_state["lab"]
        experiment, job_id, mine = lab.experiment, lab.job_id, lab.watcher
        assert (experiment.n_seeds, experiment.training.steps) == (1, 2)
        finish(processes[-1], job_id, ak.train(experiment))
        assert word not in str(link_of(show(tab)))
        hidden = [word, experiment.hash, hash_in_link(experiment.task.data)[1:]]
        public = {**SMALL, "data": f"#{hidden[2]}"}
        for page in ("lab", "attention", "similarity", "surgery", "runs", "capacity", "variants"):
            other = open_page(page, **(public if page in ("lab", "attention") else {}))
            assert word not in contents(other), page
        owner = open_page("owner")
        owner.text_input(key="owner_secret").set_value(secret)
        owner = press(owner, "owner_sign_in")
        assert [one for one in hidden[:2] if one in contents(owner)] == []
        service, stranger = training_service(), Watcher("tab", "stranger", "")
        assert service.find(experiment, mine).id == job_id
        assert service.find(experiment, stranger) is service.find(experiment) is None
        assert service.estimate(experiment, stranger) > service.estimate(experiment, mine)
        assert service.submit(experiment, watcher=stranger, reuse=True) != job_id
        more = experiment.replace(sharing=["QKV", "Q=K"])
        assert service.submit(more, watcher=mine, reuse=True)
        assert service.submit(later := more.replace(first_seed=5))
        assert service.find(later, stranger) is None
        assert result_store().entries() == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if word.encode() in path.read_bytes()] == []
    out = "".join(logged)
    assert "experiment finished" in out
    assert [one for one in hidden if one in out] == []


@pytest.mark.server
def test_examples_and_pastes_open_are_taken_back_and_are_trained(tmp_path):
    """Notes stand there before training; names stay text; what an example replaces comes back."""

    def task_of(tab):
        return tab.session_state["lab"].experiment.task

    def paste(tab, text):
        press(tab, "change_own_data")
        tab.text_area(key="own_text").set_value(text)
        return press(show(tab), "use_own_data")

    def can_restore(tab):
        return any(one.key == "restore_own_data" for one in tab.button)

    with idle_service(tmp_path) as processes:
        tab = switch(visit(n_seeds="2", sharing="QKV"), "own_data")
        press(tab, "own_example_1")
        assert all(text in said(tab) for text in task_of(tab).notes)
        assert "data" in link_of(tab)
        assert tab.session_state["lab"].experiment.n_seeds == 2
        assert not can_restore(tab)
        tab.radio(key="set_learn").set_value("by_heart")
        assert task_of(show(tab)).learn == "by_heart"
        press(tab, "change_own_data")
        draft = tab.session_state["own_data_draft"]
        typed = {"way": TYPE, "text": GOOD, "kind": "pairs", "heading": False}
        vars(draft).update(typed)
        press(show(tab), "own_example_1")
        assert task_of(tab).name == "relations"
        press(tab, "restore_own_data")
        assert {name: getattr(draft, name) for name in typed} == typed
        assert not can_restore(tab)
        press(tab, "use_own_data")
        assert task_of(tab).name == "pairs"
        press(tab, "change_own_data")
        vars(draft).update(way=PASTE, kind=RECOGNISED)
        show(tab)
        press(tab, "use_own_data")
        names = "\n".join(f"{name}\t{other}" for name in NAMES for other in NAMES[:3])
        press(paste(tab, names), "train")
        assert not can_restore(tab)
        assert processes[-1].begun[-1].task.rows.words(0) == tuple(NAMES)
        press(tab, "change_own_data")
        assert any(r"\<img src\=x" in caption.value for caption in tab.caption)
        press(tab, "use_own_data")
        assert "60,000 characters" in said(paste(tab, SOURCE))
        press(tab, "full_size")
        assert task_of(tab).length == 64
        paste(tab, names)
        turn_to(tab, "capacity").button_group(key="capacity_section").set_value("live")
        show(tab).selectbox(key="form_task").select("pairs")
        press(show(tab), "run_sweep")
        assert len({experiment.task.data for experiment in processes[-1].begun}) == 1


@pytest.mark.server
def test_limits_of_a_hosted_copy_are_said_and_nothing_typed_is_lost(tmp_path):
    """Too many rows or bytes, or a faulty row; the text stays, also while another page is open."""
    long = "\n".join(f"key {i}\tv{i % 5}" for i in range(2001))
    with idle_service(tmp_path, hosted="true"):
        tab = switch(visit(), "own_data")
        for text, named in (
            (long, "2,000"),
            ((long + "\n") * 12, "200,000"),
            (f"{GOOD}\na\t", "row 31 (a, )"),
        ):
            tab.text_area(key="own_text").set_value(text)
            press(tab, "use_own_data")
            assert any(named in plain_text(error) for error in tab.error)
            assert tab.text_area(key="own_text").value == text
        assert not tab.get("file_uploader")
        tab = turn_to(turn_to(tab, "guide"), "lab")
        assert tab.text_area(key="own_text").value == text


def test_a_link_of_long_data_names_them_by_their_hash():
    """Who has the data opens it; anybody else keeps its settings."""
    long = [(f"{name} {i}", other) for i, name in enumerate(NAMES * 40) for other in NAMES[:2]]
    experiment = ak.Experiment(task=ak.Table(long), sharing="QKV", n_seeds=1)
    link, data = link_params(experiment), experiment.task.data
    assert link["data"] == hash_in_link(data)
    assert read_link(link, lambda _: None, {link["data"]: data}).experiment == experiment
    assert read_link(link, lambda _: None).awaited["n_seeds"] == "1"
    assert server_settings().owner_of(experiment, "me") == ""


# Names on pages and in notebooks


@pytest.fixture
def relations():
    """Relations between people with these names."""
    rows = [(who, "<i>boss</i>", NAMES[i - 1]) for i, who in enumerate(NAMES)]
    few = {"n_seeds": 1, "steps": 2, "evaluate_every": 1, "n_eval": 16, "batch_size": 16}
    return ak.Experiment(task=ak.Table(rows, n_entries=6), sharing=["QKV", "Q=K"], **few)


def test_names_are_no_html_in_a_notebook_and_no_formulas_in_a_table(relations):
    """Cards and figures hold them escaped; in a spreadsheet one begins with an apostrophe."""
    result = ak.train(relations)
    shown = [relations, result, ak.record(relations, 0), *map(result.plot, ("attention", "scores"))]
    for one in shown:
        assert not re.search(r"<img src=x|<i>boss", one._repr_html_())
    table = csv_table(["who", "relation", "whom"], relations.task.rows.cells)
    assert f"'{NAMES[0]}" in table
    assert not re.search(r"(^|,)=", table, re.MULTILINE)


@pytest.mark.server
def test_pages_open_links_and_kept_results_on_own_data(relations, tmp_path):
    """With the data of the link, or with those of the store; Runs lists it without the data."""
    with idle_service(tmp_path), closing(ResultStore(tmp_path)) as store:
        store.put(*ak.train(relations).to_blobs())
        links = [relations.to_params(), {"run": relations.hash}] * 2
        for page, link in zip(("lab", "attention", "surgery", "similarity"), links, strict=True):
            assert open_page(page, **link).session_state["lab"].experiment.task == relations.task
        for chosen in ({}, {"run": relations.hash}):
            assert open_page("runs", **chosen).dataframe
    assert task_title("relations") == relations.task.title
    changed = changed_settings(relations.to_json())
    assert f" {len(NAMES)} rows" in changed
    assert not any(name in changed for name in NAMES)
