"""The notebooks of docs/notebooks/: stored without outputs, and executed as people execute them."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from attnkit.evidence.questions import QUESTIONS
from attnkit.foundation.process import environment_with_package

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
WORSE = r": {} \d+% right, worse than QKV with (\d) of (\d) seeds"


def executed(name, folder):
    """Return the code cells of a notebook that a kernel ran in an empty folder."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=300, resources=resources)
    client.execute(env=environment_with_package())
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    figures = [o.data for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert all("image/svg+xml" in data for data in figures)
    return cells


def texts(cell):
    """Return what a cell has printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def kinds(cell):
    """Return the types of what a cell shows: "html", "plotly", or "plain" for text alone."""
    shown = ["".join(output.data) for output in cell.outputs if "data" in output]
    return [next((k for k in ("plotly", "html") if k in names), "plain") for names in shown]


def five_questions(cells):
    """Each question shows what was trained now, as it is in the record, and its card."""
    for cell, question in zip(cells, QUESTIONS.values(), strict=True):
        assert question.title in cell.outputs[-1].data["text/html"]
    assert kinds(cells[2]).count("plotly") == 2

    def n_worse(cell, variant):  # (number of worse seeds, number of seeds)
        found = re.findall(WORSE.format(re.escape(variant)), texts(cell))
        return [(int(worse), int(seeds)) for worse, seeds in found]

    translation, value, spaces, narrow, one = cells
    assert n_worse(translation, "K=V") != []
    assert n_worse(value, "Identity V") == [(0, 4), (0, 4)]
    assert n_worse(spaces, "Q=K") == [(0, 4), (4, 4)]
    assert n_worse(narrow, "K=V") == [(4, 4)]
    assert n_worse(narrow, "K=V d_head=5") == [(0, 4)]
    assert n_worse(one, "Q=K=V")[1:] == [(0, 4), (4, 4)]


def your_task_and_variant(cells):
    """A task and a variant of one's own are trained and shown, with the map of attention."""
    shown = [kinds(cell) for cell in cells]
    assert [bool(found) for found in shown] == [False, True, True, True, True, True]
    assert shown[-2] == ["plotly"]
    share = re.search(r"Q=K gives (\d+)%", texts(cells[3]))
    assert 30 < int(share[1]) < 70
    assert "Q=K flipped" in cells[3].outputs[-1].data["text/plain"]


def your_model(cells):
    """Layers with related matrices are found in a model; trained relations differ in symmetry."""
    found = re.findall(r"(W_. and W_.) are related in (\d+) of 12", texts(cells[2]))
    assert found == [("W_Q and W_K", "4"), ("W_Q and W_V", "0"), ("W_K and W_V", "4")]
    assert kinds(cells[1]) == ["html"]
    assert "three real models" in texts(cells[4])
    low = re.findall(r"symmetry of W_Q W_Kᵀ (-?\d\.\d+) to", texts(cells[5]))
    married, reports_to = map(float, low)
    assert married > 0.5 > 0.2 > reports_to


def your_attention(cells):
    """A file with a changed line is trained beside its original, and so is a class of a cell."""
    gap = re.search(r"largest difference .*: (\S+)", texts(cells[2]))
    assert float(gap[1]) < 1e-3
    assert kinds(cells[1]) == ["html"]
    assert "Linear does not return" in texts(cells[4])


CHECKS = (your_attention, your_model, your_task_and_variant)


def test_notebooks_are_stored_without_outputs():
    """They are small, valid, and a change of one cell changes nothing else in its file."""
    paths = {path.stem: path for path in FOLDER.glob("*.ipynb")}
    assert set(paths) == {check.__name__ for check in (five_questions, *CHECKS)}
    for path in paths.values():
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
        assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
        assert all(re.fullmatch(r"[a-z]+-\d\d", cell.id) for cell in notebook.cells)
        assert all(cell.metadata == {} for cell in notebook.cells)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                assert (cell.outputs, cell.execution_count) == ([], None)
        assert path.stat().st_size < 20_000


@pytest.mark.server
def test_one_notebook_runs_as_people_run_it(seed, tmp_path):
    """The seed draws one of those that take seconds; a kernel starts, trains and measures."""
    check = CHECKS[seed % 3]
    check(executed(check.__name__, tmp_path))


@pytest.mark.server
@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("check", [five_questions, *CHECKS])
def test_every_notebook_runs_as_people_run_it(check, tmp_path):
    """Each in a kernel of its own."""
    check(executed(check.__name__, tmp_path))
