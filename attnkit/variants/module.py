"""Attention of one's own: a PyTorch module that computes the layers of a variant.

The class has the signature of the class `Layer` in the files that `attnkit code` writes: it maps
the residual stream before a layer to that after it. The text form of its variant names the class
and a digest of its code, as in `QKV module=MyAttention.1f09c3aa`. Code is not part of it, so that a
link, a JSON file and a stored result are read only where the class was given.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CellType
from typing import TYPE_CHECKING, Any, ClassVar

from attnkit.foundation.language import mark, tr
from attnkit.variants.module_layers import ModuleLayers, in_short
from attnkit.variants.options import Option, Parts, register_option
from attnkit.variants.text import Variant
from attnkit.variants.wiring import ModuleFacts, Sizes, Wiring, build_wiring

if TYPE_CHECKING:
    from torch import nn

HOW_TO_GIVE = mark(
    "a class that was given to this copy, which must be your own: in the Lab under “Add a "
    "variant”, with `--attention FILE.py:CLASS` or with `ak.variant(CLASS)`; a link, a JSON file "
    "or a stored result names the class and does not hold its code"
)
"""What a text form may name, and why it cannot bring it along."""

_PLAIN = (int, float, str, bool, tuple, type(None))
"""Types of values that read the same in every process."""

_MOST_BYTES = 2**20
"""Largest size of a file of code."""


@dataclass(eq=False)
class OwnModule:
    """A class that was given as attention.

    Attributes:
        name: Name of the class.
        origin: File of the class, or "a notebook" for one that is in none.
        layers_at: Returns its layers at some sizes, or raises a ValueError.
        attention: The class, if this process has it and computes with it.
        kept: Its layers, or why there are none, at the last few sizes.
    """

    name: str
    origin: str
    layers_at: Callable[[Sizes], ModuleFacts]
    attention: type[nn.Module] | None = None
    kept: dict[tuple[Any, ...], ModuleFacts | ValueError] = field(default_factory=dict)

    def layers(self, sizes: Sizes) -> ModuleFacts:
        """Return its layers at some sizes.

        Raises:
            ValueError: If it cannot be made or does not compute what it should at these sizes.
        """
        key = astuple(sizes)
        kept = self.kept.get(key)
        if kept is None:
            try:
                kept = self.layers_at(sizes)
            except ValueError as error:
                kept = error.with_traceback(None)
            if len(self.kept) >= 8:
                self.kept.clear()
            self.kept[key] = kept
        if isinstance(kept, ValueError):
            raise type(kept)(*kept.args)
        return kept


OWN_MODULES: dict[str, OwnModule] = {}
"""Classes that were given in this process, by the value of their `module` option."""


def register_module(value: str, given: OwnModule) -> Variant:
    """Let text forms name a class from now on, and return its variant."""
    OWN_MODULES[value] = given
    return Variant(f"QKV {ModuleOption.name}={value}")


def variant(attention: type[nn.Module] | str) -> Variant:
    """Return the variant whose layers are computed by a PyTorch module.

    The module is one layer, as the class `Layer` in the files that `attnkit code` writes: its
    `forward` maps the residual stream x, (b, i, m), to that after the layer, so that it has its
    norms, its addition and its MLP, if there is one. It may return `(x, scores, pattern)`, both
    (b, h, i, j), where each of the two may be None: maps and asymmetry are made of them. Embedding,
    read-out, data, optimiser and evaluation are those of every variant.

    The constructor is called by name with those it asks for of `layer`, `d_model`, `d_head`,
    `n_heads`, `n_layers`, `n_ctx`, `d_mlp`, `causal`, `self_mask` and `has_mlp`. The module may
    say what a decoder keeps for each token and layer as `kv_cache_floats_per_token`. It computes
    as in evaluation, without dropout.

    A parameter with the name and shape of one of QKV, such as `W_Q` of an `nn.Linear`, starts from
    the numbers of QKV, unless the constructor sets it to fixed numbers. All others start as the
    constructor draws them.

    Args:
        attention: Subclass of `torch.nn.Module`, or "FILE.py:CLASS"; the file is then executed.

    Returns:
        A variant as any other, for this process.

    Raises:
        ValueError: If it is no subclass of `torch.nn.Module`, or if there is no such file or class,
            or if the file fails. A module that does not compute what it should is an error of the
            experiment that has it.
    """
    from torch import nn

    if isinstance(attention, str):
        name, _, wanted = attention.rpartition(":")
        if not name or not wanted.isidentifier():
            raise ValueError(f"got {attention!r}, allowed FILE.py:CLASS")
        return variant_of_code(read_code(name), name, wanted)
    if not (isinstance(attention, type) and issubclass(attention, nn.Module)):
        hint = ", not one of its objects" if isinstance(attention, nn.Module) else ""
        raise ValueError(
            f"attention: got {attention!r}, allowed a subclass of torch.nn.Module{hint}"
        )
    file = _file_of(attention)
    code = _code_of(attention).encode() if file is None else file.read_bytes()
    return _variant_of_class(attention, code, "a notebook" if file is None else file.name)


def _variant_of_class(attention: type[nn.Module], code: bytes, origin: str) -> Variant:
    code += _enclosed_by(attention).encode()
    digest = hashlib.blake2b(code, digest_size=4).hexdigest()
    value = f"{attention.__name__}.{digest}"
    known = OWN_MODULES.get(value)
    if known is not None and known.attention is attention:
        known.kept.clear()  # what it uses may have changed
        return Variant(f"QKV {ModuleOption.name}={value}")

    def layers_at(sizes: Sizes) -> ModuleLayers:
        of_qkv = build_wiring(replace(sizes), Variant("QKV").sharing, (), [])
        layers = ModuleLayers(attention, origin, of_qkv)
        layers.make()
        return layers

    return register_module(value, OwnModule(attention.__name__, origin, layers_at, attention))


def read_code(name: str) -> bytes:
    """Return the bytes of a Python file.

    Raises:
        ValueError: If its name does not end in .py, if it is too large or if it cannot be read.
    """
    file = repr(name)
    if not name.endswith(".py"):
        raise ValueError(tr("got {file}, allowed a file whose name ends in .py", file=file))
    try:
        with Path(name).expanduser().open("rb") as opened:
            code = opened.read(_MOST_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        wrong = tr("got {file}, but it cannot be read ({reason})", file=file, reason=reason)
        raise ValueError(wrong) from None
    if len(code) > _MOST_BYTES:
        most = _MOST_BYTES
        wrong = tr("got {file}, allowed at most {most:,} bytes of code", file=file, most=most)
        raise ValueError(wrong)
    return code


def classes_in(code: bytes, name: str) -> list[str]:
    """Return the names of the classes of a file that may be layers, without executing it.

    These are classes with a `forward`, or with a base class of the file that has one; those whose
    `forward` begins with x come first.

    Args:
        code: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ValueError: If it is not Python; the message names the line, if one is known.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        file, line = Path(name).name, getattr(error, "lineno", None)
        reason = getattr(error, "msg", None) or tr("it is not Python")
        wrong = tr("{file}: {reason}", file=file, reason=reason)
        if line:
            wrong = tr("{file}, line {line}: {reason}", file=file, line=line, reason=reason)
        raise ValueError(wrong) from None
    first: dict[str, str] = {}  # class → name of the first argument of its forward
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = [first[base] for base in bases if base in first]
            arguments = [
                method.args.args
                for method in node.body
                if isinstance(method, ast.FunctionDef) and method.name == "forward"
            ]
            own = [one[1].arg if len(one) > 1 else "" for one in arguments]
            if own or inherited:
                first[node.name] = [*own, *inherited][0]
    return sorted(first, key=lambda one: first[one] != "x")


