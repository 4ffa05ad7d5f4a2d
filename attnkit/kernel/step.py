"""One training step of one run: from the embedding to the gradients, a few examples at a time.

A chunk of examples with about 64 rows goes through all layers and back while it is in the
processor's cache; gradients of weights accumulate over the chunks. What a run computes, and where
its numbers lie, is said by three tables (`MATRIX`, `LAYER`, `RUN`), which
`attnkit.kernel.description` writes and checks. A tied role has its owner's place there: that is all
that sharing is.

Functions below the first two get addresses of the run's numbers, of its gradient and of scratch
memory rather than arrays: numba counts who uses an array, which costs more than a short row.

Index letters as in `attnkit.model`; rows are those of a chunk, (b·i, m). `d_` names the gradient of
what follows it.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from attnkit.kernel.adjustments import adjust, adjust_back, write_waves
from attnkit.kernel.elementwise import (
    PIECE,
    add_row,
    add_rows,
    clear,
    copy,
    gelu,
    normalise,
    normalise_back,
    softmax,
    softmax_back,
    sum_rows,
)
from attnkit.kernel.products import multiply, multiply_add, transpose
from attnkit.kernel.vectors import OPTIONS, address

NONE = -1
"""The place of a parameter, matrix or buffer that a run does not have."""

BLOCK = 16
"""Query rows of causal attention that are computed together: keys after the last are left out."""

_ONE = np.float32(1.0)
_SELF_MASK = np.float32(-1e5)
"""As `attnkit.model.SELF_MASK`."""


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
            *("asks_from", "n_asks", "looks_from", "n_looks", "position"),
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
            *("normed", "inverse", "rows", "asked", "looked", "q", "k", "v", "pattern", "z"),
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
    *("W_E", "W_pos", "b_E", "W_U", "normed", "inverse", "answers", "logits", "lean", "no_gain"),
    *("x", "dx", "n_last", "x_last", "dx_last", "answers_in_last"),
    *("some", "d_some", "d_rows", "d_asked", "d_looked", "dz", "d_hidden"),
    *("turned", "d_pattern", "waves", "n_waves", "d_turned", "n_scratch", "n_numbers"),
)
"""One run: sizes, places of the parameters outside of layers, and places in scratch memory."""


@njit(**OPTIONS)
def differentiate(table, matrices, layers, numbers, gradient, tokens, labels, fixed, scratch):
    """Write the gradient of the mean cross-entropy of a batch, for each run of one variant.

    Args:
        table: `RUN` of one row. matrices, layers: the other tables.
        numbers, gradient: (s, n) the numbers of each run.
        tokens: (s, b, i, fields).
        labels: (s, b, a); negative where nothing is asked.
        fixed: (s, vocab) tokens whose embedding does not change.
        scratch: at least `n_scratch` numbers.
    """
    run = table[0]
    memory, nothing = address(scratch, 0), scratch[:0]
    write_waves(run, memory)
    for seed in range(len(numbers)):
        own, d_own = address(numbers[seed], 0), address(gradient[seed], 0)
        clear(_view(d_own, 0, 1, run.n_numbers))
        _transpose_all(matrices, own, memory)
        each = _ONE / np.float32((labels[seed] >= 0).sum())
        n_examples = tokens.shape[1]
        for first in range(0, n_examples, run.n_together):
            n = min(run.n_together, n_examples - first)
            some, asked = tokens[seed, first : first + n], labels[seed, first : first + n]
            _embed(run, own, some, memory)
            for place in range(len(layers)):
                layer = layers[place]
                _attend(run, matrices, layer, own, memory, n, nothing, first, n_examples)
                _mlp(run, matrices, layer, own, memory, n)
            _read_out(run, matrices, own, memory, n)
            _cross_entropy_back(run, asked, each, memory)
            _read_out_back(run, matrices, own, d_own, memory, n)
            for place in range(len(layers) - 1, -1, -1):
                _mlp_back(run, matrices, layers[place], own, d_own, memory, n)
                _attend_back(run, matrices, layers[place], own, d_own, memory, n)
            _embed_back(run, d_own, some, memory)
        d_table = _view(d_own, run.W_E, run.d_vocab, run.d_model)
        for token in range(run.d_vocab):
            if fixed[seed, token]:
                d_table[token] = np.float32(0.0)


@njit(**OPTIONS)
def answer(table, matrices, layers, numbers, tokens, logits, record, scratch):
    """Write the logits of a batch, and what attention layers compute, for each run of one variant.

    Args:
        logits: (s, b·a, c).
        record: (s, n) for each layer the scaled scores before masks of all examples, (b, h, i, j),
            then the patterns; n is 0 if they are not wanted.
    """
    run = table[0]
    n_answers, n_examples = run.n_ctx - run.answers_from, tokens.shape[1]
    memory = address(scratch, 0)
    write_waves(run, memory)
    for seed in range(len(numbers)):
        own = address(numbers[seed], 0)
        for first in range(0, n_examples, run.n_together):
            n = min(run.n_together, n_examples - first)
            _embed(run, own, tokens[seed, first : first + n], memory)
            for place in range(len(layers)):
                layer = layers[place]
                _attend(run, matrices, layer, own, memory, n, record[seed], first, n_examples)
                _mlp(run, matrices, layer, own, memory, n)
            _read_out(run, matrices, own, memory, n)
            found = _logits(run, memory, n * n_answers)[:, : run.n_classes]
            copy(logits[seed, first * n_answers : (first + n) * n_answers], found)


@njit(**OPTIONS)
def _embed(run, numbers, tokens, scratch):
    """Write the residual stream: the sum of a token's fields, of its position, and a bias."""
    m = run.d_model
    clear(_view(scratch, run.x, len(tokens) * run.n_ctx, m))
    for b in range(len(tokens)):
        for i in range(run.n_ctx):
            row = run.x + (b * run.n_ctx + i) * m
            for field in range(run.n_fields):
                add_row(scratch, row, numbers, run.W_E + tokens[b, i, field] * m, m)
            if run.W_pos != NONE:
                add_row(scratch, row, numbers, run.W_pos + i * m, m)
            if run.b_E != NONE:
                add_row(scratch, row, numbers, run.b_E, m)


