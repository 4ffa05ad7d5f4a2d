"""An encoder and a decoder: who sees whom, what is shared, what is measured, what is counted."""

import numpy as np
import pytest
import torch
from kinds import NEEDS_ONE_SIDE, tiny
from reference import DOZEN
from torch.testing import assert_close

from attnkit.experiment.layer_specs import layer_specs_of
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.decode import Decoder
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.training import Training
from attnkit.training.cohort import Cohort
from attnkit.training.data import stack
from attnkit.variants.sharing import ROLES, Sharing

CPU = torch.device("cpu")
N = 5  # words of a sentence: positions 0 to 4 are the encoder's, 5 to 9 the decoder's
both_blocks = pytest.mark.parametrize("blocks", ["lean", "standard"])


def build(**given):
    """A model of two seeds, and a batch of seven sentences for each."""
    experiment = tiny("dictionary", **given)
    model = Model(experiment, experiment.seeds, CPU)
    drawn = [model.task.draw(7, generator_for(s, "look"), held_out=False) for s in model.seeds]
    return model, stack(drawn, CPU)


def recorded(model, tokens):
    """Scores and patterns of all layers."""
    layers = list[Layer]()
    model.logits(tokens, layers)
    return layers


def test_layers_of_both_sides_stand_in_the_order_of_computation():
    """The encoder's, then the decoder's own and its view of the encoder by turns."""
    experiment = tiny("dictionary", n_layers=2)
    assert experiment.layer_specs == layer_specs_of(experiment.size, experiment.task)
    assert [place.title for place in experiment.layer_specs] == [
        "Encoder 1", "Encoder 2", "Decoder 1", "Cross 1", "Decoder 2", "Cross 2",
    ]  # fmt: skip
    source, rest = (0, N), (N, 2 * N)
    sides = {"encoder": (source, source), "decoder": (rest, rest), "cross": (rest, source)}
    for place in experiment.layer_specs:
        assert (place.query_positions, place.key_positions) == sides[place.kind]
        assert place.square == (place.kind != "cross")
        assert place.causal == (place.kind == "decoder")
        assert place.has_mlp == (place.kind != "decoder")


def test_one_side_has_one_stack():
    """All positions ask all positions."""
    places = tiny("directed", n_layers=2, causal=True).layer_specs
    assert [(place.title, place.query_positions, place.key_positions) for place in places] == [
        ("Layer 1", (0, N), (0, N)),
        ("Layer 2", (0, N), (0, N)),
    ]
    assert all(place.causal and place.square and place.has_mlp for place in places)


@both_blocks
def test_the_encoder_does_not_see_the_decoder(blocks):
    """Other words written so far change neither its scores nor what is made of it."""
    model, examples = build(n_layers=2, d_mlp=7, blocks=blocks)
    changed = examples.tokens.clone()
    changed[:, :, N:] = examples.tokens[:, :, N:].roll(1, 1)
    before, after = recorded(model, examples.tokens), recorded(model, changed)
    for at, place in enumerate(model.layer_specs):
        here = slice(at, None, len(model.layer_specs))  # of all variants
        same = [
            torch.equal(one.scores, other.scores)
            for one, other in zip(before[here], after[here], strict=True)
        ]
        assert all(same) == (place.kind == "encoder")


@both_blocks
def test_the_decoder_does_not_see_what_it_has_not_written(blocks):
    """Another last word changes the last answer only; another source word changes all."""
    model, examples = build(n_layers=2, d_mlp=7, blocks=blocks)
    expected = model.logits(examples.tokens)
    for position, kept in ((2 * N - 1, N - 1), (0, 0)):
        changed = examples.tokens.clone()
        changed[:, :, position] = examples.tokens[:, :, position].roll(1, 1)
        differs = (model.logits(changed) != expected).flatten(3).any(-1).any(0).any(0)
        assert differs.tolist() == [False] * kept + [True] * (N - kept)


def test_masks_are_those_of_the_place():
    """Causal among the decoder's own; the self-mask where a token could see itself."""
    model, _ = build(self_mask=True)
    encoder, decoder, cross = (model.mask(model.variants[0], place) for place in model.layer_specs)
    assert encoder.diagonal().tolist() == [-1e5] * N
    assert not (encoder - encoder.diag().diag()).any()
    assert (decoder.isneginf() == torch.ones(N, N).triu(1).bool()).all()
    assert decoder.diagonal().tolist() == [-1e5] * N
    assert cross is None
    model, _ = build(self_mask=False)
    variant = model.variants[0]
    assert [model.mask(variant, place) is None for place in model.layer_specs] == [1, 0, 1]


