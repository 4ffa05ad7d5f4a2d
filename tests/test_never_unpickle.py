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
    """Return (line, what) of everything in a source text that could unpickle or evaluate data."""
    tree = ast.parse(source)
    known = dict(imports(tree))
    found = []
    for node in ast.walk(tree):
        for name in mentioned(node, known):
            found += [(node.lineno, name)] * bool(UNSAFE.fullmatch(name))
        if isinstance(node, ast.Call):
            for word in node.keywords:
                if word.arg in SAFE_ARGUMENTS:
                    value = getattr(word.value, "value", word.value)
                    safe = value is SAFE_ARGUMENTS[word.arg]
                    found += [(node.lineno, word.arg)] * (not safe)
            is_load = dotted(node.func, known) in ("numpy.load", "numpy.lib.npyio.load")
            found += [(node.lineno, "allow_pickle")] * (is_load and len(node.args) > 2)
    return found


def imports(tree):
    """Yield (name in this file, full name) of everything imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def mentioned(node, known):
    """Return the full names that a node stands for."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and dotted(node.func, known) == "importlib.import_module":
        return [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    return [dotted(node, known)] if isinstance(node, ast.Name | ast.Attribute) else []


def dotted(node, known):
    """Return the full name of an expression such as `np.load`; of others, the end of it."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    return f"{dotted(node.value, known)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def test_no_file_unpickles_or_evaluates():
    """Neither by import nor by call, under any name, in the package, the pages and the routes."""
    folders = (ROOT / "attnkit", ROOT / "pages")
    paths = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    assert names >= {"dashboard.py", "pages/lab.py", "attnkit/training/results.py"}
    found = {path.name: findings(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: what for name, what in found.items() if what} == {}


def test_the_scan_finds_what_unpickles_and_nothing_else():
    """It sees through other names, and whether or not a name is called."""
    unsafe = """
import pickle as harmless
from pickle import loads
import dill.source
import importlib; importlib.import_module('pickle')
from importlib import import_module; import_module('pickle')
__import__('pickle')
import torch as t; read = t.load
from torch import load
import torch; torch.load(path, weights_only=False)
import numpy as np; np.load(path, allow_pickle=yes)
import numpy as np; np.load(path, None, True)
from pandas import read_pickle
table.to_pickle(path)
import sqlalchemy as sa; sa.PickleType()
import yaml; yaml.load(text, Loader)
import streamlit as st; st.cache_data(f, persist='disk')
eval(text)
import builtins; builtins.eval(text)"""
    harmless = """
import json; json.loads(text)
import numpy as np; np.load(path, allow_pickle=False)
from safetensors.numpy import load
import re; re.compile('x')
model.eval()
import yaml; yaml.safe_load(text)"""
    assert [line for line in unsafe.strip().splitlines() if not findings(line)] == []
    assert [line for line in harmless.strip().splitlines() if findings(line)] == []
