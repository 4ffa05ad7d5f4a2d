"""One training step of one run: from the embedding to the gradients, a few examples at a time.

A chunk of examples with about 64 rows goes through all layers and back while it is in the
processor's cache; gradients of weights accumulate over the chunks. What a run computes, and where
its numbers lie, is said by three tables (`attnkit.model.kernel.tables`), which
`attnkit.model.kernel.description` writes and checks. A tied role has its owner's place there:
that is all that sharing is.

Functions below the first two get the addresses of the run's numbers, of its gradient and of scratch
memory.

Index letters as in `attnkit.model.model`; rows are those of a chunk, (b·i, m). `d_` names the
gradient of what follows it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from attnkit.model.kernel.adjustments import write_waves
from attnkit.model.kernel.attention import attend, attend_back
from attnkit.model.kernel.elementwise import (
    add_row,
    clear,
    copy,
    gelu,
    normalise,
    normalise_back,
    softmax,
)
from attnkit.model.kernel.products import transpose
from attnkit.model.kernel.rows import (
    linear,
    linear_add,
    linear_back,
    padded,
    put_back,
    vector_at,
    view,
    window,
    windowed,
)
from attnkit.model.kernel.tables import NONE
from attnkit.model.kernel.vectors import LANES, OPTIONS, address, load, spread, store

_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


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
        clear(view(d_own, 0, 1, run.n_numbers))
        _transpose_all(matrices, own, memory)
        each = _ONE / np.float32((labels[seed] >= 0).sum())
        n_examples = tokens.shape[1]
        for first in range(0, n_examples, run.n_together):
            n = min(run.n_together, n_examples - first)
            some, own_labels = tokens[seed, first : first + n], labels[seed, first : first + n]
            _embed(run, own, some, memory)
            for place in range(len(layers)):
                layer = layers[place]
                attend(run, matrices, layer, own, memory, n, nothing, first, n_examples)
                _mlp(run, matrices, layer, own, memory, n)
            _read_out(run, matrices, own, memory, n)
            _cross_entropy_back(run, own_labels, each, memory)
            _read_out_back(run, matrices, own, d_own, memory, n)
            for place in range(len(layers) - 1, -1, -1):
                _mlp_back(run, matrices, layers[place], own, d_own, memory, n)
                attend_back(run, matrices, layers[place], own, d_own, memory, n)
            _embed_back(run, d_own, some, memory)
        d_table = view(d_own, run.W_E, run.d_vocab, run.d_model)
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
                attend(run, matrices, layer, own, memory, n, record[seed], first, n_examples)
                _mlp(run, matrices, layer, own, memory, n)
            _read_out(run, matrices, own, memory, n)
            found = _logits(run, memory, n * n_answers)[:, : run.n_classes]
            copy(logits[seed, first * n_answers : (first + n) * n_answers], found)


@njit(**OPTIONS)
def _embed(run, numbers, tokens, scratch):
    """Write the residual stream: the sum of a token's fields, of its position, and a bias."""
    m = run.d_model
    for b in range(len(tokens)):
        for i in range(run.n_ctx):
            row = run.x + (b * run.n_ctx + i) * m
            for c in range(0, m, LANES):
                x = spread(_ZERO)
                for field in range(run.n_fields):
                    x = x + load(numbers, run.W_E + tokens[b, i, field] * m + c)
                if run.W_pos != NONE:
                    x = x + load(numbers, run.W_pos + i * m + c)
                if run.b_E != NONE:
                    x = x + load(numbers, run.b_E + c)
                store(scratch, row + c, x)


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
def _mlp(run, matrices, layer, numbers, scratch, n):
    """Add W_out of GELU of W_in to the residual stream of those who ask."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_queries
    d_mlp = matrices[layer.W_in].n_out
    x = view(scratch, layer.x_after, n * layer.n_after, m)
    some = window(scratch, run.some, x, layer.after_from, layer.n_queries, n)
    normed, rows = view(scratch, layer.normed2, n_rows, m), view(scratch, layer.rows2, n_rows, m)
    normalise(
        rows,
        normed,
        vector_at(scratch, layer.inverse2, n_rows),
        some,
        numbers,
        layer.ln2_w,
        layer.ln2_b,
    )
    hidden = view(scratch, layer.hidden, n_rows, d_mlp)
    active = view(scratch, layer.active, n_rows, d_mlp)
    linear(hidden, rows, matrices[layer.W_in], numbers)
    gelu(active, hidden)
    linear_add(some, active, matrices[layer.W_out], numbers)
    put_back(x, some, layer.after_from, layer.n_queries, n)


@njit(**OPTIONS)
def _mlp_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Go back through the MLP: add to the gradients of its weights and of the stream before."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_queries
    d_mlp = matrices[layer.W_in].n_out
    dx = view(scratch, layer.dx_after, n * layer.n_after, m)
    d_some = window(scratch, run.d_some, dx, layer.after_from, layer.n_queries, n)
    hidden = view(scratch, layer.hidden, n_rows, d_mlp)
    active = view(scratch, layer.active, n_rows, d_mlp)
    d_hidden = view(scratch, run.d_hidden, n_rows, d_mlp)
    linear_back(d_hidden, d_some, active, matrices[layer.W_out], gradient, scratch)
    for i in range(n_rows):
        d_row, slope = d_hidden[i], hidden[i]
        for c in range(d_mlp):
            d_row[c] *= slope[c]
    normed, rows = view(scratch, layer.normed2, n_rows, m), view(scratch, layer.rows2, n_rows, m)
    d_rows = view(scratch, run.d_rows, n_rows, m)
    linear_back(d_rows, d_hidden, rows, matrices[layer.W_in], gradient, scratch)
    inverse = vector_at(scratch, layer.inverse2, n_rows)
    normalise_back(d_some, d_rows, normed, inverse, numbers, gradient, layer.ln2_w, layer.ln2_b)
    put_back(dx, d_some, layer.after_from, layer.n_queries, n)


@njit(**OPTIONS)
def _read_out(run, matrices, numbers, scratch, n):
    """Write the logits of the answering positions."""
    m, n_answers = run.d_model, run.n_ctx - run.answers_from
    n_rows = n * n_answers
    x = view(scratch, run.x_last, n * run.n_last, m)
    some = window(scratch, run.answers, x, run.answers_in_last, n_answers, n)
    rows = some
    if run.final_norm:
        rows = view(scratch, run.rows, n_rows, m)
        normalise(
            rows,
            view(scratch, run.normed, n_rows, m),
            vector_at(scratch, run.inverse, n_rows),
            some,
            numbers,
            run.ln_final_w,
            run.ln_final_b,
        )
    linear(_logits(run, scratch, n_rows)[:, : run.n_classes], rows, matrices[run.W_U], numbers)


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
    dx = view(scratch, run.dx_last, n * run.n_last, m)
    clear(dx)
    d_some = windowed(scratch, run.d_some, dx, n_answers, n)
    clear(d_some)
    d_logits = _logits(run, scratch, n_rows)[:, : run.n_classes]
    if run.final_norm:
        normed, rows = view(scratch, run.normed, n_rows, m), view(scratch, run.rows, n_rows, m)
        d_rows = view(scratch, run.d_rows, n_rows, m)
        linear_back(d_rows, d_logits, rows, matrices[run.W_U], gradient, scratch)
        inverse = vector_at(scratch, run.inverse, n_rows)
        gain, shift = run.ln_final_w, run.ln_final_b
        normalise_back(d_some, d_rows, normed, inverse, numbers, gradient, gain, shift)
    else:
        x = view(scratch, run.x_last, n * run.n_last, m)
        some = windowed(scratch, run.answers, x, n_answers, n)
        linear_back(d_some, d_logits, some, matrices[run.W_U], gradient, scratch)
    put_back(dx, d_some, run.answers_in_last, n_answers, n)


@njit(**OPTIONS)
def _transpose_all(matrices, numbers, scratch):
    """Write the transposes of all weights, with which gradients go back."""
    for place in range(len(matrices)):
        matrix = matrices[place]
        if matrix.weight != NONE:
            weight = view(numbers, matrix.weight, matrix.n_in, matrix.n_out)
            transpose(view(scratch, matrix.transposed, matrix.n_out, matrix.n_in), weight)


@njit(**OPTIONS)
def _logits(run, scratch, n_rows):
    """Return the rows of logits; behind the classes there may be numbers that do not count."""
    return view(scratch, run.logits, n_rows, padded(run.n_classes))
