"""The Runs page without a browser: history, choice by link, comparison, changes, troubles."""

import csv
import io
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from finished import finished, store_finished
from kinds import tiny
from streamlit.testing.v1 import AppTest

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.service.server import server_settings
from attnkit.service.store import LONGEST_NAME, LONGEST_SEARCH, ResultStore, Unavailable
from attnkit.training.results import Result
from attnkit.ui import run_comparison, runs
from attnkit.ui.runs import MOST, Runs
from attnkit.ui.service import training_service
from attnkit.ui.storage import result_store

pytestmark = pytest.mark.server

DASHBOARD = str(Path(__file__).parents[1] / "dashboard.py")


@pytest.fixture(scope="module", autouse=True)
def service():
    """The training process of all pages here, ended with the module."""
    training_service.clear()
    with closing(training_service()) as opened:
        yield opened
    training_service.clear()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """An empty store that the pages use, too."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    forget()
    with closing(ResultStore(tmp_path)) as opened:
        yield opened
    used = result_store()
    if isinstance(used, ResultStore):
        used.close()
    monkeypatch.undo()
    forget()


def forget():
    """Read settings, and open the store, anew."""
    server_settings.cache_clear()
    result_store.clear()
    runs._cached_snapshot.cache_clear()
    runs._REACHED.clear()


def visit(*hashes, **state):
    """Open the page with a link."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=120)
    for name, value in state.items():
        tab.session_state[name] = value
    tab.switch_page("pages/runs.py")
    if hashes:
        tab.query_params["run"] = ",".join(hashes)
    return show(tab)


def show(tab):
    """Run the page; it must not fail."""
    tab.run()
    assert not tab.exception
    return tab


def texts(tab):
    """All that is said."""
    kinds = (tab.markdown, tab.caption, tab.info, tab.warning, tab.subheader)
    return "\n".join(element.value for kind in kinds for element in kind)


def concluded(tab):
    """The sentence above all."""
    return tab.markdown[0].value.replace("\\", "")


def link(tab):
    """What the address names."""
    values = tab.query_params["run"]
    return values if isinstance(values, str) else ",".join(values)


def chosen(tab):
    """The lines of what is compared, as HTML."""
    return [element.proto.body for element in tab.get("html")]


@pytest.fixture
def three(store):
    """Two experiments that differ in their head width and seeds, and one on another task."""
    return [
        store_finished(store, tiny("directed", n_seeds=3)),
        store_finished(store, tiny("directed", n_seeds=3, first_seed=1, d_head=5), 0.9),
        store_finished(store, tiny("reverse", sharing=["QKV"])),
    ]


def test_an_empty_store_leads_to_the_lab(monkeypatch):
    """Its first text is friendly; a store that settings describe wrongly is told."""
    tab = visit()
    assert "train one in the Lab, and it is kept" in texts(tab)
    assert [link.proto.label for link in tab.get("page_link")] == ["Open the Lab"]
    assert not tab.dataframe
    monkeypatch.setenv("ATTNKIT_STORE", "nonsense://here")
    forget()
    assert "cannot be read now" in visit().warning[0].value
    assert isinstance(result_store(), Unavailable)


def test_the_history_lists_the_newest_first_and_is_searched(three, store, monkeypatch):
    """By the name somebody gave, or one that says what it is; to list counts as no use.

    Large results are read at several drawings, so that the table opens soon.
    """
    store.rename(three[0], "Ours")
    used = [entry.used_at for entry in store.entries()]
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_READ_BYTES", 1)
        tab = visit()
        assert tab.dataframe[0].value["reached"].notna().sum() == 1
    table = show(tab).dataframe[0].value
    assert [entry.used_at for entry in store.entries()] == used
    assert table["name"].tolist() == [
        "Reverse · QKV × 2 seeds",
        "Directed relation · 5 variants × 3 seeds",
        "Ours",
    ]
    assert table["runs"].tolist() == [2, 15, 15]
    assert "First seed 1" in table["changed"][1]
    assert table["reached"].tolist() == [
        "QKV 50%",
        "QKV 90%, Q=K 90%, K=V 90%, Q=V 90%, …",
        "QKV 50%, Q=K 50%, K=V 50%, Q=V 50%, …",
    ]
    assert tab.text_input(key="runs_search").max_chars == LONGEST_SEARCH
    counts = {0: "No experiment fits", 1: "1 experiment fits", 2: "2 experiments fit"}
    for searched, n_found in [("relation", 2), ("ours", 1), ("nothing", 0), ("head width 5", 1)]:
        tab.text_input(key="runs_search").set_value(searched)
        show(tab)
        assert sum(len(frame.value) for frame in tab.dataframe) == n_found, searched
        assert bool(tab.info) == (n_found == 0)
        assert concluded(tab).startswith(counts[n_found])


