"""Forward and backward pass of one attention layer for a chunk of examples.

`attnkit.model.kernel.step` explains chunks and index letters.
"""

from __future__ import annotations

import numpy as np

from attnkit.model.kernel.adjustments import adjust, adjust_back
from attnkit.model.kernel.compiler import inner
from attnkit.model.kernel.elementwise import clear, normalise, normalise_back, softmax, softmax_back
from attnkit.model.kernel.products import multiply, multiply_add, transpose
from attnkit.model.kernel.rows import (
    columns,
    linear,
    linear_add,
    linear_back,
    linear_back_add,
    padded,
    part,
    put_back,
    vector_at,
    view,
    window,
    window_view,
)
from attnkit.model.kernel.tables import BLOCK, NONE

_ONE, _ZERO = np.float32(1.0), np.int64(0)  # numba compiles again for each literal number
_NONE = np.int64(NONE)
_SELF_MASK = np.float32(-1e5)
"""`attnkit.model.model.SELF_MASK` as a float32."""


@inner
def attend(run, matrices, layer, numbers, scratch, n, record, first, n_examples):
    """Add the layer's output to the residual stream at the query positions.

    Args:
        n: Number of examples in the chunk.
        record: Record of scores and patterns to write, or no numbers; see `compute`.
        first: Index of the chunk's first example in the record.
        n_examples: Number of examples in the record.
    """
    m, n_rows = run.d_model, n * layer.n_before
    x = view(scratch, layer.x, n_rows, m)
    normed, rows = view(scratch, layer.normed, n_rows, m), view(scratch, layer.rows, n_rows, m)
    normalise(
        rows,
        normed,
        vector_at(scratch, layer.inverse, n_rows),
        x,
        numbers,
        layer.ln1_w,
        layer.ln1_b,
    )
    query_rows = window(scratch, layer.query_rows, rows, layer.queries_from, layer.n_queries, n)
    key_rows = window(scratch, layer.key_rows, rows, layer.keys_from, layer.n_keys, n)
    narrow = _narrow(layer, matrices, scratch, layer.narrow, n)
    if layer.W_narrow != NONE:
        linear(narrow, key_rows, matrices[layer.W_narrow], numbers)
    q, k, v = _roles(layer, scratch, layer.q, layer.k, layer.v, n)
    if layer.projects_Q:
        linear(q, query_rows, matrices[layer.W_Q], numbers)
    linear(k, narrow if layer.narrow_K else key_rows, matrices[layer.W_K], numbers)
    if layer.projects_V:
        linear(v, narrow if layer.narrow_V else key_rows, matrices[layer.W_V], numbers)
    q, k, v = _adjust(run, layer, q, k, v, numbers, scratch, n)
    z = view(scratch, layer.z, n * layer.n_queries, layer.n_heads * layer.d_v)
    _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples)
    after = view(scratch, layer.x_after, n * layer.n_after, m)
    drops_positions = layer.x_after != layer.x
    offset = layer.x_after if drops_positions else run.x_window
    x_window = window(scratch, offset, x, layer.queries_from, layer.n_queries, n)
    linear_add(x_window, z, matrices[layer.W_O], numbers)
    if not drops_positions:
        put_back(after, x_window, layer.queries_from, layer.n_queries, n)


@inner
def _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples):
    """Write z of every head: softmax(q kᵀ · scale + mask) v."""
    n_queries, n_keys, d_k, d_v = layer.n_queries, layer.n_keys, layer.d_k, layer.d_v
    n_per_kv_head = layer.n_heads // layer.kv_heads
    n_q_rows, first_q_row = _query_rows(layer)
    keys = view(scratch, run.transposed_head, d_k, n_keys)
    skips_future = layer.causal and len(record) == 0
    block, width = BLOCK if skips_future else n_queries, padded(n_keys)
    n_record = layer.n_heads * n_queries * n_keys
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_per_kv_head
            transpose(keys, part(k, b * n_keys, n_keys, kv * d_k, d_k))
            for i in range(0, n_queries, block):
                n_rows = min(block, n_queries - i)
                n_seen = min(layer.position + i + n_rows, n_keys) if skips_future else n_keys
                start = layer.pattern + ((b * layer.n_heads + h) * n_queries + i) * width
                pattern = view(scratch, start, n_rows, width)
                q_row = b * n_q_rows + first_q_row + i
                queries = part(q, q_row, n_rows, h * d_k, d_k)
                multiply(columns(pattern, n_seen), queries, columns(keys, n_seen))
                if len(record):
                    offset = (
                        layer.recorded * n_examples
                        + (first + b) * n_record
                        + h * n_queries * n_keys
                    )
                    _write_record(record, offset, columns(pattern, n_keys), layer.scale)
                _mask_and_softmax(layer, columns(pattern, padded(n_seen)), layer.position + i)
                if len(record):
                    offset += n_examples * n_record
                    _write_record(record, offset, columns(pattern, n_keys), _ONE)
                z_row = b * n_queries + i
                values = part(v, b * n_keys, n_seen, kv * d_v, d_v)
                z_head = part(z, z_row, n_rows, h * d_v, d_v)
                multiply(z_head, columns(pattern, n_seen), values)


