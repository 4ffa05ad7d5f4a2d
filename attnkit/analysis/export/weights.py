"""The weights of a run under the names of its module, and a file of them that `torch.load` reads.

The file is written without torch: a zip archive of raw numbers, and of a description of their
shapes that is the pickle of a dict of tensors, as `torch.save` makes it. Nothing reads pickles
here, and `torch.load(…, weights_only=True)` runs nothing of what a pickle can hold.
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
    """One run's parameters as the state dict of its `module_code`.

    `0.W_Q` is `layers.0.W_Q.weight`, transposed as `nn.Linear` has it; `0.b_Q` is
    `layers.0.W_Q.bias`, `0.ln1.w` is `layers.0.ln1.weight`, `0.D_K` is `layers.0.D_K`. What layers
    share stands there for each of them.

    Args:
        variant: that of the run. parameters: the run's, as `Result.parameters` has them.

    Raises:
        ValueError: if one is missing, as of a run that was stopped before it was tied.
    """
    found = {}
    for state, name in _sources(experiment, Variant(variant)).items():
        if name not in parameters:
            raise ValueError(f"parameters: {name} is missing, allowed those of trained {variant}")
        value = parameters[name]
        transposed = state.endswith(".weight") and value.ndim == 2 and name != "W_E"
        found[state] = np.ascontiguousarray(value.T if transposed else value, np.float32)
    return found


def _sources(experiment: Experiment, variant: Variant) -> dict[str, str]:
    """Names in the state dict of the module → names of the parameters."""
    wiring = experiment.wiring(variant)
    sizes, linear = wiring.sizes, linear_weights(wiring)
    found = {"W_E.weight": "W_E"} | _linear("", "", "W_U", sizes.standard)
    if sizes.standard:
        found["b_E"] = "b_E"
        if sizes.final_norm:
            found |= _norm("", "", "ln_final")
    if POSITIONS[sizes.positions].embedded:
        found["W_pos"] = "W_pos"
    for layer, place in enumerate(experiment.layer_specs):
        here = f"layers.{layer}."
        names = wiring.names(layer)
        for name, full in names.items():
            matrix = f"W_{name[2:]}"
            if name in linear:
                found[f"{here}{name}.weight"] = full
            elif name.startswith("b_") and matrix in linear:
                found[f"{here}{matrix}.bias"] = full
            else:
                found[here + name] = full
        has_mlp = sizes.d_mlp > 0 and place.has_mlp
        for name in ("W_in", "W_out") if has_mlp else ():
            found |= _linear(here, f"{layer}.", name, sizes.standard)
        for norm in ("ln1", "ln2")[: 1 + has_mlp] if sizes.standard else ():
            found |= _norm(here, f"{layer}.", norm)
    return found


def _norm(here: str, home: str, name: str) -> dict[str, str]:
    return {f"{here}{name}.{long}": f"{home}{name}.{long[0]}" for long in ("weight", "bias")}


def _linear(here: str, home: str, name: str, biased: bool) -> dict[str, str]:
    found = {f"{here}{name}.weight": home + name}
    return found | {f"{here}{name}.bias": f"{home}b_{name[2:]}"} if biased else found


def torch_file(arrays: Mapping[str, np.ndarray]) -> bytes:
    """What `torch.save` writes of a dict of float32 tensors on the CPU."""
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w") as archive:  # uncompressed, as torch reads it
        files = {"data.pkl": _pickled(arrays), "byteorder": b"little", "version": b"3\n"}
        files |= {
            f"data/{key}": array.astype("<f4").tobytes()
            for key, array in enumerate(arrays.values())
        }
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"weights/{name}"), content)  # without a date
    return blob.getvalue()


def _pickled(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The dict of tensors, whose numbers stand in files of their own: pickle's protocol 2.

    In its letters: `c` names a global, `(…t` is a tuple, `Q` a thing kept elsewhere, `R` a call,
    `(…u` fills the dict `}`.
    """
    parts = [b"\x80\x02}("]
    for key, (name, array) in enumerate(arrays.items()):
        kept = [_text("storage"), b"ctorch\nFloatStorage\n", _text(str(key)), _text("cpu")]
        stored = _tuple(*kept, _number(array.size)) + b"Q"
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
