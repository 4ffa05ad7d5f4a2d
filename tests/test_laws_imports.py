"""Layering: the core imports no Streamlit, pages import no torch, and public names are there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnkit
from attnkit.tasks import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attnkit"


def imports_of(path):
    """Yield the names of all modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_what_pages_need_imports_neither_torch_nor_streamlit():
    """An experiment can be built and labelled in a fresh process without torch and Streamlit."""
    modules = "analysis.export analysis.reasons experiment tasks training.results".split()
    code = (
        f"import sys, {', '.join(f'attnkit.{name}' for name in modules)}\n"
        "for task in attnkit.TASKS:\n"
        "    one = attnkit.Experiment(task=task)\n"
        "    one.to_text(), one.task.answer_text(0), one.task.loss_to_beat, one.task.earlier\n"
        "print(*sorted({'torch', 'streamlit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_only_pages_import_streamlit_and_they_import_no_torch():
    """Nor the model."""
    core = {path for path in PACKAGE.rglob("*.py") if PACKAGE / "ui" not in path.parents}
    found = [path for path in core for name in imports_of(path) if name.startswith("streamlit")]
    assert found == []
    pages = [ROOT / "dashboard.py", *(ROOT / "pages").glob("*.py"), *PACKAGE.glob("figures/*.py")]
    training = {"attnkit.training", "attnkit.training.training"}
    for path in [*pages, *PACKAGE.glob("ui/**/*.py")]:
        names = set(imports_of(path))
        assert not names & training, path.name
        assert not [n for n in names if n.startswith(("torch", "attnkit.model"))], path.name


def test_the_public_interface_is_what_it_says():
    """All names of `__all__` exist, are listed once, and belong to the package."""
    names = attnkit.__all__
    assert len(set(names)) == len(names)
    assert {"Experiment", "Result", "Snapshot", "TASKS", "from_text", "stream", "train"} <= {*names}
    for name in {*names} - {"CATALOGUE", "CLAIMS", "QUESTIONS", "TASKS"}:
        assert getattr(attnkit, name).__module__.startswith("attnkit.")
    assert attnkit.TASKS is TASKS
    with pytest.raises(AttributeError, match="no attribute 'Attention'"):
        attnkit.Attention  # noqa: B018
