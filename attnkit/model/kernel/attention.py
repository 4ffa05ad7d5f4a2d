"""One attention layer of a chunk, forward and back; see `attnkit.model.kernel.step`."""

from __future__ import annotations

import numpy as np
from numba import njit

from attnkit.model.kernel.adjustments import adjust, adjust_back
from attnkit.model.kernel.elementwise import clear, normalise, normalise_back, softmax, softmax_back
from attnkit.model.kernel.products import multiply, multiply_add, transpose
from attnkit.model.kernel.rows import (
    linear,
    linear_add,
    linear_back,
    linear_back_add,
    padded,
    put_back,
    vector_at,
    view,
    window,
    windowed,
)
from attnkit.model.kernel.tables import BLOCK, NONE
from attnkit.model.kernel.vectors import OPTIONS

_ONE = np.float32(1.0)
_SELF_MASK = np.float32(-1e5)
"""As `attnkit.model.model.SELF_MASK`."""


@njit(**OPTIONS)
def attend(run, matrices, layer, numbers, scratch, n, record, first, n_examples):
    """Add what attention reads to the residual stream of those who ask."""
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
    if layer.makes_Q:
        linear(q, query_rows, matrices[layer.W_Q], numbers)
    linear(k, narrow if layer.narrow_K else key_rows, matrices[layer.W_K], numbers)
    if layer.makes_V:
        linear(v, narrow if layer.narrow_V else key_rows, matrices[layer.W_V], numbers)
    q, k, v = _adjust(run, layer, q, k, v, numbers, scratch, n)
    z = view(scratch, layer.z, n * layer.n_queries, layer.n_heads * layer.d_v)
    _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples)
    after = view(scratch, layer.x_after, n * layer.n_after, m)
    narrows = layer.x_after != layer.x
    to = layer.x_after if narrows else run.some
    some = window(scratch, to, x, layer.queries_from, layer.n_queries, n)
    linear_add(some, z, matrices[layer.W_O], numbers)
    if not narrows:
        put_back(after, some, layer.queries_from, layer.n_queries, n)


@njit(**OPTIONS)
def _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples):
    """Write the values of every head, weighted and summed: softmax of q kᵀ, times v."""
    n_queries, n_keys, d_k, d_v = layer.n_queries, layer.n_keys, layer.d_k, layer.d_v
    n_each = layer.n_heads // layer.kv_heads
    each, skipped = _of_queries(layer)
    keys = view(scratch, run.turned, d_k, n_keys)
    cut = layer.causal and len(record) == 0
    block, width = BLOCK if cut else n_queries, padded(n_keys)
    n_record = layer.n_heads * n_queries * n_keys
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_each
            transpose(keys, k[b * n_keys : (b + 1) * n_keys, kv * d_k : (kv + 1) * d_k])
            for i in range(0, n_queries, block):
                n_rows = min(block, n_queries - i)
                seen = min(layer.position + i + n_rows, n_keys) if cut else n_keys
                start = layer.pattern + ((b * layer.n_heads + h) * n_queries + i) * width
                pattern = view(scratch, start, n_rows, width)
                query = b * each + skipped + i
                own = q[query : query + n_rows, h * d_k : (h + 1) * d_k]
                multiply(pattern[:, :seen], own, keys[:, :seen])
                if len(record):
                    at = (
                        layer.recorded * n_examples
                        + (first + b) * n_record
                        + h * n_queries * n_keys
                    )
                    _keep(record, at, pattern[:, :n_keys], layer.scale)
                _soften(layer, pattern[:, : padded(seen)], layer.position + i)
                if len(record):
                    _keep(record, at + n_examples * n_record, pattern[:, :n_keys], np.float32(1.0))
                ask = b * n_queries + i
                read = v[b * n_keys : b * n_keys + seen, kv * d_v : (kv + 1) * d_v]
                to = z[ask : ask + n_rows, h * d_v : (h + 1) * d_v]
                multiply(to, pattern[:, :seen], read)


@njit(**OPTIONS)
def _keep(record, start, values, factor):
    """Write a matrix times a factor into a record."""
    to = view(record, start, values.shape[0], values.shape[1])
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            to[i, j] = values[i, j] * factor


@njit(**OPTIONS)
def _soften(layer, scores, position):
    """Replace scores by the pattern: scale, mask, and softmax of every row."""
    n_keys = layer.n_keys
    for i in range(len(scores)):
        if layer.self_mask and position + i < n_keys:
            scores[i, position + i] += _SELF_MASK / layer.scale
        n = min(position + i + 1, n_keys) if layer.causal else n_keys
        softmax(scores[i], n, layer.scale, _ONE)


