"""Measures of real models: by definition, on text, and as the shipped tables have them."""

import os
import re
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
from family_models import D_VOCAB, built, save_tokenizer
from made_atlas import heads_of, made_atlas
from scipy.linalg import orthogonal_procrustes, svdvals

from attnkit.analysis import similarity
from attnkit.experiment import Experiment
from attnkit.figures.groups import counting_heads, describe_tied, groups_of
from attnkit.figures.portrait import energy_of
from attnkit.model.model import Model
from attnkit.realmodels import Setting, Unreadable, measure_model, open_model, running
from attnkit.realmodels.activations import activation_cka, with_activations
from attnkit.realmodels.answer import (
    answer_sentences,
    caveats,
    cka_on_text,
    conclusion,
    overlap_line,
    summary,
)
from attnkit.realmodels.atlas import Q_IS_K, Atlas, notes_on
from attnkit.realmodels.base import (
    TRAINED_HERE,
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
    Rope,
    pairs,
)
from attnkit.realmodels.chance import chance_levels
from attnkit.realmodels.gram import bases_of
from attnkit.realmodels.measures import MEASURES, OF_ACTIVATIONS, measure_layer, prepared
from attnkit.realmodels.portraits import AXES, portraits_of
from attnkit.realmodels.shipped import PACKAGES, load_atlas
from attnkit.realmodels.toys import tie, tied_matrices, toy_table
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


def best_symmetric(form):
    """The nearest product of a matrix with its own transpose: without negative eigenvalues."""
    values, vectors = np.linalg.eigh((form + form.T) / 2)
    return vectors * values.clip(0) @ vectors.T


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
    "tie_qk": lambda q, k: lost(q @ k.T, best_symmetric(q @ k.T)),
}


def test_heads_and_layers_agree_with_the_definitions():
    """Query head h looks by key head h // (h / g); a layer's form is Σ W_Q W_Kᵀ of its heads."""
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
        # Half of the smallest angle to one that is rotated and scaled; tied matrices reach both.
        expected["tie_kv"] = np.sqrt((1 - turned(k[head], v[head])) / 2)
        keys, values = tied_matrices("KV", k[head], v[head])
        found = lost(k[head], keys), lost(v[head], values)
        assert found == pytest.approx([expected["tie_kv"]] * 2)
        best = tied_matrices("QK", q[head], k[head])[0]
        assert best @ best.T == pytest.approx(best_symmetric(q[head] @ k[head].T))
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


def test_what_cannot_be_compared_has_no_number():
    """Streams of two widths, values of another width, zero and tied matrices, without a warning."""
    layer = made(n_kv_heads=H)
    zero = Projections(0 * layer.W_Q, layer.W_K, layer.W_V)
    tied = Projections(layer.W_Q, layer.W_Q, layer.W_V)
    for one, without, still in (
        (made(d_kv=M + 6), "cos_qk overlap_qv symmetry rank_skew tie_qk", "cos_kv tie_kv rank_qk"),
        (made(d_value=E), "cos_qv tie_kv", "overlap_qv"),
        (zero, "cos_qk overlap_qk symmetry rank_q", "cos_kv directionality"),
        (tied, "rank_skew", "directionality tie_qk tie_symmetric cka_qk rotated_qk"),
    ):
        heads = measure_layer(one).heads
        assert [name for name in without.split() if not np.isnan(heads[name]).all()] == []
        assert [name for name in still.split() if not np.isfinite(heads[name]).all()] == []
    assert np.isnan(measure_layer(made(d_kv=M + 6)).whole["symmetry"])
    assert portraits_of(made(d_kv=M + 6)) is None
    thin = layer.W_Q.copy()  # the overlap with a matrix of lower rank within it is 1
    thin[..., -1] = thin[..., 0]
    found = measure_layer(Projections(layer.W_Q, thin, layer.W_V)).heads
    assert found["overlap_qk"] == pytest.approx(np.ones(H), abs=1e-5)
    assert ((bases_of(thin) ** 2).sum(1) > 0.5).sum(-1).tolist() == [D - 1] * H


