"""What projections make of running text: the CKA of queries, keys and values, where a model runs.

Alike weights and alike activations are two questions: text varies in few directions, so that even
random projections of it look alike. Each number stands beside what random projections of the very
same inputs give. Needs transformers (extra `models`) and a model of text with one stack of layers.
"""

from __future__ import annotations

import contextlib
import io
import pydoc_data.topics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnkit.analysis.similarity import Band, linear_cka, projected_bands
from attnkit.realmodels.base import Array, Projections, Unreadable
from attnkit.realmodels.measures import PAIRS
from attnkit.realmodels.sources import find_files, open_model

WINDOW, N_WINDOWS = 128, 8
"""Tokens of a piece of text, and pieces; where a model has fewer positions, shorter and more."""

_PROJECTIONS = {"query", "q_proj", "q_lin", "c_attn", "Wqkv", "qkv_proj", "query_key_value", "q"}
"""How families call the module that queries come from."""

_WIDTH = 2 * 1.959964
"""Standard deviations between the limits of a band."""


def with_activations(table: pd.DataFrame, source: str) -> pd.DataFrame:
    """The table of a model with its columns `act_cka_…` and their chance levels filled in.

    Text is the help on Python's topics, in pieces of `WINDOW` tokens, read without the special
    tokens of the model's tokenizer; the first of a piece is left out, which models use as a place
    to look at when there is nothing to look for. Queries and keys are taken before rotary positions
    and norms of their own. Folding changes nothing here: rows are those that the projections get.

    Raises:
        Unreadable: if the model cannot be run here; the message says why.
    """
    model = open_model(source)
    inputs = _inputs(source, len(model.layers))
    table = table.copy()
    for layer, rows in zip(model.layers, inputs, strict=True):
        read = layer.read()
        if rows.shape[1] != read.W_Q.shape[1] or not np.isfinite(rows).all():
            raise Unreadable(
                f"{source}: when it runs, layer {layer.index} gets inputs that are not finite, or "
                f"not {read.W_Q.shape[1]} wide as its weights are"
            )
        place = (table["kind"] == str(layer.kind)) & (table["layer"] == layer.index)
        values = activation_cka(read, rows)
        for name, column in values.items():
            for head in range(layer.n_heads):
                table.loc[place & (table["head"] == head), name] = np.float32(column[head])
    return table


def activation_cka(layer: Projections, rows: Float[Array, "t m"]) -> dict[str, Float[Array, " h"]]:
    """`act_cka_qk` … of every query head, with `…_random` and `…_random_sd`.

    Biases make no difference: CKA takes the mean off.

    Args:
        rows: what the projections get, a row per token.
    """
    repeated = len(layer.W_Q) // len(layer.W_K)
    made = {
        "q": rows @ layer.W_Q,
        "k": np.repeat(rows @ layer.W_K, repeated, 0),
        "v": np.repeat(rows @ layer.W_V, repeated, 0),
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


def _inputs(source: str, n_layers: int) -> list[Float[Array, "t m"]]:
    """What each layer's projections get while the model reads."""
    try:
        import transformers
    except ImportError as error:
        raise Unreadable(
            "running a model needs transformers: pip install -e '.[models]'"
        ) from error
    with _quiet(transformers):
        tokenizer, network = _loaded(transformers, source)
        if getattr(network.config, "is_encoder_decoder", False):
            raise Unreadable(f"{source}: models with one stack of layers are run, this has two")
        try:
            caught = _caught(network, _pieces(tokenizer, network.config))
        except Unreadable as error:
            raise Unreadable(f"{source}: {error}") from error
        except Exception as error:  # whatever a model does with text
            raise _failed(source, "does not run on text", error) from error
    if len(caught) != n_layers:
        raise Unreadable(
            f"{source}: {n_layers} attention layers were read, but {len(caught)} were seen to run; "
            "models are run that have one stack of layers, each with weights of its own"
        )
    return caught


def _loaded(transformers: Any, source: str) -> tuple[Any, Any]:
    """The tokenizer and the model: no program that comes with it, and no pickle, is run."""
    folder, gguf = _folder(source)
    options = {"local_files_only": True, "trust_remote_code": False}
    given: dict[str, Any] = {"gguf_file": gguf} if gguf else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options, **given)
        given = given or {"use_safetensors": True}
        network = transformers.AutoModel.from_pretrained(
            folder, dtype="float32", **options, **given
        )
    except Exception as error:  # whatever the library meets in somebody's files
        raise _failed(source, "transformers cannot load it", error) from error
    return tokenizer, network.eval()


def _pieces(tokenizer: Any, config: Any) -> list[list[int]]:
    """Pieces of text as long as the model has positions, as tokens."""
    n_positions = getattr(config, "max_position_embeddings", None) or WINDOW  # GPT-2's, too
    window = min(WINDOW, n_positions) if n_positions > 0 else WINDOW
    text = "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    ids = tokenizer(text[: 40 * WINDOW * N_WINDOWS], add_special_tokens=False).input_ids
    n_pieces = min(len(ids), WINDOW * N_WINDOWS) // window
    if n_pieces * (window - 1) < WINDOW:
        raise Unreadable(
            f"{len(ids)} tokens of text, in pieces of {window}, are too few; the tokenizer should "
            f"make {WINDOW * N_WINDOWS} and the model have {WINDOW} positions"
        )
    return [ids[i * window : (i + 1) * window] for i in range(n_pieces)]


def _caught(network: Any, pieces: list[list[int]]) -> list[Float[Array, "t m"]]:
    """What the projections of queries get, in the order in which they run."""
    import torch

    tokens = torch.tensor(pieces)
    caught: list[Float[Array, "t m"]] = []

    def catch(_: Any, inputs: tuple[Any, ...]) -> None:
        (rows,) = inputs
        if rows.shape[:-1] != tokens.shape:
            raise Unreadable(f"a layer gets inputs of shape {tuple(rows.shape)}")
        caught.append(rows[:, 1:].flatten(0, 1).float().numpy())

    for name, module in network.named_modules():
        if name.rpartition(".")[2] in _PROJECTIONS and not list(module.children()):
            module.register_forward_pre_hook(catch)
    with torch.inference_mode():
        network(input_ids=tokens)
    return caught


def _failed(source: str, what: str, error: Exception) -> Unreadable:
    said = " ".join(str(error).split())[:150]
    return Unreadable(f"{source}: {what} ({type(error).__name__}: {said})")


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