@njit(**OPTIONS)
def attend_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Go back through attention: add to the gradients of its weights and of the stream before."""
    m, n_rows, n_query_rows = run.d_model, n * layer.n_before, n * layer.n_queries
    dx, after = (
        view(scratch, layer.dx, n_rows, m),
        view(scratch, layer.dx_after, n * layer.n_after, m),
    )
    d_some = window(scratch, run.d_some, after, layer.after_from, layer.n_queries, n)
    z = view(scratch, layer.z, n_query_rows, layer.n_heads * layer.d_v)
    dz = view(scratch, run.dz, n_query_rows, layer.n_heads * layer.d_v)
    linear_back(dz, d_some, z, matrices[layer.W_O], gradient, scratch)
    q, k, v = _roles(layer, scratch, layer.q, layer.k, layer.v, n)
    dq, dk, dv = _roles(layer, scratch, layer.dq, layer.dk, layer.dv, n)
    for d_made in (dq, dk, dv):
        clear(d_made)
    seen = _seen(layer, scratch, q, k, v, layer.q_seen, layer.k_seen, layer.v_seen, n)
    d_seen = _seen(layer, scratch, dq, dk, dv, layer.dq_seen, layer.dk_seen, layer.dv_seen, n)
    _clear_seen(layer, d_seen)
    _mix_back(run, layer, *seen, *d_seen, dz, scratch, n)
    _adjust_back(run, layer, q, k, v, dq, dk, dv, d_seen, numbers, gradient, scratch, n)
    rows = view(scratch, layer.rows, n_rows, m)
    query_rows = windowed(scratch, layer.query_rows, rows, layer.n_queries, n)
    key_rows = windowed(scratch, layer.key_rows, rows, layer.n_keys, n)
    d_rows = view(scratch, run.d_rows, n_rows, m)
    clear(d_rows)
    d_key_rows = windowed(scratch, run.d_key_rows, d_rows, layer.n_keys, n)
    clear(d_key_rows)
    narrow = _narrow(layer, matrices, scratch, layer.narrow, n)
    d_narrow = _narrow(layer, matrices, scratch, layer.d_narrow, n)
    if layer.W_narrow != NONE:
        clear(d_narrow)
    if layer.narrow_K:
        linear_back_add(d_narrow, dk, narrow, matrices[layer.W_K], gradient, scratch)
    else:
        linear_back_add(d_key_rows, dk, key_rows, matrices[layer.W_K], gradient, scratch)
    if layer.makes_V and layer.narrow_V:
        linear_back_add(d_narrow, dv, narrow, matrices[layer.W_V], gradient, scratch)
    elif layer.makes_V:
        linear_back_add(d_key_rows, dv, key_rows, matrices[layer.W_V], gradient, scratch)
    if layer.W_narrow != NONE:
        linear_back_add(d_key_rows, d_narrow, key_rows, matrices[layer.W_narrow], gradient, scratch)
    put_back(d_rows, d_key_rows, layer.keys_from, layer.n_keys, n)
    if layer.makes_Q:
        d_query_rows = window(
            scratch, run.d_query_rows, d_rows, layer.queries_from, layer.n_queries, n
        )
        linear_back_add(d_query_rows, dq, query_rows, matrices[layer.W_Q], gradient, scratch)
        put_back(d_rows, d_query_rows, layer.queries_from, layer.n_queries, n)
    if layer.dx_after != layer.dx:
        clear(dx)
        put_back(dx, d_some, layer.queries_from, layer.n_queries, n)
    normed, inverse = (
        view(scratch, layer.normed, n_rows, m),
        vector_at(scratch, layer.inverse, n_rows),
    )
    normalise_back(dx, d_rows, normed, inverse, numbers, gradient, layer.ln1_w, layer.ln1_b)


@njit(**OPTIONS)
def _mix_back(run, layer, q, k, v, dq, dk, dv, dz, scratch, n):
    """Add to the gradients of queries, keys and values."""
    n_queries, n_keys, d_k, d_v = layer.n_queries, layer.n_keys, layer.d_k, layer.d_v
    n_each = layer.n_heads // layer.kv_heads
    each, skipped = _of_queries(layer)
    values = view(scratch, run.turned, d_v, n_keys)
    block, width = BLOCK if layer.causal else n_queries, padded(n_keys)
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_each
            transpose(values, v[b * n_keys : (b + 1) * n_keys, kv * d_v : (kv + 1) * d_v])
            for i in range(0, n_queries, block):
                n_rows = min(block, n_queries - i)
                seen = min(layer.position + i + n_rows, n_keys) if layer.causal else n_keys
                start = layer.pattern + ((b * layer.n_heads + h) * n_queries + i) * width
                pattern = view(scratch, start, n_rows, width)[:, : padded(seen)]
                d_pattern = view(scratch, run.d_pattern, n_rows, width)[:, : padded(seen)]
                ask, look = b * n_queries + i, b * n_keys
                query = b * each + skipped + i
                of_k, of_v = slice(kv * d_k, (kv + 1) * d_k), slice(kv * d_v, (kv + 1) * d_v)
                of_q = slice(h * d_k, (h + 1) * d_k)
                d_head = dz[ask : ask + n_rows, h * d_v : (h + 1) * d_v]
                multiply(d_pattern[:, :seen], d_head, values[:, :seen])
                for row in range(n_rows):
                    softmax_back(d_pattern[row], pattern[row], seen, layer.scale)
                pattern, d_pattern = pattern[:, :seen], d_pattern[:, :seen]
                own = q[query : query + n_rows, of_q]
                multiply_add(dk[look : look + seen, of_k], d_pattern.T, own)
                multiply_add(dv[look : look + seen, of_v], pattern.T, d_head)
                multiply_add(
                    dq[query : query + n_rows, of_q], d_pattern, k[look : look + seen, of_k]
                )


@njit(**OPTIONS)
def _roles(layer, scratch, q_at, k_at, v_at, n):
    """Return queries, keys and values, or their gradients; tied ones are the same rows."""
    return (
        view(scratch, q_at, n * layer.q_each, layer.n_heads * layer.d_k),
        view(scratch, k_at, n * layer.n_keys, layer.kv_heads * layer.d_k),
        view(scratch, v_at, n * layer.n_keys, layer.kv_heads * layer.d_v),
    )


@njit(**OPTIONS)
def _of_queries(layer):
    """Return how many rows of queries an example has, and which of them is the first that asks."""
    if layer.q_seen != NONE:
        return layer.n_queries, 0
    return layer.q_each, layer.q_first


@njit(**OPTIONS)
def _narrow(layer, matrices, scratch, at, n):
    """Return the rows of the narrow vector, or of its gradient; none if there is no such vector."""
    width = matrices[layer.W_narrow].n_out if layer.W_narrow != NONE else 0
    return view(scratch, max(at, 0), n * layer.n_keys, width)


@njit(**OPTIONS)
def _seen(layer, scratch, q, k, v, q_at, k_at, v_at, n):
    """Return the roles as scores and read-out see them: as they were made, or adjusted copies."""
    if q_at != NONE:
        q = view(scratch, q_at, n * layer.n_queries, q.shape[1])
    if k_at != NONE:
        k = view(scratch, k_at, k.shape[0], k.shape[1])
    if v_at != NONE:
        v = view(scratch, v_at, v.shape[0], v.shape[1])
    return q, k, v


@njit(**OPTIONS)
def _clear_seen(layer, d_seen):
    """Clear the gradients of adjusted copies."""
    dq, dk, dv = d_seen
    if layer.dq_seen != NONE:
        clear(dq)
    if layer.dk_seen != NONE:
        clear(dk)
    if layer.dv_seen != NONE:
        clear(dv)


@njit(**OPTIONS)
def _adjust(run, layer, q, k, v, numbers, scratch, n):
    """Return the roles after their factors, norms and turns."""
    seen = _seen(layer, scratch, q, k, v, layer.q_seen, layer.k_seen, layer.v_seen, n)
    waves = view(scratch, run.waves, run.n_waves, layer.d_k)
    nothing = waves[:0]
    turns = waves if layer.turns else nothing
    keys, asks, position = layer.n_keys, layer.n_queries, layer.position
    if layer.q_seen != NONE:
        rows = layer.q_each, layer.q_first, asks, position
        adjust(seen[0], q, rows, layer.d_k, layer.D_Q, layer.g_Q, 0, turns, numbers)
    if layer.k_seen != NONE:
        rows = keys, 0, keys, 0
        adjust(seen[1], k, rows, layer.d_k, layer.D_K, layer.g_K, layer.unit_key, turns, numbers)
    if layer.v_seen != NONE:
        rows = keys, 0, keys, 0
        factors = layer.D_V
        adjust(seen[2], v, rows, layer.d_v, factors, run.no_gain, 0, nothing, numbers)
    return seen


@njit(**OPTIONS)
def _adjust_back(run, layer, q, k, v, dq, dk, dv, d_seen, numbers, gradient, scratch, n):
    """Add to the gradients of the roles before their factors, norms and turns, and of those."""
    waves = view(scratch, run.waves, run.n_waves, layer.d_k)
    nothing = waves[:0]
    turns = waves if layer.turns else nothing
    keys, asks, position = layer.n_keys, layer.n_queries, layer.position
    both = vector_at(numbers, 0, run.n_numbers), vector_at(gradient, 0, run.n_numbers)
    if layer.q_seen != NONE:
        rows = layer.q_each, layer.q_first, asks, position
        adjust_back(dq, d_seen[0], q, rows, layer.d_k, layer.D_Q, layer.g_Q, 0, turns, both)
    if layer.k_seen != NONE:
        rows = keys, 0, keys, 0
        adjust_back(
            dk, d_seen[1], k, rows, layer.d_k, layer.D_K, layer.g_K, layer.unit_key, turns, both
        )
    if layer.v_seen != NONE:
        rows = keys, 0, keys, 0
        adjust_back(dv, d_seen[2], v, rows, layer.d_v, layer.D_V, run.no_gain, 0, nothing, both)
