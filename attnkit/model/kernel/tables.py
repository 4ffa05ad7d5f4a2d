"""The tables that say what a run computes and where its numbers lie.

`attnkit.model.kernel.description` writes and checks them; the compiled functions only read them.
"""

from __future__ import annotations

import numpy as np

NONE = -1
"""The place of a parameter, matrix or buffer that a run does not have."""

BLOCK = 16
"""Query rows of causal attention that are computed together: keys after the last are left out."""


def _table(*names: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in names])


MATRIX = _table("weight", "bias", "n_in", "n_out", "transposed")
"""A linear map: places of its weight and its bias in the run's numbers, and of its transpose in
scratch memory. `weight` is `NONE` for the identity."""

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in (
            # who asks and who is looked at, from which position on and how many
            *("queries_from", "n_queries", "keys_from", "n_keys", "position"),
            # the residual stream: positions and place in scratch memory before and after it
            *("n_before", "x", "dx", "n_after", "x_after", "dx_after", "after_from"),
            *("causal", "self_mask", "n_heads", "kv_heads", "d_k", "d_v"),
            # places in the table of matrices; a tied role has its owner's
            *("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"),
            # a narrow vector between the token and its keys, values or both
            *("W_narrow", "narrow", "d_narrow", "narrow_K", "narrow_V"),
            # learnt factors and gains of the roles, and whether keys have length 1 and rows turn
            *("D_Q", "D_K", "D_V", "g_Q", "g_K", "unit_key", "turns"),
            # places in scratch memory of roles as the scores and the read-out see them
            *("q_seen", "k_seen", "v_seen", "dq_seen", "dk_seen", "dv_seen"),
            # places in the run's numbers
            *("ln1_w", "ln1_b", "ln2_w", "ln2_b"),
            # whether Q and V are projected, as K always is: a tied role reads its owner's rows
            *("makes_Q", "makes_V", "q_each", "q_first"),
            # places in scratch memory
            *("normed", "inverse", "rows", "query_rows", "key_rows", "q", "k", "v", "pattern", "z"),
            *("dq", "dk", "dv", "normed2", "inverse2", "rows2", "hidden", "active"),
            # place in a record of scores and patterns, for one example
            "recorded",
        )
    ]
    + [("scale", np.float32)]
)
"""One attention layer and its MLP."""

RUN = _table(
    *("n_ctx", "n_fields", "d_model", "d_vocab", "n_classes", "answers_from", "n_together"),
    *("W_E", "W_pos", "b_E", "W_U", "normed", "inverse", "answers", "logits", "no_gain"),
    *("final_norm", "rows", "ln_final_w", "ln_final_b"),
    *("x", "dx", "n_last", "x_last", "dx_last", "answers_in_last"),
    *("some", "d_some", "d_rows", "d_query_rows", "d_key_rows", "dz", "d_hidden"),
    *("turned", "d_pattern", "waves", "n_waves", "d_turned", "n_scratch", "n_numbers"),
)
"""One run: sizes, places of the parameters outside of layers, and places in scratch memory."""
