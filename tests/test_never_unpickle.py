"""Stored and uploaded bytes are never unpickled: nothing in the code could do it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

UNSAFE = re.compile(
    r"(_?pickle|cPickle|pickletools|cloudpickle|dill|joblib|jsonpickle|shelve|marshal|diskcache)\b.*"
    r"|(builtins\.)?(eval|exec)|compile|__import__|pandas\.eval|.*\b(read_pickle|to_pickle|PickleType)"
    r"|torch\.((jit|hub|serialization)\.)?load|torch\.package\.PackageImporter"
    r"|yaml\.(load|load_all|full_load|unsafe_load|UnsafeLoader|Loader)"
)
"""Full names that must not be mentioned, called or not; of some modules, the import is enough."""

SAFE_ARGUMENTS = {"allow_pickle": False, "persist": None}
"""Arguments of `np.load` and `st.cache_data`, and the one value that they may have."""


def findings(source):
    """Return all names and arguments in a source text that could unpickle or evaluate data."""
    known, found, tree = {}, [], ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                found.append(module + alias.name)
                short = alias.name if module else alias.name.partition(".")[0]
                known[alias.asname or short] = module + (alias.name if alias.asname else short)

    def full(node):
        if isinstance(node, ast.Name):
            return known.get(node.id, node.id)
        return f"{full(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"

    wrong = []
    for node in ast.walk(tree):
        found.append(full(node))
        if isinstance(node, ast.Call):
            for word in node.keywords:
                if word.arg in SAFE_ARGUMENTS:
                    value = getattr(word.value, "value", word.value)
                    wrong += [word.arg] * (value is not SAFE_ARGUMENTS[word.arg])
            is_load = full(node.func) == "numpy.load"
            wrong += ["allow_pickle"] * (is_load and len(node.args) > 2)
            if full(node.func) == "importlib.import_module":
                found += [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    return wrong + [name for name in found if UNSAFE.fullmatch(name)]


def test_no_file_unpickles_or_evaluates():
    """Neither by import nor by call, under any name, in the package, the pages and the routes."""
    for unsafe in ("from torch import load as l", "import numpy as n; n.load(x, allow_pickle=y)"):
        assert findings(unsafe), unsafe
    assert not findings("import yaml; yaml.safe_load(x); model.eval()")
    folders = (ROOT / "attnkit", ROOT / "pages")
    paths = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    found = {
        path.relative_to(ROOT).as_posix(): findings(path.read_text(encoding="utf-8"))
        for path in paths
    }
    assert found.keys() >= {"dashboard.py", "pages/lab.py", "attnkit/training/results.py"}
    # A PyTorch module of one's own is code, which is executed when its owner says so.
    assert sorted(found.pop("attnkit/variants/module.py")) == ["compile", "exec"]
    assert {name: what for name, what in found.items() if what} == {}