@inner
def _write_record(record, offset, matrix, factor):
    """Write a matrix times a factor into a record."""
    target = view(record, offset, matrix.shape[0], matrix.shape[1])
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            target[i, j] = matrix[i, j] * factor


@inner
def _mask_and_softmax(layer, scores, position):
    """Replace unscaled scores by the pattern; `position` is that of the first row's query."""
    n_keys = layer.n_keys
    for i in range(len(scores)):
        if layer.self_mask and position + i < n_keys:
            scores[i, position + i] += _SELF_MASK / layer.scale
        n = min(position + i + 1, n_keys) if layer.causal else n_keys
        softmax(scores[i], n, layer.scale, _ONE)


@inner
def attend_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Backpropagate: add to the gradients of the layer's weights and of the stream before it."""
    m, n_rows, n_query_rows = run.d_model, n * layer.n_before, n * layer.n_queries
    dx, dx_after = (
        view(scratch, layer.dx, n_rows, m),
        view(scratch, layer.dx_after, n * layer.n_after, m),
    )
    d_window = window(scratch, run.d_window, dx_after, layer.after_from, layer.n_queries, n)
    z = view(scratch, layer.z, n_query_rows, layer.n_heads * layer.d_v)
    dz = view(scratch, run.dz, n_query_rows, layer.n_heads * layer.d_v)
    linear_back(dz, d_window, z, matrices[layer.W_O], gradient, scratch)
    q, k, v = _roles(layer, scratch, layer.q, layer.k, layer.v, n)
    dq, dk, dv = _roles(layer, scratch, layer.dq, layer.dk, layer.dv, n)
    for d_role in (dq, dk, dv):
        clear(d_role)
    adjusted = _adjusted(
        layer, scratch, q, k, v, layer.q_adjusted, layer.k_adjusted, layer.v_adjusted, n
    )
    d_adjusted = _adjusted(
        layer, scratch, dq, dk, dv, layer.dq_adjusted, layer.dk_adjusted, layer.dv_adjusted, n
    )
    _clear_adjusted(layer, d_adjusted)
    _mix_back(run, layer, *adjusted, *d_adjusted, dz, scratch, n)
    _adjust_back(run, layer, q, k, v, dq, dk, dv, d_adjusted, numbers, gradient, scratch, n)
    d_rows = _project_back(run, matrices, layer, dq, dk, dv, gradient, scratch, n)
    if layer.dx_after != layer.dx:
        clear(dx)
        put_back(dx, d_window, layer.queries_from, layer.n_queries, n)
    normed, inverse = (
        view(scratch, layer.normed, n_rows, m),
        vector_at(scratch, layer.inverse, n_rows),
    )
    normalise_back(dx, d_rows, normed, inverse, numbers, gradient, layer.ln1_w, layer.ln1_b)


