"""What the families of variants claim about each other, each shown on numbers.

That all of them compute their formulas is shown in `test_formulas`.
"""

import pytest
import torch
from reference import (
    CPU,
    batch_for,
    embedded,
    logits_of,
    norm,
    recorded_by,
    set_numbers,
    shake,
    transformer_of,
    two_models,
    waves,
)
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.reference import Layer
from attnkit.training.data import stack
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant

ALIKE = torch.full((1, 1, 5, 3), 3)
"""Five equal tokens."""


def stages_of(model, tokens=None):
    """Intermediate results of the first layer of a model with one run, at all positions."""
    transformer = transformer_of(model)
    tokens = batch_for(model) if tokens is None else tokens
    return transformer.attend(0, transformer.embed(tokens), None)


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


def test_gains_and_factors_start_at_one():
    """So that at first they change nothing."""
    for text in ("QKV qk_norm", "Q=K scaled"):
        own = two_models(text, "QKV")[0].run_parameters(0)
        factors = [value for name, value in own.items() if name[2:4] in ("g_", "D_")]
        assert len(factors) >= 4
        assert all((value == 1).all() for value in factors)


# Heads, widths and ranks


@pytest.mark.parametrize("n_groups", [1, 2])
def test_grouped_heads_are_full_heads_with_repeated_matrices(n_groups):
    """GQA and MQA: query heads 0, 1, … of a group see the same keys and values."""
    grouped, full = two_models(f"QKV n_heads=4 kv_heads={n_groups}", "QKV n_heads=4", d_head=5)
    own = grouped.run_parameters(0)
    set_numbers(full, {name: own[name] for name in own if name[2:] not in ("W_K", "W_V")})
    for name in ("0.W_K", "0.W_V", "1.W_K", "1.W_V"):
        of_groups = own[name].unflatten(1, (n_groups, 5))
        set_numbers(full, {name: of_groups.repeat_interleave(4 // n_groups, 1).flatten(1)})
    assert_close(logits_of(grouped), logits_of(full), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", ["QKV kv_residual=3", "QKV kv_residual=d"])
def test_residuals_are_matrices_of_heads(text):
    """Head h of QKV is W_S + A_h B_h; residuals are drawn, so heads start apart."""
    residual, plain = two_models(text, "QKV", n_layers=1)
    own = residual.run_parameters(0)
    heads = {}
    for role in "KV":
        down = own[f"0.W_A_{role}"].unflatten(-1, (3, -1)).transpose(0, 1)  # (h, m, r)
        full = own[f"0.W_S_{role}"] + down @ own[f"0.W_B_{role}"]  # (h, m, d)
        assert not torch.allclose(full[0], full[1], atol=0.1)
        heads[f"0.W_{role}"] = full.transpose(0, 1).flatten(1)
    set_numbers(plain, heads | {name: own[name] for name in ("W_E", "W_U", "0.W_Q", "0.W_O")})
    assert_close(logits_of(residual), logits_of(plain), rtol=1e-4, atol=1e-5)


# Partly tied, and two maps


def test_signed_scores_are_indefinite_and_those_of_q_k_are_not():
    """Q D Qᵀ has eigenvalues of both signs; Q Qᵀ has none below zero."""
    signed, plain = (
        torch.linalg.eigvalsh(recorded_by(model)[0].scores.double()).amin(-1)
        for model in two_models("Q=K signed", "Q=K")
    )
    assert (signed < -0.01).all()
    assert (plain > -1e-5).all()


def test_rows_of_a_differential_pattern_sum_to_one_minus_lambda():
    """λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init, with λ_init growing from layer to layer."""
    model, _ = two_models("QKV diff", "QKV", n_layers=3)
    shake(model)
    own = model.run_parameters(0)
    for place, initial in enumerate((0.2, 0.35551, 0.47071)):  # 0.8 − 0.6 exp(−0.3 layer)
        q1, k1, q2, k2 = (own[f"{place}.lambda_{name}"] for name in ("q1", "k1", "q2", "k2"))
        strength = (q1 @ k1).exp() - (q2 @ k2).exp() + initial
        total = recorded_by(model)[place].pattern.sum(-1)
        assert_close(total, (1 - strength).expand_as(total), rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("text", ["Q=K skew=d", "Q=K skew=d positions=rope"])
def test_a_skew_part_as_wide_as_the_key_gives_antisymmetric_scores(text):
    """S = −Sᵀ, for all offsets: the exchange of both halves commutes with RoPE."""
    model, _ = two_models(text, "Q=K", n_layers=1)
    scores = recorded_by(model)[0].scores
    assert scores.abs().max() > 0.1
    assert_close(scores, -scores.mT, rtol=0, atol=1e-5)


def test_reformer_scores_are_the_query_s_length_times_a_cosine():
    """S_ij |q_j| = S_ji |q_i|, a row's largest score is its own, |q_i|: almost symmetric."""
    model, _ = two_models("Q=K unit_key self_mask", "QKV", n_layers=1)
    q = (norm(embedded(model)) @ model.run_parameters(0)["0.W_Q"]).unflatten(-1, (3, 10))
    scores = recorded_by(model)[0].scores[0]
    lengths = q.norm(dim=-1).transpose(1, 2)  # (b, h, i)
    assert_close(scores.diagonal(dim1=-2, dim2=-1), lengths)
    assert (scores <= lengths[..., None] + 1e-5).all()
    weighed = scores * lengths[..., None, :]
    assert_close(weighed, weighed.mT, rtol=0, atol=1e-4)
    assert (scores - scores.mT).abs().max() > 0.01


# Positions


def test_plus_is_a_temperature_and_a_bias_of_key_positions():
    """(X)⁺ after the softmax: Σw = 0.5 is a temperature of 2√d, columns are a bias, rows cancel."""
    plus, biased = two_models(
        "Q=K positions=plus", "Q=K positions=key_bias temperature=4", d_head=4
    )
    shake(plus)
    own = plus.run_parameters(0)
    set_numbers(biased, {n: v for n, v in own.items() if n in biased.run_parameters(0)})
    for layer in range(2):
        w = own[f"{layer}.w_plus"]
        w += (0.5 - w.sum()) / len(w)
        g = waves(torch.arange(5.0)) @ w[5:]
        set_numbers(biased, {f"{layer}.b_key": g.expand(3, 5)})
    for one, other in zip(recorded_by(plus), recorded_by(biased), strict=True):
        assert_close(one.pattern, other.pattern, rtol=0, atol=1e-5)
    assert_close(logits_of(plus), logits_of(biased), rtol=1e-5, atol=1e-5)


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


def test_one_half_is_of_all_heads_and_the_other_is_of_the_value():
    """A key of `shared_half` has one half that all heads share and one half of the value."""
    model, _ = two_models("K=V shared_half", "K=V")
    stages = stages_of(model)
    k, v = stages.k[0, 0], stages.v[0, 0]
    assert torch.equal(k[..., :5], k[:1, :, :5].expand_as(k[..., :5]))
    assert torch.equal(k[..., 5:], v[..., :5])
    model, _ = two_models("K=V shared_half positions=rope", "K=V", d_head=8)
    k = stages_of(model, ALIKE).k[0, 0]
    assert_close(k[..., 4:], k[:, :1, 4:].expand_as(k[..., 4:]))
    assert (k[:, 1:, :4] - k[:, :1, :4]).abs().amax(-1).min() > 0.01


# Across layers


def test_the_gradient_of_shared_layers_is_the_sum_over_layers():
    """One parameter learns from all its uses."""
    shared, plain = two_models("QKV shared_layers", "QKV", n_layers=3)
    own, theirs = shared.run_parameters(0), plain.run_parameters(0)
    set_numbers(plain, {n: own[n if n in own else "0" + n[1:]] for n in theirs})
    examples = stack([shared.task.draw(7, generator_for(0, "look"), held_out=False)], CPU)
    for model in (shared, plain):
        model.differentiate(examples.tokens, examples.labels)
    found, parts = (m.run_parameters(0, m.gradient) for m in (shared, plain))
    for name in "W_Q W_K W_V W_O".split():
        total = sum(parts[f"{layer}.{name}"] for layer in range(3))
        assert_close(found[f"0.{name}"], total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("word", "n_layers", "keys_of", "values_of"),
    [
        ("kv_every=3", 4, [0, 0, 0, 3], [0, 0, 0, 3]),
        ("kv_from=bottom_middle", 1, [0], [0]),
        ("kv_from=bottom_middle", 3, [0, 1, 1], [0, 1, 0]),
        ("kv_from=bottom_middle", 4, [0, 1, 1, 1], [0, 1, 0, 0]),
    ],
)
def test_upper_layers_use_the_very_keys_and_values_of_others(word, n_layers, keys_of, values_of):
    """Layers use the tensors of the layers that the wiring names, not copies of them."""
    model, _ = two_models(f"QKV {word}", "QKV", n_layers=n_layers)
    transformer, wiring = transformer_of(model), model.wirings[model.variants[0]]
    x, stages = transformer.embed(batch_for(model)), []
    for layer in range(n_layers):
        assert (wiring.leader(layer, "K"), wiring.leader(layer, "V")) == (
            keys_of[layer],
            values_of[layer],
        )
        stages.append(transformer.attend(layer, x, stages[-1] if stages else None))
        x = transformer.stream_after(layer, stages[-1])
    for layer, stage in enumerate(stages):
        assert stage.k is stages[keys_of[layer]].k
        assert stage.v is stages[values_of[layer]].v


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