def test_folding_multiplies_the_gains_in():
    """Of the norm before, on each side."""
    of_q, of_kv = np.random.default_rng(3).standard_normal((2, M)).astype(np.float32)
    layer = made(gain_q=of_q, gain_kv=of_kv)
    folded = prepared(layer, fold=True)
    for role, gain in (("Q", of_q), ("K", of_kv), ("V", of_kv)):
        ours, theirs = (getattr(one, f"W_{role}") for one in (folded, layer))
        assert np.allclose(ours, gain[:, None] * theirs)
    assert prepared(layer) is layer
    assert np.array_equal(prepared(made(), fold=True).W_Q, made().W_Q)


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_offset_is_what_rotary_positions_make_of_a_distance(interleaved):
    """q at position p + Δ times k at position p is the same for all p."""
    rope = Rope(np.array([0.7, 0.2]), *pairs(2, interleaved=interleaved))
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
    """Other draws than those that chance is made of, within five standard errors; as in theory."""
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
    # A loud direction makes random matrices alike; the draws hang on the shape and gains alone.
    gain = np.where(np.arange(M) == 0, 9, 1).astype(np.float32)
    layer = made(gain_q=gain, gain_kv=gain)
    plain, folded = chance_levels(layer)[0], chance_levels(layer, fold=True)[0]
    assert folded["overlap_qk"][0] > plain["overlap_qk"][0] + 0.05
    drawn = measure_layer(prepared(layer, fold=True)).heads["overlap_qk"]
    assert abs(drawn.mean() - folded["overlap_qk"][0]) < 3 * folded["overlap_qk"][1]
    other = made(gain_q=gain, gain_kv=gain, seed=3)
    assert chance_levels(other, fold=True)[0] == folded


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
    assert (len(portrait.matrix), portrait.shown) == (min(AXES, 2 * D), pytest.approx(1))
    w = dict(zip("qkv", (q, k, v), strict=True))
    for pair, cosines in portrait.angles.items():
        assert cosines == pytest.approx(similarity.subspace_cosines(w[pair[0]], w[pair[1]]))
    wide = Projections(*np.random.default_rng(5).standard_normal((3, 1, M, 11)))
    m = wide.W_Q[0] @ wide.W_K[0].T  # too large for the picture, which has its largest part
    axes = np.linalg.eigh(m @ m.T + m.T @ m)[1][:, -AXES:]
    (portrait,) = portraits_of(wide)
    assert portrait.shown == pytest.approx(((axes.T @ m @ axes) ** 2).sum() / (m**2).sum())


# what projections make of text


def saved(folder, name, n_words=D_VOCAB, **more):
    """A small model with a tokenizer of n words, most of them never met, and its heads."""
    built(name, folder, **more)
    save_tokenizer(folder, n_words)
    layers = open_model(str(folder)).layers
    places = [(one.kind, one.index, head) for one in layers for head in range(one.n_heads)]
    return str(folder), pd.DataFrame(places, columns=["kind", "layer", "head"]), layers


def test_each_head_is_compared_with_its_own_keys_and_values():
    """Query head 4 with key head 2; reused keys are of earlier inputs; chance of the same ones."""
    generator = np.random.default_rng(5)
    layer = Projections(*(generator.standard_normal((n, M, D)) for n in (H, G, G)))
    rows, earlier = np.random.default_rng(6).standard_normal((2, 83, M))
    for inputs, found in (
        (rows, activation_cka(layer, rows)),
        (earlier, activation_cka(layer, rows, earlier)),
    ):
        q, k, v = rows @ layer.W_Q[4], inputs @ layer.W_K[2], inputs @ layer.W_V[2]
        for pair, sides in {"qk": (q, k), "qv": (q, v), "kv": (k, v)}.items():
            expected = similarity.linear_cka(*sides)
            assert found[f"act_cka_{pair}"][4] == pytest.approx(expected)
    again = activation_cka(layer, earlier)
    assert found["act_cka_kv_random"] == pytest.approx(again["act_cka_kv_random"])
    narrow = rows * np.where(np.arange(M) == 0, 30.0, 1.0)
    wide, alike = (activation_cka(layer, of)["act_cka_qk_random"] for of in (rows, narrow))
    assert (alike > wide + 0.3).all()
    assert alike[0] == pytest.approx(similarity.projected_bands(narrow, narrow, D, D)[1].mean)


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma2", "deepseek_v3"])
def test_models_are_run_on_text(tmp_path, name):
    """Models of few positions read shorter pieces; where keys are values, V has no comparison."""
    source, heads, layers = saved(tmp_path, name)
    found = with_activations(heads, source)
    assert found["act_cka_qk"].between(0, 1).all()
    assert found["act_cka_qk"].nunique() > layers[0].n_heads
    compared = found.groupby("layer")["act_cka_kv"].count().tolist()
    assert compared == [0 if one.read().k_is_v else one.n_heads for one in layers]