def variant_of_code(code: bytes, name: str, wanted: str) -> Variant:
    """Execute the code of a file, once in this process, and return the variant of a class in it.

    Args:
        code: Content of the file.
        name: Path of the file.
        wanted: Name of the class.

    Raises:
        ValueError: If the code fails, or has no such class.
    """
    path, got = Path(name), repr(f"{name}:{wanted}")
    module_name = f"attnkit_given_{hashlib.blake2b(code, digest_size=8).hexdigest()}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = spec_from_file_location(module_name, path)
        assert spec is not None
        module = sys.modules[module_name] = module_from_spec(spec)
        try:
            # Its own loader could execute compiled code of an earlier text.
            exec(compile(code, str(path), "exec"), vars(module))
        except BaseException as error:  # code of somebody else may raise anything
            del sys.modules[module_name]
            if isinstance(error, KeyboardInterrupt):
                raise
            values = {"got": got, "file": name, "reason": in_short(error, path.name)}
            failed = mark("got {got}, but {file} cannot be executed ({reason})", **values)
            if isinstance(error, ImportError):
                failed = mark(
                    "got {got}, but {file} cannot be executed ({reason}); a file is loaded alone, "
                    "so what it imports must be installed",
                    **values,
                )
            raise ValueError(failed) from None
    found = getattr(module, wanted, None)
    if getattr(found, "__module__", None) != module_name:
        try:  # it may be imported from another file
            return variant(found)  # type: ignore[arg-type]
        except ValueError:
            found = None
    from torch import nn

    if isinstance(found, type) and issubclass(found, nn.Module):
        return _variant_of_class(found, code, path.name)
    classes = [
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", None) == module_name
        and isinstance(value, type)
        and issubclass(value, nn.Module)
    ]
    wrong = mark(
        "got {got}, allowed classes of {file}: none, because it has no subclass of torch.nn.Module",
        got=got,
        file=name,
    )
    if classes:
        known = ", ".join(classes)
        wrong = mark(
            "got {got}, allowed classes of {file}: {classes}", got=got, file=name, classes=known
        )
    raise ValueError(wrong) from None


