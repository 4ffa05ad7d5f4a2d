"""Figures of accuracy against cost, and the costs of all variants against a real decoder."""

import json
import math
import random

import plotly.graph_objects as go
import torch
from made_sweeps import failed, from_width, made_sweep
from reference import DOZEN

from attnkit.analysis.capacity import COSTS, cells, frontier, matching_cost, slice_at
from attnkit.experiment import Experiment
from attnkit.figures.frontier import (
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.model.decode import Decoder
from attnkit.model.model import Model

TABLE = slice_at(
    cells(failed(made_sweep(from_width(QKV=3, KV=6)), d_head=12, sharing="K=V")), {"n_entries": 4}
)
KV_CACHE = "kv_cache_floats_per_token"
NAMES = ("QKV", "K=V")


def accepted(figure):
    """Return the figure as Plotly reads it; it is plain JSON without NaN."""
    return go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_every_cell_is_a_dot_with_the_index_of_its_row():
    """Dots on the frontier are drawn last; failed cells have no dot."""
    for cost in COSTS:
        figure = plot_frontier(TABLE, cost)
        accepted(figure)
        others, line, best = figure["data"]
        trained = TABLE.index[TABLE["accuracy"].notna()]
        assert sorted(others["customdata"] + best["customdata"]) == sorted(trained)
        assert best["customdata"] == frontier(TABLE, cost).index.tolist()
        assert line["x"] == best["x"]


def test_names_stand_at_changes_of_the_variant():
    """They do not overlap: each is at least a line above the one before."""
    figure = plot_frontier(TABLE, "parameters")
    names = [note["text"] for note in figure["layout"]["annotations"]]
    best = frontier(TABLE, "parameters")["sharing"].tolist()
    changes = [a for a, b in zip(best, [None, *best], strict=False) if a != b]
    assert names == changes


def test_a_frontier_of_few_cells_is_drawn():
    """Without any, it says so."""
    for n_rows in (0, 1):
        accepted(plot_frontier(TABLE[:n_rows], "parameters"))
        text = describe_frontier(TABLE[:n_rows], "parameters")
        assert ("Nothing has been trained" in text) == (n_rows == 0)


def test_the_frontier_is_described():
    """With accuracy and cost of its cells."""
    assert describe_frontier(TABLE, KV_CACHE) == (
        "Accuracy against KV-cache floats per token. On the frontier stand 3 of 15 cells: "
        "QKV 0% for 2, K=V 0% for 2, QKV 100% for 6."
    )


def test_plotly_accepts_costs_of_equal_accuracy():
    """Also where limits are infinite and where B never reaches the accuracy."""
    of = {name: TABLE[TABLE["sharing"] == name] for name in NAMES}
    for cost in COSTS:
        matched = matching_cost(of["QKV"], of["K=V"], cost)
        short = matching_cost(of["QKV"], of["K=V"][:4], cost)
        endless = matched.copy()
        endless.loc[0, ["high", "low"]] = math.inf, 0.0
        for table in (matched, short, endless, matched[:0]):
            accepted(plot_matching(table, cost, NAMES))


def test_costs_of_equal_accuracy_are_described():
    """With the ratio at each accuracy, and where there is none."""
    of = {name: TABLE[TABLE["sharing"] == name] for name in NAMES}
    text = describe_matching(matching_cost(of["QKV"], of["K=V"], KV_CACHE), KV_CACHE, NAMES)
    assert "KV-cache floats per token of K=V as a multiple of those of QKV" in text
    assert "100%: 2.00 times (2.00 to 2.00)" in text
    assert text.startswith("It depends on the accuracy.")
    dear = matching_cost(of["QKV"], of["K=V"], KV_CACHE, 0.5)
    assert describe_matching(dear, KV_CACHE, NAMES).startswith("K=V needs more for the same")
    short = matching_cost(of["QKV"], of["K=V"][:4], KV_CACHE)
    assert "100%: K=V never reaches it" in describe_matching(short, KV_CACHE, NAMES)
    assert "Nothing has been trained" in describe_matching(short[:0], KV_CACHE, NAMES)


def test_costs_on_the_frontier_are_those_of_a_real_decoder(seed):
    """Floats that a decoder keeps per token and numbers of parameters, at a width that is drawn.

    One variant of every mechanism; of those that are tied later, the tied model counts.
    """
    drawn = random.Random(seed)
    for variant in DOZEN:
        d_head = drawn.choice([4, 6, 16])
        settings = {"n_entries": 4, "n_layers": 2, "d_mlp": 5, "d_head": d_head, "causal": True}
        experiment = Experiment(task="directed", sharing=[variant], n_seeds=1, **settings)
        model = Model(experiment, experiment.seeds, torch.device("cpu"), tied=experiment.sharing)
        decoder = Decoder(model, 0)
        for token in torch.zeros(3, 2, dtype=torch.long):
            decoder.read(token)
        costs = experiment.costs(variant)
        assert decoder.floats_per_token == costs.kv_cache, (variant, d_head)
        numbers = sum(value.numel() for value in model.run_parameters(0).values())
        assert numbers == costs.parameters, (variant, d_head)
