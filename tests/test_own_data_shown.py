"""Data of one's own on pages and in notebooks: names are text, and a page never fails on them."""

import re
from contextlib import closing

import pytest
from finished import store_finished
from idle import idle_service, open_page

import attnkit as ak
from attnkit.foundation.tables import csv_table
from attnkit.service.history import changed_settings, task_title
from attnkit.service.store import ResultStore

NAMES = (
    "<script>alert(1)</script>",
    "<b>x",
    "=1+1",
    "**bold**",
    "[a](http://b)",
    "$x$",
    "עדה",
    "Zoë",
    "👩‍🚀",
    "a & b",
)
"""Names with a meaning in HTML, in spreadsheets, in Markdown and in TeX, or in other writings."""


@pytest.fixture
def experiment():
    """Relations between people with these names."""
    rows = [(who, "<i>boss</i>", NAMES[i - 1]) for i, who in enumerate(NAMES)]
    few = {"n_seeds": 1, "steps": 2, "evaluate_every": 1, "n_eval": 16, "batch_size": 16}
    return ak.Experiment(task=ak.Table(rows, n_entries=6), sharing=["QKV", "Q=K"], **few)


def test_names_are_never_html_in_a_notebook(experiment):
    """Cards and figures hold them escaped, and no tag of theirs."""
    result = ak.train(experiment)
    shown = [experiment._repr_html_(), result._repr_html_(), ak.record(experiment, 0)._repr_html_()]
    shown += [result.plot(kind)._repr_html_() for kind in ("attention", "scores")]
    for html in shown:
        assert not re.search(r"<script>alert|<b>x|<i>boss", html)


def test_names_are_never_formulas_in_a_table(experiment):
    """A name that begins like one gets an apostrophe in tables for spreadsheets."""
    table = csv_table(["who", "relation", "whom"], experiment.task.rows.cells)
    assert "'=1+1" in table
    assert not re.search(r"(^|,)=", table, re.MULTILINE)


@pytest.mark.server
def test_a_kept_result_is_listed_and_compared(experiment, tmp_path):
    """The page Runs shows it by its title and without the data."""
    with idle_service(tmp_path), closing(ResultStore(tmp_path)) as store:
        kept = store_finished(store, experiment)
        for chosen in ({}, {"run": kept}):
            tab = open_page("runs", **chosen)
            assert not tab.exception
    assert task_title("relations") == "Your own relations"
    changed = changed_settings(experiment.to_json())
    assert changed.startswith(f"your own table of {len(NAMES)} rows, ")
    assert not any(name in changed for name in NAMES)


@pytest.mark.server
@pytest.mark.parametrize("page", ["lab", "attention", "surgery", "similarity"])
def test_pages_open_links_and_kept_results(page, experiment, tmp_path):
    """With the data of the link, or with those of the store."""
    with idle_service(tmp_path), closing(ResultStore(tmp_path)) as store:
        store.put(*ak.train(experiment).to_blobs())
        for link in (experiment.to_params(), {"run": experiment.hash}):
            tab = open_page(page, **link)
            assert tab.session_state["lab"].experiment.task == experiment.task
