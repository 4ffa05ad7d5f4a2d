"""The shape of the toy transformer: settings with their labels, help and bounds."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial

ALIGNED = 16
"""Number of float32 values in a cache line; widths and batches are multiples of it.

The matrices of all runs then have the same alignment, so that BLAS rounds them in the same way
whatever other runs train beside them.
"""


class Size(BaseModel):
    """Shape of the toy transformer; the same for every run of an experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    d_model: int = dial(
        32,
        mark("Model width"),
        mark("Width of the residual stream."),
        ge=16,
        le=512,
        multiple_of=ALIGNED,
    )
    n_heads: int = dial(1, mark("Heads"), mark("Number of attention heads per layer."), ge=1, le=8)
    d_head: int = dial(
        16,
        mark("Head width"),
        mark("Width of the queries, keys and values of one head."),
        ge=1,
        le=64,
    )
    n_layers: int = dial(1, mark("Layers"), mark("Number of attention layers."), ge=1, le=4)
    d_mlp: int = dial(
        0, mark("MLP width"), mark("Hidden width of the MLP; 0: no MLP."), ge=0, le=2048
    )
    positions: Literal[
        "none", "learned", "rope", "alibi", "relative", "key_bias", "plus", "learned_plus"
    ] = dial(
        "none",
        mark("Positions"),
        mark("How the model knows the position of a token; a variant can have its own way."),
        choice_labels=(
            # Translators: no positions at all
            mark("none"),
            mark("learned vectors"),
            mark("rotary (RoPE)"),
            mark("linear biases (ALiBi)"),
            mark("bias per distance (T5)"),
            mark("bias per key position"),
            mark("mixed-in sinusoid (plus)"),
            mark("learned vectors and sinusoid"),
        ),
    )
    causal: bool = dial(
        False, mark("Causal mask"), mark("A token attends only to itself and to earlier tokens.")
    )
    self_mask: bool = dial(
        False, mark("Self-mask"), mark("A token attends to itself only if it sees no other token.")
    )
    blocks: Literal["lean", "standard", "final_norm"] = dial(
        "lean",
        mark("Blocks"),
        mark(
            "How each layer is built around attention. Minimal: RMSNorm without gain, no biases. "
            "Standard: LayerNorm with gain and bias, biases everywhere, initial weights as PyTorch "
            "draws them, no norm before the read-out. With final norm: standard, and one more "
            "LayerNorm before the read-out."
        ),
        choice_labels=(mark("minimal"), mark("standard"), mark("standard with final norm")),
    )
