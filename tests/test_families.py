"""What the families of variants claim about each other, each shown on numbers.

That all of them compute their formulas is shown in `test_formulas`.
"""

import pytest
import torch
from reference import logits_of, recorded_by, shake, transformer_of, two_models
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.reference import Layer
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant

ALIKE = torch.full((1, 1, 5, 3), 3)
"""Five equal tokens."""


@pytest.mark.parametrize(
    ("text", "same", "sizes"),
    [
        ("QKV n_heads=4 kv_heads=4", "QKV n_heads=4", {}),
        ("QKV temperature=2", "QKV", {"d_head": 4}),
        ("QKV sum", "QKV d_k=2d temperature=2", {"d_head": 4}),  # [Q₁ Q₂][K₁ K₂]ᵀ, still over √4
        ("Q=K positions=relative", "Q=K", {}),  # a learned bias starts from nothing
        ("Q=K positions=key_bias", "Q=K", {}),
        ("Q=K signed", "Q=K", {}),  # diagonals of ones
        ("Q=K=V scaled", "Q=K=V", {}),
        ("QKV shared_layers", "QKV", {"n_layers": 1}),  # one layer shares with no other
        ("K=V kv_every=3", "K=V", {"n_layers": 1}),
        ("QKV kv_from=bottom_middle", "QKV kv_every=2", {}),  # of two layers
        ("QKV positions=rope rope_width=d", "QKV positions=rope", {}),
    ],
)
def test_special_cases_are_other_variants(text, same, sizes):
    """Computed in another way, from the same initial numbers."""
    one, other = two_models(text, same, **sizes)
    for name, value in one.run_parameters(0).items():
        if name[2:].startswith("D"):
            value.fill_(1)
    assert_close(logits_of(one), logits_of(other), rtol=1e-5, atol=1e-5)


# Scores


@pytest.mark.parametrize("rank", [2, 4, 10])
def test_the_antisymmetric_part_has_the_chosen_rank(rank):
    """With 16 tokens and heads 10 wide, the rank of S − Sᵀ is that of the skew part.

    It adds no parameter, and scores are no longer called symmetric.
    """
    text = f"Q=K skew={rank}"
    model, plain = two_models(text, "Q=K", n_entries=16, n_names=32, n_layers=1)
    scores = recorded_by(model)[0].scores[0].double()
    found = torch.linalg.matrix_rank(scores - scores.mT, rtol=1e-4)
    assert (found == rank).all()
    assert model.run_parameters(0).keys() == plain.run_parameters(0).keys()
    assert not Experiment(sharing=[text], d_head=10).wiring(Variant(text)).symmetric


# Positions


@pytest.mark.parametrize("positions", ["rope", "alibi", "relative"])
def test_scores_depend_on_the_offset_only(positions):
    """Between equal tokens: S is constant along its diagonals, and not everywhere."""
    model, _ = two_models(f"QKV positions={positions}", "QKV", n_layers=1)
    shake(model)
    layers = list[Layer]()
    model.logits(ALIKE, layers)
    scores = layers[0].scores[0, 0]
    assert_close(scores[:, 1:, 1:], scores[:, :-1, :-1], rtol=1e-4, atol=1e-5)
    assert (scores[:, 0, 1:] - scores[:, :1, 0]).abs().max() > 0.01


def test_slopes_of_alibi_are_those_of_the_paper():
    """Eight heads: 1/2, 1/4 … 1/256 per step, in both directions."""
    biased, plain = two_models("QKV positions=alibi", "QKV", n_heads=8, n_layers=1)
    added = (recorded_by(biased)[0].scores - recorded_by(plain)[0].scores)[0, 0]
    assert_close(added[:, 0, 1], -(0.5 ** torch.arange(1, 9)), rtol=1e-3, atol=1e-5)
    assert_close(added[:, 4, 0], 4 * added[:, 0, 1], rtol=1e-3, atol=1e-5)


# Values


def shifted(text):
    """Outputs of the first layer for the same rows, at the start and three positions later."""
    model, _ = two_models(text, "QKV", causal=True, self_mask=False, n_layers=1)
    heads = transformer_of(model).heads(0)
    rows = torch.randn((1, 1, 5, 32), generator=torch.Generator().manual_seed(0))
    for first in (0, 3):
        at = torch.arange(first, first + 5)
        store = heads.store(rows)
        k, v = heads.keys_and_values(store, at)
        q = heads.queries(rows, store, at)
        yield heads.mix(heads.pattern(heads.scores(q, k, at, at)), v, v, at)


def test_outputs_that_are_rotated_back_depend_on_distances_only():
    """They do not depend on where tokens stand; `rotate_values=only` is the control."""
    for rest in ("rotate_values", "qk_norm rotate_values", "rope_width=4 rotate_values exclusive"):
        assert_close(*shifted(f"K=V d_head=8 positions=rope {rest}"), rtol=1e-4, atol=1e-5)
        assert_close(*shifted(f"Q=V positions=rope {rest}"), rtol=1e-4, atol=1e-5)
    for sharing in ("QKV", "K=V"):
        at_start, later = shifted(f"{sharing} positions=rope rotate_values=only")
        assert (at_start - later).abs().max() > 0.1


# Across layers, and engines


@pytest.mark.parametrize(
    ("word", "n_layers", "keys_of", "values_of"),
    [
        ("kv_every=3", 4, [0, 0, 0, 3], [0, 0, 0, 3]),
        ("kv_from=bottom_middle", 1, [0], [0]),
        ("kv_from=bottom_middle", 3, [0, 1, 1], [0, 1, 0]),
        ("kv_from=bottom_middle", 4, [0, 1, 1, 1], [0, 1, 0, 0]),
    ],
)
def test_layers_whose_keys_and_values_upper_layers_use(word, n_layers, keys_of, values_of):
    """By hand, as the papers draw it."""
    experiment = Experiment(sharing=[f"QKV {word}"], n_layers=n_layers)
    wiring = experiment.wiring(experiment.sharing[0])
    assert [wiring.leader(layer, "K") for layer in range(n_layers)] == keys_of
    assert [wiring.leader(layer, "V") for layer in range(n_layers)] == values_of


@pytest.mark.parametrize(
    ("text", "on_kernel"),
    [
        ("QKV positions=rope rope_width=4", True),
        ("Q=K skew=2", True),
        ("QKV positions=rope rotate_values", False),
        ("QKV v_norm", False),
        ("QKV kv_residual=2", False),
        ("K=V shared_half", False),
    ],
)
def test_what_the_kernel_trains_and_what_torch(text, on_kernel):
    """A variant that loses its kernel trains many times as slowly."""
    assert kernel_knows(Experiment(sharing=[text]), Variant(text)) is on_kernel
