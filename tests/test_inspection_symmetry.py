"""The symmetry view against numbers computed once more, in numpy and double precision."""

from functools import cache

import numpy as np
import pytest
import torch
from reference import TINY, Reference

from attnkit.analysis.inspection.probes import N_EXAMPLES, examples_of
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.inspection.symmetry import MOST_POSITIONS, inspect_symmetry, shared_part
from attnkit.experiment import Experiment
from attnkit.training.camera import record
from attnkit.variants import Variant

SHORT = {"steps": 6, "evaluate_every": 2, "n_seeds": 1, "batch_size": 16, "n_eval": 16}
PEOPLE = {
    **TINY, **SHORT, "sharing": [
        "QKV", "Q=K", "Q=K=V", "Q=K signed", "Q=K positions=rope", "Q=K positions=alibi",
        "Q=K positions=key_bias", "Q=K positions=learned", "Q=K positions=relative",
        "QKV d_k=d/2 diff", "QKV sum", "QKV kv_heads=1", "Q=K unit_key", "QKV V=I d_head=m/h",
    ],
    "d_model": 32, "d_head": 14, "n_heads": 2, "n_layers": 2, "self_mask": True,
}  # fmt: skip
CAUSAL = {
    **SHORT, "task": "mqar", "n_tokens": 22, "n_pairs": 3, "length": 30, "d_model": 16,
    "n_heads": 2, "d_head": 6, "n_layers": 1, "sharing": ["QKV", "Q=K", "QKV n_heads=1"],
}  # fmt: skip
TWO_SIDES = {
    **SHORT, "task": "dictionary", "n_words": 5, "n_vocab": 11, "d_model": 16, "d_head": 6,
    "sharing": ["QKV", "Q=K"],
}  # fmt: skip
SHAPES = {"people": PEOPLE, "causal": CAUSAL, "two sides": TWO_SIDES}
SYMMETRIC = {
    "Q=K", "Q=K=V", "Q=K signed", "Q=K positions=rope", "Q=K positions=alibi",
    "Q=K positions=learned",
}  # fmt: skip


@cache
def film_of(shape):
    """The film of one of the shapes; what starts at zero has moved from step 2 on."""
    return record(Experiment(**SHAPES[shape]))


@cache
def seen(shape, **asked):
    """What is found, once per question."""
    return inspect_symmetry(film_of(shape), Inspection("symmetry", **asked))


@cache
def replayed(shape, place, frame):
    """Scores (b, h, p, i, j) and patterns of every layer on all examples, in double precision."""
    film = film_of(shape)
    experiment, text = film.experiment, film.experiment.sharing[place].value
    own = {name: torch.from_numpy(a).double() for name, a in frame_of(film, frame, place).items()}
    reference = Reference(experiment, text)
    reference.logits(own, examples_of(experiment.task).tokens)
    heads = (reference.n_heads, -1)
    return (
        [scores.unflatten(1, heads).numpy() for scores in reference.scores],
        [pattern.numpy() for pattern in reference.patterns],
    )


def frame_of(film, frame, place):
    """The weights of a variant."""
    return film.frames[frame].parameters[place]


def asymmetry(square):
    """‖S − Sᵀ‖² / 4‖S‖² of the last two axes."""
    gap = square - np.swapaxes(square, -1, -2)
    return (gap**2).sum((-1, -2)) / (4 * (square**2).sum((-1, -2)))


def everything(shape):
    """(frame, variant's place, its text) of a film."""
    film = film_of(shape)
    names = [variant.value for variant in film.experiment.sharing]
    return [(f, p, name) for f in range(len(film.frames)) for p, name in enumerate(names)]


