"""Measures of real models: against the definitions, and on layers whose answer is known."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes, svdvals

from attnkit.analysis import similarity
from attnkit.realmodels.base import Projections, Rope
from attnkit.realmodels.chance import chance_levels
from attnkit.realmodels.gram import bases_of
from attnkit.realmodels.measures import (
    MEASURES,
    OF_WEIGHTS,
    measure_layer,
    prepared,
)
from attnkit.realmodels.portraits import AXES, portraits_of
from attnkit.training import metrics

H, G, M, D, E = 6, 3, 31, 5, 7


def made(*, n_heads=H, n_kv_heads=G, d_kv=M, d_value=D, seed=0, **rest):
    """A layer of Gaussian matrices."""
    generator = np.random.default_rng(seed)
    shapes = (n_heads, M, D), (n_kv_heads, d_kv, D), (n_kv_heads, d_kv, d_value)
    return Projections(*(generator.standard_normal(shape, np.float32) for shape in shapes), **rest)


def per_query_head(layer):
    """W_Q, W_K, W_V with keys and values repeated, in double precision."""
    repeated = len(layer.W_Q) // len(layer.W_K)
    sides = layer.W_Q, np.repeat(layer.W_K, repeated, 0), np.repeat(layer.W_V, repeated, 0)
    return dict(zip("qkv", (side.astype(np.float64) for side in sides), strict=True))


def test_heads_agree_with_the_definitions():
    """Cosine, overlap and CKA are those of `analysis.similarity`, the rotation is Procrustes'."""
    layer = made()
    w, found = per_query_head(layer), measure_layer(layer).heads
    for pair in ("qk", "qv", "kv"):
        a, b = w[pair[0]], w[pair[1]]
        assert found[f"cos_{pair}"] == pytest.approx(similarity.cosine(a, b), abs=1e-12)
        assert found[f"overlap_{pair}"] == pytest.approx(similarity.overlap(a, b))
        assert found[f"cka_{pair}"] == pytest.approx(similarity.weights_cka(a, b))
        turned = [x @ orthogonal_procrustes(x, y)[0] for x, y in zip(a, b, strict=True)]
        assert found[f"rotated_{pair}"] == pytest.approx(similarity.cosine(np.stack(turned), b))


def test_the_form_agrees_with_the_definitions():
    """Symmetry and directionality are those of `training.metrics`, ranks those of the matrices."""
    layer = made()
    w, found = per_query_head(layer), measure_layer(layer).heads
    q, k = torch.from_numpy(w["q"]), torch.from_numpy(w["k"])
    assert found["symmetry"] == pytest.approx(metrics.weight_symmetry(q, k).numpy())
    assert found["directionality"] == pytest.approx(metrics.directionality(q, k).numpy())
    for head in range(H):
        m = w["q"][head] @ w["k"][head].T
        sizes = svdvals(m)
        shares = sizes[:D] / sizes[:D].sum()
        assert found["rank_qk"][head] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
        skew = svdvals(m - m.T)[: 2 * D]
        shares = skew / skew.sum()
        assert found["rank_skew"][head] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
        assert found["norm_v"][head] == pytest.approx(np.linalg.norm(w["v"][head]))


def test_a_layer_is_the_sum_of_its_heads():
    """Its form is Σ W_Q W_Kᵀ; its cosines are those of all heads as one list of numbers."""
    layer = made()
    w, whole = per_query_head(layer), measure_layer(layer).whole
    m = sum(a @ b.T for a, b in zip(w["q"], w["k"], strict=True))
    assert whole["symmetry"] == pytest.approx((m * m.T).sum() / (m * m).sum(), abs=1e-6)
    assert whole["cos_qk"] == pytest.approx(
        (w["q"] * w["k"]).sum() / np.sqrt((w["q"] ** 2).sum() * (w["k"] ** 2).sum())
    )
    assert whole["norm_k"] == pytest.approx(np.linalg.norm(layer.W_K))
    assert set(whole) == {name for name, measure in MEASURES.items() if measure.layers}


