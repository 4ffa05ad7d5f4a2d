"""The notebooks of docs/notebooks/: stored without outputs, and executed as people execute them."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from attnkit.evidence.questions import QUESTIONS
from attnkit.foundation.process import environment_with_package

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 300
"""Time that one cell may take."""

WORSE = r": {} \d+% right, worse than QKV with (\d) of (\d) seeds"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Execute a notebook by its name, once, in an empty folder."""
    done = {}

    def execute(name):
        if name not in done:
            notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
            folder = {"metadata": {"path": str(tmp_path_factory.mktemp(name))}}
            client = NotebookClient(notebook, timeout=SECONDS, resources=folder)
            done[name] = client.execute(env=environment_with_package())
        return done[name]

    return execute


def texts(cell):
    """Return what a cell has printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def kinds(cell):
    """Return the types of what a cell shows: "html", "plotly", or "plain" for text alone."""
    found = []
    for output in cell.outputs:
        if "data" in output:
            names = "".join(output.data)
            found.append("plotly" if "plotly" in names else "html" if "html" in names else "plain")
    return found


def code_cells(notebook):
    """Return the cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def n_worse(text, variant):
    """Return the pairs (number of worse seeds, number of seeds) that a text has of a variant."""
    found = re.findall(WORSE.format(re.escape(variant)), text)
    return [(int(worse), int(seeds)) for worse, seeds in found]


def test_there_are_three_notebooks():
    """The tests below know each of them by name."""
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"five_questions", "your_model", "your_task_and_variant"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    """It is small, valid, and a change of one cell changes nothing else in its file."""
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert all(re.fullmatch(r"[a-z]+-\d\d", cell.id) for cell in notebook.cells)
    assert all(cell.metadata == {} for cell in notebook.cells)
    for cell in code_cells(notebook):
        assert (cell.outputs, cell.execution_count) == ([], None)
    assert path.stat().st_size < 20_000


@pytest.mark.server
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_without_errors_and_warnings(name, executed):
    """Every cell runs, and nothing is written to standard error."""
    outputs = [output for cell in code_cells(executed(name)) for output in cell.outputs]
    errors = [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert errors == []
    assert outputs


@pytest.mark.server
def test_the_five_questions_are_answered_as_in_the_record(executed):
    """Ten cells: each question shows what was trained now and the card with the answer."""
    notebook = executed("five_questions")
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code"] * 5
    cells = code_cells(notebook)
    for cell, question in zip(cells, QUESTIONS.values(), strict=True):
        assert question.title in cell.outputs[-1].data["text/html"]
    assert kinds(cells[2]).count("plotly") == 2
    translation, value, spaces, narrow, one = map(texts, cells)
    assert n_worse(translation, "K=V") != []
    assert n_worse(value, "Identity V") == [(0, 4), (0, 4)]
    assert n_worse(spaces, "Q=K") == [(0, 4), (4, 4)]
    assert n_worse(narrow, "K=V") == [(4, 4)]
    assert n_worse(narrow, "K=V d_head=5") == [(0, 4)]
    assert n_worse(one, "Q=K=V")[1:] == [(0, 4), (4, 4)]


@pytest.mark.server
def test_a_task_and_a_variant_of_a_notebook_train(executed):
    """Both are trained and shown, and the map of attention is drawn."""
    cells = code_cells(executed("your_task_and_variant"))
    shown = [kinds(cell) for cell in cells]
    assert [bool(found) for found in shown] == [False, True, True, True, True, True]
    assert shown[-2] == ["plotly"]
    share = re.search(r"Q=K gives (\d+)% of its attention to the twin", texts(cells[3]))
    assert 30 < int(share[1]) < 70
    assert "Q=K flipped" in cells[3].outputs[-1].data["text/plain"]


@pytest.mark.server
def test_a_model_of_ones_own_is_measured(executed):
    """The layers with related matrices are found, and trained relations differ in symmetry."""
    cells = code_cells(executed("your_model"))
    found = re.findall(r"(W_. and W_.) are related in (\d+) of 12 heads", texts(cells[2]))
    assert found == [("W_Q and W_K", "4"), ("W_Q and W_V", "0"), ("W_K and W_V", "4")]
    assert kinds(cells[1]) == ["html"]
    assert "three real models" in texts(cells[4])
    low = re.findall(r"symmetry of W_Q W_Kᵀ (-?\d\.\d+) to", texts(cells[5]))
    married, reports_to = map(float, low)
    assert married > 0.5 > 0.2 > reports_to