@pytest.mark.parametrize(("shape", "layer", "head"), [("people", 1, 1), ("causal", 0, 0)])
def test_scores_of_the_example_are_those_of_the_formula(shape, layer, head):
    """Every variant at every frame, with shares, eigenvalues and gaps of the whole S."""
    found = seen(shape, example=3, layer=layer, head=head)
    shown = found.header["positions"]
    for frame, p, _ in everything(shape):
        scores, _ = replayed(shape, p, frame)
        if head >= scores[layer].shape[1]:
            assert f"{p}.scores" not in found.framed
            continue
        square = scores[layer][3, head]  # (maps, n, n)
        near = {"rtol": 1e-4, "atol": 1e-4}
        part = square[:, shown][:, :, shown]
        np.testing.assert_allclose(found.framed[f"{p}.scores"][frame], part, **near)
        odd = asymmetry(square)
        shares = found.framed[f"{p}.shares"][frame]
        np.testing.assert_allclose(shares, np.stack([1 - odd, odd], 1), atol=1e-5)
        even = (square + np.swapaxes(square, 1, 2)) / 2
        values = np.linalg.eigvalsh(even)[:, ::-1]
        np.testing.assert_allclose(found.framed[f"{p}.eigenvalues"][frame], values, **near)
        below = (np.minimum(values, 0) ** 2).sum(1) / (values**2).sum(1)
        np.testing.assert_allclose(found.framed[f"{p}.negative"][frame], below, atol=1e-5)
        gap = np.abs(square - np.swapaxes(square, 1, 2)).mean(2)
        np.testing.assert_allclose(found.framed[f"{p}.gap"][frame], gap, **near)


@pytest.mark.parametrize("shape", ["people", "causal"])
def test_symmetry_of_every_stage_is_that_of_the_formula(shape):
    """The scores, the scores that no mask hides, and the pattern are measured for each head.

    The largest gap is max|S − Sᵀ| over examples and heads, as it is and over max|S|.
    """
    found = seen(shape)
    size = film_of(shape).experiment.size
    for frame, p, _ in everything(shape):
        scores, patterns = replayed(shape, p, frame)
        for layer, (square, pattern) in enumerate(zip(scores, patterns, strict=True)):
            n = square.shape[-1]
            hidden = np.triu(np.ones((n, n)), 1) * size.causal + np.eye(n) * size.self_mask
            expected = [
                asymmetry(square).mean((0, 2)),
                asymmetry(np.where(hidden, 0, square)).mean((0, 2)),
                asymmetry(pattern).mean(0),
            ]
            own = found.framed[f"{p}.stages"][frame, layer]
            n_heads = square.shape[1]
            np.testing.assert_allclose(own[:n_heads], np.stack(expected, 1), atol=2e-5)
            assert np.isnan(own[n_heads:]).all()
            gap = np.abs(square - np.swapaxes(square, -1, -2)).max()
            error = found.framed[f"{p}.error"][frame, layer]
            expected = [gap, gap / np.abs(square).max()]
            np.testing.assert_allclose(error, expected, rtol=1e-3, atol=1e-4)


def test_scores_that_must_be_symmetric_are_up_to_rounding():
    """At every frame and layer; the others are not."""
    found = seen("people")
    for p, variant in enumerate(film_of("people").experiment.sharing):
        must, error = found.framed[f"{p}.must"], found.framed[f"{p}.error"][..., 1]
        assert must.all() == must.any() == (variant.value in SYMMETRIC)
        if variant.value in SYMMETRIC:
            assert error.max() < 1e-6
        else:
            assert error[1:].min() > 1e-4


