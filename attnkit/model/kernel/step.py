"""One training step of one run, from the embedding to the gradients, in chunks of examples.

A chunk of examples with about 64 rows passes all layers forward and backward while it is in the
processor's cache; gradients of weights accumulate over the chunks. Three tables
(`attnkit.model.kernel.tables`) contain what a run computes and where its numbers are in memory;
`attnkit.model.kernel.description` writes and checks them. Sharing needs no code of its own: in
these tables a tied role has the same entries as its owner.

The first function takes arrays; all others take the addresses of the run's parameters
(`numbers`), of its gradient, and of scratch memory.

Index letters as in `attnkit.model.reference`; rows are those of a chunk, (b·i, m). The prefix `d_`
marks a gradient.
"""

from __future__ import annotations

import numpy as np

from attnkit.model.kernel.adjustments import write_rotations
from attnkit.model.kernel.attention import attend, attend_back
from attnkit.model.kernel.compiler import entry, inner
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
    columns,
    linear,
    linear_add,
    linear_back,
    padded,
    put_back,
    vector_at,
    view,
    window,
    window_view,
)
from attnkit.model.kernel.tables import NONE
from attnkit.model.kernel.vectors import LANES, address, load, spread, store

_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@entry
def compute(
    table, matrices, layers, numbers, tokens, labels, fixed, gradient, logits, record, scratch
):
    """Compute a batch for each run of one variant: its gradient, or else its answers.

    Args:
        table: Table `RUN`, with one row.
        matrices: Table `MATRIX`.
        layers: Table `LAYER`.
        numbers: Parameters of each run, (s, n).
        tokens: Tokens of the batch, (s, b, i, fields).
        labels: Classes of the answers, (s, b, a); negative without a label.
        fixed: Whether a token's embedding is fixed, (s, vocab).
        gradient: Gradient of the mean cross-entropy of each run to write, (s, n); n is 0 for the
            answers.
        logits: Logits to write, (s, b·a, c), if there is no gradient.
        record: Record to write, (s, n): for each layer the scaled scores before masks of all
            examples, (b, h, i, j), then their patterns; n is 0 for no record.
        scratch: Memory of at least `n_scratch` numbers.
    """
    run = table[0]
    n_answers, n_examples = run.n_ctx - run.answers_from, tokens.shape[1]
    memory, trains = address(scratch, 0), gradient.shape[1] > 0
    write_rotations(run, memory)
    for seed in range(len(numbers)):
        parameters, d_parameters = address(numbers[seed], 0), address(gradient[seed], 0)
        if trains:
            clear(gradient[seed])
            _transpose_all(matrices, parameters, memory)
            weight = _ONE / np.float32(_count_labels(labels[seed]))
        for first in range(0, n_examples, run.n_together):
            n = min(run.n_together, n_examples - first)
            chunk = tokens[seed, first : first + n]
            _embed(run, parameters, chunk, memory)
            for index in range(len(layers)):
                layer = layers[index]
                attend(run, matrices, layer, parameters, memory, n, record[seed], first, n_examples)
                _mlp(run, matrices, layer, parameters, memory, n)
            _read_out(run, matrices, parameters, memory, n)
            if not trains:
                rows = columns(_logits(run, memory, n * n_answers), run.n_classes)
                copy(logits[seed, first * n_answers : (first + n) * n_answers], rows)
                continue
            _cross_entropy_back(run, labels[seed, first : first + n], weight, memory)
            _read_out_back(run, matrices, parameters, d_parameters, memory, n)
            for index in range(len(layers) - 1, -1, -1):
                layer = layers[index]
                _mlp_back(run, matrices, layer, parameters, d_parameters, memory, n)
                attend_back(run, matrices, layer, parameters, d_parameters, memory, n)
            _embed_back(run, d_parameters, chunk, memory)
        if trains:
            d_embedding = view(d_parameters, run.W_E, run.d_vocab, run.d_model)
            for token in range(run.d_vocab):
                if fixed[seed, token]:
                    d_embedding[token] = np.float32(0.0)


@inner
def _count_labels(labels):
    """Return the number of answers that have a label."""
    n = 0
    for b in range(labels.shape[0]):
        for a in range(labels.shape[1]):
            n += labels[b, a] >= 0
    return n


@inner
def _embed(run, numbers, tokens, scratch):
    """Write the initial residual stream: the sum of field and position embeddings and bias."""
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


@inner
def _embed_back(run, gradient, tokens, scratch):
    """Add to the gradients of the field and position embeddings and of the bias."""
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