def test_a_link_opens_a_comparison(three):
    """Letters in the order of the link; settings that differ, numbers, pairs."""
    tab = visit(three[1], three[0])
    assert [line.split("<b>")[1][0] for line in chosen(tab)] == ["A", "B"]
    settings, reached, within, between = (frame.value for frame in tab.dataframe[1:])
    assert settings.set_index("Setting").loc["Head width"].tolist() == ["5", "6"]
    assert "Steps" not in settings["Setting"].tolist()
    assert reached["last"].tolist() == [90] * 5 + [50] * 5
    assert set(within["n_pairs"]) == {3}
    assert set(between["n_pairs"]) == {2}
    assert between["difference"].tolist() == pytest.approx([-40] * 5)
    assert concluded(tab) == "The accuracy of QKV differs most: 90% in A, 50% in B."
    assert link(tab) == f"{three[1]},{three[0]}"


def test_a_result_says_what_trained_it_also_after_it_was_trained_again(store):
    """Another engine gives other bits, so the page reads the result anew."""
    experiment = tiny("directed", sharing=["QKV"])
    first = finished(experiment, np.full((3, 1, experiment.n_seeds), 0.5))
    for engine, words in (("torch", "torch"), ("kernel", "the compiled kernel")):
        snapshot = replace(first, engine=engine, processor="Intel AVX-512")
        store.put(*Result(snapshot, [{} for _ in experiment.runs]).to_blobs())
        tab = visit(experiment.hash)
        (fold,) = (e for e in tab.expander if e.label == "What trained them, for programmers")
        assert f"{words} on Intel AVX-512" in fold.markdown[0].value.replace("\\", "")
        assert words not in "".join(chosen(tab))


def replayed(tab):
    """Return the header and arrays of the film of curves."""
    components = {element.key: element.proto for element in tab.get("bidi_component")}
    return InspectionResult.from_bytes(components["replay"].bytes)


def test_a_single_experiment_is_replayed_and_has_no_partner(three):
    """From step 0 to the end, with a sentence at each step; the variants can be chosen."""
    tab = visit(three[1])
    (fold,) = (expander for expander in tab.expander if expander.label == "Settings")
    assert "Head width" in fold.dataframe[0].value["Setting"].tolist()
    assert len(tab.dataframe) == 4
    assert concluded(tab) == "Directed relation: all 5 variants reach 90% accuracy."
    assert "Experiments against each other" not in texts(tab)
    links = [element.proto for element in tab.get("page_link")]
    assert [link.label for link in links] == ["Open in the Lab", "Replay its attention"]
    assert [link.page for link in links] == ["", "attention"]
    assert all(f"run={three[1]}" in link.query_string for link in links)
    film = replayed(tab)
    assert film.header["steps"] == [0, 4, 8]
    assert film.header["sentences"] == [
        "Untrained, all 5 variants reach 10% accuracy.",
        "At step 4, all 5 variants reach 50% accuracy.",
        "At step 8, all 5 variants reach 90% accuracy.",
    ]
    group = next(group for group in tab.get("button_group") if group.label == "Variants")
    group.set_value(["K=V"])
    film = replayed(show(tab))
    assert [variant["name"] for variant in film.header["variants"]] == ["K=V"]
    assert film.header["sentences"][-1] == "At step 8, K=V reaches 90% accuracy."
    assert film.framed["accuracy"].shape == (3, 1)


def test_experiments_of_two_tasks_have_no_pairs_and_that_is_said(three, store):
    """They share no data; and a task with a loss to beat shows its loss, as the Lab does."""
    tab = visit(three[0], three[2])
    assert set(tab.dataframe[-1].value["n_pairs"]) == {0}
    assert "No pairs: B." in texts(tab)
    tab = visit(store_finished(store, Experiment(task="language")))
    assert "Loss on held-out examples, by training step" in texts(tab)
    assert "All are the task's defaults." in texts(tab)


