"""The similarity view against numbers computed once more, in numpy and double precision."""

from functools import cache

import numpy as np
import pytest
import torch
from kinds import every_task
from reference import TINY, Reference
from scipy.linalg import orth, subspace_angles

from attnkit.analysis.inspection.probes import examples_of
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.inspection.similarity import (
    LEVELS,
    MEASURES,
    MOST_BYTES,
    MOST_TOKENS,
    PAIRS,
    inspect_similarity,
)
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training.camera import record
from attnkit.variants import Variant

SHORT = {"steps": 6, "evaluate_every": 2, "n_seeds": 1, "batch_size": 16, "n_eval": 16}
LINEAR = [
    "QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "QKV d_k=3 d_v=10", "QKV kv_heads=1", "QKV kv_rank=5",
    "QKV d_k=d/2 diff", "QKV sum", "K=V scaled", "QKV n_heads=1", "QKV V=I d_head=m/h",
    "QKV kv_every=2",
]  # fmt: skip
BENT = ["Q=K unit_key", "QKV positions=rope", "QKV qk_norm", "Q=V keyless"]
SHAPES = {
    "people": {
        **TINY, **SHORT, "d_model": 32, "d_head": 14, "n_heads": 2, "n_layers": 2,
        "self_mask": True, "sharing": [*LINEAR, *BENT],
    },
    "standard": {
        **SHORT, "task": "reverse", "length": 7, "d_model": 16, "n_heads": 2, "d_head": 5,
        "n_layers": 1, "d_mlp": 9, "sharing": ["QKV", "Q=K"],
    },
    "book": {
        **SHORT, "task": "phonebook", "n_names": 11, "n_values": 13, "n_entries": 5,
        "sharing": ["QKV", "Q=V"],
    },
    "two sides": {
        **SHORT, "task": "dictionary", "n_words": 5, "n_vocab": 11, "d_model": 16, "d_head": 6,
        "sharing": ["QKV", "K=V", "Q=K"],
    },
}  # fmt: skip
ROLES = ("Q", "K", "V")