def test_heads_that_share_keys_are_those_of_their_group():
    """Query head h looks by key head h // (h / g)."""
    layer = made()
    alone = Projections(layer.W_Q[4:5], layer.W_K[2:3], layer.W_V[2:3])
    one, all_ = measure_layer(alone).heads, measure_layer(layer).heads
    for name in OF_WEIGHTS:
        assert all_[name][4] == pytest.approx(one[name][0], abs=1e-12), name


def test_tied_and_skew_forms_have_known_measures():
    """Q=K: all likeness is 1 and nothing has a direction; W_Q = W_K J with a skew J: s is −1."""
    layer = made(n_kv_heads=H)
    found = measure_layer(Projections(layer.W_Q, layer.W_Q, layer.W_V)).heads
    for name in ("cos_qk", "overlap_qk", "rotated_qk", "cka_qk", "symmetry"):
        assert found[name] == pytest.approx(np.ones(H)), name
    assert found["directionality"] == pytest.approx(np.zeros(H))
    assert np.isnan(found["rank_skew"]).all()
    j = np.random.default_rng(1).standard_normal((H, D, D))
    W_Q = (layer.W_K @ (j - j.swapaxes(1, 2))).astype(np.float32)
    found = measure_layer(Projections(W_Q, layer.W_K, layer.W_V)).heads
    assert found["symmetry"] == pytest.approx(-np.ones(H), abs=1e-5)


TURNS = {
    "v": {"cos_qv", "cos_kv"},
    "qk": {"cos_qv", "cos_kv"},
    "q": {"cos_qk", "cos_qv", "symmetry", "directionality", "rank_qk", "rank_skew"},
}
"""Which measures change when bases are turned alike. No head changes, but for W_Q alone."""


@pytest.mark.parametrize("roles", TURNS)
def test_turns_of_bases_are_seen_as_stated(roles):
    """A turn of W_V, or of W_Q and W_K together, is seen by cosines with W_V alone."""
    layer = made(n_kv_heads=H)
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((D, D)))[0].astype(np.float32)
    w = {role: getattr(layer, f"W_{role.upper()}") for role in "qkv"}
    w |= {role: w[role] @ turn for role in roles}
    before, after = measure_layer(layer).heads, measure_layer(Projections(*w.values())).heads
    changed = {n for n in OF_WEIGHTS if before[n] != pytest.approx(after[n], rel=1e-4, abs=1e-6)}
    assert changed == TURNS[roles]


def test_very_small_and_very_large_weights_are_measured():
    """Only norms know of the scale."""
    layer = made()
    one = measure_layer(layer)
    for scale in (1e-25, 1e18):
        scaled = Projections(*(w * np.float32(scale) for w in (layer.W_Q, layer.W_K, layer.W_V)))
        other = measure_layer(scaled)
        for name in ("symmetry", "directionality", "cos_qk"):
            assert other.whole[name] == pytest.approx(one.whole[name], abs=1e-5), name
            assert other.heads[name] == pytest.approx(one.heads[name], abs=1e-5), name


def test_what_cannot_be_compared_has_no_number():
    """Streams of two widths, values of another width, and zero matrices, without a warning."""
    layer = made()
    zero = Projections(0 * layer.W_Q, layer.W_K, layer.W_V)
    for one, without, still in (
        (made(d_kv=M + 6), "cos_qk overlap_qv symmetry rank_skew", "cos_kv overlap_kv rank_qk"),
        (made(d_value=E), "cos_qv", "overlap_qv"),
        (zero, "cos_qk overlap_qk symmetry rank_q", "cos_kv directionality"),
    ):
        heads = measure_layer(one).heads
        assert [name for name in without.split() if not np.isnan(heads[name]).all()] == []
        assert [name for name in still.split() if not np.isfinite(heads[name]).all()] == []
    assert (measure_layer(zero).heads["directionality"] == 0).all()
    assert np.isnan(measure_layer(made(d_kv=M + 6)).whole["symmetry"])
    assert portraits_of(made(d_kv=M + 6)) is None


