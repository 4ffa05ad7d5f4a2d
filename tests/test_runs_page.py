"""The Runs page without a browser: history, choice by link, comparison, changes, troubles."""

import json
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import pytest
from finished import finished, store_finished
from idle import idle_service, link_of, open_page, show
from kinds import tiny
from visiting import plain_text, said, turn_to

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.results import Result
from attnkit.ui.reference import run_comparison, runs
from attnkit.ui.reference.runs import MOST, Runs
from attnkit.ui.server.storage import result_store

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def store(tmp_path):
    """An empty store that the pages use, too."""
    with idle_service(tmp_path), closing(ResultStore(tmp_path)) as opened:
        yield opened


@pytest.fixture
def three(store):
    """Two experiments that differ in their head width and seeds, and one on another task."""
    return [
        store_finished(store, tiny("directed", n_seeds=3)),
        store_finished(store, tiny("directed", n_seeds=3, first_seed=1, d_head=5), 0.9),
        store_finished(store, tiny("reverse", sharing=["QKV"])),
    ]


@pytest.fixture
def downloads(monkeypatch):
    """The functions that make the downloads of the page, by their labels."""
    offered = {}

    def offer(label, data, *_, **__):
        offered[label] = data

    monkeypatch.setattr("streamlit.download_button", offer)
    return offered


def visit(*hashes):
    """Open the page with a link."""
    return open_page("runs", **({"run": ",".join(hashes)} if hashes else {}))


def concluded(tab):
    """Return the sentence above all."""
    return plain_text(tab.markdown[0])


def chosen(tab):
    """Return the lines of what is compared, as HTML."""
    return [element.proto.body for element in tab.get("html")]


def choice(tab, label):
    """Return the pills or segments with a label."""
    return next(group for group in tab.get("button_group") if group.label == label)


def replayed(tab):
    """Return the header and arrays of the film of curves."""
    components = {element.key: element.proto for element in tab.get("bidi_component")}
    return InspectionResult.from_bytes(components["replay"].bytes)


def test_the_history_is_listed_newest_first_and_searched(store, monkeypatch):
    """Listing counts as no use, and reads large results at several drawings."""
    tab = visit()
    assert "train one in the Lab, and it is kept" in said(tab)
    assert not tab.dataframe
    first = store_finished(store, tiny("directed", n_seeds=3))
    store_finished(store, tiny("directed", n_seeds=3, first_seed=1, d_head=5), 0.9)
    store_finished(store, tiny("reverse", sharing=["QKV"]))
    store.rename(first, "Ours")
    used = [entry.used_at for entry in store.entries()]
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_READ_BYTES", 1)
        assert show(tab).dataframe[0].value["reached"].notna().sum() == 1
    tab = visit()
    table = tab.dataframe[0].value
    assert [entry.used_at for entry in store.entries()] == used
    names = ["Reverse · QKV × 2 seeds", "Directed relation · 5 variants × 3 seeds", "Ours"]
    assert table["name"].tolist() == names
    assert table["runs"].tolist() == [2, 15, 15]
    assert "First seed 1" in table["changed"][1]
    reached = [f"QKV {n}, Q=K {n}, K=V {n}, Q=V {n}, …" for n in ("90%", "50%")]
    assert table["reached"].tolist() == ["QKV 50%", *reached]
    found = ["No experiment fits", "1 experiment fits", "2 experiments fit"]
    for searched, n_found in [("relation", 2), ("ours", 1), ("nothing", 0), ("head width 5", 1)]:
        tab.text_input(key="runs_search").set_value(searched)
        show(tab)
        assert sum(len(frame.value) for frame in tab.dataframe) == n_found, searched
        assert concluded(tab).startswith(found[n_found])


def test_a_comparison_shows_settings_numbers_pairs_and_whole_downloads(three, downloads):
    """Letters stand in the order of the link; measure and variants can be chosen."""
    tab = visit(three[1], three[0])
    assert [line.split("<b>")[1][0] for line in chosen(tab)] == ["A", "B"]
    settings, reached, within, between = (frame.value for frame in tab.dataframe[1:])
    assert settings.set_index("Setting").loc["Head width"].tolist() == ["5", "6"]
    assert "Steps" not in settings["Setting"].tolist()
    assert reached["last"].tolist() == [90] * 5 + [50] * 5
    assert (set(within["n_pairs"]), set(between["n_pairs"])) == ({3}, {2})
    assert between["difference"].tolist() == pytest.approx([-40] * 5)
    assert concluded(tab) == "The accuracy of QKV differs most: 90% in A, 50% in B."
    rows = downloads["Every evaluation as CSV"]().decode().splitlines()
    assert len(rows) == 1 + 2 * 5 * 3 * 3
    told = json.loads(downloads["Settings and runs as JSON"]())["experiments"]
    assert [one["hash"] for one in told] == link_of(tab)["run"].split(",") == [three[1], three[0]]
    choice(tab, "Measure").set_value("loss")
    choice(tab, "Variants").set_value(["QKV", "K=V"])
    show(tab)
    assert "Loss on held-out examples, by training step" in said(tab)
    reached, within = (frame.value for frame in tab.dataframe[2:4])
    assert reached["sharing"].tolist() == ["QKV", "K=V"] * 2
    assert reached["last"].tolist() == pytest.approx([0.1, 0.1, 0.5, 0.5])
    assert within["sharing"].tolist() == ["K=V"] * 2