def test_what_a_link_names_in_vain_is_told_and_names_are_no_markup(three, store):
    """The rest is compared; nothing typed is markup, also where one is asked whether to delete."""
    store.rename(three[0], "<script>alert(1)</script> *x*")
    tab = visit(three[0], "0123456789abcdef", "<b>*x*")
    said = " ".join(warning.value for warning in tab.warning)
    assert "0123456789abcdef" in said
    assert "\\<b\\>\\*x\\*" in said
    assert len(chosen(tab)) == 1
    assert link(tab) == three[0]
    assert not show(tab).warning
    tab.menu_button(key=f"change_{three[0]}").click_index(2)
    assert len(chosen(show(tab))) == 2
    assert "<script>" not in "".join(chosen(tab))


def test_variants_and_measure_can_be_chosen(three):
    """Tables and curves follow."""
    tab = visit(three[0], three[1])
    names = tab.get("button_group")
    measure = next(group for group in names if group.label == "Measure")
    variants = next(group for group in names if group.label == "Variants")
    measure.set_value("loss")
    variants.set_value(["QKV", "K=V"])
    show(tab)
    assert "Loss on held-out examples, by training step" in texts(tab)
    reached, within = (frame.value for frame in tab.dataframe[2:4])
    assert reached["sharing"].tolist() == ["QKV", "K=V"] * 2
    assert reached["last"].tolist() == pytest.approx([0.5, 0.5, 0.1, 0.1])
    assert within["sharing"].tolist() == ["K=V"] * 2


def test_limits_of_an_accuracy_lie_within_0_and_1(store):
    """Student's t knows nothing of shares; the raw data stay as they are."""
    experiment = tiny("directed", sharing=["QKV"], n_seeds=2)
    snapshot = finished(experiment, [[[0.1, 0.2]], [[0.2, 1.0]]])
    store.put(*Result(snapshot, [{}, {}]).to_blobs())
    row = visit(experiment.hash).dataframe[1].value.iloc[0]
    assert (row["low"], row["high"]) == (0, 100)


def test_an_experiment_is_renamed_pinned_and_deleted(three, store):
    """Each by the menu beside it; deleting asks once more."""
    tab = visit(three[0], three[1])
    menu = f"change_{three[0]}"
    tab.menu_button(key=menu).click_index(0)
    assert show(tab).text_input(key="name").max_chars == LONGEST_NAME
    tab.text_input(key="name").set_value("  Our   first ")
    tab.button(key="save_name").click()
    assert "Our first" in chosen(show(tab))[0]

    tab.menu_button(key=menu).click_index(1)
    show(tab)
    assert [entry.hash for entry in store.entries() if entry.pinned] == [three[0]]
    assert tab.menu_button(key=menu).options[1].endswith("Unpin")

    tab.menu_button(key=menu).click_index(2)
    show(tab).button(key="keep").click()
    assert len(chosen(show(tab))) == 2
    tab.menu_button(key=menu).click_index(2)
    show(tab).button(key="confirm_delete").click()
    assert len(chosen(show(tab))) == 1
    assert three[0] not in [entry.hash for entry in store.entries()]
    assert link(tab) == three[1]


def test_the_choice_survives_a_visit_to_another_page_and_can_be_left(three):
    """Coming back without a link finds it again."""
    tab = visit(three[0], three[1])
    tab.button(key=f"leave_{three[0]}").click()
    assert len(chosen(show(tab))) == 1
    show(tab.switch_page("pages/guide.py"))
    tab.query_params.clear()
    show(tab.switch_page("pages/runs.py"))
    assert len(chosen(tab)) == 1
    assert link(tab) == three[1]


@pytest.mark.parametrize("owner", [False, True])
def test_on_a_hosted_copy_only_the_owner_changes_what_is_stored(three, monkeypatch, owner):
    """Others see everything."""
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setenv("ATTNKIT_OWNER_SECRET", "a secret that is long enough")
    forget()
    tab = visit(three[0], owner=owner)
    assert len(tab.menu_button) == owner
    assert len(chosen(tab)) == 1


