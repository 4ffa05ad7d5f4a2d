"""Measures of real models: against the definitions, and on layers whose answer is known."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes, svdvals

from attnkit.analysis import similarity
from attnkit.realmodels.base import Projections, Rope
from attnkit.realmodels.chance import chance_levels
from attnkit.realmodels.gram import bases_of
from attnkit.realmodels.measures import MEASURES, TIES, measure_layer, prepared
from attnkit.realmodels.portraits import AXES, portraits_of
from attnkit.realmodels.toys import tied_matrices
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
    return [side.astype(np.float64) for side in sides]


def spread(sizes):
    """Return the effective number of singular values: the exponential of their entropy."""
    shares = sizes[sizes > 1e-9 * sizes[0]] / sizes.sum()
    return np.exp(-(shares * np.log(shares)).sum())


def turned(a, b):
    """The cosine after the best rotation."""
    return similarity.cosine(a @ orthogonal_procrustes(a, b)[0], b)


def lost(matrix, other):
    """The relative error of another matrix in place of one."""
    return np.linalg.norm(matrix - other) / np.linalg.norm(matrix)


OF_PAIRS = {
    "cos": similarity.cosine,
    "overlap": similarity.overlap,
    "cka": similarity.weights_cka,
    "rotated": turned,
}
OF_FORM = {
    "symmetry": lambda q, k: metrics.weight_symmetry(*map(torch.from_numpy, (q, k))),
    "directionality": lambda q, k: metrics.directionality(*map(torch.from_numpy, (q, k))),
    "rank_qk": lambda q, k: spread(svdvals(q @ k.T)),
    "rank_skew": lambda q, k: spread(svdvals(q @ k.T - k @ q.T)),
    "tie_symmetric": lambda q, k: lost(q @ k.T, (q @ k.T + k @ q.T) / 2),
    "tie_qk": lambda q, k: lost(q @ k.T, (best := tied_matrices("QK", q, k)[0]) @ best.T),
}


def test_heads_and_layers_agree_with_the_definitions():
    """Query head h looks by key head h // (h / g); a layer is the sum of its heads.

    Its form is Σ W_Q W_Kᵀ; its cosines are those of all heads as one list of numbers.
    """
    layer = made()
    measured = measure_layer(layer)
    q, k, v = per_query_head(layer)
    for head in range(H):
        one = dict(zip("qkv", (q[head], k[head], v[head]), strict=True))
        expected = {
            f"{name}_{pair}": float(of(one[pair[0]], one[pair[1]]))
            for name, of in OF_PAIRS.items()
            for pair in ("qk", "qv", "kv")
        }
        expected |= {name: float(of(q[head], k[head])) for name, of in OF_FORM.items()}
        keys, values = tied_matrices("KV", k[head], v[head])
        expected["tie_kv"] = lost(k[head], keys)
        assert lost(v[head], values) == pytest.approx(expected["tie_kv"])
        expected |= {f"norm_{role}": np.linalg.norm(w) for role, w in one.items()}
        expected |= {f"rank_{role}": spread(svdvals(w)) for role, w in one.items()}
        found = {name: measured.heads[name][head] for name in expected}
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    form = sum(a @ b.T for a, b in zip(q, k, strict=True))
    whole = measured.whole
    assert whole["symmetry"] == pytest.approx((form * form.T).sum() / (form**2).sum(), abs=1e-6)
    assert whole["cos_qk"] == pytest.approx(similarity.cosine(q.reshape(1, -1), k.reshape(1, -1)))
    assert whole["norm_k"] == pytest.approx(np.linalg.norm(layer.W_K))
    assert set(whole) == {name for name, measure in MEASURES.items() if measure.layers}


def test_tied_and_thin_heads_have_known_measures():
    """Q=K: likeness is 1 and nothing has a direction, but the rank of a zero form is none."""
    layer = made(n_kv_heads=H)
    found = measure_layer(Projections(layer.W_Q, layer.W_Q, layer.W_V)).heads
    for name in ("cos_qk", "overlap_qk", "rotated_qk", "cka_qk", "symmetry"):
        assert found[name] == pytest.approx(np.ones(H)), name
    assert found["directionality"] == pytest.approx(np.zeros(H))
    assert np.isnan(found["rank_skew"]).all()
    assert [found[name] for name in TIES[:2]] == pytest.approx(np.zeros((2, H)), abs=1e-6)
    thin = layer.W_Q.copy()  # the overlap with a matrix of lower rank within it is 1
    thin[..., -1] = thin[..., 0]
    found = measure_layer(Projections(layer.W_Q, thin, layer.W_V)).heads
    assert found["overlap_qk"] == pytest.approx(np.ones(H), abs=1e-5)
    assert ((bases_of(thin) ** 2).sum(1) > 0.5).sum(-1).tolist() == [D - 1] * H


@pytest.mark.parametrize("roles", ["QK", "KV"])
def test_no_other_tied_matrices_are_better(roles):
    """Small changes of the shared matrix, of the rotation and of the norms only make it worse."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((2, M, D))
    one, other = tied_matrices(roles, a, b)
    turned, best = np.linalg.lstsq(one, other)[0], None
    for size in (0, *[1e-3] * 20):
        change = size * rng.standard_normal((M, D))
        if roles == "QK":
            error = lost(a @ b.T, (one + change) @ (one + change).T)
        else:
            turn = np.linalg.qr(np.eye(D) + size * rng.standard_normal((D, D)))[0]
            turn = turned @ turn * np.sign(np.diag(turn)) * (1 + size * rng.standard_normal())
            error = np.hypot(lost(a, one + change), lost(b, (one + change) @ turn))
        best = error if best is None else best
        assert error >= best


