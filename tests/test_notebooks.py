"""The notebooks of docs/notebooks/: stored without outputs, and executed as people execute them."""

import re
import tempfile
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from attnkit.evidence.questions import QUESTIONS
from attnkit.foundation.process import environment_with_package

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


@cache
def executed(name):
    """Return a notebook that a kernel ran in an empty folder.

    nbclient sets Python's own handler of SIGINT afterwards, whatever it was before.
    """
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        client.execute(env=environment_with_package())
    return notebook


def code_cells(notebook):
    """Return the cells of a notebook that have code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_figure(output):
    """Whether an output of a cell is a figure of Plotly's, also for pages that are exported."""
    return {"application/vnd.plotly.v1+json", "text/html"} <= set(output.get("data", {}))


def texts(cell):
    """Return what a cell has printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def five_questions(cells):
    """Each question shows what was trained now, as it is in the record, and its card."""
    for cell, question in zip(cells, QUESTIONS.values(), strict=True):
        assert question.title in cell.outputs[-1].data["text/html"]
    assert sum(map(has_figure, cells[2].outputs)) == 3  # of the last training, and two maps

    worse = r": {} \d+% right, worse than QKV with (\d of \d) seeds"
    for place, variant, expected in (
        (1, "Identity V", ["0 of 4", "0 of 4"]),
        (2, "Q=K", ["0 of 4", "4 of 4"]),
        (3, "K=V", ["4 of 4"]),
        (3, "K=V d_head=5", ["0 of 4"]),
        (4, "Q=K=V", ["0 of 4", "4 of 4"]),
    ):
        found = re.findall(worse.format(re.escape(variant)), texts(cells[place]))
        assert found[-len(expected) :] == expected


def your_task_and_variant(cells):
    """A task and a variant of one's own are trained and shown, with the map of attention."""
    assert has_figure(cells[-2].outputs[-1])
    share = re.search(r"Q=K gives (\d+)%", texts(cells[3]))
    assert 30 < int(share[1]) < 70
    assert "Q=K flipped" in cells[3].outputs[-1].data["text/plain"]


def your_model(cells):
    """Layers with related matrices are found in a model; trained relations differ in symmetry."""
    found = re.findall(r"(W_. and W_.) are related in (\d+) of 12", texts(cells[2]))
    assert found == [("W_Q and W_K", "4"), ("W_Q and W_V", "0"), ("W_K and W_V", "4")]
    assert "text/html" in cells[1].outputs[-1].data
    low = re.findall(r"symmetry of W_Q W_Kᵀ (-?\d\.\d+) to", texts(cells[5]))
    married, reports_to = map(float, low)
    assert married > 0.5 > 0.2 > reports_to


def your_attention(cells):
    """A file with a changed line is trained beside its original, and so is a class of a cell."""
    gap = re.search(r"largest difference .*: (\S+)", texts(cells[2]))
    assert float(gap[1]) < 1e-3
    assert "text/html" in cells[1].outputs[-1].data
    assert "Linear does not return" in texts(cells[4])


BY_DAY = your_attention
AT_NIGHT = (five_questions, your_model, your_task_and_variant)


def test_notebooks_are_stored_without_outputs():
    """They are valid, and a change of one cell changes nothing else in its file."""
    paths = {path.stem: path for path in FOLDER.glob("*.ipynb")}
    assert set(paths) == {check.__name__ for check in (BY_DAY, *AT_NIGHT)}
    for path in paths.values():
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
        assert all(re.fullmatch(r"[a-z]+-\d\d", cell.id) for cell in notebook.cells)
        code = code_cells(notebook)
        assert all((cell.outputs, cell.execution_count) == ([], None) for cell in code)


@pytest.mark.server
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "check",
    [BY_DAY, *(pytest.param(one, marks=pytest.mark.long(seconds=30)) for one in AT_NIGHT)],
)
def test_a_notebook_runs_as_people_run_it(check):
    """A kernel starts, trains and measures, without an error."""
    cells = code_cells(executed(check.__name__))
    outputs = [output for cell in cells for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    check(cells)


@pytest.mark.browser
@pytest.mark.usefixtures("interruptible")
def test_an_exported_notebook_shows_card_and_figure(page, tmp_path):
    """The page has a copy of plotly.js, and needs nothing from other hosts."""
    html, _ = HTMLExporter().from_notebook_node(executed(BY_DAY.__name__))
    (tmp_path / "exported.html").write_text(html, encoding="utf-8")
    elsewhere = re.compile("^https?:")
    page.route(elsewhere, lambda route: route.abort())
    page.goto((tmp_path / "exported.html").as_uri())
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    expect(page.get_by_label("Table: Variant").get_by_role("table")).to_be_visible()
    page.unroute(elsewhere)
