"""Symmetry, similarity and attribution, computed once more in double precision."""

import random
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from filming import film_of, film_of_shape, reference_of
from kinds import KINDS, every_task
from numpy.testing import assert_allclose

from attnkit.analysis.inspection.inspected_example import examples_of
from attnkit.analysis.inspection.replay import is_tied
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.similarity import LEVELS, PAIRS
from attnkit.analysis.inspection.symmetry import MOST_POSITIONS, shared_part
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.similarity import cosine, linear_cka, mean_cosine, overlap, weights_cka
from attnkit.tasks import NOTHING
from attnkit.training import metrics
from attnkit.variants import Variant

LINEAR = (
    "QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "QKV d_k=3 d_v=10", "QKV kv_heads=1", "QKV kv_rank=5",
    "QKV d_k=d/2 diff", "QKV sum", "K=V scaled", "QKV n_heads=1", "QKV V=I d_head=m/h",
    "QKV kv_every=2", "QKV tie=Q=K", "QKV tie=K=V", "Q=K positions=alibi",
    "Q=K positions=key_bias", "Q=K positions=learned", "Q=K positions=relative",
)  # fmt: skip
BENT = ("Q=K unit_key", "QKV positions=rope", "Q=K positions=rope", "QKV qk_norm", "Q=V keyless",
        "Q=K signed")  # fmt: skip
SIZES = {"d_model": 16, "n_heads": 2, "d_head": 6, "n_layers": 1}
INSPECTED = {
    "people": ("directed", (*LINEAR, *BENT), {
        "n_names": 11, "n_values": 13, "n_entries": 5, "d_model": 32, "d_head": 14, "n_heads": 2,
        "n_layers": 2, "self_mask": True,
    }),
    "causal": ("mqar", ("QKV", "Q=K", "QKV n_heads=1"), {
        "n_tokens": 22, "n_pairs": 3, "length": 30, **SIZES,
    }),
    "standard": ("reverse", ("QKV", "Q=K"), {"length": 7, "d_mlp": 9, **SIZES, "d_head": 5}),
    "two sides": ("dictionary", ("QKV", "K=V", "Q=K"), {
        "n_words": 5, "n_vocab": 11, "d_model": 16, "d_head": 6,
    }),
}  # fmt: skip
ROLES = ("Q", "K", "V")


@cache
def film(shape):
    """The film of one of the shapes."""
    task, sharing, settings = INSPECTED[shape]
    return film_of(task, sharing, **settings)


def seen(shape, view, **asked):
    """Return what an inspection of a film finds."""
    return inspect(film(shape), Inspection(view, **asked))


def everything(shape):
    """(frame, variant's place, its text, its forward pass) of a film."""
    whole = film(shape)
    places = product(range(len(whole.frames)), enumerate(whole.experiment.sharing))
    return [(f, p, v.value, reference_of(whole, p, f)[0]) for f, (p, v) in places]


def is_linear(text):
    """Whether a variant's vectors are those of matrices."""
    return text not in {Variant(one).value for one in BENT}


def place_of(shape, text):
    """The place of a variant in a shape."""
    return film(shape).experiment.sharing.index(Variant(text))


def of_head(rows, n_heads, head):
    """One head of (b, h·p, n, d), its maps side by side: (b, n, p·d)."""
    return rows.unflatten(1, (n_heads, -1))[:, head].movedim(1, 2).flatten(2).numpy()


def vectors(shape, place, frame, layer, head):
    """Queries, keys and values of all examples, (b, n, d), by role."""
    reference, _, _ = reference_of(film(shape), place, frame)
    rows = reference.stages[layer]
    return {role: of_head(rows[role.lower()], reference.n_heads, head) for role in ROLES}