@njit(**OPTIONS)
def _embed_back(run, gradient, tokens, scratch):
    """Add to the gradients of the embedding, of positions, and of the bias."""
    m = run.d_model
    for b in range(len(tokens)):
        for i in range(run.n_ctx):
            row = run.dx + (b * run.n_ctx + i) * m
            for field in range(run.n_fields):
                add_row(gradient, run.W_E + tokens[b, i, field] * m, scratch, row, m)
            if run.W_pos != NONE:
                add_row(gradient, run.W_pos + i * m, scratch, row, m)
            if run.b_E != NONE:
                add_row(gradient, run.b_E, scratch, row, m)


@njit(**OPTIONS)
def _attend(run, matrices, layer, numbers, scratch, n, record, first, n_examples):
    """Add what attention reads to the residual stream of those who ask."""
    m, n_rows = run.d_model, n * layer.n_before
    x = _view(scratch, layer.x, n_rows, m)
    normed, rows = _view(scratch, layer.normed, n_rows, m), _view(scratch, layer.rows, n_rows, m)
    normalise(
        rows, normed, _vector(scratch, layer.inverse, n_rows), x, numbers, layer.ln1_w, layer.ln1_b
    )
    asked = _window(scratch, layer.asked, rows, layer.asks_from, layer.n_asks, n)
    looked = _window(scratch, layer.looked, rows, layer.looks_from, layer.n_looks, n)
    narrow = _narrow(layer, matrices, scratch, layer.narrow, n)
    if layer.W_narrow != NONE:
        _linear(narrow, looked, matrices[layer.W_narrow], numbers)
    q, k, v = _roles(layer, scratch, layer.q, layer.k, layer.v, n)
    if layer.makes_Q:
        _linear(q, asked, matrices[layer.W_Q], numbers)
    _linear(k, narrow if layer.narrow_K else looked, matrices[layer.W_K], numbers)
    if layer.makes_V:
        _linear(v, narrow if layer.narrow_V else looked, matrices[layer.W_V], numbers)
    q, k, v = _adjust(run, layer, q, k, v, numbers, scratch, n)
    z = _view(scratch, layer.z, n * layer.n_asks, layer.n_heads * layer.d_v)
    _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples)
    after = _view(scratch, layer.x_after, n * layer.n_after, m)
    narrows = layer.x_after != layer.x
    to = layer.x_after if narrows else run.some
    some = _window(scratch, to, x, layer.asks_from, layer.n_asks, n)
    _linear_add(some, z, matrices[layer.W_O], numbers)
    if not narrows:
        _put_back(after, some, layer.asks_from, layer.n_asks, n)


