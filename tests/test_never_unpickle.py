"""Stored and uploaded bytes are never unpickled: nothing in the code could do it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FILES = sorted(
    [*ROOT.glob("*.py"), *(ROOT / "attnkit").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
)

MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "pickletools",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "shelve",
    "marshal",
    "diskcache",
}
"""Modules whose import is enough."""

NAMES = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "builtins.eval",
    "builtins.exec",
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "torch.serialization.load",
    "pandas.eval",
    "pandas.read_pickle",
    "pandas.io.pickle.read_pickle",
    "sqlalchemy.PickleType",
    "sqlalchemy.types.PickleType",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.unsafe_load",
    "yaml.UnsafeLoader",
    "yaml.Loader",
}
"""What must not be mentioned, called or not, by its full name."""

MEMBERS = {"read_pickle", "to_pickle", "PickleType"}
"""What must not be mentioned, whatever it belongs to."""

SAFE_ARGUMENTS = {"allow_pickle": False, "persist": None}
"""Arguments of `np.load` and `st.cache_data`, and the one value that they may have."""


def findings(source):
    """(line, what) of everything in a source text that could unpickle or evaluate data."""
    tree = ast.parse(source)
    known = dict(imports(tree))
    found = []
    for node in ast.walk(tree):
        for name in mentioned(node, known):
            module = name.partition(".")[0]
            last = name.rpartition(".")[2]
            if module in MODULES or name in NAMES or last in MEMBERS:
                found.append((node.lineno, name))
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in SAFE_ARGUMENTS:
                    safe = SAFE_ARGUMENTS[keyword.arg]
                    value = keyword.value
                    if not (isinstance(value, ast.Constant) and value.value is safe):
                        found.append((node.lineno, keyword.arg))
            if dotted(node.func, known) in ("numpy.load", "numpy.lib.npyio.load"):
                found += [(node.lineno, "allow_pickle")] if len(node.args) > 2 else []
    return found


def imports(tree):
    """(name in this file, full name) of everything imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def mentioned(node, known):
    """The full names that a node stands for."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and dotted(node.func, known) == "importlib.import_module":
        return [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    if isinstance(node, (ast.Name, ast.Attribute)):
        return [dotted(node, known)]
    return []


def dotted(node, known):
    """The full name of an expression such as `np.load`; of others, the end of it."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, known)}.{node.attr}"
    return "?"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_unpickles_or_evaluates(path):
    """Neither by import nor by call, under any name."""
    assert findings(path.read_text(encoding="utf-8")) == []


def test_all_code_is_scanned():
    """The entry point, the pages, and what reads stored bytes."""
    names = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {
        "dashboard.py",
        "pages/lab.py",
        "attnkit/training/results.py",
        "attnkit/service/store.py",
    } <= names


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as harmless",
        "from pickle import loads",
        "import dill.source",
        "import joblib",
        "import shelve",
        "from marshal import loads as read",
        "import importlib\nimportlib.import_module('pickle')",
        "from importlib import import_module\nimport_module('pickle')",
        "__import__('pickle')",
        "import torch\ntorch.load(path)",
        "import torch as t\nread = t.load",
        "from torch import load",
        "import torch\ntorch.load(path, weights_only=False)",
        "import torch.jit\ntorch.jit.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path, allow_pickle=yes)",
        "import numpy as np\nnp.load(path, None, True)",
        "import pandas as pd\npd.read_pickle(path)",
        "from pandas import read_pickle",
        "table.to_pickle(path)",
        "from sqlalchemy import PickleType",
        "import sqlalchemy as sa\nsa.PickleType()",
        "import yaml\nyaml.load(text, Loader)",
        "import streamlit as st\n@st.cache_data(persist='disk')\ndef f(): pass",
        "eval(text)",
        "exec(text)",
        "import builtins\nbuiltins.eval(text)",
        "import pandas as pd\npd.eval(text)",
    ],
)
def test_what_unpickles_or_evaluates_is_found(source):
    """The scan sees through other names, and whether or not it is called."""
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.loads(text)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "from safetensors.numpy import load",
        "import re\nre.compile('x')",
        "model.eval()",
        "import yaml\nyaml.safe_load(text)",
    ],
)
def test_what_is_harmless_is_not(source):
    """So that nobody has to switch the scan off."""
    assert findings(source) == []
