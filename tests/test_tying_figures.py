"""What is said and drawn about keys and values that were tied after training."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from attnkit.analysis.tying import ALPHAS, TyingResult, repairs_for
from attnkit.figures.tying import (
    mixture_label,
    mixture_text,
    plot_mixtures,
    repairs_table,
    tying_csv,
)

HILL = 0.9 - 1.6 * np.abs(np.array(ALPHAS) - 0.4)
"""Accuracies with their best at α = 0.4: keep W_V has 26%, keep W_K has −6%, shown as none."""

RESULT = TyingResult(
    task="reverse",
    variant="QKV",
    seeds=(0, 1, 2),
    step=158,
    chance=0.1,
    n_examples=256,
    repairs=repairs_for(8),
    before=np.array([0.99, 1.0, 0.98]),
    mixed=np.stack([HILL, HILL + 0.01, HILL - 0.01]).clip(0, 1),
    repaired=np.array(
        [[full, 0.7, 0.5, 0.3, 0.4, 0.0, 0.75, 0.6, 0.35] for full in (0.8, 0.82, 0.78)]
    ),
    cka=np.full((3, 2, 1), 0.25),
)


def flat(level, before=0.9):
    """A result with one accuracy everywhere."""
    mixed, repaired = np.full((1, 21), level), np.full((1, 9), level)
    changed = {"mixed": mixed, "repaired": repaired, "before": np.array([before])}
    return replace(RESULT, seeds=(0,), cka=np.full((1, 2, 1), 0.5), **changed)


def test_the_best_mixture_and_the_known_ones_are_named():
    """With the interval over seeds, and the accuracy before tying."""
    words = RESULT.mixture_finding
    assert words.startswith("The best mixture has α = 0.4: 90% [88 to 92%] right, against 99% [")
    assert words.endswith("The average has 74%, W_V alone 26%, W_K alone 0%.")


def test_mixtures_that_are_equally_good_are_named_as_a_range():
    """All stretches within one point of the best, wherever the maximum is."""
    mixed = np.zeros((3, 21))
    mixed[:, 6:11] = [0.8, 0.805, 0.8, 0.796, 0.8]
    mixed[:, 20] = 0.8
    assert replace(RESULT, mixed=mixed).mixture_finding.startswith(
        "The best mixtures have α from 0.3 to 0.5 or α = 1: 80%"
    )
    mixed[:, [0, 20]] = 0.8, 0.3
    assert replace(RESULT, mixed=mixed).mixture_finding.startswith(
        "The best mixtures have α = 0 or α from 0.3 to 0.5: 80%"
    )


def test_words_say_where_nothing_can_be_told():
    """Nothing is lost, little is learnt, or all runs have diverged: no best mixture is named."""
    alike, little = flat(0.9), flat(0.11, before=0.12)
    lost = replace(flat(np.nan, before=np.nan), cka=np.full((1, 2, 1), np.nan))
    assert [result.mixture_finding for result in (alike, little, lost)] == [
        "All mixtures have about the same accuracy: 90%, against 90% before tying.",
        "The model has learnt little yet: 12% before tying, 10% by chance.",
        "All runs have diverged, so nothing can be tied.",
    ]
    assert alike.repair_finding == "Keeping W_K loses nothing (90%): there is nothing to repair."
    assert little.repair_finding == lost.repair_finding == ""
    assert np.isnan(lost.mean_cka)
    assert "diverged" in mixture_text(lost, 0.5)
    cka = np.array([[[0.2]], [[np.nan]], [[0.4]]])
    assert replace(RESULT, cka=cka).mean_cka == pytest.approx(0.3)


def test_repairs_are_told_as_changes_in_points():
    """The full map, half of its rank, the orthogonal and the random one."""
    assert RESULT.repair_finding == (
        "With W_K for both, accuracy falls by 99 points. A fitted linear map changes it by "
        "+80 [+75 to +85] points; cut to half of its rank, by +70; an orthogonal map, by +40; "
        "a random orthogonal map, by 0."
    )


def test_repairs_may_gain_more_than_was_lost_and_may_harm():
    """A change has its sign, so that neither is called a share of the loss."""
    repaired = np.array([[0.95, 0.83, 0.5, 0.3, 0.75, 0.1, 0.75, 0.6, 0.35]])
    one_seed = replace(flat(0.85), repaired=repaired)
    assert "[" not in one_seed.mixture_finding  # one seed has no interval
    assert one_seed.repair_finding == (
        "With W_K for both, accuracy falls by 5 points. A fitted linear map changes it by "
        "+10 points; cut to half of its rank, by −2; an orthogonal map, by −10; "
        "a random orthogonal map, by −75."
    )


def test_the_parts_of_a_result_survive_json():
    """The header that a page gets gives back the same result."""
    again = TyingResult.from_parts(json.loads(json.dumps(RESULT.header)), RESULT.arrays)
    assert again.header == RESULT.header
    assert again.repairs == RESULT.repairs
    np.testing.assert_allclose(again.mixed, RESULT.mixed, atol=1e-6)


def test_the_figure_marks_the_chosen_mixture():
    """The figure is valid, both ends are named, and known mixtures have names on the slider."""
    for result in (RESULT, flat(0.5), flat(np.nan, np.nan)):
        figure = go.Figure(plot_mixtures(result, 0.3))
        (mark,) = [trace for trace in figure.data if trace.mode == "markers"]
        assert mark.x == (0.3,)
        np.testing.assert_allclose(mark.y[0], result.mixed[:, 6].mean(), atol=1e-5)
        assert "keep W_V" in figure.layout.xaxis.ticktext[0]
        assert "keep W_K" in figure.layout.xaxis.ticktext[-1]
    labels = [mixture_label(alpha) for alpha in (0.0, 0.35, 0.5, 1.0)]
    assert labels == ["0 (keep W_V)", "0.35", "0.5 (average)", "1 (keep W_K)"]
    assert mixture_text(RESULT, 0.4) == "α = 0.4: 90% [88 to 92%]."


def test_every_repair_has_a_row_with_its_accuracy():
    """W_K without a map stands first."""
    table = repairs_table(RESULT)
    rows = table.split("<tr>")[1:]
    assert [row.split('scope="row">')[1].split("<")[0] for row in rows] == [
        "no map", "linear map", "cut to rank 4", "cut to rank 2", "cut to rank 1",
        "orthogonal map", "random map",
    ]  # fmt: skip
    assert "<td>80%</td>" in rows[1]
    assert "before tying 99%" in table


def test_the_file_has_the_rows_of_all_variants():
    """As the tables have them."""
    other = replace(RESULT, variant="MQA")
    table = pd.read_csv(io.StringIO(tying_csv([RESULT, other])))
    assert len(table) == 2 * len(RESULT.table) == 2 * 3 * (21 + 9)
    assert table["sharing"].unique().tolist() == ["QKV", "MQA"]
    assert table.loc[table["way"] == "linear map", "rank"].unique().tolist() == [8, 4, 2, 1]