class Watched(Reference):
    """A reference that keeps the queries, keys and values of every layer, (b, h·p, n, d)."""

    def __init__(self, experiment, text):
        super().__init__(experiment, text)
        self.vectors = []

    def read_out(self, q, k, v, w, layer, mask):
        """Keys and values as every query head sees them."""
        k_each, v_each = (
            rows.repeat_interleave(n // rows.shape[1], 1)
            for rows, n in ((k, q.shape[1]), (v, self.n_heads))
        )
        self.vectors.append({"Q": q, "K": k_each, "V": v_each})
        return super().read_out(q, k, v, w, layer, mask)

    def matrices(self, own, layer, d_model):
        """What a layer makes of every direction of the residual stream, without biases."""
        every = int(self.given.get("kv_every", 1))
        made = {}
        for home in (layer, layer - layer % every):
            start = f"{home}."
            w = {n[len(start) :]: value for n, value in own.items() if n.startswith(start)}
            w = {name: value for name, value in w.items() if not name.startswith("b_")}
            eye = torch.eye(d_model, dtype=torch.float64)[None]
            self.at_i = self.at_j = torch.zeros(d_model, dtype=torch.float64)
            if home == layer:
                q = self.queries(eye, w)
            if home % every == 0:
                made["K"], made["V"] = self.keys_and_values(eye, w)
        made["Q"] = q
        made["K"] = made["K"].repeat_interleave(q.shape[1] // made["K"].shape[1], 1)
        made["V"] = made["V"].repeat_interleave(self.n_heads // made["V"].shape[1], 1)
        return made


@cache
def film_of(shape):
    """The film of one of the shapes."""
    return record(Experiment(**SHAPES[shape]))


@cache
def seen(shape, **asked):
    """What is found, once per question."""
    return inspect_similarity(film_of(shape), Inspection("similarity", **asked))


def of_head(rows, n_heads, head):
    """One head of (b, h·p, n, d), its maps side by side: (b, n, p·d)."""
    own = rows.unflatten(1, (n_heads, -1))[:, head]
    return own.movedim(1, 2).flatten(2).numpy()


def reference(shape, place, frame, layer, head):
    """Vectors (b, n, d) and matrices (m, d) by role."""
    film = film_of(shape)
    experiment, variant = film.experiment, film.experiment.sharing[place]
    own = {n: torch.from_numpy(a).double() for n, a in film.frames[frame].parameters[place].items()}
    watched = Watched(experiment, variant.value)
    watched.logits(own, examples_of(experiment.task).tokens)
    vectors = {role: of_head(watched.vectors[layer][role], watched.n_heads, head) for role in ROLES}
    made = watched.matrices(own, layer, experiment.size.d_model)
    return vectors, {role: of_head(made[role], watched.n_heads, head)[0] for role in ROLES}


def places_of(shape, texts):
    """These variants of a shape, with their places."""
    wanted = list(map(Variant, texts))
    return [(i, v) for i, v in enumerate(film_of(shape).experiment.sharing) if v in wanted]


@pytest.mark.parametrize(
    ("shape", "layer", "head"), [("people", 1, 0), ("standard", 0, 1), ("two sides", 2, 0)]
)
@pytest.mark.parametrize("frame", [0, -1])
def test_numbers_equal_an_independent_recomputation(shape, layer, head, frame):
    """Cosine, overlap, alignment and angles of weights, where roles are matrices.

    Cosine of the same token's vectors and alignment of activations, as the definitions have them.
    """
    found = seen(shape, layer=layer, head=head)
    linear = [place for place, _ in places_of(shape, LINEAR)]
    for place, variant in enumerate(film_of(shape).experiment.sharing):
        vectors, matrices = reference(shape, place, frame, layer, head)
        for c, pair in enumerate(PAIRS):
            alike = found.framed[f"{place}.alike"][frame, c]
            if found.header["square"]:
                check_activations(alike, *(vectors[role] for role in pair), variant)
            if place in linear:
                angles = found.framed[f"{place}.angles"][frame, c]
                check_weights(alike, angles, *(matrices[role] for role in pair), variant)


def check_activations(alike, x, y, variant):
    """Hold cosine and alignment of two roles' vectors against their definitions."""
    x, y = (rows.reshape(-1, rows.shape[-1]) for rows in (x, y))
    if x.shape == y.shape:
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        assert alike[3] == pytest.approx(((x * y).sum(1) / lengths).mean(), abs=1e-5), variant
    else:
        assert np.isnan(alike[3])
    x, y = x - x.mean(0), y - y.mean(0)
    sizes = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    assert alike[4] == pytest.approx(np.linalg.norm(y.T @ x) ** 2 / sizes, abs=1e-5), variant


def check_weights(alike, angles, a, b, variant):
    """Hold cosine, overlap, alignment and angles of two matrices against their definitions."""
    if a.shape == b.shape:
        cosine = (a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b))
        assert alike[0] == pytest.approx(cosine, abs=1e-5), variant
    else:
        assert np.isnan(alike[0])
    left, right = (orth(w, rcond=1e-5) for w in (a, b))
    n_angles = min(left.shape[1], right.shape[1])
    overlap = np.linalg.norm(left.T @ right) ** 2 / n_angles
    assert alike[1] == pytest.approx(overlap, abs=1e-5), variant
    kernels = a @ a.T, b @ b.T
    sizes = np.linalg.norm(kernels[0]) * np.linalg.norm(kernels[1])
    assert alike[2] == pytest.approx((kernels[0] * kernels[1]).sum() / sizes, abs=1e-5)
    wanted = np.degrees(subspace_angles(left, right)[::-1])
    assert np.allclose(angles[:n_angles], wanted, atol=0.02), variant
    assert np.isnan(angles[n_angles:]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_tied_roles_are_exactly_alike(shape):
    """Everything is 1, every angle 0, and their vectors coincide, whatever is trained."""
    found = seen(shape)
    for place, variant in enumerate(film_of(shape).experiment.sharing):
        if any(word in variant.value for word in ("scaled", "unit_key", "keyless")):
            continue
        vectors = found.framed[f"{place}.vectors"]
        for c, pair in enumerate(PAIRS):
            tied = len({variant.sharing.owner(role) for role in pair}) == 1
            alike = found.framed[f"{place}.alike"][:, c]
            assert found.header["notes"][place]["tied"][c] == tied
            assert ((alike[~np.isnan(alike)] == 1).all()) == tied, variant
            if tied:
                assert found.framed[f"{place}.angles"][:, c].max() < 1e-4
                one, other = (vectors[:, ROLES.index(role)] for role in pair)
                if found.header["square"] or pair == ("K", "V"):
                    assert (one == other).all()


def test_across_two_sides_no_token_has_both_a_query_and_a_key():
    """Weights can be compared there, activations of queries cannot."""
    film = film_of("two sides")
    cross = [place.kind for place in film.experiment.layer_specs].index("cross")
    found = seen("two sides", layer=cross)
    alike, random = found.framed["0.alike"], found.framed["0.random"]
    assert not found.header["square"]
    assert np.isfinite(alike[:, :, :3]).all()
    assert np.isnan(alike[:, :2, 3:]).all()
    assert np.isnan(random[:, :2, 3:]).all()
    assert np.isfinite(alike[:, 2]).all()
    asks, looked_at = (np.array(found.header[name]) for name in ("asks", "looked_at"))
    assert (asks ^ looked_at).all()
    assert (found.framed["0.vectors"][:, 0][:, looked_at] == 0).all()
    assert (found.framed["0.vectors"][:, 1:][:, :, asks] == 0).all()


def test_bands_hold_what_is_not_trained():
    """Before the first step, most pairs of matrices of their own are as alike as random ones."""
    film = film_of("standard")
    inside = []
    for head in (0, 1):
        found = seen("standard", head=head)
        alike, random = found.framed["0.alike"][0], found.framed["0.random"][0]
        inside.append((random[..., 1] <= alike) & (alike <= random[..., 2]))
    assert film.steps[0] == 0
    assert np.mean(inside) > 0.8


def test_vectors_are_those_of_the_example():
    """Within half a level, of queries, keys and values of the tokens that the header names."""
    film = film_of("people")
    found = seen("people", layer=1, head=1, example=3)
    assert found.header["tokens"] == list(range(film.experiment.task.n_ctx))
    assert len(found.header["labels"]) == film.experiment.task.n_ctx
    for place, variant in places_of("people", ["QKV", "QKV positions=rope", "QKV d_k=3 d_v=10"]):
        vectors, _ = reference("people", place, -1, 1, 1)
        scale = found.framed[f"{place}.scale"][-1]
        drawn = found.framed[f"{place}.vectors"][-1] * scale
        for r, role in enumerate(ROLES):
            if vectors[role].shape[-1] == vectors["K"].shape[-1]:
                assert np.abs(drawn[r] - vectors[role][3]).max() <= scale * 0.5001, variant
            else:
                assert (drawn[r] == 0).all()
        assert np.abs(found.framed[f"{place}.vectors"][-1]).max() == LEVELS


def test_the_plane_is_the_one_in_which_the_last_vectors_spread_most():
    """Two directions at right angles; no others show more of the spread."""
    found = seen("people")
    points = (found.framed["0.vectors"][-1] * found.framed["0.scale"][-1]).reshape(-1, 14)
    centred = points - points.mean(0)
    plane = found.fixed["0.plane"].astype(float)
    assert np.allclose(found.fixed["0.centre"], points.mean(0), atol=0.01)
    assert np.allclose(plane.T @ plane, np.eye(2), atol=1e-6)
    most = np.sort(np.linalg.eigvalsh(centred.T @ centred))[-2:].sum()
    assert ((centred @ plane) ** 2).sum() == pytest.approx(most, rel=0.01)


def test_frames_of_a_running_film_go_on_where_the_last_ended():
    """Asked for what came since, arrays are the end of the whole ones, in the same shapes."""
    film = film_of("standard")
    whole = inspect_similarity(film, Inspection("similarity"))
    later = inspect_similarity(film.after(2), Inspection("similarity", since=2))
    assert later.header["steps"] == film.steps[2:]
    assert later.header["tokens"] == whole.header["tokens"]
    for name, array in later.framed.items():
        assert np.allclose(array, whole.framed[name][2:], atol=1e-6, equal_nan=True), name
    assert all(np.allclose(whole.fixed[n], a, equal_nan=True) for n, a in later.fixed.items())
    nothing = inspect_similarity(film.after(6), Inspection("similarity", since=6))
    assert nothing.header["steps"] == []


def test_a_replay_in_parts_finds_the_same(monkeypatch):
    """Memory is bounded, numbers are not changed by it."""
    whole = inspect_similarity(film_of("standard"), Inspection("similarity"))
    monkeypatch.setattr("attnkit.analysis.inspection.replay._MOST_NUMBERS", 1)
    parts = inspect_similarity(film_of("standard"), Inspection("similarity"))
    for name, array in whole.framed.items():
        assert np.allclose(array, parts.framed[name], atol=1e-5, equal_nan=True), name


def test_the_table_holds_every_head_of_every_layer():
    """In the last frame; heads and layers that a variant lacks are missing."""
    film = film_of("people")
    for layer in (0, 1):
        for head in (0, 1):
            found = seen("people", layer=layer, head=head)
            for place, variant in enumerate(film.experiment.sharing):
                table = found.fixed[f"{place}.table"]
                assert table.shape == (2, 2, len(PAIRS), len(MEASURES))
                alike = found.framed[f"{place}.alike"][-1]
                assert np.allclose(table[layer, head], alike, atol=1e-5, equal_nan=True), variant
                of_layer = found.framed[f"{place}.random"][-1]
                random = found.fixed[f"{place}.table_random"][layer]
                assert np.allclose(random, of_layer, atol=1e-5, equal_nan=True)
    (one_head,) = (i for i, v in enumerate(film.experiment.sharing) if v == "QKV n_heads=1")
    assert np.isnan(seen("people", head=1).framed[f"{one_head}.alike"]).all()
    assert not seen("people", head=1).header["notes"][one_head]["has_head"]
    assert np.isnan(found.fixed[f"{one_head}.table"][:, 1]).all()


def test_a_tie_in_training_shows():
    """From the frame on in which two matrices have become one."""
    film = record(Experiment(**{**TINY, **SHORT, "sharing": ["QKV tie=K=V tie_at=0.5"]}))
    found = inspect_similarity(film, Inspection("similarity"))
    alike = found.framed["0.alike"][:, 2]
    tied = film.experiment.tie_step(film.experiment.sharing[0])
    for step, measured in zip(film.steps, alike, strict=True):
        assert (measured == 1).all() == (step >= tied)


@every_task
def test_every_task_can_be_looked_into(task):
    """All numbers are there, in a blob that can be read back, of a bounded size."""
    settings = {**SHORT, "sharing": ["QKV", "Q=K"]}
    if TASKS[task]().earlier is not None:
        settings["earlier_steps"] = 2
    film = record(Experiment(task=task, **settings))
    blob = inspect_similarity(film, Inspection("similarity")).to_bytes()
    found = InspectionResult.from_bytes(blob)
    assert found.header["steps"] == film.steps
    assert np.isfinite(found.framed["0.alike"]).all()
    assert found.framed["accuracy"].shape == (len(film.frames), 2)
    assert len(found.header["tokens"]) <= MOST_TOKENS
    assert sum(found.framed[f"{p}.vectors"].nbytes for p in (0, 1)) <= MOST_BYTES


def test_of_long_examples_the_asked_tokens_and_their_answers_are_kept(monkeypatch):
    """Then as many of the first as fit."""
    monkeypatch.setattr("attnkit.analysis.inspection.similarity.MOST_TOKENS", 6)
    film = film_of("book")
    example = examples_of(film.experiment.task)
    found = inspect_similarity(film, Inspection("similarity"))
    kept = found.header["tokens"]
    asked = film.experiment.task.n_ctx - example.labels.shape[1]
    assert len(kept) == 6
    assert {asked, int(example.target[0, 0])} <= set(kept)
    assert found.framed["0.vectors"].shape[2] == 6
    assert found.header["n_tokens"] == film.experiment.task.n_ctx


def test_a_book_of_ones_own_is_on_the_map():
    """Its tokens in place of the example's; measures stay those of the held-out examples."""
    tokens = examples_of(film_of("book").experiment.task).tokens[5]
    own = seen("book", tokens=tuple(tuple(token) for token in tokens.tolist()))
    same = seen("book", example=5)
    assert (own.framed["0.vectors"] == same.framed["0.vectors"]).all()
    assert (own.framed["0.alike"] == same.framed["0.alike"]).all()


def test_whose_weights_cannot_read_a_book_of_that_size_has_no_map():
    """It is said why; all else is there."""
    film = film_of("book")
    own = film.experiment.replace(sharing=["QKV", "QKV positions=learned"])
    tokens = examples_of(film.experiment.replace(n_entries=3).task).tokens[0]
    book = tuple(tuple(token) for token in tokens.tolist())
    found = inspect_similarity(record(own), Inspection("similarity", tokens=book))
    refusals = [notes["refusal"] for notes in found.header["notes"]]
    assert refusals[0] == ""
    assert "5 entries only" in refusals[1]
    assert found.framed["0.vectors"].shape[2] == 6
    assert found.header["target"] == [-1, -1, -1, 0, 1, 2]
    assert "1.vectors" not in found.framed
    assert np.isfinite(found.framed["1.alike"]).all()


def test_what_is_not_there_is_refused():
    """By name, with what is allowed."""
    for name in ("layer", "head"):
        with pytest.raises(ValueError, match=f"{name}: got 7, allowed 0 to 1"):
            inspect_similarity(film_of("people"), Inspection("similarity", **{name: 7}))


def test_diverged_weights_are_missing():
    """No number is made up of them, and nothing fails."""
    film = film_of("standard")
    frame = film.frames[-1]
    broken = [{n: np.full_like(a, np.nan) for n, a in own.items()} for own in frame.parameters]
    frames = [
        *film.frames[:-1],
        type(frame)(frame.step, broken, frame.metrics, frame.head_symmetry),
    ]
    found = inspect_similarity(type(film)(film.experiment, frames), Inspection("similarity"))
    assert np.isnan(found.framed["0.alike"][-1]).all()
    assert np.isfinite(found.framed["0.alike"][:-1]).all()