@njit(**OPTIONS)
def _mix(run, layer, q, k, v, z, scratch, n, record, first, n_examples):
    """Write the values of every head, weighted and summed: softmax of q kᵀ, times v."""
    n_asks, n_looks, d_k, d_v = layer.n_asks, layer.n_looks, layer.d_k, layer.d_v
    n_each = layer.n_heads // layer.kv_heads
    each, skipped = _of_queries(layer)
    keys = _view(scratch, run.turned, d_k, n_looks)
    block, width = BLOCK if layer.causal and len(record) == 0 else n_asks, padded(n_looks)
    n_record = layer.n_heads * n_asks * n_looks
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_each
            transpose(keys, k[b * n_looks : (b + 1) * n_looks, kv * d_k : (kv + 1) * d_k])
            for i in range(0, n_asks, block):
                n_rows = min(block, n_asks - i)
                seen = min(layer.position + i + n_rows, n_looks) if block == BLOCK else n_looks
                start = layer.pattern + ((b * layer.n_heads + h) * n_asks + i) * width
                pattern = _view(scratch, start, n_rows, width)
                query = b * each + skipped + i
                own = q[query : query + n_rows, h * d_k : (h + 1) * d_k]
                multiply(pattern[:, :seen], own, keys[:, :seen])
                if len(record):
                    at = layer.recorded * n_examples + (first + b) * n_record + h * n_asks * n_looks
                    _keep(record, at, pattern[:, :n_looks], layer.scale)
                _soften(layer, pattern[:, : padded(seen)], layer.position + i)
                if len(record):
                    _keep(record, at + n_examples * n_record, pattern[:, :n_looks], np.float32(1.0))
                ask = b * n_asks + i
                read = v[b * n_looks : b * n_looks + seen, kv * d_v : (kv + 1) * d_v]
                to = z[ask : ask + n_rows, h * d_v : (h + 1) * d_v]
                multiply(to, pattern[:, :seen], read)


@njit(**OPTIONS)
def _keep(record, start, values, factor):
    to = _view(record, start, values.shape[0], values.shape[1])
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            to[i, j] = values[i, j] * factor


@njit(**OPTIONS)
def _soften(layer, scores, position):
    """Replace scores by the pattern: scale, mask, and softmax of every row."""
    n_looks = layer.n_looks
    for i in range(len(scores)):
        if layer.self_mask and position + i < n_looks:
            scores[i, position + i] += _SELF_MASK / layer.scale
        n = min(position + i + 1, n_looks) if layer.causal else n_looks
        softmax(scores[i], n, layer.scale, _ONE)