# Law 3 and 4


@both_blocks
def test_tying_removes_the_parameter(blocks):
    """In every layer, of both sides and between them; only biases of what is there."""
    cohort = Cohort(tiny("dictionary", blocks=blocks, d_mlp=7), [0, 1], CPU)
    cohort.advance(3)
    for sharing in Sharing:
        owned = {f"{at}.W_{members[0]}" for at in range(3) for members in sharing.classes}
        owned |= {f"{at}.W_O" for at in range(3)}
        owned |= {"0.W_in", "0.W_out", "2.W_in", "2.W_out", "W_U"}
        expected = owned | {"W_E", "W_pos"}
        if blocks == "standard":
            expected |= {name.replace("W_", "b_") for name in owned} | {"b_E"}
            norms = ("0.ln1", "0.ln2", "1.ln1", "2.ln1", "2.ln2")
            expected |= {f"{norm}.{part}" for norm in norms for part in "wb"}
        place = cohort.runs.index((sharing, 1))
        assert set(cohort.parameters()[place]) == expected, sharing


@both_blocks
def test_a_tied_model_equals_an_untied_one_with_copied_weights(blocks):
    """Encoder, decoder and cross-attention, biases included."""
    untied, examples = build(sharing=["QKV"], n_layers=2, blocks=blocks)
    for sharing in Sharing:
        tied, _ = build(sharing=[sharing], n_layers=2, blocks=blocks, first_seed=5)
        for run in range(2):
            own, theirs = tied.run_parameters(run), untied.run_parameters(run)
            for name, value in theirs.items():
                owner = name[:-1] + sharing.owner(name[-1]) if name[-1] in ROLES else name
                value.copy_(own[owner])
        found, expected = tied.logits(examples.tokens), untied.logits(examples.tokens)
        assert_close(found, expected, rtol=1e-5, atol=1e-5)


@both_blocks
def test_a_tied_gradient_is_the_sum_of_its_roles(blocks):
    """Of cross-attention, too, where queries and keys read different sides."""
    tied, examples = build(sharing=["Q=K=V"], blocks=blocks)
    untied, _ = build(sharing=["QKV"], blocks=blocks)
    for run in range(2):
        own = tied.run_parameters(run)
        for name, value in untied.run_parameters(run).items():
            value.copy_(own[name[:-1] + "Q" if name[-1] in ROLES else name])
    for model in (tied, untied):
        model.differentiate(examples.tokens, examples.labels)
    for run in range(tied.n_runs):
        of_tied, of_untied = (model.run_parameters(run, model.gradient) for model in (tied, untied))
        for letter in "W" if blocks == "lean" else "Wb":
            for at in range(3):
                parts = sum(of_untied[f"{at}.{letter}_{role}"] for role in ROLES)
                assert_close(of_tied[f"{at}.{letter}_Q"], parts, rtol=1e-4, atol=1e-7)


# Law 5 and measuring


@both_blocks
@pytest.mark.parametrize("positions", ["learned", "rope", "alibi"])
def test_symmetry_holds_on_both_sides_and_is_missing_between_them(blocks, positions):
    """Q=K at rounding level in the encoder and in the decoder; no such number for a rectangle."""
    given = {"n_layers": 2, "n_heads": 2, "steps": 12, "evaluate_every": 3}
    result = Training(tiny("dictionary", blocks=blocks, positions=positions, **given), "cpu")
    result.advance(12)
    snapshot = result.snapshot()
    square = np.array([place.square for place in snapshot.experiment.layer_specs])
    assert np.isnan(snapshot.head_symmetry[:, ~square]).all()
    assert not np.isnan(snapshot.head_symmetry[:, square]).any()
    means = snapshot.head_symmetry[:, square].mean((1, 2))
    np.testing.assert_allclose(snapshot.history["score_symmetry"][-1], means, atol=1e-6)
    tied = np.array([variant.sharing.symmetric for variant, _ in snapshot.experiment.runs])
    error, symmetry = (snapshot.history[name] for name in ("symmetry_error", "score_symmetry"))
    assert (error[:, tied] <= 1e-5).all()
    assert (symmetry[:, tied] >= 1 - 1e-5).all()
    assert (error[:, ~tied] > 0.05).all()