def test_no_program_of_a_model_is_run(tmp_path, monkeypatch):
    """Neither from a network, nor one that lies beside its weights, nor a pickle alone."""
    given = []

    class Library:
        def from_pretrained(self, _, **options):
            given.append(options)
            return torch.nn.Identity()

        AutoTokenizer = AutoModel = property(lambda self: self)

    source, heads, _ = saved(tmp_path, "gpt2")
    running.load(Library(), source)
    assert all(one["local_files_only"] and not one["trust_remote_code"] for one in given)
    assert (given[1]["use_safetensors"], given[1]["dtype"]) == (True, "float32")
    (tmp_path / "model.safetensors").rename(tmp_path / "odd.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit'\ntR.")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(Unreadable, match="cannot load"):
        with_activations(heads, source)


def test_why_a_model_is_not_run_is_told(tmp_path):
    """Layers read once but run often, another tokenizer, too little text, and no finite inputs."""
    for name, fields, n_words, says in (
        ("albert", {}, D_VOCAB, "has 1 attention layers, but 2 ran"),
        ("bert", {}, D_VOCAB + 10, "IndexError"),
        ("bert", {"max_position_embeddings": 1}, D_VOCAB, "windows of 1"),
        ("bert", {"layer_norm_eps": float("nan")}, D_VOCAB, "not finite"),
    ):
        source, heads, _ = saved(tmp_path / name, name, n_words, **fields)
        with pytest.raises(Unreadable, match=says):
            with_activations(heads, source)


# tables

MINILM, WHISPER, SMOLLM = "all-MiniLM-L6-v2", "Whisper tiny.en", "SmolLM2-135M-Instruct"


@pytest.mark.weights
def test_the_shipped_atlas_is_what_the_packages_give():
    """Nobody has to install them to see it."""
    missing = [module for module in PACKAGES if find_spec(module) is None]
    if missing:
        assert not os.environ.get("CI"), f"CI needs the packages with weights: {missing}"
        pytest.skip(f"not installed: {', '.join(PACKAGES[module] for module in missing)}")
    settings, keys = (Setting(), Setting(fold=True)), ["model", "kind", "layer", "head", "folded"]
    every = Atlas.together([measure_model(open_model(module), settings) for module in PACKAGES])
    measured = every.table.sort_values(keys, ignore_index=True)
    places = measured[["model", "kind", "layer"]].drop_duplicates()
    shipped = load_atlas().table.query("offset == 0").merge(places)
    shipped = shipped.sort_values(keys, ignore_index=True)
    assert shipped[keys].equals(measured[keys])
    for name in MEASURES:
        if name not in OF_ACTIVATIONS:
            assert np.allclose(shipped[name], measured[name], atol=1e-4, equal_nan=True), name


def test_every_head_of_the_shipped_models_has_a_row_and_a_portrait():
    """72 + 24 + 24 + 24 + 270 heads, with and without gains; RoPE at four offsets."""
    atlas = load_atlas()
    heads = atlas.table[atlas.table["head"].notna()]
    assert (heads.groupby(["folded", "offset"]).size() == 414).loc[:, 0].all()
    assert set(heads.loc[heads["offset"] > 0, "model"]) == {SMOLLM}
    for row in heads[heads["offset"] == 0].itertuples():
        portrait = atlas.portrait(row.model, row.kind, row.layer, row.head, row.folded)
        assert 2 * energy_of(portrait) - 1 == pytest.approx(row.symmetry, abs=1e-3)
        kept = (portrait.symmetric.clip(0) ** 2).sum() / (portrait.singular**2).sum()
        assert row.tie_qk == pytest.approx((1 - kept) ** 0.5, abs=1e-3)
        assert (portrait.angles["qk"] ** 2).mean() == pytest.approx(row.overlap_qk, abs=2e-3)
    assert atlas.portrait(SMOLLM, "encoder", 0, 0) is None