@njit(**OPTIONS)
def _attend_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Go back through attention: add to the gradients of its weights and of the stream before."""
    m, n_rows, n_asked = run.d_model, n * layer.n_before, n * layer.n_asks
    dx, after = (
        _view(scratch, layer.dx, n_rows, m),
        _view(scratch, layer.dx_after, n * layer.n_after, m),
    )
    d_some = _window(scratch, run.d_some, after, layer.after_from, layer.n_asks, n)
    z = _view(scratch, layer.z, n_asked, layer.n_heads * layer.d_v)
    dz = _view(scratch, run.dz, n_asked, layer.n_heads * layer.d_v)
    _linear_back(dz, d_some, z, matrices[layer.W_O], gradient, scratch)
    q, k, v = _roles(layer, scratch, layer.q, layer.k, layer.v, n)
    dq, dk, dv = _roles(layer, scratch, layer.dq, layer.dk, layer.dv, n)
    for d_made in (dq, dk, dv):
        clear(d_made)
    seen = _seen(layer, scratch, q, k, v, layer.q_seen, layer.k_seen, layer.v_seen, n)
    d_seen = _seen(layer, scratch, dq, dk, dv, layer.dq_seen, layer.dk_seen, layer.dv_seen, n)
    _clear_seen(layer, d_seen)
    _mix_back(run, layer, *seen, *d_seen, dz, scratch, n)
    _adjust_back(run, layer, q, k, v, dq, dk, dv, d_seen, numbers, gradient, scratch, n)
    rows = _view(scratch, layer.rows, n_rows, m)
    asked = _window(scratch, layer.asked, rows, layer.asks_from, layer.n_asks, n)
    looked = _window(scratch, layer.looked, rows, layer.looks_from, layer.n_looks, n)
    d_rows = _view(scratch, run.d_rows, n_rows, m)
    clear(d_rows)
    d_looked = _window(scratch, run.d_looked, d_rows, layer.looks_from, layer.n_looks, n)
    narrow = _narrow(layer, matrices, scratch, layer.narrow, n)
    d_narrow = _narrow(layer, matrices, scratch, layer.d_narrow, n)
    if layer.W_narrow != NONE:
        clear(d_narrow)
    if layer.narrow_K:
        _linear_back_add(d_narrow, dk, narrow, matrices[layer.W_K], gradient, scratch)
    else:
        _linear_back_add(d_looked, dk, looked, matrices[layer.W_K], gradient, scratch)
    if layer.makes_V and layer.narrow_V:
        _linear_back_add(d_narrow, dv, narrow, matrices[layer.W_V], gradient, scratch)
    elif layer.makes_V:
        _linear_back_add(d_looked, dv, looked, matrices[layer.W_V], gradient, scratch)
    if layer.W_narrow != NONE:
        _linear_back_add(d_looked, d_narrow, looked, matrices[layer.W_narrow], gradient, scratch)
    _put_back(d_rows, d_looked, layer.looks_from, layer.n_looks, n)
    if layer.makes_Q:
        d_asked = _window(scratch, run.d_asked, d_rows, layer.asks_from, layer.n_asks, n)
        _linear_back_add(d_asked, dq, asked, matrices[layer.W_Q], gradient, scratch)
        _put_back(d_rows, d_asked, layer.asks_from, layer.n_asks, n)
    if layer.dx_after != layer.dx:
        clear(dx)
        _put_back(dx, d_some, layer.asks_from, layer.n_asks, n)
    normed, inverse = (
        _view(scratch, layer.normed, n_rows, m),
        _vector(scratch, layer.inverse, n_rows),
    )
    normalise_back(dx, d_rows, normed, inverse, numbers, gradient, layer.ln1_w, layer.ln1_b)


@njit(**OPTIONS)
def _mix_back(run, layer, q, k, v, dq, dk, dv, dz, scratch, n):
    """Add to the gradients of queries, keys and values."""
    n_asks, n_looks, d_k, d_v = layer.n_asks, layer.n_looks, layer.d_k, layer.d_v
    n_each = layer.n_heads // layer.kv_heads
    each, skipped = _of_queries(layer)
    values = _view(scratch, run.turned, d_v, n_looks)
    block, width = BLOCK if layer.causal else n_asks, padded(n_looks)
    for b in range(n):
        for h in range(layer.n_heads):
            kv = h // n_each
            transpose(values, v[b * n_looks : (b + 1) * n_looks, kv * d_v : (kv + 1) * d_v])
            for i in range(0, n_asks, block):
                n_rows = min(block, n_asks - i)
                seen = min(layer.position + i + n_rows, n_looks) if layer.causal else n_looks
                start = layer.pattern + ((b * layer.n_heads + h) * n_asks + i) * width
                pattern = _view(scratch, start, n_rows, width)[:, : padded(seen)]
                d_pattern = _view(scratch, run.d_pattern, n_rows, width)[:, : padded(seen)]
                ask, look = b * n_asks + i, b * n_looks
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
def _mlp(run, matrices, layer, numbers, scratch, n):
    """Add W_out of GELU of W_in to the residual stream of those who ask."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_asks
    d_mlp = matrices[layer.W_in].n_out
    x = _view(scratch, layer.x_after, n * layer.n_after, m)
    some = _window(scratch, run.some, x, layer.after_from, layer.n_asks, n)
    normed, rows = _view(scratch, layer.normed2, n_rows, m), _view(scratch, layer.rows2, n_rows, m)
    normalise(
        rows,
        normed,
        _vector(scratch, layer.inverse2, n_rows),
        some,
        numbers,
        layer.ln2_w,
        layer.ln2_b,
    )
    hidden = _view(scratch, layer.hidden, n_rows, d_mlp)
    active = _view(scratch, layer.active, n_rows, d_mlp)
    _linear(hidden, rows, matrices[layer.W_in], numbers)
    gelu(active, hidden)
    _linear_add(some, active, matrices[layer.W_out], numbers)
    _put_back(x, some, layer.after_from, layer.n_asks, n)


