"""What the families of variants claim about each other, each shown on numbers."""

import pytest
import torch
from reference import (
    CPU,
    embedded,
    logits_of,
    norm,
    recorded_by,
    set_numbers,
    shake,
    two_models,
    waves,
)
from torch.testing import assert_close

from attnkit.model.initial import generator_for
from attnkit.model.reference import Layer
from attnkit.training.data import stack

# No projection, heads and widths


def test_identity_roles_are_the_token_cut_into_heads():
    """Q=K=I: the scores of a head are products of the tokens' own numbers."""
    model, _ = two_models("Q=K=I d_head=m/h", "QKV", d_model=48)
    rows = norm(embedded(model)).unflatten(-1, (3, 16)).transpose(1, 2)
    assert_close(recorded_by(model)[0].scores[0], rows @ rows.mT / 4)


def test_a_model_without_projections_averages_tokens():
    """Q=K=V=I O=I: what is added to a token lies in the convex hull of all tokens."""
    model, _ = two_models("Q=K=V=I O=I d_head=m/h", "QKV", d_model=48, n_heads=1, n_layers=1)
    x, w_u = embedded(model), model.run_parameters(0)["W_U"]
    pattern = recorded_by(model)[0].pattern[0, :, 0]
    assert_close(logits_of(model)[0], norm(x + pattern @ norm(x)) @ w_u)


@pytest.mark.parametrize("form", ["QKV", "K=V"])
def test_as_many_key_heads_as_query_heads_is_plain(form):
    """kv_heads = n_heads is MHA: computed in another way, from the same initial numbers."""
    grouped, plain = two_models(f"{form} n_heads=4 kv_heads=4", f"{form} n_heads=4")
    assert_close(logits_of(grouped), logits_of(plain), rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (
            "QKV d_k=d/2 d_v=2d",
            {"W_Q": (32, 15), "W_K": (32, 15), "W_V": (32, 60), "W_O": (60, 32)},
        ),
        ("QKV d_head=7 d_v=d", {"W_Q": (32, 21), "W_V": (32, 21)}),
        ("QKV n_heads=2 d_head=m/h", {"W_Q": (32, 32), "W_O": (32, 32)}),
        ("QKV n_heads=4 kv_heads=2 d_v=3", {"W_K": (32, 20), "W_V": (32, 6), "W_O": (12, 32)}),
        ("QKV kv_rank=m/4", {"W_C": (32, 8), "W_K": (8, 30), "W_V": (8, 30)}),
        ("QKV k_rank=d/2", {"W_B": (32, 5), "W_K": (5, 30), "W_V": (32, 30)}),
        ("QKV d_k=3 keyless", {"W_Q": (32, 9), "W_VK": (3, 10, 3)}),
        ("QKV d_k=d/2 diff", {"W_Q": (32, 30), "W_K": (32, 30), "W_V": (32, 30)}),
    ],
)
def test_shapes_are_those_of_the_widths(text, shapes):
    """With d_model 32, three heads of 10."""
    model, _ = two_models(text, "QKV")
    own = model.run_parameters(0)
    assert {name: tuple(own[f"0.{name}"].shape) for name in shapes} == shapes


# Low rank


@pytest.mark.parametrize(
    ("text", "full", "narrow"),
    [
        ("QKV kv_rank=7", "QKV", {"W_K": "W_C", "W_V": "W_C"}),
        ("K=V kv_rank=7", "K=V", {"W_K": "W_C"}),
        ("QKV k_rank=7", "QKV", {"W_K": "W_B"}),
    ],
)
def test_low_rank_is_full_with_the_product_of_both_matrices(text, full, narrow):
    """W_C W_K in place of W_K, and so on."""
    squeezed, wide = two_models(text, full, n_layers=1)
    own = squeezed.run_parameters(0)
    same = {name: own[name] for name in wide.run_parameters(0) if name[2:] not in narrow}
    products = {f"0.{name}": own[f"0.{by}"] @ own[f"0.{name}"] for name, by in narrow.items()}
    set_numbers(wide, same | products)
    assert_close(logits_of(squeezed), logits_of(wide), rtol=1e-5, atol=1e-5)


