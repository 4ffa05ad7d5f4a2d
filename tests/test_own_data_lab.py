"""The visitor's own data in the Lab: hostile inputs, links without their data, and privacy."""

import random
import tracemalloc

import pytest
from idle import idle_service, link_of, open_page, show, visit
from own_tables import TEXTS, without_cells
from visiting import press, said, switch, turn_to

import attnkit as ak
from attnkit.experiment.links import link_params, read_link
from attnkit.foundation.documents import BadDocument
from attnkit.service.jobs import Watcher
from attnkit.service.protocol import Update
from attnkit.service.server import server_settings
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
MOST_MEMORY = 64 * 2**20

NAMES = [
    *("=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "$x^2$", "**b**", "[a](http://b)"),
    *("עדה", "Zoë", "👩‍🚀", "a|b", "`x`", "&amp;", ":material/home:", "http://a.b", "#0123", "@me"),
]
"""Names that are fine as they are, whatever they mean elsewhere."""

REFUSED = {
    "": "empty",
    " \n\t\n": "empty",
    "a\t1": "1 different row is not allowed",
    "a\t1\n" * 50: "1 different row is not allowed",
    "hello": "it has 1 column",
    "\n".join(f"k{i}" for i in range(40)): "it has 1 column",
    "\n".join(f"a{i}\tb\tc\td" for i in range(20)): "it has 4 columns",
    "\n".join(f"a{i}\tlikes\ta{i}" for i in range(20)): "two different names in each row",
    "\n".join(f"a{i}\tv" for i in range(20)): "at least 2 different answers",
    f"{GOOD}\na\tb\tc": "its line 31 has 3 columns",
    f"{GOOD}\nalone": "its line 31 has 1 column",
    f"{GOOD}\na\t": "row 31 with an empty cell",
    f"{GOOD}\na\t\u200b": "row 31 with an empty cell",
    f"{GOOD}\na\t\u202e\u2066": "row 31 with an empty cell",
    f"{GOOD}\n{'a' * 101}\tb": "row 31 with a name of 101 characters",
    f"{GOOD}\n{'a' * 1_000_000}\tb": "is not a row of a table",
    f"{GOOD}\na\0b\tc": "it has a null character",
    f'{GOOD}\n"a\tb': "is not a row of a table",
    f'{GOOD}\n"a"b\tc': "is not a row of a table",
    "\n".join(f"{i}\t{i % 9}" for i in range(100_000)): "too many rows",
    "\n".join(f"k{i}\tv{i}" for i in range(4097)): "more different names in a column",
    "x" * 2_000_001: "2,000,001 bytes is not allowed",
    "שלום, " * 250_000: "bytes is not allowed",
    "a," * 5000: "it has 5001 columns",
    '{"a": 1}\n' * 20: "it has 1 column",
    '{"a": 1, "b": [2]}\n' * 20: "row 1 with [2]",
    '{"a": 1, "b": null}\n' * 20: "row 1 with an empty cell",
    '{"a": 1, "a": 2}\n' * 20: "stands twice",
    "[1, 2]\n[1, 2, 3]\n" * 20: "row 2 with 3 cells",
    "[" * 900 + "]" * 900: "too deep",
    "To be or not to be. " * 99: "it has 1 column",
    "a" * 5000: "Window",
}
"""Texts that are refused, with a part of the message."""

ACCEPTED = [
    "\ufeff" + GOOD,
    GOOD.replace("\n", "\r\n"),
    GOOD.replace("\t", ";"),
    GOOD.replace("\t", ", "),
    "\n".join(f'"Paris {i}, Texas";USA {i % 3}' for i in range(20)),
    "\n".join(f'"two\nlines {i}"\tx{i % 3}' for i in range(20)),
    "\n".join(f"same\tvalue {i}" for i in range(20)),
    "\n".join(f"{i}\t{i * i % 7}" for i in range(20)),
    f"key\tvalue\n{GOOD}",
    "\n".join(f'["k{i}", {i % 4}]' for i in range(20)),
    "\n".join(f"a{i}\u0301\u202e\tb{i % 3}\ufffe" for i in range(20)),
    "\n".join(f"{name}\t{other}" for name in NAMES for other in NAMES[:3]),
    TEXTS["source"]() + "".join(map(chr, range(33, 2500))),
    *EXAMPLES.values(),
]


def drawn_inputs(seed, n):
    """Return good tables of which a few characters were changed, removed or added."""
    source, inputs = random.Random(seed), []
    signs = ['"', "\t", "\n", ",", ";", "\r", "\0", "\u202e", "\ud7ff", "é", "{", "=", "<b>", ""]
    for _ in range(n):
        text = list(source.choice(ACCEPTED[:12]))
        for _ in range(source.randint(1, 12)):
            text[source.randrange(len(text))] = source.choice(signs)
        inputs.append("".join(text))
    return inputs


def read(text, kind="recognised"):
    """Return the experiment on a text and the message about it, within bounded memory."""
    draft = Draft(text=text, kind=kind)
    tracemalloc.start()
    try:
        task, data = draft.read()
        experiment, _ = ak.experiment.links.with_data({"task": task}, data)
        said = ""
    except (BadDocument, ak.InvalidExperiment) as error:
        experiment, said = None, in_words(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert draft.text == text
    assert peak < MOST_MEMORY, f"{peak:,}"
    assert len(said) < 600
    assert "ak." not in said
    assert "--data" not in said
    return experiment, said


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_hostile_text_has_a_message(text):
    """It names the field, the value and what is allowed, and the text stays."""
    experiment, message = read(text)
    assert experiment is None
    assert REFUSED[text] in without_cells(message)
    assert message.startswith(("Your data", "Window"))


@pytest.mark.parametrize("text", ACCEPTED, ids=range(len(ACCEPTED)))
def test_a_strange_text_is_read(text):
    """Names are as they are typed, and the table to type into holds the same rows."""
    experiment, message = read(text)
    assert (message, experiment is None) == ("", False)
    task = experiment.task
    if task.name == "text":
        return
    again = Draft(text=text_of_table(table_of(Draft(text=text))))
    assert again.read() == (task.name, task.data)
    if NAMES[0] in text:
        assert task.rows.words(0) == tuple(NAMES)


def test_a_drawn_text_is_read_or_has_a_message():
    """A damaged text gives a message or a task, as any kind of data."""
    for text in drawn_inputs(seed=44, n=40):
        for kind in KINDS:
            experiment, message = read(text, kind)
            assert bool(message) == (experiment is None)
            table_of(Draft(text=text, kind=kind))


def test_columns_are_chosen_by_the_first_line():
    """The visitor chooses columns of a larger table, and of one with a heading."""
    wide = "pupil;age;boss\n" + "\n".join(f"p{i};{i};b{i % 4}" for i in range(20))
    assert "two different" not in read(wide)[1]
    draft = Draft(text=wide, kind="pairs", columns=["pupil", "boss"])
    assert draft.read()[1].startswith("p0\tb0")
    assert Draft(text=wide, heading=True).read()[1].startswith("p0\t0\tb0")
    assert Draft(text=wide).read()[1].startswith("p0\t0\tb0")
    assert Draft(text=wide, heading=False).read()[1].startswith("pupil")
    assert list(table_of(Draft(text=f"{wide};more"))["column 4"].dropna())[-1] == "more"
    with pytest.raises(ak.InvalidExperiment, match="3 columns', allowed pairs: key"):
        Draft(text=wide, kind="pairs").read()


def test_a_first_line_that_names_the_columns_is_noticed(seed):
    """And a first line that is a row is none."""
    draw = random.Random(seed)
    for _ in range(50):
        people, relations = draw.sample(NAMES, 12), ["boss", "mentor"][: draw.randint(1, 2)]
        rows = [(who, kind, draw.choice(people)) for who in people for kind in relations]
        pairs = [(who, str(draw.randint(0, 99))) for who in people]
        for table, heading in ((rows, ("person", "kind", "other")), (pairs, ("person", "age"))):
            separator = draw.choice("\t;,")
            lines = [separator.join(f'"{cell}"' for cell in row) for row in table]
            assert not Draft(text="\n".join(lines)).has_heading
            assert Draft(text="\n".join([separator.join(heading), *lines])).has_heading


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
    rows, logged = GOOD.replace("key 0", word), []
    monkeypatch.setattr("attnkit.service.logs._write", logged.append)
    settings = {"hosted": "true", "log_level": "info", "owner_secret": secret}
    with idle_service(tmp_path / "store", **settings) as processes:
        tab = visit(**SMALL, data="#" + "0" * 16)
        assert "all other settings of the link are kept" in said(tab)
        tab.text_area(key="own_text").set_value(rows)
        assert word in contents(show(tab))
        press(tab, "use_own_data")
        lab = tab.session_state["lab"]
        assert (lab.experiment.n_seeds, lab.experiment.training.steps) == (1, 2)
        assert "are other data" in said(tab)
        press(tab, "train")
        result = ak.train(lab.experiment)
        job_id = lab.job_id
        finish(processes[-1], job_id, result)
        show(tab)
        assert "neither stored nor logged" in said(tab)
        assert word not in str(link_of(tab))
        public = {**SMALL, "data": hash_in_link(lab.experiment.task.data)}
        for page in ("lab", "attention", "similarity", "surgery", "runs", "capacity", "variants"):
            other = open_page(page, **(public if page in ("lab", "attention") else {}))
            assert word not in contents(other), page
        owner = open_page("owner")
        owner.text_input(key="owner_secret").set_value(secret)
        owner = press(owner, "owner_sign_in")
        assert word not in contents(owner)
        assert lab.experiment.hash not in contents(owner)
        service, mine = training_service(), lab.watcher
        stranger = Watcher("tab", "stranger", "")
        assert service.find(lab.experiment, mine).id == job_id
        assert service.find(lab.experiment, stranger) is None
        assert service.find(lab.experiment) is None
        assert service.estimate(lab.experiment, stranger) > service.estimate(lab.experiment, mine)
        assert service.submit(lab.experiment, watcher=stranger, reuse=True) != job_id
        more = lab.experiment.replace(sharing=["QKV", "Q=K"])
        assert service.submit(more, watcher=mine, reuse=True)
        assert result_store().entries() == []
        anonymous = service.submit(more.replace(first_seed=5))
        assert service.find(more.replace(first_seed=5), stranger) is None, anonymous
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if word.encode() in path.read_bytes()] == []
    out = "".join(logged)
    assert "experiment finished" in out
    for secret_word in (word, lab.experiment.hash, hash_in_link(lab.experiment.task.data)[1:]):
        assert secret_word not in out


@pytest.mark.server
def test_limits_of_a_hosted_copy_are_said_and_nothing_typed_is_lost(tmp_path):
    """For a paste, and for a link."""
    long = "\n".join(f"key {i}\tv{i % 5}" for i in range(2001))
    with idle_service(tmp_path, hosted="true"):
        tab = switch(visit(), "own_data")
        for text, message in (
            (long, "2,001 rows is not allowed. Allowed: at most 2,000 on this"),
            ((long + "\n") * 12, "bytes is not allowed. Allowed: at most 200,000"),
            (f"{GOOD}\na\t", "row 31 (a, ) with an empty cell is not allowed"),
        ):
            tab.text_area(key="own_text").set_value(text)
            press(tab, "use_own_data")
            assert message in said(tab)
            assert tab.text_area(key="own_text").value == text
        assert [kind.key for kind in tab.get("file_uploader")] == []
        tab = show(turn(tab))
        assert tab.text_area(key="own_text").value == text


def turn(tab):
    """Leave the Lab and come back."""
    show(tab.switch_page("pages/guide.py"))
    return tab.switch_page("pages/lab.py")


@pytest.mark.server
def test_what_an_example_replaces_can_be_taken_back(tmp_path):
    """A typed table comes back as it was; an example that replaces an example loses nothing."""
    with idle_service(tmp_path):
        tab = visit(task="directed", sharing="QKV")
        switch(tab, "own_data")
        press(tab, "own_example_0")
        assert not any(one.key == "restore_own_data" for one in tab.button)
        press(tab, "change_own_data")
        draft = tab.session_state["own_data_draft"]
        typed = {"way": TYPE, "text": GOOD, "kind": "pairs", "heading": False}
        for name, value in typed.items():
            setattr(draft, name, value)
        show(tab)
        for restore in (True, False):
            press(tab, "own_example_1")
            assert tab.session_state["lab"].experiment.task.name == "relations"
            if restore:
                press(tab, "restore_own_data")
                assert draft.is_open
                assert {name: getattr(draft, name) for name in typed} == typed
                assert not any(one.key == "restore_own_data" for one in tab.button)
                press(tab, "use_own_data")
                assert tab.session_state["lab"].experiment.task.name == "pairs"
                press(tab, "change_own_data")
        press(tab, "change_own_data")
        draft.way, draft.text, draft.kind = PASTE, GOOD, RECOGNISED
        show(tab)
        press(tab, "use_own_data")  # other data of one's own: nothing is lost any more
        assert not any(one.key == "restore_own_data" for one in tab.button)


@pytest.mark.server
def test_an_example_opens_by_one_press_and_names_are_no_markdown(tmp_path):
    """Notes and expectation are on screen before training; names stay text everywhere."""
    with idle_service(tmp_path) as processes:
        tab = switch(visit(n_seeds="2"), "own_data")
        press(tab, "own_example_1")
        words = said(tab)
        assert "no training example has them" in words
        assert "Q=K and Q=K=V should get at most about" in words
        assert "data" in link_of(tab)
        assert tab.session_state["lab"].experiment.n_seeds == 2
        tab.radio(key="set_learn").set_value("by_heart")
        assert show(tab).session_state["lab"].experiment.task.learn == "by_heart"
        press(tab, "change_own_data")
        names = "\n".join(f"{name}\t{other}" for name in NAMES for other in NAMES[:3])
        tab.text_area(key="own_text").set_value(names)
        show(tab)
        read_as = next(c for c in tab.caption if "Read as a table of 45 rows" in c.value)
        assert r"\<img src\=x" in read_as.value
        press(tab, "use_own_data")
        press(tab, "train")
        assert processes[-1].begun[-1].task.rows.words(0) == tuple(NAMES)
        press(tab, "change_own_data")
        tab.text_area(key="own_text").set_value(TEXTS["source"]())
        press(tab, "use_own_data")
        assert "60,000 characters" in said(tab)
        press(tab, "full_size")
        assert tab.session_state["lab"].experiment.task.length == 64
        press(tab, "change_own_data")
        tab.text_area(key="own_text").set_value(names)
        press(tab, "use_own_data")
        turn_to(tab, "capacity").button_group(key="capacity_section").set_value("live")
        show(tab).selectbox(key="form_task").select("pairs")
        press(show(tab), "run_sweep")
        assert len({experiment.task.data for experiment in processes[-1].begun}) == 1
        long = [(f"{name} {i}", other) for i, name in enumerate(NAMES * 40) for other in NAMES[:2]]
        experiment = ak.Experiment(task=ak.Table(long), sharing="QKV", n_seeds=1)
        link = link_params(experiment)
        assert link["data"] == hash_in_link(experiment.task.data)
        known = {link["data"]: experiment.task.data}
        assert read_link(link, nothing_stored, known).experiment == experiment
        assert read_link(link, nothing_stored).awaited["n_seeds"] == "1"
        assert server_settings().owner_of(experiment, "me") == ""


def nothing_stored(_):
    """No result is stored."""
