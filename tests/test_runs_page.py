"""The Runs page without a browser: history, choice by link, comparison, changes, troubles."""

import json
import re
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import pytest
from finished import finished, store_finished
from idle import idle_service, link_of, open_page, show
from kinds import tiny
from visiting import plain_text, said

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.results import Result
from attnkit.ui.pages import runs
from attnkit.ui.pages.runs import MOST, Runs

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


def visit(*hashes):
    """Open the page with a link."""
    return open_page("runs", **({"run": ",".join(hashes)} if hashes else {}))


def chosen(tab):
    """Return the lines of what is compared, as HTML."""
    return [element.proto.body for element in tab.get("html")]


def choice(tab, label):
    """Return the pills or segments with a label."""
    return next(group for group in tab.get("button_group") if group.label == label)


def test_the_history_is_listed_newest_first_and_searched(store, three, monkeypatch):
    """Listing counts as no use, and reads large results at several drawings."""
    store.rename(three[0], "Ours")
    used = [entry.used_at for entry in store.entries()]
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_READ_BYTES", 1)
        assert visit().dataframe[0].value["reached"].notna().sum() == 1
    tab = visit()
    table = tab.dataframe[0].value
    assert [entry.used_at for entry in store.entries()] == used
    assert [name[:3] for name in table["name"]] == ["Rev", "Dir", "Our"]
    assert table["runs"].tolist() == [2, 15, 15]
    assert "First seed 1" in table["changed"][1]
    reached = [f"QKV {n}, Q=K {n}, K=V {n}, Q=V {n}, …" for n in ("90%", "50%")]
    assert table["reached"].tolist() == ["QKV 50%", *reached]
    for searched, n_found in [("relation", 2), ("ours", 1), ("nothing", 0), ("head width 5", 1)]:
        tab.text_input(key="runs_search").set_value(searched)
        show(tab)
        assert sum(len(frame.value) for frame in tab.dataframe) == n_found, searched
        assert tab.markdown[0].value.startswith(str(n_found) if n_found else "No ")


def test_a_comparison_shows_settings_numbers_pairs_and_whole_downloads(three, monkeypatch):
    """Letters stand in the order of the link; measure and variants can be chosen."""
    downloads, button = {}, "streamlit.download_button"
    monkeypatch.setattr(button, lambda label, data, *_, **__: downloads.update({label: data}))
    tab = visit(three[1], three[0])
    assert [line.split("<b>")[1][0] for line in chosen(tab)] == ["A", "B"]
    settings, reached, within, between = (frame.value for frame in tab.dataframe[1:])
    assert settings.set_index("Setting").loc["Head width"].tolist() == ["5", "6"]
    assert "Steps" not in settings["Setting"].tolist()
    assert reached["last"].tolist() == [90] * 5 + [50] * 5
    assert (set(within["n_pairs"]), set(between["n_pairs"])) == ({3}, {2})
    assert between["difference"].tolist() == pytest.approx([-40] * 5)
    assert re.search("QKV .* 90% in A, 50% in B", plain_text(tab.markdown[0]))
    rows = downloads["Every evaluation as CSV"]().decode().splitlines()
    assert len(rows) == 1 + 2 * 5 * 3 * 3
    told = json.loads(downloads["Settings and runs as JSON"]())["experiments"]
    assert [one["hash"] for one in told] == link_of(tab)["run"].split(",") == [three[1], three[0]]
    choice(tab, "Measure").set_value("loss")
    choice(tab, "Variants").set_value(["QKV", "K=V"])
    reached, within = (frame.value for frame in show(tab).dataframe[2:4])
    assert reached["sharing"].tolist() == ["QKV", "K=V"] * 2
    assert reached["last"].tolist() == pytest.approx([0.1, 0.1, 0.5, 0.5])
    assert within["sharing"].tolist() == ["K=V"] * 2
    other_task = visit(three[0], three[2])
    assert set(other_task.dataframe[-1].value["n_pairs"]) == {0}