def test_one_keyless_head_represents_any_qkv():
    """W_VK = W_V⁻¹ W_K, where d_head = d_model and W_V is invertible."""
    keyless, plain = two_models("QKV keyless", "QKV", n_heads=1, d_model=16, d_head=16, n_layers=1)
    own = plain.run_parameters(0)
    solved = torch.linalg.solve(own["0.W_V"].double(), own["0.W_K"].double())
    kept = {name: value for name, value in own.items() if name != "0.W_K"}
    set_numbers(keyless, kept | {"0.W_VK": solved[None]})
    assert_close(logits_of(keyless), logits_of(plain), rtol=1e-4, atol=1e-4)


def test_a_keyless_head_computes_keys_from_its_own_values_only():
    """A change of one head's W_VK changes the scores of that head alone."""
    model, _ = two_models("QKV keyless", "QKV", n_layers=1)
    before = recorded_by(model)[0].scores
    model.run_parameters(0)["0.W_VK"][1] += 1
    changed = (recorded_by(model)[0].scores != before).flatten(3).any(-1).any(1)[0]
    assert changed.tolist() == [False, True, False]


# Partly tied, four matrices


def test_signed_scores_are_indefinite_and_those_of_q_k_are_not():
    """Q D Qᵀ has eigenvalues of both signs; Q Qᵀ has none below zero."""
    signed, plain = two_models("Q=K signed", "Q=K")
    lowest = [
        torch.linalg.eigvalsh(recorded_by(model)[0].scores.double()).amin(-1)
        for model in (signed, plain)
    ]
    assert (lowest[0] < -0.01).all()
    assert (lowest[1] > -1e-5).all()


@pytest.mark.parametrize(("text", "plain"), [("Q=K signed", "Q=K"), ("Q=K=V scaled", "Q=K=V")])
def test_diagonals_of_ones_change_nothing(text, plain):
    """D = 1 is plain sharing."""
    with_diagonals, without = two_models(text, plain)
    for name, value in with_diagonals.run_parameters(0).items():
        if name[2:].startswith("D"):
            value.fill_(1)
    assert_close(logits_of(with_diagonals), logits_of(without), rtol=1e-5, atol=1e-5)


def test_scaled_roles_are_separate_matrices_that_differ_by_a_diagonal():
    """QKV with W D_Q, W D_K, W D_V."""
    scaled, plain = two_models("Q=K=V scaled", "QKV", n_layers=1)
    shake(scaled)
    own = scaled.run_parameters(0)
    made = {f"0.W_{role}": own["0.W_Q"] * own[f"0.D_{role}"].flatten() for role in "QKV"}
    set_numbers(plain, made | {name: own[name] for name in ("W_E", "W_U", "0.W_O")})
    assert_close(logits_of(scaled), logits_of(plain), rtol=1e-5, atol=1e-5)


def test_two_added_scores_are_one_of_twice_the_width():
    """[Q₁ Q₂][K₁ K₂]ᵀ: the same matrices, and still divided by √4."""
    added, wide = two_models("QKV sum", "QKV d_k=2d temperature=2", d_head=4)
    assert_close(logits_of(added), logits_of(wide), rtol=1e-5, atol=1e-5)


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


def test_reformer_scores_are_the_query_s_length_times_a_cosine():
    """k / ‖k‖ and no division by √d: a row's largest score is its own, ‖q‖."""
    model, _ = two_models("Q=K unit_key self_mask", "QKV", n_layers=1)
    q = (norm(embedded(model)) @ model.run_parameters(0)["0.W_Q"]).unflatten(-1, (3, 10))
    scores = recorded_by(model)[0].scores[0]
    lengths = q.norm(dim=-1).transpose(1, 2)  # (b, h, i)
    assert_close(scores.diagonal(dim1=-2, dim2=-1), lengths)
    assert (scores <= lengths[..., None] + 1e-5).all()


def test_reformer_s_self_mask_is_soft():
    """Under a causal mask the first token still sees itself, the others never."""
    model, _ = two_models("Q=K unit_key self_mask", "QKV", causal=True, self_mask=False)
    for layer in recorded_by(model):
        of_itself = layer.pattern.diagonal(dim1=-2, dim2=-1)
        assert (of_itself[..., 0] == 1).all()
        assert (of_itself[..., 1:] == 0).all()


@pytest.mark.parametrize("text", ["QKV temperature=2.5", "QKV unit_key temperature=2.5"])
def test_a_temperature_divides_the_bare_products(text):
    """In place of √d_k, with unit keys, too."""
    hot, one = two_models(text, text.replace("2.5", "1"), n_layers=1)
    assert_close(recorded_by(hot)[0].scores, recorded_by(one)[0].scores / 2.5)
    assert not torch.equal(logits_of(hot), logits_of(one))