def matrices(shape, place, frame, layer):
    """Return the matrices (1, h·p, m, d) of a layer by role, one unit direction at a time."""
    reference, _, own = reference_of(film(shape), place, frame)
    eye = torch.eye(film(shape).experiment.size.d_model, dtype=torch.float64)[None]
    reference.at_i = reference.at_j = torch.zeros_like(eye[0, 0])

    def without_bias(home):
        named = {n.removeprefix(f"{home}."): w for n, w in own.items() if n.startswith(f"{home}.")}
        return {name: weight for name, weight in named.items() if not name.startswith("b_")}

    q = reference.queries(eye, without_bias(layer))
    home = layer - layer % int(reference.given.get("kv_every", 1))
    k, v = reference.keys_and_values(eye, without_bias(home))
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return {"Q": q, "K": k, "V": v.repeat_interleave(reference.n_heads // v.shape[1], 1)}


# Similarity


@pytest.mark.parametrize(
    ("shape", "layer", "head"), [("people", 1, 0), ("standard", 0, 1), ("two sides", 2, 0)]
)
def test_likeness_is_that_of_the_reference(shape, layer, head):
    """The measures of `attnkit.analysis.similarity` are those of what is computed once more."""
    found = seen(shape, "similarity", layer=layer, head=head)
    for frame, p, text, reference in everything(shape):
        made, rows = matrices(shape, p, frame, layer), vectors(shape, p, frame, layer, head)
        for c, (one, other) in enumerate(PAIRS):
            a, b = (of_head(made[role], reference.n_heads, head)[0] for role in (one, other))
            x, y = (rows[role].reshape(-1, rows[role].shape[-1]) for role in (one, other))
            alike = a.shape == b.shape
            wanted = [cosine(a, b) if alike else np.nan, overlap(a, b), weights_cka(a, b)]
            wanted += [mean_cosine(x, y) if alike else np.nan, linear_cka(x, y)]
            own = found.framed[f"{p}.alike"][frame, c]
            held = slice(0 if is_linear(text) else 3, 5 if found.header["square"] else 3)
            assert_allclose(own[held], np.array(wanted)[held], atol=1e-5, err_msg=text)


@pytest.mark.parametrize("shape", INSPECTED)
def test_tied_roles_are_exactly_alike(shape):
    """Measures are 1, and vectors coincide, from the step of the tie on."""
    found, experiment = seen(shape, "similarity"), film(shape).experiment
    for frame, p, text, _ in everything(shape):
        if any(word in text for word in ("scaled", "unit_key", "keyless", "signed", "rope")):
            continue
        variant, rows = experiment.sharing[p], found.framed[f"{p}.vectors"][frame]
        begun = len(variant.stages) == 1 or is_tied(experiment, variant, film(shape).steps[frame])
        for c, pair in enumerate(PAIRS):
            tied = len({variant.stages[-1].sharing.owner(role) for role in pair}) == 1
            alike = found.framed[f"{p}.alike"][frame, c]
            assert found.header["notes"][p]["tied"][c] == tied, text
            assert ((alike[~np.isnan(alike)] == 1).all()) == (tied and begun), (text, frame)
            if tied and begun:
                one, other = (rows[ROLES.index(role)] for role in pair)
                if found.header["square"] or pair == ("K", "V"):
                    assert (one == other).all()


def test_across_two_sides_no_token_has_both_a_query_and_a_key():
    """Weights can be compared there, activations of queries cannot; scores have no symmetry."""
    cross = [place.kind for place in film("two sides").experiment.layer_specs].index("cross")
    found = seen("two sides", "similarity", layer=cross)
    assert not found.header["square"]
    wanted = np.ones((3, 5), bool)  # (pairs, measures)
    wanted[:2, 3:] = False
    for name in ("alike", "random"):
        known = np.isfinite(found.framed[f"0.{name}"])
        assert (known.reshape(*known.shape[:3], -1).all(-1) == wanted).all()
    is_query, is_key = (np.array(found.header[name]) for name in ("is_query", "is_key"))
    assert (is_query ^ is_key).all()
    queries, *others = found.framed["0.vectors"].swapaxes(0, 1)
    assert not queries[:, is_key].any()
    assert not any(rows[:, is_query].any() for rows in others)
    found = seen("two sides", "symmetry", layer=cross).framed
    assert "0.scores" not in found
    for name in ("a", "stages", "error"):
        missing = [np.isnan(found[f"0.{name}"][:, layer]) for layer in (0, cross)]
        assert (missing[0].any(), missing[1].all()) == (False, True)


def test_the_map_has_the_vectors_of_the_example_in_the_plane_where_they_spread_most():
    """Vectors are drawn within half a level; the plane has two directions at right angles."""
    found = seen("people", "similarity", layer=1, head=1, example=3)
    for text in ("QKV", "QKV d_k=3 d_v=10"):
        p = place_of("people", text)
        rows, scale = vectors("people", p, -1, 1, 1), found.framed[f"{p}.scale"][-1]
        drawn = found.framed[f"{p}.vectors"][-1] * scale
        for r, role in enumerate(ROLES):
            wanted = rows[role][3] if rows[role].shape[-1] == rows["K"].shape[-1] else 0
            assert np.abs(drawn[r] - wanted).max() <= scale * 0.5001, text
        assert np.abs(found.framed[f"{p}.vectors"][-1]).max() == LEVELS
    points = (found.framed["0.vectors"][-1] * found.framed["0.scale"][-1]).reshape(-1, 14)
    centred, plane = points - points.mean(0), found.fixed["0.plane"].astype(float)
    assert_allclose(found.fixed["0.centre"], points.mean(0), atol=0.01)
    assert_allclose(plane.T @ plane, np.eye(2), atol=1e-6)
    most = np.sort(np.linalg.eigvalsh(centred.T @ centred))[-2:].sum()
    assert ((centred @ plane) ** 2).sum() == pytest.approx(most, rel=0.01)


def test_the_table_holds_every_head_of_every_layer():
    """In the last frame, heads that a variant lacks are missing."""
    for layer, head in ((0, 0), (1, 1)):
        found = seen("people", "similarity", layer=layer, head=head)
        for p, variant in enumerate(film("people").experiment.sharing):
            table, random = found.fixed[f"{p}.table"], found.fixed[f"{p}.table_random"]
            alike, of_layer = (found.framed[f"{p}.{name}"][-1] for name in ("alike", "random"))
            assert_allclose(table[layer, head], alike, atol=1e-5, err_msg=variant.value)
            assert_allclose(random[layer], of_layer, atol=1e-5)
    one_head = place_of("people", "QKV n_heads=1")
    assert np.isnan(found.framed[f"{one_head}.alike"]).all()
    assert not found.header["notes"][one_head]["has_head"]
    assert np.isnan(found.fixed[f"{one_head}.table"][:, 1]).all()
    both = [seen("standard", "similarity", head=head).framed for head in (0, 1)]
    alike, random = (np.stack([one[f"0.{n}"][0] for one in both]) for n in ("alike", "random"))
    inside = (random[..., 1] <= alike) & (alike <= random[..., 2])
    assert inside.mean() > 0.8  # before the first step, pairs are as alike as random matrices


def test_long_examples_show_what_is_asked_and_its_answers(monkeypatch):
    """They show so many positions at most; marks point at places among them."""
    header = seen("causal", "symmetry").header
    shown, task = header["positions"], film("causal").experiment.task
    assert len(shown) == len(header["labels"]) == MOST_POSITIONS < header["n_keys"] == 30
    assert shown == sorted(shown)
    (labels, *_), (target, *_) = examples_of(task).labels, examples_of(task).target
    asked = (labels >= 0).nonzero().flatten().tolist()
    marks = {shown[i]: shown[j] for i, j in enumerate(header["target"]) if j >= 0}
    assert marks == {task.answers_from + i: int(target[i]) for i in asked}
    monkeypatch.setattr("attnkit.analysis.inspection.similarity.MOST_TOKENS", 6)
    book = film_of("phonebook", ("QKV",))
    found, task = inspect(book, Inspection("similarity")), book.experiment.task
    kept = found.header["tokens"]
    assert len(kept) == found.framed["0.vectors"].shape[2] == 6
    assert {task.answers_from, int(examples_of(task).target[0, 0])} <= set(kept)
    assert found.header["n_tokens"] == task.n_ctx


# Symmetry


def asymmetry(square):
    """‖S − Sᵀ‖² / 4‖S‖² of the last two axes."""
    gap = square - square.swapaxes(-1, -2)
    return (gap**2).sum((-1, -2)) / (4 * (square**2).sum((-1, -2)))


@pytest.mark.parametrize(
    ("shape", "layer", "head"), [("people", 1, 1), ("causal", 0, 0), ("two sides", 0, 0)]
)
def test_symmetry_is_that_of_the_formula(shape, layer, head):
    """That of the weights' product, of scores, of scores that no mask hides, and of the pattern."""
    found, whole = seen(shape, "symmetry", example=3, layer=layer, head=head), film(shape)
    size, shown, symmetric = whole.experiment.size, found.header.get("positions"), set()
    for frame, p, text, reference in everything(shape):
        if is_linear(text) and "sum" not in text:  # a head's maps are one product each
            for n in range(len(whole.experiment.layer_specs)):
                q, k = (matrices(shape, p, frame, n)[role][0] for role in "QK")
                for name, values in {
                    "weight_symmetry": 1 - 2 * asymmetry(q @ k.mT),  # (h·p)
                    "directionality": metrics.directionality(q, k),
                }.items():
                    own = found.framed[f"{p}.{name}"][frame, n]
                    values = values.reshape(reference.n_heads, -1).mean(1).numpy()
                    assert_allclose(own[: len(values)], values, atol=1e-5, err_msg=f"{name} {text}")
                    assert np.isnan(own[len(values) :]).all()
        if shape == "two sides":
            continue
        a, mass = (found.framed[f"{p}.{name}"][frame] for name in ("a", "mass"))
        assert_allclose(a, (1 - whole.head_symmetry[frame, p]) / 2, atol=1e-6)
        told = [whole.metric(f"mass_on_{name}")[frame, p] for name in ("target", "reverse")]
        np.testing.assert_array_equal(mass, told)
        errors = found.framed[f"{p}.error"][frame]
        for n, stages in enumerate(reference.stages):
            square, pattern = stages["scores"].numpy(), stages["pattern"].numpy()
            n_keys, n_heads = square.shape[-1], square.shape[1]
            hidden = np.triu(np.ones((n_keys, n_keys)), 1) * size.causal
            open_scores = np.where(hidden + np.eye(n_keys) * size.self_mask, 0, square)
            expected = [asymmetry(one).mean((0, 2)) for one in (square, open_scores)]
            own = found.framed[f"{p}.stages"][frame, n]
            expected = np.stack([*expected, asymmetry(pattern).mean(0)], 1)
            assert_allclose(own[:n_heads], expected, atol=2e-5, err_msg=text)
            assert np.isnan(own[n_heads:]).all()
            gap = np.abs(square - np.swapaxes(square, -1, -2)).max()
            assert_allclose(errors[n], [gap, gap / np.abs(square).max()], rtol=1e-3, atol=1e-4)
        must = bool(found.framed[f"{p}.must"][frame])
        assert (errors[:, 1] < 1e-6).all() == (errors[:, 1] < 1e-4).any() == must or not frame
        symmetric |= {text} if must else set()
        if head >= reference.n_heads:
            assert f"{p}.scores" not in found.framed
            continue
        square = reference.stages[layer]["scores"].numpy()[3, head]  # (maps, n, n)
        odd, turned = asymmetry(square), np.swapaxes(square, 1, 2)
        values = np.linalg.eigvalsh((square + turned) / 2)[:, ::-1]
        for name, wanted in {
            "scores": square[:, shown][:, :, shown],
            "shares": np.stack([1 - odd, odd], 1),
            "eigenvalues": values,
            "negative": (np.minimum(values, 0) ** 2).sum(1) / (values**2).sum(1),
            "gap": np.abs(square - turned).mean(2),
        }.items():
            own = found.framed[f"{p}.{name}"][frame]
            assert_allclose(own, wanted, rtol=1e-4, atol=1e-4, err_msg=f"{name} {text}")
    assert shape == "two sides" or ("Q=K" in symmetric and "QKV" not in symmetric)


def test_what_hangs_on_positions_is_told_from_what_hangs_on_tokens():
    """All of it where a key bias breaks tied scores, little where W_Q and W_K differ."""
    found = seen("people", "symmetry")
    for text, share in (("Q=K positions=key_bias", 1), ("Q=K positions=relative", 1), ("QKV", 0)):
        own = found.framed[f"{place_of('people', text)}.positional"][-1, 0]
        assert own == pytest.approx(share, abs=1e-4 if share else 0.2), text
    one = torch.tensor([[0.0, 3.0], [-3.0, 0.0]]).double()
    assert shared_part(torch.stack([one, -one])).item() == pytest.approx(-1)
    assert shared_part(torch.zeros(5, 3, 3).double()).item() == 0


# Attributions: parts of two tokens add up to a score, and values to a logit


NEAR_SUM = 1e-5


def arrays_of(found, place):
    """The arrays of a variant's attribution at the last frame."""
    start = f"{place}.why."
    return {n.removeprefix(start): a[-1] for n, a in found.framed.items() if n.startswith(start)}


def check_sums(film, asked):
    """Hold the sums of all variants that have the head against the formula; count the variants."""
    found = inspect(film, Inspection("attention", **asked))
    header, n_checked = found.header, 0
    layer, head, example = asked["layer"], asked.get("head", 0), asked["example"]
    spec, task = film.experiment.layer_specs[layer], film.experiment.task
    query = header["layers"][layer]["row_positions"][header["row"]]
    i, j = query - spec.query_positions[0], asked["key_position"] - spec.key_positions[0]
    for place, variant in enumerate(header["variants"]):
        arrays, told = arrays_of(found, place), variant["attribution"]
        assert told["note"] == ""
        reference, logits, _ = reference_of(film, place, len(film.frames) - 1)
        if head >= reference.n_heads:
            assert arrays == {}
            continue
        n_checked += 1
        scores = reference.stages[layer]["scores"][example][head]  # (p, i, j)
        pairs = [("", scores[:, i, j])] + ([("reverse_", scores[:, j, i])] if spec.square else [])
        for start, score in pairs:
            parts, bias = (arrays[f"{start}{name}"] for name in ("parts", "bias"))
            near = NEAR_SUM * max(1, np.abs(arrays["parts"]).max())
            total = parts.sum((-2, -1)) + bias
            assert_allclose(total, score.numpy(), rtol=0, atol=near, err_msg=variant["text"])
        if header["is_asked"]:  # both answers' logits are sums, too
            final = logits[example, query - task.answers_from].numpy()
            near = NEAR_SUM * max(1, np.abs(final).max())
            total = arrays["direct"].sum(-1)
            total = total + sum(arrays[f"values.{n}"].sum((-2, -1)) for n in told["layers"])
            assert_allclose(total[0], final[arrays["classes"][0]], rtol=0, atol=near)
            right = final[arrays["classes"][1]] if header["right"] != NOTHING else np.nan
            assert_allclose(total[1], right, rtol=0, atol=near)
            assert arrays["classes"][0] == final.argmax()
    return found, n_checked


@pytest.mark.parametrize(
    ("shape", "layer", "head"),
    [("one head", 0, 0), ("three heads", 1, 1), ("answers at the end", 2, 0)],
)
def test_sums_are_exact_for_one_variant_of_every_mechanism(shape, layer, head, seed):
    """They are in all blocks and shapes; the seed draws example, query and key."""
    film, draw = film_of_shape(shape), random.Random(seed)
    film = film.at(film.steps[-1])
    first, end = film.experiment.layer_specs[layer].key_positions
    asked = {"key_position": draw.randrange(first, end), "query_index": draw.randrange(4)}
    asked |= {"layer": layer, "head": head, "example": draw.randrange(32)}
    _, n_checked = check_sums(film, asked)
    assert n_checked >= len(film.experiment.sharing) // 2


@every_task
def test_sums_are_exact_on_every_task(task):
    """They are in the first and the last layer; parts are the fields of tokens, by name."""
    film = film_of(task, **KINDS.get(task, {}))
    film = film.at(film.steps[-1])
    for layer in {0, len(film.experiment.layer_specs) - 1}:
        _, end = film.experiment.layer_specs[layer].key_positions
        asked = {"layer": layer, "key_position": end - 1, "query_index": 1, "example": 2}
        found, _ = check_sums(film, asked)
        parts = found.header["variants"][0]["attribution"]["parts"]["query"]
        names = film.experiment.task.field_names
        assert parts[: len(names)] == list(names)
    assert len(set(names)) == film.experiment.task.n_fields


def test_with_one_matrix_both_directions_add_the_same_numbers():
    """Factors of keys and rotations change nothing; two matrices and unit keys do."""
    same = ("Q=K", "Q=K=V", "Q=K signed", "Q=K positions=rope", "Q=K positions=relative")
    film = film_of("directed", (*same, "QKV", "K=V", "Q=K unit_key", "Q=K skew=2"))
    film = film.at(film.steps[-1])
    found = inspect(film, Inspection("attention", key_position=3, query_index=1))
    texts = found.header["sentences"]["attribution"][-1]
    for place, (variant, text) in enumerate(zip(film.experiment.sharing, texts, strict=True)):
        arrays = arrays_of(found, place)
        apart = np.abs(arrays["parts"] - arrays["reverse_parts"]).max()
        is_same = variant.value in same
        assert (apart < 1e-12) == is_same, variant
        assert ("same numbers" in text, "other numbers" in text) == (is_same, not is_same), variant
        assert ("one matrix" in text) == (is_same and "relative" not in variant), variant


def test_parts_do_what_their_names_say():
    """A change of one field of the query's token changes the row of this field alone."""
    film = film_of("directed", ("QKV",))
    film, task = film.at(film.steps[-1]), film.experiment.task
    own, tokens = film.frames[0].parameters[0], examples_of(task).tokens[0]
    found = inspect(film, Inspection("attention", key_position=3, query_index=1))
    x = own["W_E"][tokens.numpy()].astype(float)  # (i, fields, m)
    sizes = np.sqrt((x.sum(1) ** 2).mean(-1) + 1e-6)
    rows = x / sizes[:, None, None]
    w_qk = own["0.W_Q"].astype(float) @ own["0.W_K"].astype(float).T
    d_k = film.experiment.wiring(film.experiment.sharing[0]).sizes.d_k
    wanted = rows[1] @ w_qk @ rows[3].T / np.sqrt(d_k)
    assert_allclose(arrays_of(found, 0)["parts"][0], wanted, atol=1e-9)