def test_a_single_experiment_is_replayed_and_tells_what_trained_it(three, store):
    """With a sentence at each step, and the engine and processor."""

    def replayed(tab):
        components = {element.key: element.proto for element in tab.get("bidi_component")}
        return InspectionResult.from_bytes(components["replay"].bytes)

    tab = visit(three[1])
    assert "90%" in tab.markdown[0].value
    links = [element.proto for element in tab.get("page_link")]
    assert [link.page for link in links] == ["", "attention"]
    assert all(f"run={three[1]}" in link.query_string for link in links)
    assert replayed(tab).header["steps"] == [0, 4, 8]
    choice(tab, "Variants").set_value(["K=V"])
    film = replayed(show(tab))
    assert [variant["name"] for variant in film.header["variants"]] == ["K=V"]
    assert re.search("8.*K=V.*90%", film.header["sentences"]["conclusion"][-1])
    experiment = tiny("directed", sharing=["QKV"], n_seeds=2)
    first = finished(experiment, [[[0.1, 0.2]], [[0.2, 1.0]]])
    snapshot = replace(first, engine="kernel", processor="Intel AVX-512")
    store.put(*Result(snapshot, [{} for _ in experiment.runs]).to_blobs())
    tab = visit(experiment.hash)
    assert "the compiled kernel on Intel AVX-512" in said(tab)
    row = tab.dataframe[1].value.iloc[0]
    assert (row["low"], row["high"]) == (0, 100)  # limits of an accuracy lie within both


def test_an_experiment_is_renamed_pinned_left_and_deleted(three, store, monkeypatch):
    """Each by the menu beside it, which on a hosted copy only the owner has; nothing is markup."""
    tab = visit(*three)
    menu = f"change_{three[0]}"
    tab.menu_button(key=menu).click_index(0)
    show(tab).text_input(key="name").set_value("  <script>alert(1)</script>   *x* ")
    tab.button(key="save_name").click()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; *x*" in chosen(show(tab))[0]
    tab.menu_button(key=menu).click_index(1)
    show(tab)
    assert [entry.hash for entry in store.entries() if entry.pinned] == [three[0]]
    assert tab.menu_button(key=menu).options[1].endswith("Unpin")
    tab.button(key=f"leave_{three[2]}").click()
    assert link_of(show(tab))["run"] == ",".join(three[:2])
    for answer, left in {"keep": three[:2], "confirm_delete": [three[1]]}.items():
        tab.menu_button(key=menu).click_index(2)
        assert "<script>" not in "".join(chosen(show(tab)))
        tab.button(key=answer).click()
        assert len(chosen(show(tab))) == len(left)
        assert link_of(tab)["run"] == ",".join(left)
    assert three[0] not in [entry.hash for entry in store.entries()]
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setenv("ATTNKIT_OWNER_SECRET", "a secret that is long enough")
    server_settings.cache_clear()
    tab = visit(three[1])
    for owner in (False, True):
        tab.session_state["owner"] = owner
        assert len(show(tab).menu_button) == owner
        assert len(chosen(tab)) == 1


def test_what_a_link_names_in_vain_and_troubles_of_the_store_are_told(three, monkeypatch):
    """The rest is compared, nothing is lost, and the next visit tries again; text is no markup."""
    full = Mock(side_effect=Unavailable("the disk is full"))
    troubles = {"snapshot": (lambda *_: None, ""), "entries": (full, "disk is full")}  # a torn row
    for method, (fails, told) in troubles.items():
        with monkeypatch.context() as broken:
            broken.setattr(ResultStore, method, fails)
            tab = visit(three[0])
            assert told in tab.warning[0].value
    assert len(chosen(show(tab))) == 1
    with monkeypatch.context() as broken:
        broken.setattr(ResultStore, "pin", full)
        tab.menu_button(key=f"change_{three[0]}").click_index(1)
        assert "the disk is full" in show(tab).warning[0].value
    tab = visit(three[0], "0123456789abcdef", "<b>*x*")
    warned = " ".join(warning.value for warning in tab.warning)
    assert ("0123456789abcdef" in warned, "\\<b\\>\\*x\\*" in warned) == (True, True)
    assert (len(chosen(tab)), link_of(tab)["run"]) == (1, three[0])
    assert not show(tab).warning


def test_ticked_rows_join_what_is_chosen_outside_of_the_table():
    """A search hides rows; that does not end their comparison. A ninth is refused."""
    picked = Runs(chosen=["a", "c"])
    picked.take_rows(["b", "c", "d"], [0, 2, 3])  # the last one has left the table meanwhile
    assert picked.chosen == ["a", "b", "d"]
    picked.take_rows(["a", "c"], [0, 1])  # those that are there keep their letters
    assert picked.chosen == ["a", "b", "d", "c"]
    picked = Runs(chosen=list("abcdefgh"))
    picked.take_rows(list("abcdefghi"), range(9))
    assert (picked.chosen, str(MOST) in picked.problems[0]) == (list("abcdefgh"), True)
