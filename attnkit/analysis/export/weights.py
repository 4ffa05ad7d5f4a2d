"""Weights of a run as the state dict of its exported module, and as a file for `torch.load`.

The file is written without torch. It is a zip archive of raw numbers and of the pickle of a dict of
tensors that describes their shapes, as `torch.save` writes it. Nothing here reads pickles, and
`torch.load(…, weights_only=True)` executes no code of a pickle.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnkit.analysis.export.layer import linear_weights
from attnkit.variants import Variant
from attnkit.variants.position_rules import POSITIONS

if TYPE_CHECKING:
    from attnkit.experiment import Experiment


def module_weights(
    experiment: Experiment, variant: str, parameters: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the parameters of one run as the state dict of its `module_code`.

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
    return state_dict


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


def torch_file(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the file that `torch.save` writes for a dict of float32 tensors on the CPU."""
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w") as archive:  # uncompressed, as torch requires
        files = {"data.pkl": _pickled(arrays), "byteorder": b"little", "version": b"3\n"}
        files |= {
            f"data/{key}": array.astype("<f4").tobytes()
            for key, array in enumerate(arrays.values())
        }
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"weights/{name}"), content)  # no date: same bytes
    return blob.getvalue()


def _pickled(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the pickle, in protocol 2, of a dict of tensors whose numbers are in separate files.

    Its opcodes: `c` is a global, `(…t` a tuple, `Q` an object stored elsewhere, `R` a call, and
    `(…u` sets the items of the dict `}`.
    """
    parts = [b"\x80\x02}("]
    for key, (name, array) in enumerate(arrays.items()):
        storage = [_text("storage"), b"ctorch\nFloatStorage\n", _text(str(key)), _text("cpu")]
        stored = _tuple(*storage, _number(array.size)) + b"Q"
        strides = [stride // array.itemsize for stride in np.empty(array.shape, "f4").strides]
        shape, steps = (_tuple(*map(_number, counts)) for counts in (array.shape, strides))
        hooks = b"ccollections\nOrderedDict\n)R"
        arguments = _tuple(stored, _number(0), shape, steps, b"\x89", hooks)
        parts += [_text(name), b"ctorch._utils\n_rebuild_tensor_v2\n", arguments, b"R"]
    return b"".join([*parts, b"u."])


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def _number(number: int) -> bytes:
    return b"J" + number.to_bytes(4, "little", signed=True)


def _tuple(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"
