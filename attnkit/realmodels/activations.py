"""What projections make of running text: the CKA of queries, keys and values, where a model runs.

Alike weights and alike activations are two questions: text varies in few directions, so that even
random projections of it look alike. Each number stands beside what random projections of the very
same inputs give. Needs transformers (extra `models`) and a model of text with one stack of layers.
"""

from __future__ import annotations

import contextlib
import io
import pydoc_data.topics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnkit.realmodels.base import Array, Projections, Unreadable
from attnkit.realmodels.measures import PAIRS
from attnkit.realmodels.sources import find_files, open_model
from attnkit.similarity import Band, linear_cka, projected_bands

WINDOW, N_WINDOWS = 128, 8
"""Tokens of a piece of text, and pieces."""

_PROJECTIONS = {"query", "q_proj", "q_lin", "c_attn", "Wqkv", "qkv_proj", "query_key_value", "q"}
"""How families call the module that queries come from."""

_WIDTH = 2 * 1.959964
"""Standard deviations between the limits of a band."""


def with_activations(table: pd.DataFrame, source: str) -> pd.DataFrame:
    """The table of a model with its columns `act_cka_…` and their chance levels filled in.

    Text is the help on Python's topics, in pieces of `WINDOW` tokens without the first, which
    models use as a place to look at when there is nothing to look for. Queries and keys are taken
    before rotary positions and norms of their own. Folding changes nothing here: rows are those
    that the projections get.

    Raises:
        Unreadable: if the model cannot be run here; the message says why.
    """
    model = open_model(source)
    inputs = _inputs(source, len(model.layers))
    table = table.copy()
    for layer, rows in zip(model.layers, inputs, strict=True):
        place = (table["kind"] == str(layer.kind)) & (table["layer"] == layer.index)
        values = activation_cka(layer.read(), rows)
        for name, column in values.items():
            for head in range(layer.n_heads):
                table.loc[place & (table["head"] == head), name] = np.float32(column[head])
    return table


def activation_cka(layer: Projections, rows: Float[Array, "t m"]) -> dict[str, Float[Array, " h"]]:
    """`act_cka_qk` … of every query head, with `…_random` and `…_random_sd`.

    Args:
        rows: what the projections get, a row per token.
    """
    repeated = len(layer.W_Q) // len(layer.W_K)
    made = {
        "q": _made(rows, layer.W_Q, layer.b_Q),
        "k": np.repeat(_made(rows, layer.W_K, layer.b_K), repeated, 0),
        "v": np.repeat(_made(rows, layer.W_V, layer.b_V), repeated, 0),
    }
    found = {}
    bands: dict[tuple[int, int], Band] = {}
    for pair in PAIRS:
        a, b = made[pair[0]], made[pair[1]]
        widths = a.shape[-1], b.shape[-1]
        if widths not in bands:
            _, bands[widths] = projected_bands(rows, rows, *widths)
        band = bands[widths]
        name = f"act_cka_{pair}"
        found[name] = linear_cka(a, b)
        found[f"{name}_random"] = np.full(len(a), band.mean)
        found[f"{name}_random_sd"] = np.full(len(a), (band.high - band.low) / _WIDTH)
    return found


def _made(
    rows: Float[Array, "t m"], w: Float[Array, "h m d"], b: Float[Array, "h d"] | None
) -> Float[Array, "h t d"]:
    made: Array = rows @ w
    return made if b is None else made + b[:, None]


def _inputs(source: str, n_layers: int) -> list[Float[Array, "t m"]]:
    """What each layer's projections get while the model reads."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Unreadable(
            "running a model needs transformers: pip install -e '.[models]'"
        ) from error
    with _quiet(transformers):
        network, tokens = _loaded(transformers, source)
        caught: list[Any] = []
        leaves = [
            module
            for name, module in network.named_modules()
            if name.rpartition(".")[2] in _PROJECTIONS and not list(module.children())
        ]
        if len(leaves) != n_layers:
            raise Unreadable(
                f"{source}: has {n_layers} attention layers, but {len(leaves)} were found to run; "
                "models with one stack of layers are run"
            )
        hooks = [leaf.register_forward_pre_hook(_catch(caught)) for leaf in leaves]
        with torch.inference_mode():
            network(input_ids=torch.tensor(tokens))
        for hook in hooks:
            hook.remove()
    return [rows[:, 1:].flatten(0, 1).float().numpy() for rows in caught]


def _catch(caught: list[Any]) -> Callable[[Any, tuple[Any, ...]], None]:
    def catch(_: Any, inputs: tuple[Any, ...]) -> None:
        caught.append(inputs[0])

    return catch


def _loaded(transformers: Any, source: str) -> tuple[Any, list[list[int]]]:
    """The model, and the pieces of text."""
    folder, gguf = _folder(source)
    given = {"gguf_file": gguf} if gguf else {}
    options = {"local_files_only": True, **given}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        network = transformers.AutoModel.from_pretrained(folder, dtype="float32", **options)
    except Exception as error:  # whatever the library meets in somebody's files
        raise Unreadable(
            f"{source}: transformers cannot load it ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:150]})"
        ) from error
    if network.config.is_encoder_decoder:
        raise Unreadable(f"{source}: models with one stack of layers are run, this has two")
    text = "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    ids = tokenizer(text[: 40 * WINDOW * N_WINDOWS], add_special_tokens=False).input_ids
    pieces = [ids[i * WINDOW : (i + 1) * WINDOW] for i in range(N_WINDOWS)]
    return network.eval(), pieces


def _folder(source: str) -> tuple[Path, str | None]:
    """Where transformers is to look, and the name of a GGUF file there."""
    path = find_files(source)
    if path.suffix == ".gguf":
        return path.parent, path.name
    if path.suffix == ".bin":
        raise Unreadable(f"{source}: CTranslate2 files hold weights only, and are not run")
    return (path if path.is_dir() else path.parent), None


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bars and advice of that library on standard error."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # bars that cannot be switched off
            yield
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()
