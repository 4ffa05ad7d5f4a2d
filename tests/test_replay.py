"""Replays: every frame of a film, stage by stage, is what the engine computes at once."""

import pytest
from filming import film_of
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnkit.analysis.inspection import replay as module
from attnkit.analysis.inspection.replay import Replay, batched_replays, replays
from attnkit.analysis.inspection.roles import LayerRoles
from attnkit.model.reference import Layer
from attnkit.training.data import draw_probe
from attnkit.variants.sharing import ROLES


def check(film, variant, found_by=replays):
    """Hold a variant's replays against the engine's one pass."""
    tokens, n_seen = draw_probe(film.experiment.task).tokens, 0
    for replay in found_by(film, variant):
        layers, n_frames = list[Layer](), len(replay.model.seeds)
        wanted = replay.model.logits(tokens.expand(n_frames, *tokens.shape).contiguous(), layers)
        found = replay.forward(tokens)
        assert_close(found.logits, wanted, rtol=1e-4, atol=1e-5)
        for stages, layer in zip(found.stages, layers, strict=True):
            assert_close(stages.pattern, layer.pattern, rtol=1e-4, atol=1e-5)
            assert_close(stages.scores.flatten(2, 3), layer.scores, rtol=1e-4, atol=1e-4)
        n_seen += n_frames
    assert n_seen == len(film.frames)


def test_inputs_times_weights_are_the_vectors_of_the_layer_that_computes_them():
    """Keys and values of an upper layer may be those of two layers below, in every role."""
    film = film_of(sharing=("QKV kv_from=bottom_middle",), n_layers=4)
    replay = next(replays(film, film.experiment.sharing[0]))
    stages = replay.forward(draw_probe(film.experiment.task).tokens).stages
    for layer in range(4):
        roles = LayerRoles(replay, stages, layer)
        for role in ROLES:
            projected = roles.inputs[role] @ roles.weights(role, 0)
            vectors = roles.vectors(role, 0).reshape(projected.shape)
            assert_allclose(projected, vectors, rtol=1e-4, atol=1e-4)


def test_a_variant_that_is_tied_in_between_is_replayed_in_two_parts():
    """Before and after, its parameters are not the same."""
    film = film_of(sharing=("QKV tie=Q=K",))
    (variant,) = film.experiment.sharing
    parts = list(replays(film, variant))
    assert [len(part.model.seeds) for part in parts] == [1, 2]
    assert ["0.W_K" in part.model.run_parameters(0) for part in parts] == [True, False]
    check(film, variant)


def test_weights_of_another_shape_are_refused():
    """The parameter, its shape, and what is allowed."""
    film = film_of(sharing=("QKV",))
    variant = film.experiment.sharing[0]
    wider = film.experiment.replace(d_head=5)
    message = r"0\.W_Q: got \(32, 16\), allowed \(32, 5\)"
    with pytest.raises(ValueError, match=message):
        Replay(wider, variant, film.frames)


def test_large_replays_come_in_parts(monkeypatch):
    """Few frames at once, then few examples; the numbers are those of the engine."""
    film = film_of()
    variant = film.experiment.sharing[0]
    ((whole, n),) = batched_replays(film, variant, film.experiment, 32)
    assert (len(whole.model.seeds), n) == (3, 32)
    monkeypatch.setattr(module, "_MOST_NUMBERS", 2**15)
    parts = list(batched_replays(film, variant, film.experiment, 32))
    assert [len(part.model.seeds) for part, _ in parts] == [1, 1, 1]
    assert {n for _, n in parts} == {2**15 // (8 * (4 * 32 + 4 * 16 + 3 * 8))}
    check(film, variant, lambda *_: [part for part, _ in parts])


@pytest.mark.parametrize("task", ["directed", "dictionary", "reverse"])
def test_what_was_read_out_can_be_changed(task):
    """With the same values nothing changes; with others only what comes later."""
    film = film_of(task, n_layers=2)
    for variant in film.experiment.sharing:
        for replay in replays(film, variant):
            found = replay.forward(draw_probe(film.experiment.task).tokens)
            for layer, stages in enumerate(found.stages):
                same = replay.with_head_outputs(found, layer, stages.z)
                assert_close(same.logits, found.logits, rtol=0, atol=0)
                other = replay.with_head_outputs(found, layer, stages.z + 1.0)
                assert (other.logits != found.logits).any()
                assert other.stages[:layer] == found.stages[:layer]
                assert_close(other.stages[layer].pattern, stages.pattern, rtol=0, atol=0)
