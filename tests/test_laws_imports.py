"""Layering: the core imports no Streamlit, pages import no torch, and public names are there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnkit
from attnkit.tasks import TASKS

ROOT = Path(__file__).parents[1]


def imports_of(path):
    """Yield the names of all modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports(path, package):
    """Return whether a file imports a package or a module of it."""
    return any(name.split(".")[0] == package for name in imports_of(path))


@pytest.mark.parametrize(
    "module",
    [
        "attnkit",
        "attnkit.experiment",
        "attnkit.analysis.export",
        "attnkit.tasks",
        "attnkit.training.results",
        "attnkit.analysis.reasons",
    ],
)
def test_what_pages_need_imports_neither_torch_nor_streamlit(module):
    """An experiment can be built and labelled in a fresh process without torch and Streamlit."""
    code = (
        f"import sys, {module}; from attnkit.experiment import Experiment; Experiment().to_text();"
        "print(*sorted({'torch', 'streamlit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_only_the_interface_imports_streamlit():
    """No file of the package outside `attnkit/ui` imports Streamlit.

    The one exception is the benchmark's test client, which speaks its protocol.
    """
    package = ROOT / "attnkit"
    client = package / "bench" / "streamlit_tab.py"
    core = [path for path in package.rglob("*.py") if package / "ui" not in path.parents]
    core.remove(client)
    assert len(core) > 10
    assert [path.name for path in core if imports(path, "streamlit")] == []


def test_pages_import_no_torch():
    """The pages and the modules that they are built of import neither torch nor the model."""
    pages = [ROOT / "dashboard.py", *(ROOT / "pages").glob("*.py")]
    pages += [
        *(ROOT / "attnkit" / "ui").rglob("*.py"),
        *(ROOT / "attnkit" / "figures").glob("*.py"),
    ]
    modules = (
        "torch",
        "attnkit.model",
        "attnkit.model.model",
        "attnkit.training",
        "attnkit.training.training",
        "attnkit.training.metrics",
    )
    for path in pages:
        if path.exists():
            assert not set(modules) & set(imports_of(path)), path.name
            assert not imports(path, "torch"), path.name


def test_the_public_interface_is_what_it_says():
    """All names of `__all__` exist, are listed once, and belong to the package."""
    assert len(set(attnkit.__all__)) == len(attnkit.__all__)
    assert {"Experiment", "Result", "Snapshot", "TASKS", "from_text", "stream", "train"} <= set(
        attnkit.__all__
    )
    assert all(
        getattr(attnkit, name).__module__.startswith("attnkit.")
        for name in attnkit.__all__
        if name not in ("CATALOGUE", "CLAIMS", "QUESTIONS", "TASKS")
    )
    assert attnkit.TASKS is TASKS


def test_an_unknown_public_name_is_an_attribute_error():
    """An unknown name of the package raises an AttributeError that names it."""
    with pytest.raises(AttributeError, match="no attribute 'Attention'"):
        attnkit.Attention  # noqa: B018