def test_the_answer_follows_the_table():
    """Ranges, levels of chance and comparisons are those of the shipped table, or left out."""

    def numbers_in(text):
        return re.findall(r"[+−]?\d+\.\d+|\d+", text)

    table = load_atlas().table
    heads = heads_of(table).query("kind != 'cross'")
    cosines = heads.groupby(["model", "kind"])["cos_qk"].mean()
    first, second, third = answer_sentences(table)
    ends = [f"{value:+.2f}" for value in (cosines.min(), cosines.max())]
    assert {*ends, "390"} <= set(numbers_in(first))
    assert numbers_in(second)[1:5] == ["0.005", "0.011", "0.004", "0.007"]
    assert numbers_in(third)[2:] == ["0.49", "0.09", "0.18", "0.00"]
    assert re.search(f"0.71 in {MINILM}, higher.*0.56 in {SMOLLM}, lower", cka_on_text(table))
    assert cka_on_text(toy_table()) == ""
    assert numbers_in(overlap_line(table))[:4] == ["1.8", "3.5", "1.2", "1.5"]
    (caveat,) = (one for one in caveats(table) if WHISPER in one and "median" in one)
    assert numbers_in(caveat)[-2:] == ["0.18", "−0.04"]
    alone = answer_sentences(table.query("model == @MINILM"))  # no causal layers and no control
    assert numbers_in(alone[2])[2:] == ["0.49"]


def test_the_conclusion_follows_the_overlaps():
    """It says of other tables what holds there; each head is a little above or below the mean."""
    whole = load_atlas().table
    table = whole.query("model == @MINILM").copy()
    noise = np.resize([-0.01, 0.01], len(table))
    for overlaps, words in (
        ((0.9, 0.15, 0.12), "are related.*less"),
        ((0.3, 0.1, 0.1), "far from equal.*unrelated to both"),
        ((0.1, 0.1, 0.1), "W_K are as unrelated.*W_V is unrelated"),
        ((0.3, 0.2, 0.4), "at least as much"),
    ):
        for pair, overlap in zip(("qk", "qv", "kv"), overlaps, strict=True):
            table[f"overlap_{pair}"], table[f"overlap_{pair}_random"] = overlap + noise, 0.1
        assert re.search(f"one real model.*{words}", conclusion(table))
    assert re.search("three real models.*related, but far.*less related", conclusion(whole))
    crossed = whole.query("model == @WHISPER and kind == 'cross'")
    assert "None" in conclusion(crossed)
    assert overlap_line(crossed) == ""


def test_toys_are_tied_where_their_variant_ties_them():
    """A control: Q=K has cosine 1 and symmetry 1, K=V the cosine of K and V."""
    heads = toy_table().dropna(subset="head")
    tied = heads[heads["model"].str.endswith(", Q=K")]
    assert np.allclose(tied[["cos_qk", "symmetry"]], 1, atol=1e-5)
    assert np.allclose(heads.loc[heads["model"].str.endswith(", K=V"), "cos_kv"], 1, atol=1e-5)
    assert set(heads["kind"]) == {"encoder", "causal", "cross"}
    for sharing, name in (("Q=K", "tie_symmetric"), ("Q=K", "tie_qk"), ("K=V", "tie_kv")):
        assert heads.loc[heads["model"].str.endswith(f", {sharing}"), name].max() < 1e-3
    for table in (load_atlas().table, toy_table()):  # `models --out` promises these columns
        assert set(table) >= {*"model kind layer head".split(), *MEASURES}


@pytest.mark.parametrize("roles", ["QK", "KV"])
def test_the_best_tied_matrices_are_put_into_every_head_of_a_toy(roles):
    """Head by head, in all layers and runs; what a head has afterwards has no error left."""
    experiment = Experiment(task="reverse", n_seeds=2)
    variant, own = experiment.sharing[0], {}
    model = Model(experiment, experiment.seeds, torch.device("cpu"), sharing=[variant])
    for at in ("before", "after"):
        own[at] = [[model.role_weights(i, r)[0].numpy().copy() for r in roles] for i in range(2)]
        tie(model, variant, roles)
    for before, after in zip(own["before"], own["after"], strict=True):
        assert np.allclose(after, tied_matrices(roles, *before), atol=1e-6)
        q, k = (w.reshape(-1, *w.shape[2:]) for w in after)
        found = measure_layer(Projections(q, k, k) if roles == "QK" else Projections(q, q, k))
        assert found.heads[f"tie_{roles.lower()}"] == pytest.approx(0, abs=1e-3)


