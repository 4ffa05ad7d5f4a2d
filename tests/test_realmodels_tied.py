"""Models in which one matrix serves as W_K and as W_V, and layers that reuse keys and values."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_atlas import WRITER, made_atlas, made_model

from attnkit.figures.groups import counted, describe_tied, groups_of
from attnkit.realmodels.answer import conclusion, summary
from attnkit.realmodels.atlas import Atlas, measure_model, notes_on
from attnkit.realmodels.base import TRAINED_HERE, AttentionLayer, Kind, Projections, RealModel
from attnkit.realmodels.measures import MEASURES

N_HEADS, N_KV_HEADS, D_MODEL, D_HEAD = 6, 3, 17, 5
WITH_V = [name for name in MEASURES if name.endswith(("_qv", "_kv"))]


def _weights(layer, tied):
    rng = np.random.default_rng(layer)
    q, k, v = (
        rng.standard_normal((n, D_MODEL, D_HEAD)).astype(np.float32)
        for n in (N_HEADS, N_KV_HEADS, N_KV_HEADS)
    )
    return Projections(q, k, k if tied else v)


def _model(*tied, kv_index=None, model_format="safetensors"):
    """Return a model with one layer per flag; the last layer may reuse keys and values."""
    layers = [
        AttentionLayer(
            Kind.CAUSAL, i, N_HEADS, N_KV_HEADS, lambda i=i, flag=flag: _weights(i, flag)
        )
        for i, flag in enumerate(tied)
    ]
    layers[-1] = replace(layers[-1], kv_index=kv_index)
    return RealModel("Made", "made", model_format, tuple(layers))


def test_a_tied_layer_is_marked_and_compares_v_with_nothing():
    """The heads and the whole layer have no such number, and all other numbers."""
    table = measure_model(_model(True, False)).table
    tied, free = (table[table["layer"] == layer] for layer in (0, 1))
    assert set(tied["tied"]) == {"K=V"}
    assert set(free["tied"]) == {""}
    measured = [name for name in WITH_V if not name.startswith("act_")]
    left_out = [f"{name}{end}" for name in measured for end in ("", "_random", "_random_sd")]
    assert tied[[name for name in left_out if name in table]].isna().all(axis=None)
    heads = free[free["head"].notna()]
    assert heads[measured].notna().all(axis=None)
    assert tied[["cos_qk", "symmetry", "norm_v"]].notna().all(axis=None)
    own = measure_model(_model(True, model_format=TRAINED_HERE)).table
    assert own["cos_kv"].to_numpy() == pytest.approx(1)  # models trained here are the control


def test_biases_do_not_hide_that_matrices_are_one():
    """A file may store the matrix twice, under two names, with two biases."""
    k = _weights(0, tied=True)
    twice = replace(k, W_V=k.W_K.copy(), b_K=np.zeros((3, 5)), b_V=np.ones((3, 5)))
    assert twice.k_is_v
    assert not replace(twice, W_V=k.W_K * np.float32(1.0001)).k_is_v


def test_averages_are_of_the_other_layers_only():
    """The printed table has the mean of the untied layer, and the chance of the heads in it."""
    both, free = (measure_model(_model(flag, False)).table for flag in (True, False))
    free = free[free["layer"] == 1]
    value = f"{free.loc[free['head'].notna(), 'overlap_kv'].mean():.3f}"
    assert f"/{value} (" in summary(both)
    (group,) = groups_of(both[both["head"].notna()], "overlap_kv", once=True)
    assert len(group.values) == N_KV_HEADS
    assert group.values.max() < 1
    both.loc[both["layer"] == 0, "overlap_qk_random"] *= 2  # wider heads overlap more by chance
    chance = D_HEAD / D_MODEL
    assert f"({1.5 * chance:.3f}/{chance:.3f}/{chance:.3f})" in summary(both)
    throughout = measure_model(_model(True, True)).table
    assert "–; –" in summary(throughout)
    assert conclusion(throughout).endswith("W_K serves as W_V.")


def test_reused_keys_and_values_count_once():
    """A measure of K and V alone has one value for the layer that has them."""
    table = measure_model(_model(False, False, kv_index=0)).table
    heads = table[table["head"].notna()]
    assert set(heads["kv_layer"]) == {0}
    assert len(counted(heads, "overlap_kv", once=True)) == N_KV_HEADS
    assert len(counted(heads, "overlap_qk", once=True)) == 2 * N_HEADS


def test_tied_layers_of_each_model_are_named():
    """On the table, because the configuration does not say it, and on the page."""
    table = measure_model(_model(True, False, False)).table
    heads = pd.concat([made_atlas().table, table])
    sentence = describe_tied(heads[heads["head"].notna()])
    assert sentence.startswith("One matrix serves as W_K and as W_V in 1 of 3 layers of Made: ")
    assert "serves as W_K and as W_V" in notes_on(table)[0]
    assert describe_tied(made_atlas().table) == ""
    assert notes_on(measure_model(_model(False)).table) == ()


def test_tables_from_before_these_columns_still_open(tmp_path):
    """Every layer of them has its own keys and values, and none is marked."""
    old = measure_model(made_model(WRITER)).table.drop(columns=["kv_layer", "tied"])
    old.to_parquet(tmp_path / "old.parquet", index=False)
    table = Atlas.load(tmp_path / "old.parquet").table
    assert (table["kv_layer"] == table["layer"]).all()
    assert set(table["tied"]) == {""}