def test_a_single_experiment_is_replayed_and_has_no_partner(three):
    """From step 0 to the end, with a sentence at each step; the variants can be chosen."""
    tab = visit(three[1])
    (fold,) = (expander for expander in tab.expander if expander.label == "Settings")
    assert "Head width" in fold.dataframe[0].value["Setting"].tolist()
    assert concluded(tab) == "Directed relation: all 5 variants reach 90% accuracy."
    assert "Experiments against each other" not in said(tab)
    links = [element.proto for element in tab.get("page_link")]
    assert [link.page for link in links] == ["", "attention"]
    assert all(f"run={three[1]}" in link.query_string for link in links)
    header = replayed(tab).header
    assert header["steps"] == [0, 4, 8]
    assert header["sentences"]["conclusion"] == [
        "Untrained, all 5 variants reach 10% accuracy.",
        "At step 4, all 5 variants reach 50% accuracy.",
        "At step 8, all 5 variants reach 90% accuracy.",
    ]
    choice(tab, "Variants").set_value(["K=V"])
    film = replayed(show(tab))
    assert [variant["name"] for variant in film.header["variants"]] == ["K=V"]
    assert film.header["sentences"]["conclusion"][-1] == "At step 8, K=V reaches 90% accuracy."
    assert film.framed["accuracy"].shape == (3, 1)


def test_a_result_says_what_trained_it_also_after_it_was_trained_again(store):
    """Another engine gives other bits; limits of an accuracy lie within 0 and 1 all the same."""
    experiment = tiny("directed", sharing=["QKV"], n_seeds=2)
    first = finished(experiment, [[[0.1, 0.2]], [[0.2, 1.0]]])
    for engine, words in (("torch", "torch"), ("kernel", "the compiled kernel")):
        snapshot = replace(first, engine=engine, processor="Intel AVX-512")
        store.put(*Result(snapshot, [{} for _ in experiment.runs]).to_blobs())
        tab = visit(experiment.hash)
        assert f"{words} on Intel AVX-512" in said(tab)
        row = tab.dataframe[1].value.iloc[0]
        assert (row["low"], row["high"]) == (0, 100)


def test_experiments_of_two_tasks_have_no_pairs_and_that_is_said(three, store):
    """They share no data; and a task with a loss to beat shows its loss, as the Lab does."""
    tab = visit(three[0], three[2])
    assert set(tab.dataframe[-1].value["n_pairs"]) == {0}
    assert "No pairs: B." in said(tab)
    text = said(visit(store_finished(store, Experiment(task="language"))))
    assert "Loss on held-out examples, by training step" in text
    assert "All are the task's defaults." in text


def test_what_a_link_names_in_vain_is_told_and_names_are_no_markup(three, store):
    """The rest is compared; nothing typed is markup, also where one is asked whether to delete."""
    store.rename(three[0], "<script>alert(1)</script> *x*")
    tab = visit(three[0], "0123456789abcdef", "<b>*x*")
    warned = " ".join(warning.value for warning in tab.warning)
    assert "0123456789abcdef" in warned
    assert "\\<b\\>\\*x\\*" in warned
    assert len(chosen(tab)) == 1
    assert link_of(tab)["run"] == three[0]
    assert not show(tab).warning
    tab.menu_button(key=f"change_{three[0]}").click_index(2)
    assert len(chosen(show(tab))) == 2
    assert "<script>" not in "".join(chosen(tab))