@njit(**OPTIONS)
def _mlp_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Go back through the MLP: add to the gradients of its weights and of the stream before."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_asks
    d_mlp = matrices[layer.W_in].n_out
    dx = _view(scratch, layer.dx_after, n * layer.n_after, m)
    d_some = _window(scratch, run.d_some, dx, layer.after_from, layer.n_asks, n)
    hidden = _view(scratch, layer.hidden, n_rows, d_mlp)
    active = _view(scratch, layer.active, n_rows, d_mlp)
    d_hidden = _view(scratch, run.d_hidden, n_rows, d_mlp)
    _linear_back(d_hidden, d_some, active, matrices[layer.W_out], gradient, scratch)
    for i in range(n_rows):
        d_row, slope = d_hidden[i], hidden[i]
        for c in range(d_mlp):
            d_row[c] *= slope[c]
    normed, rows = _view(scratch, layer.normed2, n_rows, m), _view(scratch, layer.rows2, n_rows, m)
    d_rows = _view(scratch, run.d_rows, n_rows, m)
    _linear_back(d_rows, d_hidden, rows, matrices[layer.W_in], gradient, scratch)
    inverse = _vector(scratch, layer.inverse2, n_rows)
    normalise_back(d_some, d_rows, normed, inverse, numbers, gradient, layer.ln2_w, layer.ln2_b)
    _put_back(dx, d_some, layer.after_from, layer.n_asks, n)


@njit(**OPTIONS)
def _read_out(run, matrices, numbers, scratch, n):
    """Write the logits of the answering positions."""
    m, n_answers = run.d_model, run.n_ctx - run.answers_from
    n_rows = n * n_answers
    x = _view(scratch, run.x_last, n * run.n_last, m)
    some = _window(scratch, run.answers, x, run.answers_in_last, n_answers, n)
    rows = some
    if run.lean:
        rows = _view(scratch, run.normed, n_rows, m)
        normalise(
            rows,
            rows,
            _vector(scratch, run.inverse, n_rows),
            some,
            numbers,
            run.no_gain,
            run.no_gain,
        )
    _linear(_logits(run, scratch, n_rows)[:, : run.n_classes], rows, matrices[run.W_U], numbers)


@njit(**OPTIONS)
def _cross_entropy_back(run, labels, each, scratch):
    """Replace logits by their gradient; `each` is the share of an answer in the mean."""
    n, n_answers = labels.shape
    logits = _logits(run, scratch, n * n_answers)
    for b in range(n):
        for a in range(n_answers):
            row, label = logits[b * n_answers + a], labels[b, a]
            if label < 0:
                row[:] = np.float32(0.0)
                continue
            softmax(row, run.n_classes, _ONE, each)
            row[label] -= each