def test_a_lost_dimension_is_not_a_direction():
    """The overlap of a matrix with one of lower rank within it is 1."""
    layer = made(n_kv_heads=H)
    thin = layer.W_Q.copy()
    thin[..., -1] = thin[..., 0]
    found = measure_layer(Projections(layer.W_Q, thin, layer.W_V)).heads
    assert found["overlap_qk"] == pytest.approx(np.ones(H), abs=1e-5)
    bases = bases_of(thin)
    assert ((bases**2).sum(1) > 0.5).sum(-1).tolist() == [D - 1] * H


# preparing


def test_folding_multiplies_the_gains_in():
    """Of the norm before, on each side."""
    generator = np.random.default_rng(3)
    of_q, of_kv = generator.standard_normal((2, M)).astype(np.float32)
    layer = made(gain_q=of_q, gain_kv=of_kv)
    folded = prepared(layer, fold=True)
    x = generator.standard_normal((11, M)).astype(np.float32)
    assert np.allclose(x @ folded.W_Q, (x * of_q) @ layer.W_Q, atol=1e-4)
    assert np.allclose(x @ folded.W_K, (x * of_kv) @ layer.W_K, atol=1e-4)
    assert np.allclose(x @ folded.W_V, (x * of_kv) @ layer.W_V, atol=1e-4)
    assert prepared(layer) is layer
    assert np.array_equal(prepared(made(), fold=True).W_Q, made().W_Q)


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_offset_is_what_rotary_positions_make_of_a_distance(interleaved):
    """q at position p + Δ times k at position p is the same for all p."""
    rope = Rope(np.array([0.7, 0.2]), interleaved)
    layer = made(n_kv_heads=H, rope=rope)
    x, y = np.random.default_rng(4).standard_normal((2, M)).astype(np.float32)
    prepared_layer = prepared(layer, offset=3)
    expected = np.einsum("hd,hd->h", x @ prepared_layer.W_Q, y @ prepared_layer.W_K)
    for p in (0, 5):
        q, k = x @ rope.rotate(layer.W_Q, p + 3), y @ rope.rotate(layer.W_K, p)
        assert np.einsum("hd,hd->h", q, k) == pytest.approx(expected, rel=1e-3)
    assert rope.rotate(layer.W_Q, 3)[..., -1] == pytest.approx(layer.W_Q[..., -1])
    before, after = (measure_layer(one).heads for one in (layer, prepared_layer))
    for name in ("overlap_qk", "rotated_qk", "cka_qk", "norm_q", "rank_q"):
        assert before[name] == pytest.approx(after[name], rel=1e-4), name
    for name in ("cos_qk", "symmetry"):  # they hang on the basis of W_Q
        assert before[name] != pytest.approx(after[name], rel=1e-2), name


# chance


def test_chance_is_what_theory_says():
    """Cosine 0 ± 1/√(m·d); overlap d/m; layers of all heads' numbers; symmetry near 0."""
    layer = made(n_heads=12, n_kv_heads=4)
    heads, whole = chance_levels(layer)
    assert heads["cos_qk"] == (0, pytest.approx(1 / np.sqrt(M * D)))
    assert whole["cos_qv"] == (0, pytest.approx(1 / np.sqrt(M * D * 12)))
    assert whole["cos_kv"] == (0, pytest.approx(1 / np.sqrt(M * D * 4)))
    assert heads["overlap_kv"][0] == pytest.approx(D / M)
    assert abs(heads["symmetry"][0]) < 0.1
    assert not any(name.startswith("norm") for name in (*heads, *whole))