def test_a_temperature_of_the_root_of_the_width_is_plain():
    """QKV with d_head 4 divides by 2."""
    hot, plain = two_models("QKV temperature=2", "QKV", d_head=4)
    assert_close(logits_of(hot), logits_of(plain), rtol=1e-5, atol=1e-5)


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


def test_learned_plus_is_plus_with_a_vector_for_every_position():
    """With vectors of zero it is (X)⁺; others are added to tokens before the first layer."""
    both, plus = two_models("Q=K positions=learned_plus", "Q=K positions=plus")
    shake(both)
    own = both.run_parameters(0)
    set_numbers(plus, {name: value for name, value in own.items() if name != "W_pos"})
    assert own["W_pos"].shape == (5, 32)
    assert own["W_pos"].std() == pytest.approx(0.5, rel=0.2)
    assert not torch.allclose(logits_of(both), logits_of(plus), atol=1e-2)
    drawn = own["W_pos"].clone()
    own["W_pos"].zero_()
    assert_close(logits_of(both), logits_of(plus))
    own["W_pos"].copy_(drawn)
    learned, _ = two_models("Q=K positions=learned", "QKV")
    set_numbers(learned, {name: own[name] for name in learned.run_parameters(0)})
    first = recorded_by(both)[0].scores, recorded_by(learned)[0].scores
    w, b = own["0.w_plus"], own["0.b_plus"]
    of_rows, of_columns = (waves(torch.arange(5.0)) @ part for part in w.chunk(2))
    expected = first[1] * w.sum() + (of_rows[:, None] + of_columns + b)
    assert_close(first[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", ["rope", "alibi", "relative"])
def test_scores_depend_on_the_offset_only(positions):
    """Between equal tokens: S is constant along its diagonals, and not everywhere."""
    model, _ = two_models(f"QKV positions={positions}", "QKV", n_layers=1)
    shake(model)
    layers = list[Layer]()
    model.logits(torch.full((1, 1, 5, 3), 3), layers)
    scores = layers[0].scores[0, 0]
    assert_close(scores[:, 1:, 1:], scores[:, :-1, :-1], rtol=1e-4, atol=1e-5)
    assert (scores[:, 0, 1:] - scores[:, :1, 0]).abs().max() > 0.01


def test_key_bias_adds_the_same_to_every_row():
    """S − S without it is g(j)."""
    biased, plain = two_models("QKV positions=key_bias", "QKV", n_layers=1)
    shake(biased)
    added = recorded_by(biased)[0].scores - recorded_by(plain)[0].scores
    g = biased.run_parameters(0)["0.b_key"]  # (h, j)
    assert_close(added, g[None, None, :, None].expand_as(added), rtol=1e-4, atol=1e-5)


def test_slopes_of_alibi_are_those_of_the_paper():
    """Eight heads: 1/2, 1/4 … 1/256 per step, in both directions."""
    biased, plain = two_models("QKV positions=alibi", "QKV", n_heads=8, n_layers=1)
    added = (recorded_by(biased)[0].scores - recorded_by(plain)[0].scores)[0, 0]
    assert_close(added[:, 0, 1], -(0.5 ** torch.arange(1, 9)), rtol=1e-3, atol=1e-5)
    assert_close(added[:, 4, 0], 4 * added[:, 0, 1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("positions", ["relative", "key_bias"])
def test_learned_biases_start_from_nothing(positions):
    """Their variants start as the plain model does."""
    biased, plain = two_models(f"Q=K positions={positions}", "Q=K")
    assert_close(logits_of(biased), logits_of(plain), rtol=1e-5, atol=1e-5)


# Across layers


@pytest.mark.parametrize("text", ["QKV shared_layers", "QKV kv_every=2", "K=V kv_every=3"])
def test_one_layer_shares_with_no_other(text):
    """It is the plain model."""
    shared, plain = two_models(text, text.split()[0], n_layers=1)
    assert_close(logits_of(shared), logits_of(plain), rtol=1e-5, atol=1e-5)


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


def test_layers_that_reuse_keys_and_values_make_none():
    """kv_every=2: what the second layer looks at does not depend on its own stream."""
    model, _ = two_models("QKV kv_every=2", "QKV", n_layers=2, n_heads=1)
    own = model.run_parameters(0)
    own["1.W_Q"].copy_(own["0.W_Q"])
    own["0.W_O"].zero_()  # both layers ask with the same stream
    first, second = recorded_by(model)
    assert torch.equal(first.scores, second.scores)