@njit(**OPTIONS)
def _read_out_back(run, matrices, numbers, gradient, scratch, n):
    """Write the gradient of the residual stream after the last layer."""
    m, n_answers = run.d_model, run.n_ctx - run.answers_from
    n_rows = n * n_answers
    dx = _view(scratch, run.dx_last, n * run.n_last, m)
    clear(dx)
    d_some = _window(scratch, run.d_some, dx, run.answers_in_last, n_answers, n)
    d_logits = _logits(run, scratch, n_rows)[:, : run.n_classes]
    if run.lean:
        normed, d_rows = (
            _view(scratch, run.normed, n_rows, m),
            _view(scratch, run.d_rows, n_rows, m),
        )
        _linear_back(d_rows, d_logits, normed, matrices[run.W_U], gradient, scratch)
        inverse = _vector(scratch, run.inverse, n_rows)
        normalise_back(d_some, d_rows, normed, inverse, numbers, gradient, run.no_gain, run.no_gain)
    else:
        x = _view(scratch, run.x_last, n * run.n_last, m)
        some = _window(scratch, run.answers, x, run.answers_in_last, n_answers, n)
        _linear_back(d_some, d_logits, some, matrices[run.W_U], gradient, scratch)
    _put_back(dx, d_some, run.answers_in_last, n_answers, n)


@njit(**OPTIONS)
def _transpose_all(matrices, numbers, scratch):
    """Write the transposes of all weights, with which gradients go back."""
    for place in range(len(matrices)):
        matrix = matrices[place]
        if matrix.weight != NONE:
            weight = _view(numbers, matrix.weight, matrix.n_in, matrix.n_out)
            transpose(_view(scratch, matrix.transposed, matrix.n_out, matrix.n_in), weight)