def test_patterns_stand_in_the_frame_of_all_positions():
    """Outside of what a layer compares, weights are 0 and scores NaN; inside, rows sum to one."""
    cohort = Cohort(tiny("dictionary"), [0, 1], CPU)
    examples = cohort.experiment.task.draw(3, generator_for(0, "look"), held_out=False)
    answers, pattern, scores = cohort.answer(examples)
    assert answers.shape == (10, 3, N)
    assert pattern.shape == (10, 3, 3, 1, 2 * N, 2 * N)
    for at, place in enumerate(cohort.experiment.layer_specs):
        asks, looks = slice(*place.query_positions), slice(*place.key_positions)
        inside = pattern[:, :, at, :, asks, looks]
        np.testing.assert_allclose(inside.sum(-1), 1, rtol=1e-5)
        assert np.count_nonzero(pattern[:, :, at]) == np.count_nonzero(inside)
        known = np.isfinite(scores[:, :, at])
        assert known[..., asks, looks].all()
        assert known.sum() == inside.size


def test_mass_on_target_is_that_of_cross_attention():
    """The mean over its layers and heads of what each answer puts on its own word."""
    experiment = tiny("dictionary", n_layers=2, n_heads=2, n_eval=16)
    cohort = Cohort(experiment, [0, 1], CPU)
    for place, seed in enumerate(cohort.seeds):
        held_out = experiment.task.draw(16, generator_for(seed, "evaluation"), held_out=True)
        _, pattern, _ = cohort.answer(held_out)
        crossing = [at for at, layer in enumerate(experiment.layer_specs) if layer.kind == "cross"]
        rows = torch.from_numpy(pattern[place::2, :, crossing][..., N:, :])  # (v, b, l, h, a, j)
        target = held_out.target[None, :, None, None, :, None].expand(*rows.shape[:-1], 1)
        expected = rows.gather(-1, target).mean((1, 2, 3, 4, 5))
        found = cohort.evaluations[0].metrics["mass_on_target"][place::2]
        np.testing.assert_allclose(found, expected, atol=1e-6)


@both_blocks
def test_role_weights_are_those_of_the_owner_in_every_layer(blocks):
    """Encoder, decoder, cross; the matrix alone, whatever bias it has."""
    model, _ = build(n_heads=2, blocks=blocks)
    for at in range(3):
        for role in ROLES:
            for place, weights in enumerate(model.role_weights(at, role)):
                owner = model.forms[place].sharing.owner(role)
                for seed in range(2):
                    own = model.run_parameters(2 * place + seed)[f"{at}.W_{owner}"]
                    assert torch.equal(weights[seed].transpose(0, 1).flatten(1), own)


@both_blocks
def test_role_weights_of_low_rank_are_products(blocks):
    """W_C W_K, without the biases of either."""
    model, _ = build(sharing=["QKV kv_rank=3"], blocks=blocks)
    for role in "KV":
        (weights,) = model.role_weights(2, role)
        own = model.run_parameters(1)
        assert_close(weights[1, 0], own["2.W_C"] @ own[f"2.W_{role}"])


# Costs


def test_a_decoder_keeps_something_in_its_own_layers_only():
    """Of a written token in each of its own layers, of a read one in each cross-attention.

    The encoder keeps nothing: its tokens are all there at once. One variant of every mechanism.
    """
    for variant in DOZEN:
        if NEEDS_ONE_SIDE & variant.given.keys():
            continue
        single, one, two = (
            tiny(task, sharing=[variant], n_layers=n_layers, n_heads=2).costs(variant).kv_cache
            for task, n_layers in (("directed", 1), ("dictionary", 1), ("dictionary", 2))
        )
        assert (one, two) == (2 * single, 4 * single), variant


def test_layers_that_share_with_others_are_refused():
    """Which of them would be the other's is not said anywhere."""
    for text in ("QKV shared_layers", "QKV kv_every=2"):
        with pytest.raises(InvalidExperiment, match="do not go with an encoder and a decoder"):
            tiny("dictionary", sharing=[text])


def test_two_sides_are_not_decoded():
    """The error says what the decoder needs, instead of computing something else."""
    model = Model(tiny("dictionary", sharing="QKV", causal=True), [0, 1], CPU)
    with pytest.raises(ValueError, match="a decoder reads one sequence"):
        Decoder(model, 0)


def test_the_dictionary_is_learned_by_every_sharing():
    """At its defaults, though with fewer steps: the engine of two sides learns what it should."""
    training = Training(tiny("dictionary", n_vocab=8, n_words=4, d_head=16, steps=150), "cpu")
    training.advance(150)
    assert (training.snapshot().history["accuracy"][-1] > 0.9).all()
