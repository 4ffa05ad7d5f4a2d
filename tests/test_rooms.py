"""Layering: rooms import only those before them, the core no Streamlit, and pages no torch."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import attnkit

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attnkit"

# The rooms from the ground up. A room may import itself and those before it.
ORDER = (
    "foundation tasks variants experiment model training analysis claims evidence sweeps "
    "realmodels examples service figures ui notebook site command __main__"
).split()


@cache
def imports():
    """Return imports of every module and page: the module, its line, and whether only for types."""
    texts, found = {}, {}
    for path in sorted([*PACKAGE.rglob("*.py"), ROOT / "dashboard.py", *ROOT.glob("pages/*.py")]):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        texts[name] = path.read_text("utf-8")
    del texts["attnkit"]

    def walk(name, node, for_types):
        for child in ast.iter_child_nodes(node):
            modules = []
            if isinstance(child, ast.Import):
                modules = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{name}, line {child.lineno}: write the whole name"
                whole = {f"{child.module}.{alias.name}" for alias in child.names}
                whole -= {"attnkit.__version__"}
                modules = [one if one in texts else str(child.module) for one in whole]
            found[name] += [(module, child.lineno, for_types) for module in modules]
            guard = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            walk(name, child, for_types or guard)

    for name, text in texts.items():
        found[name] = []
        walk(name, ast.parse(text), False)
    return found


@cache
def own_imports():
    """Return the imports of the package by the package."""
    return {
        name: [one for one in imported if one[0].partition(".")[0] == "attnkit"]
        for name, imported in imports().items()
        if name.startswith("attnkit.")
    }


def room_of(module):
    """Return the room of a module; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def test_rooms_import_only_those_before_them():
    """And no modules import each other in a circle, not even for type checking."""
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert {room_of(name) for name in own_imports()} == {*ORDER}
    uses = {
        (name, line, module)
        for name, imported in own_imports().items()
        for module, line, _ in imported
        if room_of(module) not in ORDER[: ORDER.index(room_of(name)) + 1]
    }
    assert uses == set()
    graph = {name: {module for module, *_ in imported} for name, imported in own_imports().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_only_pages_import_streamlit_and_they_import_no_torch():
    """Nor the model or the training; figures import no torch either."""
    heavy = re.compile(r"torch|attnkit\.model|attnkit\.training(\.training)?$")
    for name, imported in imports().items():
        is_page = not name.startswith("attnkit.") or room_of(name) == "ui"
        for module, line, _ in imported:
            assert is_page or not module.startswith("streamlit"), (name, line)
            if is_page or room_of(name) == "figures":
                assert not heavy.match(module), (name, line)


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


def test_the_public_interface_is_what_it_says():
    """All names of `__all__` exist, are listed once, and belong to the package."""
    names = attnkit.__all__
    assert len(set(names)) == len(names)
    for name in {*names} - {"CATALOGUE", "CLAIMS", "QUESTIONS", "TASKS"}:
        assert getattr(attnkit, name).__module__.startswith("attnkit.")
    with pytest.raises(AttributeError, match="'Attention'"):
        attnkit.Attention  # noqa: B018


def test_the_documentation_shows_the_rooms():
    """The table has a row for each room, with the rooms that it uses."""
    uses = {room: set() for room in ORDER}
    for name, imported in own_imports().items():
        uses[room_of(name)] |= {room_of(module) for module, _, _ in imported}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]*)\|$", page, re.MULTILINE)
    assert [room for room, _ in rows] == ORDER
    for room, told in rows:
        expected = [one for one in ORDER if one in uses[room] - {room}]
        assert told.strip() == ", ".join(expected), f"row of {room}"