def test_what_cannot_be_compared_has_no_number():
    """Streams of two widths, values of another width, and zero matrices, without a warning.

    Very small and very large weights are measured: only norms know of the scale.
    """
    layer = made()
    zero = Projections(0 * layer.W_Q, layer.W_K, layer.W_V)
    for one, without, still in (
        (made(d_kv=M + 6), "cos_qk overlap_qv symmetry rank_skew tie_qk", "cos_kv tie_kv rank_qk"),
        (made(d_value=E), "cos_qv tie_kv", "overlap_qv"),
        (zero, "cos_qk overlap_qk symmetry rank_q", "cos_kv directionality"),
    ):
        heads = measure_layer(one).heads
        assert [name for name in without.split() if not np.isnan(heads[name]).all()] == []
        assert [name for name in still.split() if not np.isfinite(heads[name]).all()] == []
    assert np.isnan(measure_layer(made(d_kv=M + 6)).whole["symmetry"])
    assert portraits_of(made(d_kv=M + 6)) is None
    one = measure_layer(layer)
    for scale in (1e-25, 1e18):
        scaled = Projections(*(w * np.float32(scale) for w in (layer.W_Q, layer.W_K, layer.W_V)))
        other = measure_layer(scaled)
        for name in ("symmetry", "directionality", "cos_qk"):
            assert other.whole[name] == pytest.approx(one.whole[name], abs=1e-5), name
            assert other.heads[name] == pytest.approx(one.heads[name], abs=1e-5), name


def test_folding_multiplies_the_gains_in():
    """Of the norm before, on each side."""
    generator = np.random.default_rng(3)
    of_q, of_kv = generator.standard_normal((2, M)).astype(np.float32)
    layer = made(gain_q=of_q, gain_kv=of_kv)
    folded = prepared(layer, fold=True)
    x = generator.standard_normal((11, M)).astype(np.float32)
    for role, gain in (("Q", of_q), ("K", of_kv), ("V", of_kv)):
        ours, theirs = (getattr(one, f"W_{role}") for one in (folded, layer))
        assert np.allclose(x @ ours, (x * gain) @ theirs, atol=1e-4)
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


def latent(seed, n_latent=11, n_heads=4):
    """A layer whose W_K and W_V come of one latent vector, so that they are alike."""
    rng = np.random.default_rng(seed)
    first, q = rng.standard_normal((M, n_latent)), rng.standard_normal((n_heads, M, D))
    k, v = (first @ rng.standard_normal((n_heads, n_latent, D)) for _ in "kv")
    return Projections(q, k, v, latent_kv=n_latent)