@njit(**OPTIONS)
def _linear(out, rows, matrix, numbers):
    """Write rows times a weight, plus its bias."""
    if matrix.weight == NONE:
        copy(out, rows)
        return
    multiply(out, rows, _view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, _vector(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def _linear_add(out, rows, matrix, numbers):
    """Add rows times a weight, and its bias."""
    if matrix.weight == NONE:
        out += rows
        return
    multiply_add(out, rows, _view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, _vector(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def _linear_back(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight and its bias, and write that of the rows."""
    clear(d_rows)
    _linear_back_add(d_rows, d_out, rows, matrix, gradient, scratch)


@njit(**OPTIONS)
def _linear_back_add(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight, its bias, and the rows that it multiplied."""
    if matrix.weight == NONE:
        d_rows += d_out
        return
    multiply_add(_view(gradient, matrix.weight, matrix.n_in, matrix.n_out), rows.T, d_out)
    if matrix.bias != NONE:
        sum_rows(_vector(gradient, matrix.bias, matrix.n_out), d_out)
    turned = _view(scratch, matrix.transposed, matrix.n_out, matrix.n_in)
    multiply_add(d_rows, d_out, turned)


@njit(**OPTIONS)
def _roles(layer, scratch, q_at, k_at, v_at, n):
    """Return queries, keys and values, or their gradients; tied ones are the same rows."""
    return (
        _view(scratch, q_at, n * layer.q_each, layer.n_heads * layer.d_k),
        _view(scratch, k_at, n * layer.n_looks, layer.kv_heads * layer.d_k),
        _view(scratch, v_at, n * layer.n_looks, layer.kv_heads * layer.d_v),
    )


@njit(**OPTIONS)
def _narrow(layer, matrices, scratch, at, n):
    """Return the rows of the narrow vector, or of its gradient; none if there is no such vector."""
    width = matrices[layer.W_narrow].n_out if layer.W_narrow != NONE else 0
    return _view(scratch, max(at, 0), n * layer.n_looks, width)


@njit(**OPTIONS)
def _of_queries(layer):
    """Return how many rows of queries an example has, and which of them is the first that asks."""
    if layer.q_seen != NONE:
        return layer.n_asks, 0
    return layer.q_each, layer.q_first


@njit(**OPTIONS)
def _seen(layer, scratch, q, k, v, q_at, k_at, v_at, n):
    """Return the roles as scores and read-out see them: as they were made, or adjusted copies."""
    if q_at != NONE:
        q = _view(scratch, q_at, n * layer.n_asks, q.shape[1])
    if k_at != NONE:
        k = _view(scratch, k_at, k.shape[0], k.shape[1])
    if v_at != NONE:
        v = _view(scratch, v_at, v.shape[0], v.shape[1])
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
    waves = _view(scratch, run.waves, run.n_waves, layer.d_k)
    nothing = waves[:0]
    turns = waves if layer.turns else nothing
    keys, asks, position = layer.n_looks, layer.n_asks, layer.position
    if layer.q_seen != NONE:
        rows = layer.q_each, layer.q_first, asks, position
        adjust(
            seen[0], q, rows, layer.d_k, layer.D_Q, layer.g_Q, layer.unit_key * 0, turns, numbers
        )
    if layer.k_seen != NONE:
        rows = keys, layer.n_asks * 0, keys, layer.n_asks * 0
        adjust(seen[1], k, rows, layer.d_k, layer.D_K, layer.g_K, layer.unit_key, turns, numbers)
    if layer.v_seen != NONE:
        rows = keys, layer.n_asks * 0, keys, layer.n_asks * 0
        factors = layer.D_V
        adjust(
            seen[2], v, rows, layer.d_v, factors, run.no_gain, layer.unit_key * 0, nothing, numbers
        )
    return seen


@njit(**OPTIONS)
def _adjust_back(run, layer, q, k, v, dq, dk, dv, d_seen, numbers, gradient, scratch, n):
    """Add to the gradients of the roles before their factors, norms and turns, and of those."""
    waves = _view(scratch, run.waves, run.n_waves, layer.d_k)
    nothing = waves[:0]
    turns = waves if layer.turns else nothing
    keys, asks, position, none = layer.n_looks, layer.n_asks, layer.position, layer.n_asks * 0
    both = _vector(numbers, 0, run.n_numbers), _vector(gradient, 0, run.n_numbers)
    if layer.q_seen != NONE:
        rows = layer.q_each, layer.q_first, asks, position
        adjust_back(dq, d_seen[0], q, rows, layer.d_k, layer.D_Q, layer.g_Q, none, turns, both)
    if layer.k_seen != NONE:
        rows = keys, none, keys, none
        adjust_back(
            dk, d_seen[1], k, rows, layer.d_k, layer.D_K, layer.g_K, layer.unit_key, turns, both
        )
    if layer.v_seen != NONE:
        rows = keys, none, keys, none
        adjust_back(dv, d_seen[2], v, rows, layer.d_v, layer.D_V, run.no_gain, none, nothing, both)


@njit(**OPTIONS)
def _window(scratch, at, x, first, count, n):
    """Return some positions' rows of every example: x itself if they are all, else a copy."""
    n_ctx = len(x) // n
    if count == n_ctx:
        return x
    rows = _view(scratch, at, n * count, x.shape[1])
    for b in range(n):
        start = b * n_ctx + first
        copy(rows[b * count : (b + 1) * count], x[start : start + count])
    return rows


@njit(**OPTIONS)
def _put_back(x, rows, first, count, n):
    """Write rows that `_window` has returned where they came from, if they are a copy."""
    n_ctx = len(x) // n
    if count != n_ctx:
        for b in range(n):
            start = b * n_ctx + first
            copy(x[start : start + count], rows[b * count : (b + 1) * count])


@njit(**OPTIONS)
def padded(n):
    """Return the next multiple of `PIECE`."""
    return (n + PIECE - 1) // PIECE * PIECE


@njit(**OPTIONS)
def _logits(run, scratch, n_rows):
    """Return the rows of logits; behind the classes there may be numbers that do not count."""
    return _view(scratch, run.logits, n_rows, padded(run.n_classes))


@njit(**OPTIONS)
def _view(vector, start, n_rows, n_columns):
    """Return a part of a vector as a matrix, of the one kind of which parts of matrices are.

    Functions are compiled for each kind of matrix that they are called with.
    """
    return carray(address(vector, start), (n_rows, n_columns))[:, :]


@njit(**OPTIONS)
def _vector(vector, start, size):
    """Return a part of a vector."""
    return carray(address(vector, start), (size,))
