"""Keys and values tied after training: what is said, drawn and taken away."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from kinds import tiny

from attnkit.analysis.inspection.tying import map_steps_for
from attnkit.analysis.tying import ALPHAS, COLUMNS, TyingResult, repairs_for
from attnkit.figures.tying import (
    mixture_label,
    mixture_text,
    plot_mixtures,
    repairs_table,
    tying_csv,
)
from attnkit.variants import Variant

HILL = 0.9 - 1.6 * np.abs(np.array(ALPHAS) - 0.4)
"""Accuracies with their best at α = 0.4: keep W_V has 26%, keep W_K has −6%, shown as none."""

RESULT = TyingResult(
    task="reverse",
    variant="QKV",
    seeds=(0, 1, 2),
    step=158,
    chance=0.1,
    n_examples=256,
    d_model=32,
    map_steps=300,
    repairs=repairs_for(8),
    before=np.array([0.99, 1.0, 0.98]),
    mixed=np.stack([HILL, HILL + 0.01, HILL - 0.01]).clip(0, 1),
    repaired=np.array(
        [[x, 0.9, 0.7, 0.5, 0.3, 0.4, 0, 0.75, 0.6, 0.35] for x in (0.8, 0.82, 0.78)]
    ),
    cka=np.full((3, 2, 1), 0.25),
)


def flat(level, before=0.9):
    """A result of one seed with one accuracy everywhere."""
    mixed, repaired = np.full((1, 21), level), np.full((1, 10), level)
    changed = {"mixed": mixed, "repaired": repaired, "before": np.array([before])}
    return replace(RESULT, seeds=(0,), cka=np.full((1, 2, 1), 0.5), **changed)


LOST = replace(flat(np.nan, np.nan), cka=np.full((1, 2, 1), np.nan))


def test_mixtures_are_told():
    """All that are within a point of the best, the known ones, and where nothing can be told."""
    words = RESULT.mixture_finding
    assert words.startswith("The best mixture has α = 0.4: 90% [88 to 92%] right, against 99% [")
    assert words.endswith("The average has 74%, W_V alone 26%, W_K alone 0%.")
    mixed = np.zeros((3, 21))
    mixed[:, 6:11] = [0.8, 0.805, 0.8, 0.796, 0.8]
    for first, last, told in (
        (0, 0.8, "α from 0.3 to 0.5 or α = 1: up to 80%"),
        (0.8, 0.3, "α = 0 or α from 0.3 to 0.5: up to 80%"),
    ):
        mixed[:, [0, 20]] = first, last
        assert f"The best mixtures have {told}" in replace(RESULT, mixed=mixed).mixture_finding
    assert [one.mixture_finding for one in (flat(0.9), flat(0.11, before=0.12), LOST)] == [
        "All mixtures have about the same accuracy: 90%, against 90% before tying.",
        "The model has learnt little yet: 12% before tying, 10% by chance.",
        "All runs have diverged, so nothing can be tied.",
    ]
    assert mixture_text(RESULT, 0.4) == "α = 0.4: 90% [88 to 92%]."
    assert "diverged" in mixture_text(LOST, 0.5)
    assert np.isnan(LOST.mean_cka)
    cka = np.array([[[0.2]], [[np.nan]], [[0.4]]])
    assert replace(RESULT, cka=cka).mean_cka == pytest.approx(0.3)


def test_the_best_mixtures_are_those_within_the_noise_of_paired_seeds():
    """A difference that all seeds share tells mixtures apart; one that scatters does not."""
    level = np.array([[0.5], [0.6], [0.7]])
    mixed = level - 0.1 * (np.array(ALPHAS) > 0.3) - 0.02 * (np.array(ALPHAS) > 0.2)
    assert replace(RESULT, mixed=mixed).near_best.sum() == 5
    scatter = np.array([[0.03], [0.0], [-0.03]]) * (np.array(ALPHAS) > 0.2)
    noisy = replace(RESULT, mixed=mixed + scatter)
    assert noisy.near_best.tolist() == [alpha <= 0.3 for alpha in ALPHAS]
    assert "The best mixtures have α from 0 to 0.3: up to 60%" in noisy.mixture_finding
    one = replace(noisy, mixed=mixed[1:2])
    assert one.near_best.tolist() == [alpha <= 0.2 for alpha in ALPHAS]
    lost = replace(noisy, mixed=np.append(mixed + scatter, np.full((1, 21), np.nan), 0))
    assert lost.near_best.tolist() == noisy.near_best.tolist()


def test_a_page_trains_maps_for_fewer_steps_where_a_step_costs_more():
    """At most a hundred, and none where even one would keep the page waiting for long."""
    book, plain = tiny("directed", sharing=["QKV"]), Variant("QKV")
    steps = [
        map_steps_for(book.replace(batch_size=512, n_layers=n, d_model=128, d_mlp=512), plain, 5)
        for n in (1, 2, 4)
    ]
    assert map_steps_for(book, plain, 5) == 100 >= steps[0] > steps[1] > steps[2]


def test_repairs_are_told_as_changes_in_points():
    """A repair may gain more than was lost, and may harm; one seed has no interval."""
    repaired = np.array([[0.95, 0.98, 0.83, 0.5, 0.3, 0.75, 0.1, 0.75, 0.6, 0.35]])
    for result, expected in (
        (RESULT, ("99", "+80 [+75 to +85]", "+90", "+70", "+40", "0")),
        (replace(flat(0.85), repaired=repaired), ("5", "+10", "+13", "−2", "−10", "−75")),
    ):
        assert result.repair_finding == (
            "With W_K for both, accuracy falls by {} points. A fitted linear map changes it by {} "
            "points; one trained on the loss, by {}; the fitted map cut to half of its rank, by "
            "{}; an orthogonal map, by {}; a random orthogonal map, by {}. Heads have 8 numbers "
            "and the model 32: a map can give back only what the keys of a head contain."
        ).format(*expected)
    wide = replace(RESULT, d_model=8).repair_finding
    assert "is algebra: its heads are as wide as the model" in wide
    assert wide.endswith("V = K W_K⁻¹ W_V (arXiv 2503.05840).")
    assert flat(0.9).repair_finding == (
        "Keeping W_K loses nothing (90%): there is nothing to repair."
    )
    assert flat(0.11, before=0.12).repair_finding == LOST.repair_finding == ""


def test_what_is_drawn_and_taken_away_are_the_numbers():
    """The chosen mixture is marked, every repair has its row, and JSON gives the result back."""
    for result in (RESULT, flat(0.5), LOST):
        figure = go.Figure(plot_mixtures(result, 0.3))
        (mark,) = [trace for trace in figure.data if trace.mode == "markers"]
        assert mark.x == (0.3,)
        np.testing.assert_allclose(np.array(mark.y, float)[0], result.mixed[:, 6].mean(), atol=1e-5)
        assert "keep W_V" in figure.layout.xaxis.ticktext[0]
        assert "keep W_K" in figure.layout.xaxis.ticktext[-1]
    labels = [mixture_label(alpha) for alpha in (0.0, 0.35, 0.5, 1.0)]
    assert labels == ["0 (keep W_V)", "0.35", "0.5 (average)", "1 (keep W_K)"]
    html = repairs_table(RESULT)
    rows = [row.split('scope="row">')[1] for row in html.split("<tr>")[1:]]
    assert [row.split("<")[0] for row in rows] == [
        "no map", "fitted map", "trained map", "cut to rank 4", "cut to rank 2", "cut to rank 1",
        "orthogonal map", "random map",
    ]  # fmt: skip
    assert "<td>80% [75 to 85%]</td>" in rows[1]
    assert "before tying 99%" in html
    again = TyingResult.from_parts(json.loads(json.dumps(RESULT.header)), RESULT.arrays)
    assert (again.header, again.repairs) == (RESULT.header, RESULT.repairs)
    np.testing.assert_allclose(again.mixed, RESULT.mixed, atol=1e-6)
    table = pd.read_csv(io.StringIO(tying_csv([RESULT, replace(RESULT, variant="MQA")])))
    assert len(table) == 2 * len(RESULT.table) == 2 * 3 * (21 + 10)
    assert list(table) == list(COLUMNS)
    assert table["sharing"].unique().tolist() == ["QKV", "MQA"]
    assert table.loc[table["way"] == "linear map", "rank"].unique().tolist() == [8, 4, 2, 1]