def test_a_variant_that_is_tied_must_be_symmetric_from_then_on():
    """Not before."""
    experiment = Experiment(**{**TINY, **SHORT, "sharing": ["QKV tie=Q=K"], "steps": 8})
    film = record(experiment)
    turn = experiment.tie_step("QKV tie=Q=K")
    found = inspect_symmetry(film, Inspection("symmetry"))
    assert [bool(must) for must in found.framed["0.must"]] == [s >= turn for s in film.steps]
    error = found.framed["0.error"][:, 0, 1]
    assert all((error < 1e-6) == found.framed["0.must"])


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_measured_as_the_product(shape):
    """Symmetry and directionality of W_Q W_Kᵀ, formed, per head; also across two sides."""
    found = seen(shape)
    film = film_of(shape)
    for frame, p, text in everything(shape):
        if not {"QKV", "Q=K", "Q=K=V"} >= {text}:
            continue
        own = frame_of(film, frame, p)
        for layer in range(len(film.experiment.layer_specs)):
            w_q, w_k = (
                own.get(f"{layer}.W_{role}", own.get(f"{layer}.W_Q")).astype(float) for role in "QK"
            )
            for head in range(film.experiment.n_heads):
                d = film.experiment.size.d_head
                part = slice(head * d, (head + 1) * d)
                m = w_q[:, part] @ w_k[:, part].T
                names = ("weight_symmetry", "directionality")
                got = [found.framed[f"{p}.{name}"][frame, layer, head] for name in names]
                np.testing.assert_allclose(got, [1 - 2 * asymmetry(m), direction(m)], atol=1e-5)


def direction(m):
    """(r − c)/(r + c), with the excess of norms over mean + 2 std."""
    r, c = (
        np.maximum(norms - norms.mean() - 2 * norms.std(), 0).sum()
        for norms in (np.linalg.norm(m, axis=1), np.linalg.norm(m, axis=0))
    )
    return 0.0 if r + c < 1e-9 else (r - c) / (r + c)


def test_grouped_keys_and_several_maps_have_weights_per_head():
    """One number for every head that asks, the mean of its maps."""
    found = seen("people")
    film = film_of("people")
    names = [variant.value for variant in film.experiment.sharing]
    p = names.index(Variant("QKV kv_heads=1").value)
    own = frame_of(film, -1, p)
    w_q, w_k = own["1.W_Q"].astype(float), own["1.W_K"].astype(float)
    expected = [1 - 2 * asymmetry(w_q[:, part] @ w_k.T) for part in (slice(14), slice(14, 28))]
    np.testing.assert_allclose(found.framed[f"{p}.weight_symmetry"][-1, 1], expected, atol=1e-5)
    p = names.index(Variant("QKV d_k=d/2 diff").value)
    own = frame_of(film, -1, p)
    w_q, w_k = (own[f"1.W_{role}"].astype(float).reshape(32, 2, 2, 7) for role in "QK")
    s = [[1 - 2 * asymmetry(w_q[:, h, m] @ w_k[:, h, m].T) for m in (0, 1)] for h in (0, 1)]
    np.testing.assert_allclose(
        found.framed[f"{p}.weight_symmetry"][-1, 1], np.mean(s, 1), atol=1e-5
    )
    assert found.framed[f"{p}.scores"].shape[1] == 2


def test_what_was_evaluated_in_training_is_told():
    """a = (1 − s)/2 per head, and the attention on the right and on the reversed entry.

    The examples are others of the same task, so their asymmetry is near.
    """
    film, found = film_of("people"), seen("people")
    for p in range(len(film.experiment.sharing)):
        a = (1 - film.head_symmetry[:, p]) / 2
        np.testing.assert_allclose(found.framed[f"{p}.a"], a, atol=1e-6)
        np.testing.assert_allclose(a, found.framed[f"{p}.stages"][..., 0], atol=0.12)
        for column, name in enumerate(("mass_on_target", "mass_on_reverse")):
            np.testing.assert_array_equal(
                found.framed[f"{p}.mass"][:, column], film.metric(name)[:, p]
            )
    assert found.framed["accuracy"].shape == (len(film.frames), len(film.experiment.sharing))


def test_what_hangs_on_positions_is_told_from_what_hangs_on_tokens():
    """All of it where a key bias breaks tied scores, little where W_Q and W_K differ."""
    found = seen("people")
    names = [variant.value for variant in film_of("people").experiment.sharing]
    share = {name: found.framed[f"{p}.positional"][-1, 0] for p, name in enumerate(names)}
    assert share["Q=K positions=key_bias"] == pytest.approx(1, abs=1e-4)
    assert share["Q=K positions=relative"] == pytest.approx(1, abs=1e-4)
    assert abs(share["QKV"]) < 0.2
    assert abs(share["Q=K unit_key"]) < 0.2


