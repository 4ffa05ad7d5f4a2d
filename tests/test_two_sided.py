"""An encoder and a decoder: which positions attend to which, what is measured, what is kept.

Formulas, gradients and sharing of two sides are among those of `test_formulas` and
`test_laws_sharing`.
"""

import numpy as np
import torch
from kinds import NEEDS_ONE_SIDE, tiny
from reference import DOZEN
from torch.testing import assert_close

from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.training.cohort import Cohort
from attnkit.variants.sharing import ROLES

CPU = torch.device("cpu")
N = 5  # words of a sentence: positions 0 to 4 are the encoder's, 5 to 9 the decoder's


def test_layers_stand_in_the_order_of_computation():
    """The encoder's, then the decoder's own and its view of the encoder by turns."""
    source, rest = (0, N), (N, 2 * N)
    encoder, decoder, cross = (source, source), (rest, rest), (rest, source)
    specs = tiny("dictionary", n_layers=2).layer_specs
    assert [(one.title, (one.query_positions, one.key_positions)) for one in specs] == [
        ("Encoder 1", encoder), ("Encoder 2", encoder), ("Decoder 1", decoder), ("Cross 1", cross),
        ("Decoder 2", decoder), ("Cross 2", cross),
    ]  # fmt: skip
    for one in specs:
        assert one.square == (one.kind != "cross")
        assert one.causal == (one.kind == "decoder")
        assert one.has_mlp == (one.kind != "decoder")


def test_patterns_stand_in_the_frame_of_all_positions():
    """Outside of what a layer compares, weights are 0 and scores NaN; inside, rows sum to one.

    A rectangle has no symmetry, and means leave it out.
    """
    given = {"n_layers": 2, "n_heads": 2, "positions": "rope", "blocks": "standard"}
    cohort = Cohort(tiny("dictionary", **given), [0, 1], CPU)
    specs = cohort.experiment.layer_specs
    examples = cohort.experiment.task.draw(3, generator_for(0, "look"), held_out=False)
    answers, pattern, scores = cohort.answer(examples)
    assert answers.shape == (10, 3, N)
    assert pattern.shape == (10, 3, 6, 2, 2 * N, 2 * N)
    for at, place in enumerate(specs):
        asks, looks = slice(*place.query_positions), slice(*place.key_positions)
        inside = pattern[:, :, at, :, asks, looks]
        np.testing.assert_allclose(inside.sum(-1), 1, rtol=1e-5)
        assert np.count_nonzero(pattern[:, :, at]) == np.count_nonzero(inside)
        known = np.isfinite(scores[:, :, at])
        assert known[..., asks, looks].all()
        assert known.sum() == inside.size
    found = cohort.evaluations[-1]
    square = np.array([place.square for place in specs])
    assert np.isnan(found.head_symmetry[:, ~square]).all()
    means = found.head_symmetry[:, square].mean((1, 2))
    np.testing.assert_allclose(found.metrics["score_symmetry"], means, atol=1e-6)


def test_mass_on_target_is_that_of_cross_attention():
    """The mean over its layers and heads of what each answer puts on its own word."""
    experiment = tiny("dictionary", n_layers=2, n_heads=2, n_eval=16)
    cohort = Cohort(experiment, [0, 1], CPU)
    crossing = [at for at, layer in enumerate(experiment.layer_specs) if layer.kind == "cross"]
    for place, seed in enumerate(cohort.seeds):
        held_out = experiment.task.draw(16, generator_for(seed, "evaluation"), held_out=True)
        _, pattern, _ = cohort.answer(held_out)
        rows = torch.from_numpy(pattern[place::2, :, crossing][..., N:, :])  # (v, b, l, h, a, j)
        target = held_out.target[None, :, None, None, :, None].expand(*rows.shape[:-1], 1)
        expected = rows.gather(-1, target).mean((1, 2, 3, 4, 5))
        found = cohort.evaluations[0].metrics["mass_on_target"][place::2]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_role_weights_are_those_of_the_owner_in_every_layer():
    """Encoder, decoder, cross; the matrix alone, whatever bias it has; of low rank, the product."""
    model = Model(tiny("dictionary", n_heads=2, blocks="standard"), [0, 1], CPU)
    for at in range(3):
        for role in ROLES:
            for place, weights in enumerate(model.role_weights(at, role)):
                owner = model.forms[place].sharing.owner(role)
                for seed in range(2):
                    own = model.run_parameters(2 * place + seed)[f"{at}.W_{owner}"]
                    assert torch.equal(weights[seed].transpose(0, 1).flatten(1), own)
    model = Model(tiny("dictionary", sharing=["QKV kv_rank=3"], blocks="standard"), [0, 1], CPU)
    for role in "KV":
        (weights,) = model.role_weights(2, role)
        own = model.run_parameters(1)
        assert_close(weights[1, 0], own["2.W_C"] @ own[f"2.W_{role}"])


def test_a_decoder_keeps_something_in_its_own_layers_only():
    """Of a written token in each of its own layers, of a read one in each cross-attention.

    The encoder keeps nothing: its tokens are all there at once. One variant of every mechanism.
    """
    for variant in DOZEN:
        if not NEEDS_ONE_SIDE & variant.given.keys():
            single, one, two = (
                tiny(task, sharing=[variant], n_layers=n_layers, n_heads=2).costs(variant).kv_cache
                for task, n_layers in (("directed", 1), ("dictionary", 1), ("dictionary", 2))
            )
            assert (one, two) == (2 * single, 4 * single), variant
