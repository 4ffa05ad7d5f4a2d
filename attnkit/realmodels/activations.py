"""CKA of queries, keys and values while a model reads text.

Similar weights and similar activations are two questions: text varies in few directions, so that
even random projections of it look similar. Each number therefore has the level of random
projections of the same inputs beside it. Needs transformers (extra `models`) and a text model with
one stack of layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnkit.analysis.similarity import Band, linear_cka, projected_bands
from attnkit.foundation.corpus import TOPICS
from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.measures import PAIRS, WITH_VALUES
from attnkit.realmodels.running import failure, running
from attnkit.realmodels.sources import open_model

WINDOW, N_WINDOWS = 128, 8
"""Tokens per window of text, and windows; a model with fewer positions reads more short ones."""

_WITH_VALUES = tuple(name for name in WITH_VALUES if name.startswith("act_"))

_BAND_WIDTH = 2 * 1.959964
"""Standard deviations between the limits of a band."""


def with_activations(table: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return a model's table with the columns `act_cka_…` and their random levels filled in.

    The text is the help on Python's topics, in windows of `WINDOW` tokens without special tokens.
    The first token of a window is left out, because many heads attend to it when they find nothing
    else. Queries and keys are taken before rotary positions, and nothing is divided by the norm of
    queries, keys or latent vectors. Rows with folded gains get the same values, because the inputs
    of the projections are the same.

    Raises:
        Unreadable: If the model cannot be run here; the message says why.
    """
    model = open_model(source)
    inputs_of_layers = _projection_inputs(source, len(model.layers))
    table = table.copy()
    for layer, inputs in zip(model.layers, inputs_of_layers, strict=True):
        weights = layer.read()
        if inputs.shape[1] != weights.W_Q.shape[1] or not np.isfinite(inputs).all():
            raise Unreadable(
                f"{source}: when the model runs, the inputs of layer {layer.index} are not finite, "
                f"or their width is not that of its weights, {weights.W_Q.shape[1]}"
            )
        source_layer = layer.index if layer.kv_index is None else layer.kv_index
        in_layer = (table["kind"] == str(layer.kind)) & (table["layer"] == layer.index)
        values_of = activation_cka(weights, inputs, inputs_of_layers[source_layer])
        for name, values in values_of.items():
            if weights.k_is_v and name.startswith(_WITH_VALUES):
                continue
            for head in range(layer.n_heads):
                table.loc[in_layer & (table["head"] == head), name] = np.float32(values[head])
    return table


@np.errstate(over="ignore", invalid="ignore")  # heads whose activations overflow have no number
def activation_cka(
    layer: Projections, inputs: Float[Array, "t m"], inputs_kv: Float[Array, "t m"] | None = None
) -> dict[str, Float[Array, " h"]]:
    """Compute `act_cka_qk` … of every query head, with `…_random` and `…_random_sd`.

    Biases make no difference, because CKA subtracts the mean.

    Args:
        layer: The layer's weights.
        inputs: Inputs of the projections, a row per token.
        inputs_kv: Inputs of W_K and W_V, if the layer reuses those of another one.
    """
    inputs_kv = inputs if inputs_kv is None else inputs_kv
    per_group = len(layer.W_Q) // len(layer.W_K)
    projected = {
        "q": inputs @ layer.W_Q,
        "k": np.repeat(inputs_kv @ layer.W_K, per_group, 0),
        "v": np.repeat(inputs_kv @ layer.W_V, per_group, 0),
    }
    columns = {}
    bands: dict[tuple[bool, int, int], Band] = {}
    for pair in PAIRS:
        a, b = projected[pair[0]], projected[pair[1]]
        shape = pair == "kv", a.shape[-1], b.shape[-1]
        if shape not in bands:
            first = inputs_kv if pair == "kv" else inputs
            _, bands[shape] = projected_bands(first, inputs_kv, *shape[1:])
        band = bands[shape]
        name = f"act_cka_{pair}"
        columns[name] = linear_cka(a, b)
        columns[f"{name}_random"] = np.full(len(a), band.mean)
        columns[f"{name}_random_sd"] = np.full(len(a), (band.high - band.low) / _BAND_WIDTH)
    return columns


def _projection_inputs(source: str, n_layers: int) -> list[Float[Array, "t m"]]:
    """Run the model on text and return the inputs of each layer's projections."""
    with running(source) as (tokenizer, network):
        if getattr(network.config, "is_encoder_decoder", False):
            raise Unreadable(
                f"{source}: has an encoder and a decoder; only models with one stack can be run"
            )
        try:
            inputs = _record_inputs(network, _windows(tokenizer, network.config))
        except Unreadable as error:
            raise Unreadable(f"{source}: {error}") from error
        except Exception as error:  # a model from elsewhere may raise any error
            raise failure(source, "does not run on text", error) from error
    if len(inputs) != n_layers:
        raise Unreadable(
            f"{source}: the file has {n_layers} attention layers, but {len(inputs)} ran; only "
            "models with one stack of layers that share no weights can be run"
        )
    return inputs


def _windows(tokenizer: Any, config: Any) -> list[list[int]]:
    """Return windows of text as token ids, no longer than the model has positions."""
    n_positions = getattr(config, "max_position_embeddings", None) or WINDOW
    length = min(WINDOW, n_positions) if n_positions > 0 else WINDOW
    ids = tokenizer(TOPICS.read()[: 40 * WINDOW * N_WINDOWS], add_special_tokens=False).input_ids
    n_windows = min(len(ids), WINDOW * N_WINDOWS) // length
    if n_windows * (length - 1) < WINDOW:
        raise Unreadable(
            f"{len(ids)} tokens of text, in windows of {length}, are too few; the tokenizer should "
            f"give {WINDOW * N_WINDOWS} tokens and the model have {WINDOW} positions"
        )
    return [ids[i * length : (i + 1) * length] for i in range(n_windows)]


def _record_inputs(network: Any, windows: list[list[int]]) -> list[Float[Array, "t m"]]:
    """Run the model and return the inputs of its query modules, in the order in which they run."""
    import torch

    from attnkit.realmodels.library import build, traced
    from attnkit.realmodels.tracing import root_of

    tokens = torch.tensor(windows)
    recorded: list[Float[Array, "t m"]] = []

    def record(_: Any, arguments: tuple[Any, ...]) -> None:
        (inputs,) = arguments
        if inputs.shape[:-1] != tokens.shape:
            raise Unreadable(f"a layer gets inputs of shape {tuple(inputs.shape)}")
        recorded.append(inputs[:, 1:].flatten(0, 1).float().numpy())

    trace = traced(build(network.config, type(network)))
    named = dict(network.named_modules())
    for name in dict.fromkeys(root_of(trace, int(x.q[0, 0, 0])).name for x in trace.layers):
        named[name].register_forward_pre_hook(record)
    with torch.inference_mode():
        network(input_ids=tokens)
    return recorded