def test_shared_part_by_hand():
    """All alike: 1. Two that cancel out: −1. Independent ones: about 0. All zero: 0."""
    one = torch.tensor([[0.0, 3.0], [-3.0, 0.0]]).double()
    assert shared_part(one.expand(5, 2, 2)).item() == pytest.approx(1)
    assert shared_part(torch.stack([one, -one])).item() == pytest.approx(-1)
    drawn = torch.randn(400, 7, 7, generator=torch.Generator().manual_seed(0)).double()
    assert abs(shared_part(drawn).item()) < 0.01
    assert shared_part(torch.zeros(5, 3, 3).double()).item() == 0


def test_long_examples_show_what_is_asked_last_and_its_answers():
    """So many positions at most; marks point at places among them, also after the wire."""
    found = seen("causal")
    back = InspectionResult.from_bytes(found.to_bytes())
    assert back.framed.keys() == found.framed.keys()
    header = back.header
    assert header["n_examples"] == N_EXAMPLES
    shown, labels = header["positions"], examples_of(film_of("causal").experiment.task)
    assert len(shown) == MOST_POSITIONS < header["n_looked_at"] == 30
    assert shown == sorted(shown)
    assert len(header["labels"]) == MOST_POSITIONS
    asked = (labels.labels[0] >= 0).nonzero().flatten().tolist()
    targets = labels.target[0][asked].tolist()
    first = film_of("causal").experiment.task.answers_from
    marks = {shown[i]: shown[j] for i, j in enumerate(header["target"]) if j >= 0}
    assert marks == {first + i: target for i, target in zip(asked, targets, strict=True)}


def test_two_sides_are_not_square_where_they_meet():
    """Then there is no S to split; the weights are measured all the same."""
    places = film_of("two sides").experiment.layer_specs
    across = [place.square for place in places].index(False)
    found = seen("two sides", layer=across)
    assert found.header["square"] is False
    assert "0.scores" not in found.framed
    for name in ("a", "stages", "error"):
        assert np.isnan(found.framed[f"0.{name}"][:, across]).all()
        assert not np.isnan(found.framed[f"0.{name}"][:, 0]).any()
    assert np.isfinite(found.framed["0.weight_symmetry"]).all()
    encoder = seen("two sides", layer=0)
    assert encoder.header["square"]
    assert encoder.framed["0.scores"].shape[-1] == film_of("two sides").experiment.task.n_source


def test_what_is_not_there_is_named():
    """The field, the value, what is allowed."""
    for name in ("layer", "head"):
        with pytest.raises(ValueError, match=f"{name}: got 2, allowed 0 to 1"):
            inspect_symmetry(film_of("people"), Inspection("symmetry", **{name: 2}))


def test_later_frames_alone_say_the_same():
    """What a page asks for while training goes on is what it would get at the end."""
    film = film_of("causal")
    later = inspect_symmetry(film.after(2), Inspection("symmetry", since=2))
    whole = seen("causal")
    assert later.header["steps"] == [4, 6]
    for name, array in later.framed.items():
        np.testing.assert_allclose(array, whole.framed[name][2:], atol=1e-5)


def test_a_diverged_run_has_no_numbers():
    """Missing, not symmetric."""
    film = film_of("causal")
    weights = film.frames[-1].parameters[0]
    kept = weights["0.W_Q"].copy()
    try:
        weights["0.W_Q"][:] = np.nan
        found = inspect_symmetry(film, Inspection("symmetry"))
    finally:
        weights["0.W_Q"][:] = kept
    for name in ("eigenvalues", "shares", "stages", "gap", "weight_symmetry"):
        assert np.isnan(found.framed[f"0.{name}"][-1]).all()
        assert not np.isnan(found.framed[f"0.{name}"][0]).any()