def test_downloads_are_whole(three, monkeypatch):
    """Every evaluation of every run of what is chosen."""
    made = {}
    monkeypatch.setattr(
        "streamlit.download_button", lambda label, data, *_, **__: made.update({label: data()})
    )
    visit(three[0], three[1])
    rows = list(csv.DictReader(io.StringIO(made["Every evaluation as CSV"].decode())))
    assert len(rows) == 2 * 5 * 3 * 3
    assert {row["experiment"] for row in rows} == set(three[:2])
    told = json.loads(made["Settings and runs as JSON"])["experiments"]
    assert [one["hash"] for one in told] == three[:2]


def test_one_download_is_written_at_a_time(three, monkeypatch):
    """Many at once would fill the memory of the server."""
    made = {}
    monkeypatch.setattr(
        "streamlit.download_button", lambda label, data, *_, **__: made.update({label: data})
    )
    visit(three[0])
    held = []
    monkeypatch.setattr(
        run_comparison, "to_json", lambda _: str(held.append(run_comparison._WRITING.locked()))
    )
    made["Settings and runs as JSON"]()
    assert held == [True]
    assert not run_comparison._WRITING.locked()


@pytest.mark.parametrize(("hosted", "n_seeds", "limit"), [("false", 100, 4), ("true", 26, 1)])
def test_too_many_evaluations_are_refused_with_a_reason(three, monkeypatch, hosted, n_seeds, limit):
    """Rather than filling the memory of a machine that many share."""
    monkeypatch.setenv("ATTNKIT_HOSTED", hosted)
    forget()
    shown, asked = [], []
    monkeypatch.setattr(run_comparison.st, "caption", shown.append)
    monkeypatch.setattr(run_comparison.st, "download_button", lambda *_, **__: asked.append(1))
    monkeypatch.setattr(run_comparison, "n_evaluations", lambda _: 4001 * n_seeds)
    run_comparison.downloads([])
    assert f"{4001 * n_seeds:,} evaluations are too many for one download" in shown[0]
    assert f"(at most {limit}00,000)" in shown[0]
    monkeypatch.setattr(run_comparison, "n_evaluations", lambda _: limit * 100_000)
    run_comparison.downloads([])
    assert len(asked) == 2


def test_troubles_of_the_store_are_told(three, monkeypatch):
    """The page stands, nothing is lost, and the next visit tries again."""

    def full(*_, **__):
        raise Unavailable("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(ResultStore, "entries", full)
        tab = visit(three[0])
        assert "cannot be read now: the disk is full\\." in tab.warning[0].value
    assert len(chosen(show(tab))) == 1
    with monkeypatch.context() as broken:
        broken.setattr(ResultStore, "pin", full)
        tab.menu_button(key=f"change_{three[0]}").click_index(1)
        assert "the disk is full" in show(tab).warning[0].value
    runs._cached_snapshot.cache_clear()
    monkeypatch.setattr(ResultStore, "snapshot", lambda *_: None)  # a torn row
    tab = visit(three[0])
    assert "Cannot be read by this copy" in tab.warning[0].value
    assert not chosen(tab)


def test_a_setting_is_found_behind_many_that_have_its_number_elsewhere(store):
    """The store knows words only; what it finds is looked at more closely."""
    wanted = store_finished(store, tiny("directed", sharing=["QKV"], first_seed=5))
    for seed in range(6, 12):
        store_finished(store, tiny("directed", sharing=["QKV"], first_seed=seed))
    assert [entry.hash for entry in runs.list_entries(store, "first_seed 5", 3)] == [wanted]
    assert len(runs.list_entries(store, "directed", 3)) == 3


def test_ticked_rows_join_what_is_chosen_outside_of_the_table():
    """A search hides rows; that does not end their comparison. A ninth is refused."""
    choice = Runs(chosen=["a", "c"])
    choice.take_rows(["b", "c", "d"], [0, 2])
    assert choice.chosen == ["a", "b", "d"]
    choice, rows = Runs(chosen=list("abcdefgh")), list("abcdefghi")
    before = choice.key_of_table(rows)
    choice.take_rows(rows, range(9))
    assert choice.chosen == list("abcdefgh")
    assert f"At most {MOST}" in choice.problems[0]
    assert choice.key_of_table(rows) != before  # else its tick would stay


def test_an_address_of_a_moment_ago_changes_nothing_back():
    """A click that left the browser before our address arrived."""
    choice = Runs()
    choice._overwritten = ({}, float("inf"))
    choice.link = {"run": "a"}
    assert not choice.is_new_link({})
    assert choice.is_new_link({"run": "b"})