@inner
def _mlp(run, matrices, layer, numbers, scratch, n):
    """Add the MLP's output to the residual stream at the query positions."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_queries
    d_mlp = matrices[layer.W_in].n_out
    x = view(scratch, layer.x_after, n * layer.n_after, m)
    x_window = window(scratch, run.x_window, x, layer.after_from, layer.n_queries, n)
    normed, rows = view(scratch, layer.normed2, n_rows, m), view(scratch, layer.rows2, n_rows, m)
    normalise(
        rows,
        normed,
        vector_at(scratch, layer.inverse2, n_rows),
        x_window,
        numbers,
        layer.ln2_w,
        layer.ln2_b,
    )
    hidden = view(scratch, layer.hidden, n_rows, d_mlp)
    active = view(scratch, layer.active, n_rows, d_mlp)
    linear(hidden, rows, matrices[layer.W_in], numbers)
    gelu(active, hidden)
    linear_add(x_window, active, matrices[layer.W_out], numbers)
    put_back(x, x_window, layer.after_from, layer.n_queries, n)


@inner
def _mlp_back(run, matrices, layer, numbers, gradient, scratch, n):
    """Backpropagate: add to the gradients of the MLP's weights and of the stream before it."""
    if layer.W_in == NONE:
        return
    m, n_rows = run.d_model, n * layer.n_queries
    d_mlp = matrices[layer.W_in].n_out
    dx = view(scratch, layer.dx_after, n * layer.n_after, m)
    d_window = window(scratch, run.d_window, dx, layer.after_from, layer.n_queries, n)
    hidden = view(scratch, layer.hidden, n_rows, d_mlp)
    active = view(scratch, layer.active, n_rows, d_mlp)
    d_hidden = view(scratch, run.d_hidden, n_rows, d_mlp)
    linear_back(d_hidden, d_window, active, matrices[layer.W_out], gradient, scratch)
    for i in range(n_rows):
        d_row, slope = d_hidden[i], hidden[i]
        for c in range(d_mlp):
            d_row[c] *= slope[c]
    normed, rows = view(scratch, layer.normed2, n_rows, m), view(scratch, layer.rows2, n_rows, m)
    d_rows = view(scratch, run.d_rows, n_rows, m)
    linear_back(d_rows, d_hidden, rows, matrices[layer.W_in], gradient, scratch)
    inverse = vector_at(scratch, layer.inverse2, n_rows)
    normalise_back(d_window, d_rows, normed, inverse, numbers, gradient, layer.ln2_w, layer.ln2_b)
    put_back(dx, d_window, layer.after_from, layer.n_queries, n)


@inner
def _read_out(run, matrices, numbers, scratch, n):
    """Write the logits of the answering positions."""
    m, n_answers = run.d_model, run.n_ctx - run.answers_from
    n_rows = n * n_answers
    x = view(scratch, run.x_last, n * run.n_last, m)
    x_window = window(scratch, run.answers, x, run.answers_in_last, n_answers, n)
    rows = x_window
    if run.final_norm:
        rows = view(scratch, run.rows, n_rows, m)
        normalise(
            rows,
            view(scratch, run.normed, n_rows, m),
            vector_at(scratch, run.inverse, n_rows),
            x_window,
            numbers,
            run.ln_final_w,
            run.ln_final_b,
        )
    linear(columns(_logits(run, scratch, n_rows), run.n_classes), rows, matrices[run.W_U], numbers)


@inner
def _cross_entropy_back(run, labels, weight, scratch):
    """Replace the logits by their gradient; `weight` is the weight of a label in the mean."""
    n, n_answers = labels.shape
    logits = _logits(run, scratch, n * n_answers)
    for b in range(n):
        for a in range(n_answers):
            row, label = logits[b * n_answers + a], labels[b, a]
            if label < 0:
                row[:] = np.float32(0.0)
                continue
            softmax(row, run.n_classes, _ONE, weight)
            row[label] -= weight


@inner
def _read_out_back(run, matrices, numbers, gradient, scratch, n):
    """Write the gradient of the residual stream after the last layer, and add to W_U's."""
    m, n_answers = run.d_model, run.n_ctx - run.answers_from
    n_rows = n * n_answers
    dx = view(scratch, run.dx_last, n * run.n_last, m)
    clear(dx)
    d_window = window_view(scratch, run.d_window, dx, n_answers, n)
    clear(d_window)
    d_logits = columns(_logits(run, scratch, n_rows), run.n_classes)
    if run.final_norm:
        normed, rows = view(scratch, run.normed, n_rows, m), view(scratch, run.rows, n_rows, m)
        d_rows = view(scratch, run.d_rows, n_rows, m)
        linear_back(d_rows, d_logits, rows, matrices[run.W_U], gradient, scratch)
        inverse = vector_at(scratch, run.inverse, n_rows)
        gain, shift = run.ln_final_w, run.ln_final_b
        normalise_back(d_window, d_rows, normed, inverse, numbers, gradient, gain, shift)
    else:
        x = view(scratch, run.x_last, n * run.n_last, m)
        x_window = window_view(scratch, run.answers, x, n_answers, n)
        linear_back(d_window, d_logits, x_window, matrices[run.W_U], gradient, scratch)
    put_back(dx, d_window, run.answers_in_last, n_answers, n)


@inner
def _transpose_all(matrices, numbers, scratch):
    """Write the transposes of all weights, which the backward pass multiplies with."""
    for index in range(len(matrices)):
        matrix = matrices[index]
        if matrix.weight != NONE:
            weight = view(numbers, matrix.weight, matrix.n_in, matrix.n_out)
            transpose(view(scratch, matrix.transposed, matrix.n_out, matrix.n_in), weight)


@inner
def _logits(run, scratch, n_rows):
    """Return the rows of logits; the columns after the classes are padding."""
    return view(scratch, run.logits, n_rows, padded(run.n_classes))
