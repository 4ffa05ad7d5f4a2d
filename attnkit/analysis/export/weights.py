"""Weights of a run as a safetensors file with the state dict of its exported module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save

from attnkit.analysis.export.layer import linear_weights
from attnkit.variants import Variant
from attnkit.variants.position_rules import POSITIONS

if TYPE_CHECKING:
    from attnkit.experiment import Experiment


def module_weights(
    experiment: Experiment, variant: str, parameters: Mapping[str, np.ndarray]
) -> bytes:
    """Return a safetensors file with the parameters of one run as the state dict of its module.

    `0.W_Q` becomes `layers.0.W_Q.weight`, transposed for `nn.Linear`; `0.b_Q` becomes
    `layers.0.W_Q.bias`, `0.ln1.w` becomes `layers.0.ln1.weight`, `0.D_K` becomes `layers.0.D_K`.
    Parameters that layers share are repeated for each of them.

    Args:
        experiment: The trained experiment.
        variant: Variant of the run.
        parameters: Parameters of the run, from `Result.parameters`.

    Raises:
        ValueError: If a parameter is missing, as in a run that was stopped before it was tied.
    """
    state_dict = {}
    for key, name in _sources(experiment, Variant(variant)).items():
        if name not in parameters:
            raise ValueError(f"parameters: {name} is missing, allowed those of trained {variant}")
        value = parameters[name]
        transposed = key.endswith(".weight") and value.ndim == 2 and name != "W_E"
        state_dict[key] = np.ascontiguousarray(value.T if transposed else value, np.float32)
    return save(state_dict)


def _sources(experiment: Experiment, variant: Variant) -> dict[str, str]:
    """Return key in the state dict of the module → name of the parameter."""
    wiring = experiment.wiring(variant)
    sizes, linear = wiring.sizes, linear_weights(wiring)
    sources = {"W_E.weight": "W_E"} | _linear("", "", "W_U", sizes.standard)
    if sizes.standard:
        sources["b_E"] = "b_E"
        if sizes.final_norm:
            sources |= _norm("", "", "ln_final")
    if POSITIONS[sizes.positions].embedded:
        sources["W_pos"] = "W_pos"
    for layer, spec in enumerate(experiment.layer_specs):
        prefix = f"layers.{layer}."
        for name, parameter in wiring.names(layer).items():
            matrix = f"W_{name[2:]}"
            if name in linear:
                sources[f"{prefix}{name}.weight"] = parameter
            elif name.startswith("b_") and matrix in linear:
                sources[f"{prefix}{matrix}.bias"] = parameter
            else:
                sources[prefix + name] = parameter
        has_mlp = sizes.d_mlp > 0 and spec.has_mlp
        for name in ("W_in", "W_out") if has_mlp else ():
            sources |= _linear(prefix, f"{layer}.", name, sizes.standard)
        for norm in ("ln1", "ln2")[: 1 + has_mlp] if sizes.standard else ():
            sources |= _norm(prefix, f"{layer}.", norm)
    return sources


def _norm(prefix: str, source: str, name: str) -> dict[str, str]:
    """Return the sources of an `nn.LayerNorm`, given the prefixes of keys and of parameters."""
    return {f"{prefix}{name}.{key}": f"{source}{name}.{key[0]}" for key in ("weight", "bias")}


def _linear(prefix: str, source: str, name: str, biased: bool) -> dict[str, str]:
    """Return the sources of an `nn.Linear`, given the prefixes of keys and of parameters."""
    weight = {f"{prefix}{name}.weight": source + name}
    return weight | {f"{prefix}{name}.bias": f"{source}b_{name[2:]}"} if biased else weight
