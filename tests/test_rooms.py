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
from attnkit.tasks import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attnkit"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

# The rooms from the ground up. A room may import itself and those before it.
ORDER = (
    "foundation tasks variants experiment model training analysis claims evidence sweeps "
    "realmodels examples service figures ui notebook site command __main__"
).split()


def imports_of(text, known):
    """Return (module, line, whether for type checking only) for each import, also in functions."""
    found = []

    def walk(node, for_types):
        for child in ast.iter_child_nodes(node):
            modules = []
            if isinstance(child, ast.Import):
                modules = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"line {child.lineno}: write the whole name"
                whole = {f"{child.module}.{alias.name}" for alias in child.names}
                whole -= {"attnkit.__version__"}
                modules = [name if name in known else str(child.module) for name in whole]
            found.extend((name, child.lineno, for_types) for name in modules)
            guard = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            walk(child, for_types or guard)

    walk(ast.parse(text), False)
    return found


@cache
def imports():
    """Return the imports of every module and page, by its dotted name, but those of `attnkit`."""
    texts = {}
    for path in sorted([*PACKAGE.rglob("*.py"), ROOT / "dashboard.py", *ROOT.glob("pages/*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    del texts["attnkit"]
    return {name: imports_of(text, texts) for name, text in texts.items()}


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
    """And no modules import each other in a circle, which would be a `CycleError`."""
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert {room_of(name) for name in own_imports()} == {*ORDER}
    uses = {
        (name, line, module)
        for name, imported in own_imports().items()
        for module, line, _ in imported
        if room_of(module) not in ORDER[: ORDER.index(room_of(name)) + 1]
    }
    assert uses == set()
    # But for type checking, no modules import each other in a circle.
    graph = {
        name: {module for module, _, for_types in imported if not for_types}
        for name, imported in own_imports().items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_only_pages_import_streamlit_and_they_import_no_torch():
    """Nor the model or the training; figures import no torch either."""
    heavy = re.compile(r"torch|attnkit\.model|attnkit\.training(\.training)?$")
    for name, imported in imports().items():
        modules = [module for module, _, _ in imported]
        is_page = not name.startswith("attnkit.") or room_of(name) == "ui"
        if not is_page:
            assert not [m for m in modules if m.startswith("streamlit")], name
        if is_page or room_of(name) == "figures":
            assert not list(filter(heavy.match, modules)), name


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
    assert attnkit.TASKS is TASKS
    with pytest.raises(AttributeError, match="'Attention'"):
        attnkit.Attention  # noqa: B018


def test_the_documentation_shows_the_rooms_and_files_that_exist():
    """The table has a row for each room, with the rooms that it uses; its files are in them."""
    uses = {room: set() for room in ORDER}
    for name, imported in own_imports().items():
        uses[room_of(name)] |= {room_of(module) for module, _, _ in imported}
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]*)\|$", PAGE, re.MULTILINE)
    assert [room for room, _ in rows] == ORDER
    for room, told in rows:
        expected = [one for one in ORDER if one in uses[room] - {room}]
        assert told.strip() == ", ".join(expected), f"row of {room}"
    rooms = re.split(r"^  (\w+)/", PAGE.split("\nattnkit/\n")[1].split("\ndocs/")[0], flags=re.M)
    named = [
        (room, name)
        for room, about in zip(rooms[1::2], rooms[2::2], strict=True)
        for name in re.findall(r"\b[a-z_]+\.py\b", about.split("\n  __main__")[0])
    ]
    assert [one for one in named if not list((PACKAGE / one[0]).rglob(one[1]))] == []
    assert len(named) > 50