def test_random_layers_are_at_chance():
    """Other draws than those that chance is made of, within five standard errors."""
    levels = chance_levels(made())[0]
    heads = [measure_layer(made(seed=seed)).heads for seed in range(20)]
    for name in ("cos_qk", "overlap_qk", "rotated_kv", "cka_qv", "symmetry"):
        mean, sd = levels[name]
        drawn = np.concatenate([own[name] for own in heads])
        assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(len(drawn) / 2), name
        assert drawn.std() == pytest.approx(sd, rel=0.35), name


def test_folded_gains_are_in_the_chance_too():
    """A loud direction makes random matrices alike; without gains nothing changes."""
    gain = np.where(np.arange(M) == 0, 9, 1).astype(np.float32)
    layer = made(gain_q=gain, gain_kv=gain)
    plain, folded = chance_levels(layer)[0], chance_levels(layer, fold=True)[0]
    assert folded["overlap_qk"][0] > plain["overlap_qk"][0] + 0.05
    drawn = measure_layer(prepared(layer, fold=True)).heads["overlap_qk"]
    assert abs(drawn.mean() - folded["overlap_qk"][0]) < 3 * folded["overlap_qk"][1]
    assert chance_levels(made(), fold=True) == chance_levels(made())


def test_random_layers_with_a_latent_vector_are_at_their_chance():
    """W_K and W_V of one latent vector are alike by construction; so are those of chance."""
    n_latent, n_heads = 11, 4

    def draw(seed):
        rng = np.random.default_rng(seed)
        first, q = rng.standard_normal((M, n_latent)), rng.standard_normal((n_heads, M, D))
        k, v = (first @ rng.standard_normal((n_heads, n_latent, D)) for _ in "kv")
        return Projections(q, k, v, latent_kv=n_latent)

    levels = chance_levels(draw(0))[0]
    heads = [measure_layer(draw(seed)).heads for seed in range(1, 41)]
    for name in ("cos_kv", "overlap_kv", "overlap_qk", "cka_kv", "rank_k"):
        mean, sd = levels[name]
        drawn = np.array([own[name].mean() for own in heads])
        assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(len(drawn)), name
    assert levels["overlap_kv"][0] > 2 * D / M


def test_chance_is_always_the_same():
    """The draws hang on the shape alone."""
    layer = made(n_heads=2, n_kv_heads=1, gain_q=np.arange(1, M + 1, dtype=np.float32))
    first = chance_levels(layer, fold=True)
    assert (
        chance_levels(made(n_heads=2, n_kv_heads=1, gain_q=layer.gain_q, seed=3), fold=True)
        == first
    )


# portraits


def test_a_portrait_holds_the_form_in_two_parts():
    """Spectra are those of M and of its parts; the picture's symmetric part is diagonal."""
    layer = made()
    portrait = portraits_of(layer)[4]
    m = layer.W_Q[4].astype(np.float64) @ layer.W_K[2].astype(np.float64).T
    assert portrait.singular == pytest.approx(svdvals(m)[:D])
    eigenvalues = np.linalg.eigvalsh((m + m.T) / 2)
    largest = eigenvalues[np.argsort(-np.abs(eigenvalues))[: 2 * D]]
    assert portrait.symmetric == pytest.approx(np.sort(largest)[::-1])
    assert portrait.skew == pytest.approx(svdvals((m - m.T) / 2)[: 2 * D : 2])
    even = (portrait.matrix + portrait.matrix.T) / 2
    assert even == pytest.approx(np.diag(np.diag(even)), abs=1e-8)
    assert len(portrait.matrix) == min(AXES, 2 * D)
    assert portrait.shown == pytest.approx(1)
    s = (portrait.symmetric**2).sum(), 2 * (portrait.skew**2).sum()
    assert (s[0] - s[1]) / (s[0] + s[1]) == pytest.approx(measure_layer(layer).heads["symmetry"][4])
    w = per_query_head(layer)
    for pair, cosines in portrait.angles.items():
        expected = similarity.subspace_cosines(w[pair[0]][4], w[pair[1]][4])
        assert cosines == pytest.approx(expected)