def test_an_experiment_is_renamed_pinned_left_and_deleted(three, store):
    """Each by the menu beside it; deleting asks once more, and the choice outlives other pages."""
    tab = visit(*three)
    menu = f"change_{three[0]}"
    tab.menu_button(key=menu).click_index(0)
    show(tab).text_input(key="name").set_value("  Our   first ")
    tab.button(key="save_name").click()
    assert "Our first" in chosen(show(tab))[0]
    tab.menu_button(key=menu).click_index(1)
    show(tab)
    assert [entry.hash for entry in store.entries() if entry.pinned] == [three[0]]
    assert tab.menu_button(key=menu).options[1].endswith("Unpin")
    tab.button(key=f"leave_{three[2]}").click()
    turn_to(show(tab), "guide")
    tab.query_params.clear()
    turn_to(tab, "runs")
    assert link_of(tab)["run"] == ",".join(three[:2])
    for answer, left in {"keep": three[:2], "confirm_delete": [three[1]]}.items():
        tab.menu_button(key=menu).click_index(2)
        show(tab).button(key=answer).click()
        assert len(chosen(show(tab))) == len(left)
        assert link_of(tab)["run"] == ",".join(left)
    assert three[0] not in [entry.hash for entry in store.entries()]


def test_on_a_hosted_copy_only_the_owner_changes_what_is_stored(three, monkeypatch):
    """Others see everything."""
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setenv("ATTNKIT_OWNER_SECRET", "a secret that is long enough")
    server_settings.cache_clear()
    tab = visit(three[0])
    for owner in (False, True):
        tab.session_state["owner"] = owner
        assert len(show(tab).menu_button) == owner
        assert len(chosen(tab)) == 1


def test_downloads_fill_no_memory(downloads, monkeypatch):
    """One is written at a time; too many evaluations are refused with a reason, fewer if hosted."""
    held, told, locked = [], [], run_comparison._WRITING.locked
    monkeypatch.setattr(run_comparison, "to_json", lambda _: str(held.append(locked())))
    monkeypatch.setattr(run_comparison.st, "caption", told.append)
    for hosted, limit in {"false": 400_000, "true": 100_000}.items():
        monkeypatch.setenv("ATTNKIT_HOSTED", hosted)
        server_settings.cache_clear()
        for n_rows in (limit, limit + 1):
            downloads.clear()
            monkeypatch.setattr(run_comparison, "n_evaluations", lambda _, n=n_rows: n)
            run_comparison.downloads([])
            assert len(downloads) == (2 if n_rows == limit else 0)
            for write in (*downloads.values(),)[1:]:
                write()
        assert f"{limit + 1:,} evaluations are too many for one download" in told[-1]
    assert (held, locked()) == ([True, True], False)


def test_troubles_of_the_store_are_told(three, monkeypatch):
    """The page stands, nothing is lost, and the next visit tries again."""
    full = Mock(side_effect=Unavailable("the disk is full"))
    for method, fails, told in (
        ("snapshot", lambda *_: None, "Cannot be read by this copy"),  # a torn row
        ("entries", full, "cannot be read now: the disk is full\\."),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(ResultStore, method, fails)
            tab = visit(three[0])
            assert told in tab.warning[0].value
    assert len(chosen(show(tab))) == 1
    with monkeypatch.context() as broken:
        broken.setattr(ResultStore, "pin", full)
        tab.menu_button(key=f"change_{three[0]}").click_index(1)
        assert "the disk is full" in show(tab).warning[0].value
    monkeypatch.setenv("ATTNKIT_STORE", "nonsense://here")
    server_settings.cache_clear()
    result_store.clear()
    assert "cannot be read now" in visit().warning[0].value


def test_a_setting_is_found_behind_many_that_have_its_number_elsewhere(store):
    """The store knows words only; what it finds is looked at more closely."""
    wanted = store_finished(store, tiny("directed", sharing=["QKV"], first_seed=5))
    for seed in range(6, 12):
        store_finished(store, tiny("directed", sharing=["QKV"], first_seed=seed))
    assert [entry.hash for entry in runs.list_entries(store, "first_seed 5", 3)] == [wanted]
    assert len(runs.list_entries(store, "directed", 3)) == 3


def test_ticked_rows_join_what_is_chosen_outside_of_the_table():
    """A search hides rows; that does not end their comparison. A ninth is refused."""
    picked = Runs(chosen=["a", "c"])
    picked.take_rows(["b", "c", "d"], [0, 2, 3])  # the last one has left the table meanwhile
    assert picked.chosen == ["a", "b", "d"]
    picked.take_rows(["a", "c"], [0, 1])  # those that are there keep their letters
    assert picked.chosen == ["a", "b", "d", "c"]
    picked, rows = Runs(chosen=list("abcdefgh")), list("abcdefghi")
    picked.take_rows(rows, range(9))
    assert picked.chosen == rows[:-1]
    assert f"At most {MOST}" in picked.problems[0]
    assert picked.version  # a new table begins; else its tick would stay