def made_table(*words, kv_index=None, model_format="safetensors"):
    """Measure a model with one layer per word ("", "K=V", "Q=K"); the last may reuse keys."""
    layers = []
    for i, word in enumerate(words):
        one = made(n_kv_heads=H if word == "Q=K" else G, seed=i)
        one = replace(one, **{"K=V": {"W_V": one.W_K}, "Q=K": {"W_K": one.W_Q}}.get(word, {}))
        sizes = H, len(one.W_K)
        layers.append(AttentionLayer(Kind.CAUSAL, i, *sizes, lambda one=one: one))
    layers[-1] = replace(layers[-1], kv_index=kv_index)
    return measure_model(RealModel("Made", "made", model_format, tuple(layers))).table


def test_a_tied_layer_is_marked_and_compares_v_with_nothing():
    """The heads and the whole layer have no such number, and all other numbers."""
    table = made_table("K=V", "")
    tied, free = (table[table["layer"] == layer] for layer in (0, 1))
    assert (set(tied["tied"]), set(free["tied"])) == ({"K=V"}, {""})
    with_v = [name for name in table if re.match("(cos|overlap|rotated|cka|tie)_[qk]v", name)]
    assert tied[with_v].isna().all(axis=None)
    heads = free[free["head"].notna()]
    assert heads[with_v].notna().all(axis=None)
    assert tied[["cos_qk", "symmetry", "norm_v"]].notna().all(axis=None)
    own = made_table("K=V", model_format=TRAINED_HERE)
    assert own["cos_kv"].to_numpy() == pytest.approx(1)  # models trained here are the control
    k = made()  # a file may store the matrix twice
    twice = replace(k, W_V=k.W_K.copy())
    assert twice.k_is_v
    assert not replace(twice, W_V=k.W_K * np.float32(1.0001)).k_is_v
    # Averages and the chance of the printed table are those of the untied layer.
    assert f"/{heads['overlap_kv'].mean():.3f} (" in summary(table)
    (group,) = groups_of(table[table["head"].notna()], "overlap_kv", once=True)
    assert (len(group.values), group.values.max() < 1) == (G, True)
    table.loc[table["layer"] == 0, "overlap_qk_random"] *= 2  # wider heads overlap more by chance
    chance = D / M
    assert f"({1.5 * chance:.3f}/{chance:.3f}/{chance:.3f})" in summary(table)
    throughout = made_table("K=V", "K=V")
    assert "–; –" in summary(throughout)
    assert conclusion(throughout).endswith("W_K serves as W_V.")


def test_reused_keys_count_once_and_tied_layers_are_named():
    """A measure of K and V alone has one value; tied layers are named on the table and the page."""
    table = made_table("", "", kv_index=0)
    heads = table[table["head"].notna()]
    assert set(heads["kv_layer"]) == {0}
    assert len(counting_heads(heads, "overlap_kv", once=True)) == G
    assert len(counting_heads(heads, "overlap_qk", once=True)) == 2 * H
    table = made_table("K=V", "", "")
    heads = pd.concat([made_atlas().table, table])
    sentence = describe_tied(heads[heads["head"].notna()])
    assert re.match("One matrix.*W_K.*W_V.*1 of 3 layers of Made: ", sentence)
    assert "serves as W_K and as W_V" in notes_on(table)[0]
    assert describe_tied(made_atlas().table) == ""
    assert notes_on(made_table("")) == ()
    table = made_table("", "Q=K", "Q=K")
    tied = table["tied"] == Q_IS_K
    assert sorted(table.loc[tied, "layer"].unique()) == [1, 2]
    assert table.loc[tied, ["symmetry", "cos_qk"]].to_numpy() == pytest.approx(1)
    assert (table.loc[~tied, "symmetry"] < 0.9).all()
    for said in (summary(table), describe_tied(table)):
        assert "tied in 2 of 3 layers" in said