def test_random_layers_are_at_chance():
    """Other draws than those that chance is made of, within five standard errors; as in theory.

    Cosine 0 ± 1/√(m·d), overlap d/m; for layers, of the numbers of all heads.
    """
    names = "cos_kv overlap_qk overlap_kv tie_kv tie_qk cka_qv cka_kv symmetry rank_k".split()
    for make in (lambda seed: made(seed=seed), latent):
        levels = chance_levels(make(0))[0]
        heads = [measure_layer(make(seed)).heads for seed in range(1, 31)]
        for name in names:
            mean, sd = levels[name]
            drawn = np.array([own[name].mean() for own in heads])
            assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(len(drawn)), name
            assert np.concatenate([own[name] for own in heads]).std() == pytest.approx(sd, rel=0.4)
    assert levels["overlap_kv"][0] > 2 * D / M
    heads, whole = chance_levels(made(n_heads=12, n_kv_heads=4))
    assert heads["cos_qk"] == (0, pytest.approx(1 / np.sqrt(M * D)))
    assert whole["cos_qv"] == (0, pytest.approx(1 / np.sqrt(M * D * 12)))
    assert whole["cos_kv"] == (0, pytest.approx(1 / np.sqrt(M * D * 4)))
    assert heads["overlap_kv"][0] == pytest.approx(D / M)
    assert not any(name.startswith("norm") for name in (*heads, *whole))


def test_folded_gains_are_in_the_chance_too():
    """A loud direction makes random matrices alike; the draws hang on the shape and gains alone."""
    gain = np.where(np.arange(M) == 0, 9, 1).astype(np.float32)
    layer = made(gain_q=gain, gain_kv=gain)
    plain, folded = chance_levels(layer)[0], chance_levels(layer, fold=True)[0]
    assert folded["overlap_qk"][0] > plain["overlap_qk"][0] + 0.05
    drawn = measure_layer(prepared(layer, fold=True)).heads["overlap_qk"]
    assert abs(drawn.mean() - folded["overlap_qk"][0]) < 3 * folded["overlap_qk"][1]
    other = made(gain_q=gain, gain_kv=gain, seed=3)
    assert chance_levels(other, fold=True)[0] == folded
    assert chance_levels(made(), fold=True) == chance_levels(made())


def test_a_portrait_holds_the_form_in_two_parts():
    """Spectra are those of M and of its parts; the picture's symmetric part is diagonal."""
    layer = made()
    portrait = portraits_of(layer)[4]
    q, k, v = (w[4] for w in per_query_head(layer))
    m = q @ k.T
    assert portrait.singular == pytest.approx(svdvals(m)[:D])
    eigenvalues = np.linalg.eigvalsh((m + m.T) / 2)
    largest = eigenvalues[np.argsort(-np.abs(eigenvalues))[: 2 * D]]
    assert portrait.symmetric == pytest.approx(np.sort(largest)[::-1])
    assert portrait.skew == pytest.approx(svdvals((m - m.T) / 2)[: 2 * D : 2])
    even = (portrait.matrix + portrait.matrix.T) / 2
    assert even == pytest.approx(np.diag(np.diag(even)), abs=1e-8)
    assert len(portrait.matrix) == min(AXES, 2 * D)
    assert portrait.shown == pytest.approx(1)
    w = dict(zip("qkv", (q, k, v), strict=True))
    for pair, cosines in portrait.angles.items():
        assert cosines == pytest.approx(similarity.subspace_cosines(w[pair[0]], w[pair[1]]))
    wide = Projections(*np.random.default_rng(5).standard_normal((3, 1, M, 11)))
    m = wide.W_Q[0] @ wide.W_K[0].T  # too large for the picture, which has its largest part
    axes = np.linalg.eigh(m @ m.T + m.T @ m)[1][:, -AXES:]
    (portrait,) = portraits_of(wide)
    assert portrait.shown == pytest.approx(((axes.T @ m @ axes) ** 2).sum() / (m**2).sum())