@inner
def _project_back(run, matrices, layer, dq, dk, dv, gradient, scratch, n):
    """Return the gradient of the normalised rows, and add to the gradients of the projections."""
    m, n_rows = run.d_model, n * layer.n_before
    rows, d_rows = view(scratch, layer.rows, n_rows, m), view(scratch, run.d_rows, n_rows, m)
    clear(d_rows)
    query_rows = window_view(scratch, layer.query_rows, rows, layer.n_queries, n)
    key_rows = window_view(scratch, layer.key_rows, rows, layer.n_keys, n)
    d_key_rows = window_view(scratch, run.d_key_rows, d_rows, layer.n_keys, n)
    clear(d_key_rows)
    narrow = _narrow(layer, matrices, scratch, layer.narrow, n)
    d_narrow = _narrow(layer, matrices, scratch, layer.d_narrow, n)
    if layer.W_narrow != NONE:
        clear(d_narrow)
    if layer.narrow_K:
        linear_back_add(d_narrow, dk, narrow, matrices[layer.W_K], gradient, scratch)
    else:
        linear_back_add(d_key_rows, dk, key_rows, matrices[layer.W_K], gradient, scratch)
    if layer.projects_V and layer.narrow_V:
        linear_back_add(d_narrow, dv, narrow, matrices[layer.W_V], gradient, scratch)
    elif layer.projects_V:
        linear_back_add(d_key_rows, dv, key_rows, matrices[layer.W_V], gradient, scratch)
    if layer.W_narrow != NONE:
        linear_back_add(d_key_rows, d_narrow, key_rows, matrices[layer.W_narrow], gradient, scratch)
    put_back(d_rows, d_key_rows, layer.keys_from, layer.n_keys, n)
    if layer.projects_Q:
        d_query_rows = window(
            scratch, run.d_query_rows, d_rows, layer.queries_from, layer.n_queries, n
        )
        linear_back_add(d_query_rows, dq, query_rows, matrices[layer.W_Q], gradient, scratch)
        put_back(d_rows, d_query_rows, layer.queries_from, layer.n_queries, n)
    return d_rows


@inner
def _mix_back(run, layer, q, k, v, dq, dk, dv, dz, scratch, n):
    """Add to the gradients of adjusted queries, keys and values."""
    n_queries, n_keys, d_k, d_v = layer.n_queries, layer.n_keys, layer.d_k, layer.d_v
    n_per_kv_head = layer.n_heads // layer.kv_heads
    n_q_rows, first_q_row = _query_rows(layer)
    values = view(scratch, run.transposed_head, d_v, n_keys)
    block, width = BLOCK if layer.causal else n_queries, padded(n_keys)
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_per_kv_head
            transpose(values, part(v, b * n_keys, n_keys, kv * d_v, d_v))
            for i in range(0, n_queries, block):
                n_rows = min(block, n_queries - i)
                n_seen = min(layer.position + i + n_rows, n_keys) if layer.causal else n_keys
                start = layer.pattern + ((b * layer.n_heads + h) * n_queries + i) * width
                pattern = columns(view(scratch, start, n_rows, width), padded(n_seen))
                d_pattern = view(scratch, run.d_pattern, n_rows, width)
                d_pattern = columns(d_pattern, padded(n_seen))
                z_row, k_row = b * n_queries + i, b * n_keys
                q_row = b * n_q_rows + first_q_row + i
                k_column, v_column, q_column = kv * d_k, kv * d_v, h * d_k
                dz_head = part(dz, z_row, n_rows, h * d_v, d_v)
                multiply(columns(d_pattern, n_seen), dz_head, columns(values, n_seen))
                for row in range(n_rows):
                    softmax_back(d_pattern[row], pattern[row], n_seen, layer.scale)
                pattern, d_pattern = columns(pattern, n_seen), columns(d_pattern, n_seen)
                queries = part(q, q_row, n_rows, q_column, d_k)
                keys = part(k, k_row, n_seen, k_column, d_k)
                multiply_add(part(dk, k_row, n_seen, k_column, d_k), d_pattern.T, queries)
                multiply_add(part(dv, k_row, n_seen, v_column, d_v), pattern.T, dz_head)
                multiply_add(part(dq, q_row, n_rows, q_column, d_k), d_pattern, keys)


@inner
def _roles(layer, scratch, q_offset, k_offset, v_offset, n):
    """Return queries, keys and values, or their gradients; tied roles are the same rows."""
    return (
        view(scratch, q_offset, n * layer.n_q_rows, layer.n_heads * layer.d_k),
        view(scratch, k_offset, n * layer.n_keys, layer.kv_heads * layer.d_k),
        view(scratch, v_offset, n * layer.n_keys, layer.kv_heads * layer.d_v),
    )


@inner
def _query_rows(layer):
    """Return the number of rows of q per example, and the first of them that is a query."""
    if layer.q_adjusted != NONE:
        return layer.n_queries, 0
    return layer.n_q_rows, layer.first_q_row


