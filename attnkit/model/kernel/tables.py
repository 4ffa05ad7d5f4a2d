"""Tables that tell the kernel what a run computes and where its numbers are in memory.

`attnkit.model.kernel.description` writes and checks them; the compiled functions only read them.
Offsets count floats from the start of the run's parameters or of scratch memory.
"""

from __future__ import annotations

import numpy as np

NONE = -1
"""Offset or index of a parameter, matrix or buffer that a run does not have."""

BLOCK = 16
"""Query rows in one block of causal attention; a block skips the keys after its last row."""


PIECE = 16
"""Lengths of rows that a softmax reads are multiples of this number."""


def padded(n: int) -> int:
    """Return n rounded up to a multiple of `PIECE`."""
    return (n + PIECE - 1) // PIECE * PIECE


def _table(*names: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in names])


MATRIX = _table("weight", "bias", "n_in", "n_out", "transposed")
"""One linear map: offsets of its weight and bias in the run's parameters, and of its transpose in
scratch memory. `weight` is `NONE` for the identity."""

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in (
            # query and key positions: first and number; position of the first query in its sequence
            *("queries_from", "n_queries", "keys_from", "n_keys", "position"),
            # residual stream before and after the layer: positions, offsets of x and dx in scratch
            # memory; index of the first query position in the stream after the layer
            *("n_before", "x", "dx", "n_after", "x_after", "dx_after", "after_from"),
            *("causal", "self_mask", "n_heads", "kv_heads", "d_k", "d_v"),
            # indices in the table of matrices; a tied role has the index of its owner
            *("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"),
            # narrow vector between the token and its keys, values or both
            *("W_narrow", "narrow", "d_narrow", "narrow_K", "narrow_V"),
            # offsets of learnt factors and gains of roles; width of the skew part of keys; whether
            # keys have length 1, and whether queries and keys are rotated
            *("D_Q", "D_K", "D_V", "g_Q", "g_K", "skew", "unit_key", "rotates"),
            # offsets in scratch memory of adjusted roles
            *("q_adjusted", "k_adjusted", "v_adjusted"),
            *("dq_adjusted", "dk_adjusted", "dv_adjusted"),
            # offsets in the run's parameters
            *("ln1_w", "ln1_b", "ln2_w", "ln2_b"),
            # whether Q and V are projected, as K always is, or read the rows of their owner; number
            # of rows of q per example, and the first of them that is a query
            *("projects_Q", "projects_V", "n_q_rows", "first_q_row"),
            # offsets in scratch memory
            *("normed", "inverse", "rows", "query_rows", "key_rows", "q", "k", "v", "pattern", "z"),
            *("dq", "dk", "dv", "normed2", "inverse2", "rows2", "hidden", "active"),
            # offset in the record of one example's scores and patterns
            "recorded",
        )
    ]
    + [("scale", np.float32)]
)
"""One attention layer with its MLP."""

RUN = _table(
    *("n_ctx", "n_fields", "d_model", "d_vocab", "n_classes", "answers_from", "n_together"),
    *("W_E", "W_pos", "b_E", "W_U", "normed", "inverse", "answers", "logits"),
    *("final_norm", "rows", "ln_final_w", "ln_final_b"),
    *("x", "dx", "n_last", "x_last", "dx_last", "answers_in_last"),
    *("x_window", "d_window", "d_rows", "d_query_rows", "d_key_rows", "dz", "d_hidden"),
    *("transposed_head", "d_pattern", "n_scratch", "n_numbers"),
    *("rotations", "n_rotations", "d_rotation"),
)
"""One run: sizes, offsets of the parameters outside the layers, and offsets in scratch memory."""