@register_option
class ModuleOption(Option):
    """Layers that a PyTorch module computes; the value is a class and a digest of its code."""

    value: str
    name = "module"
    help = mark("A PyTorch module of one's own computes the layers.")
    allowed: ClassVar[str] = mark("a class that was given to `--attention` or to `ak.variant`")
    samples: ClassVar[tuple[str | None, ...]] = ()
    place = 90

    @classmethod
    def read(cls, text: str | None) -> ModuleOption:
        """Read a class that was given in this process."""
        if text not in OWN_MODULES:
            raise ValueError(HOW_TO_GIVE)
        return cls(text)

    def check(self, parts: Parts) -> None:
        """Refuse everything that changes how attention is computed, because the module decides."""
        others = sorted(parts.given.keys() - {self.name, "learning_rate"})
        tied = [parts.sharing.value] if len(parts.sharing.classes) < 3 or parts.identity else []
        if others or tied:
            raise ValueError(
                mark(
                    "{name} goes with QKV and learning_rate only: the module decides about "
                    "{others}",
                    name=self.name,
                    others=", ".join([*tied, *others]),
                )
            )

    @property
    def title(self) -> str:
        """Name of the class."""
        return OWN_MODULES[self.value].name

    def rewire(self, wiring: Wiring) -> None:
        """Replace all weights by those of the module.

        Raises:
            ValueError: If the module cannot be made or does not compute what it should.
        """
        wiring.module = OWN_MODULES[self.value].layers(wiring.sizes)
        wiring.weights = wiring.module.weights
        wiring.sizes.d_mlp = 0  # the module has its own
        wiring.symmetric = False


def _file_of(attention: type) -> Path | None:
    """Return the file of a class; None for one that is in a notebook or at a prompt.

    A script is the file of the classes that stand in it, not of those that `exec` or a prompt made.
    """
    try:
        file = Path(inspect.getfile(attention))
    except (OSError, TypeError):
        return None
    if not file.is_file():
        return None
    if attention.__module__ == "__main__":
        functions = [value for value in vars(attention).values() if inspect.isfunction(value)]
        if not functions or any(Path(f.__code__.co_filename) != file for f in functions):
            return None
    return file


def _enclosed_by(attention: type) -> str:
    """Return what a class reads from the function that made it, which its code does not show."""
    functions = [value for value in vars(attention).values() if inspect.isfunction(value)]
    cells = [cell for function in functions for cell in function.__closure__ or ()]
    values = [cell.cell_contents for cell in cells if cell != CellType()]
    return "".join(repr(value) for value in values if isinstance(value, _PLAIN))


def _code_of(attention: type) -> str:
    """Return the code of a class of a notebook, with that of all that it uses there."""
    texts, things = list[str](), list[Any]([attention])
    for thing in things:  # which grow
        is_class = isinstance(thing, type)
        used = [*thing.__bases__] if is_class else []
        for key, value in (vars(thing) if is_class else {thing.__name__: thing}).items():
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            function = inspect.unwrap(function)
            if isinstance(value, _PLAIN):
                texts.append(f"{key}={value!r}")
            elif inspect.isfunction(function):
                try:
                    texts.append(inspect.getsource(function))
                except (OSError, TypeError):  # typed at a prompt that keeps no text
                    texts.append(f"{function.__code__.co_code.hex()}{function.__code__.co_consts}")
                used += map(function.__globals__.get, function.__code__.co_names)
        for other in used:
            is_code = isinstance(other, type) or inspect.isfunction(other)
            if is_code and other.__module__ == attention.__module__ and other not in things:
                things.append(other)
    return "\n".join(texts)