@inner
def _narrow(layer, matrices, scratch, offset, n):
    """Return the rows of the narrow vector or of its gradient; they are empty without one."""
    width = matrices[layer.W_narrow].n_out if layer.W_narrow != NONE else 0
    return view(scratch, max(offset, 0), n * layer.n_keys, width)


@inner
def _adjusted(layer, scratch, q, k, v, q_offset, k_offset, v_offset, n):
    """Return the adjusted copies of roles, and the rows of roles that no rule adjusts."""
    if q_offset != NONE:
        q = view(scratch, q_offset, n * layer.n_queries, q.shape[1])
    if k_offset != NONE:
        k = view(scratch, k_offset, k.shape[0], k.shape[1])
    if v_offset != NONE:
        v = view(scratch, v_offset, v.shape[0], v.shape[1])
    return q, k, v


@inner
def _clear_adjusted(layer, d_adjusted):
    """Set the gradients of adjusted copies to zero."""
    dq, dk, dv = d_adjusted
    if layer.dq_adjusted != NONE:
        clear(dq)
    if layer.dk_adjusted != NONE:
        clear(dk)
    if layer.dv_adjusted != NONE:
        clear(dv)


@inner
def _adjust(run, layer, q, k, v, numbers, scratch, n):
    """Return the roles after factors, skew parts, norms and rotations."""
    adjusted = _adjusted(
        layer, scratch, q, k, v, layer.q_adjusted, layer.k_adjusted, layer.v_adjusted, n
    )
    all_rotations = view(scratch, run.rotations, run.n_rotations, run.d_rotation)
    nothing = view(scratch, run.rotations, _ZERO, run.d_rotation)
    rotations = all_rotations if layer.rotates else nothing
    n_keys, n_queries, position = layer.n_keys, layer.n_queries, layer.position
    if layer.q_adjusted != NONE:
        rows = layer.n_q_rows, layer.first_q_row, n_queries, position
        adjust(
            adjusted[0], q, rows, layer.d_k, layer.D_Q, _ZERO, layer.g_Q, _ZERO, rotations, numbers
        )
    if layer.k_adjusted != NONE:
        rows = n_keys, _ZERO, n_keys, _ZERO
        factors, skew, gains, unit = layer.D_K, layer.skew, layer.g_K, layer.unit_key
        adjust(adjusted[1], k, rows, layer.d_k, factors, skew, gains, unit, rotations, numbers)
    if layer.v_adjusted != NONE:
        rows = n_keys, _ZERO, n_keys, _ZERO
        adjust(adjusted[2], v, rows, layer.d_v, layer.D_V, _ZERO, _NONE, _ZERO, nothing, numbers)
    return adjusted


@inner
def _adjust_back(run, layer, q, k, v, dq, dk, dv, d_adjusted, numbers, gradient, scratch, n):
    """Add to the gradients of the roles before their adjustment, and of factors and gains."""
    all_rotations = view(scratch, run.rotations, run.n_rotations, run.d_rotation)
    nothing = view(scratch, run.rotations, _ZERO, run.d_rotation)
    rotations = all_rotations if layer.rotates else nothing
    n_keys, n_queries, position = layer.n_keys, layer.n_queries, layer.position
    parameters = numbers, gradient
    dq_out, dk_out, dv_out = d_adjusted
    if layer.q_adjusted != NONE:
        rows = layer.n_q_rows, layer.first_q_row, n_queries, position
        factors, gains = layer.D_Q, layer.g_Q
        adjust_back(
            dq, dq_out, q, rows, layer.d_k, factors, _ZERO, gains, _ZERO, rotations, parameters
        )
    if layer.k_adjusted != NONE:
        rows = n_keys, _ZERO, n_keys, _ZERO
        factors, skew, gains, unit = layer.D_K, layer.skew, layer.g_K, layer.unit_key
        adjust_back(
            dk, dk_out, k, rows, layer.d_k, factors, skew, gains, unit, rotations, parameters
        )
    if layer.v_adjusted != NONE:
        rows = n_keys, _ZERO, n_keys, _ZERO
        adjust_back(
            dv, dv_out, v, rows, layer.d_v, layer.D_V, _ZERO, _NONE, _ZERO, nothing, parameters
        )
