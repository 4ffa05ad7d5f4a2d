"""Every variant computes its formula, with its gradients; what is tied stays one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    CPU,
    KNOWN,
    SHAPES,
    TINY,
    check_formulas,
    every_shape,
    every_variant,
    looked_at,
    recorded_by,
    shake,
    two_models,
)
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.cohort import Cohort
from attnkit.variants import OPTIONS, Variant
from attnkit.variants.catalogue import search
from attnkit.variants.names import find

# The formula of every entry of the catalogue, and of compositions


@every_shape
@every_variant
@pytest.mark.parametrize("n_steps", [0, 3])
def test_answers_are_those_of_the_formula(shape, variant, n_steps):
    """Logits, scores and patterns, at the start and after some steps."""
    looked_at(shape)[n_steps > 0].check_logits(variant)


@every_shape
@every_variant
def test_gradients_are_those_of_the_formula(shape, variant):
    """Gradients of every parameter agree with the formula after some steps."""
    looked_at(shape)[1].check_gradients(variant)


@every_variant
def test_every_parameter_learns(variant):
    """None is there for nothing, save the b of (X)⁺, which cancels in the softmax."""
    looked = looked_at("three heads")[1]
    found = looked.model.run_parameters(looked.run(variant), looked.gradient)
    idle = {name for name, value in found.items() if not value.any()}
    assert {name for name in idle if not name.endswith("b_plus")} == set()


FORMS = [
    "QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "QKV Q=I", "QKV K=I", "QKV V=I", "Q=K=I", "K=V=I", "Q=V=I",
    "Q=K=V=I", "Q=K V=I", "K=V Q=I", "Q=V K=I",
]  # fmt: skip
VALUES = {
    "d_head": ["m/h", "m/h", "14", "2d"],
    "d_k": ["3", "d/2", "m/4"],
    "kv_heads": ["1", "2"],
    "d_mlp": ["0", "11"],
}


@st.composite
def compositions(draw):
    """Experiments of one variant of a sharing and some options, at some sizes; or None."""
    words = [draw(st.sampled_from(FORMS))]
    known = sorted(OPTIONS.keys() & KNOWN - {"tie", "tie_by", "tie_at", "learning_rate"})
    for name in draw(st.sets(st.sampled_from(known), max_size=4)):
        value = draw(st.sampled_from(VALUES.get(name, OPTIONS[name].samples)))
        words.append(name if value is None else f"{name}={value}")
    sizes = {
        "task": draw(st.sampled_from(["directed", "phonebook"])),
        "d_model": draw(st.sampled_from([16, 48])),
        "n_heads": draw(st.integers(1, 4)),
        "d_head": draw(st.sampled_from([6, 7, 22])),
        "n_layers": draw(st.integers(1, 3)),
        "d_mlp": draw(st.sampled_from([0, 7])),
        "positions": draw(st.sampled_from(["none", *OPTIONS["positions"].samples])),
        "causal": draw(st.booleans()),
        "self_mask": draw(st.booleans()),
    }
    try:
        return Experiment(sharing=" ".join(words), **{**TINY, **sizes})
    except InvalidExperiment:
        return None


@given(compositions())
@briefly(60)
def test_any_composition_is_refused_or_computes_its_formula(experiment):
    """No combination of words is accepted and then computes something else, or nothing."""
    if experiment is not None:
        check_formulas(experiment)


@pytest.mark.parametrize("form", ["QKV scaled", "Q=K scaled", "Q=K signed", "Q=K qk_norm"])
@pytest.mark.parametrize("maps", ["sum", "diff"])
def test_two_maps_have_diagonals_of_their_own(form, maps):
    """Two queries and keys per head: a factor for every number of both."""
    check_formulas(Experiment(sharing=f"{form} {maps}", n_heads=3, d_head=5, **TINY))


@pytest.mark.parametrize(
    "text", ["QKV Q=I O=I kv_every=2", "K=V Q=I O=I kv_every=3 positions=rope"]
)
def test_a_layer_can_have_no_parameter_at_all(text):
    """It asks with the token and hands on what it finds, with keys and values of the first."""
    sizes = {"d_model": 48, "n_heads": 3, "d_head": 16, "n_layers": 2}
    check_formulas(Experiment(sharing=text, **sizes, **TINY))


@every_variant
def test_scores_are_symmetric_exactly_where_the_wiring_says_so(variant):
    """All maps of all layers, after some steps: rounding level, or far from it."""
    for shape in SHAPES:
        looked = looked_at(shape)[1]
        scores = [scores for scores, _ in looked.layers[looked.run(variant)]]
        error = max((s - s.mT).abs().max() / s.abs().max() for s in scores)
        symmetric = looked.experiment.wiring(Variant(variant).stages[0]).symmetric
        assert error < 1e-5 if symmetric else error > 1e-3


def test_scores_with_unit_keys_differ_both_ways_only_by_the_lengths_of_the_vectors():
    """S_ij |q_j| = S_ji |q_i|, and S_ii = |q_i|; as the texts of Reformer and `unit_key` say."""
    model, _ = two_models("Q=K unit_key", "QKV")
    shake(model)
    for layer in recorded_by(model):
        lengths = layer.scores.diagonal(dim1=-2, dim2=-1)
        weighed = layer.scores * lengths[..., None, :]
        assert (weighed - weighed.mT).abs().max() / weighed.abs().max() < 1e-5
        assert (layer.scores - layer.scores.mT).abs().max() / layer.scores.abs().max() > 1e-3
    assert "almost symmetric" in find("Reformer").explanation
    assert "almost symmetric" in OPTIONS["unit_key"].help


@pytest.mark.parametrize(
    ("positions", "stay"),
    [
        ("none", True),
        ("learned", True),
        ("rope", True),
        ("alibi", True),
        ("relative", False),
        ("key_bias", False),
        ("plus", False),
    ],
)
def test_which_positions_keep_shared_queries_and_keys_symmetric(positions, stay):
    """max|S − Sᵀ| of Q=K is rounding with RoPE and ALiBi; a learned bias has a direction."""
    model, _ = two_models(f"Q=K positions={positions}", "QKV")
    shake(model)
    for layer in recorded_by(model):
        error = (layer.scores - layer.scores.mT).abs().max() / layer.scores.abs().max()
        assert error < 1e-5 if stay else error > 1e-2


# Tied parameters stay one parameter

PLAIN = "W_Q W_K W_V W_O"
NAMES = [  # variant, parameters of the first layer, and of the second where they differ
    ("QKV", PLAIN),
    ("Q=K", "W_Q W_V W_O"),
    ("K=V", "W_Q W_K W_O"),
    ("Q=V", "W_Q W_K W_O"),
    ("Q=K=V", "W_Q W_O"),
    ("QKV Q=I d_head=m/h", "W_K W_V W_O"),
    ("QKV K=I d_head=m/h", "W_Q W_V W_O"),
    ("QKV V=I d_head=m/h", "W_Q W_K W_O"),
    ("Q=K=I d_head=m/h", "W_V W_O"),
    ("K=V Q=I d_head=m/h", "W_K W_O"),
    ("QKV O=I d_head=m/h", "W_Q W_K W_V"),
    ("Q=K=V=I O=I d_head=m/h", ""),
    ("K=V n_heads=4 kv_heads=1", "W_Q W_K W_O"),
    ("Q=K d_v=3", "W_Q W_V W_O"),
    ("QKV keyless", "W_Q W_V W_VK W_O"),
    ("Q=V keyless", "W_Q W_VK W_O"),
    ("QKV kv_rank=m/4", "W_Q W_C W_K W_V W_O"),
    ("K=V kv_rank=m/4", "W_Q W_C W_K W_O"),
    ("QKV k_rank=3", "W_Q W_B W_K W_V W_O"),
    ("Q=K signed", "W_Q W_V W_O D"),
    ("Q=K=V scaled", "W_Q W_O D_Q D_K D_V"),
    ("Q=K unit_key self_mask", "W_Q W_V W_O"),
    ("Q=K diff", "W_Q W_V W_O lambda_q1 lambda_k1 lambda_q2 lambda_k2"),
    ("Q=K sum", "W_Q W_V W_O"),
    ("Q=K positions=relative", "W_Q W_V W_O b_offset"),
    ("Q=K positions=key_bias", "W_Q W_V W_O b_key"),
    ("Q=K=V positions=plus", "W_Q W_O w_plus b_plus"),
    ("Q=K positions=rope", "W_Q W_V W_O"),
    ("QKV shared_layers", PLAIN, ""),
    ("K=V shared_layers", "W_Q W_K W_O", ""),
    ("QKV kv_every=2", PLAIN, "W_Q W_O"),
    ("K=V kv_every=2", "W_Q W_K W_O", "W_Q W_O"),
    ("QKV kv_rank=3 kv_every=2", "W_Q W_C W_K W_V W_O", "W_Q W_O"),
    ("QKV start=Q=K=V", PLAIN),
]


@pytest.mark.parametrize("row", NAMES, ids=lambda row: row[0])
def test_what_is_shared_is_there_once(row):
    """After some steps beside QKV: the parameters that the table says, and no others."""
    text, *layers = row
    sizes = {"n_layers": 2, "n_heads": 2, "d_mlp": 7}
    cohort = Cohort(Experiment(sharing={"QKV", text}, **sizes, **TINY), [0, 1], CPU)
    cohort.advance(2)
    expected = {"W_E", "W_U", "0.W_in", "0.W_out", "1.W_in", "1.W_out"}
    expected |= {f"0.{name}" for name in layers[0].split()}
    expected |= {f"1.{name}" for name in layers[-1].split()}
    for (variant, _), own in zip(cohort.runs, cohort.parameters(), strict=True):
        if variant == Variant(text):
            assert set(own) == expected


# Searching the catalogue


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("multi-query", ["MQA", "K=V + MQA"]),
        ("multi query", ["MQA", "K=V + MQA"]),
        ("multiquery", ["MQA", "K=V + MQA"]),
        ("grouped", ["GQA", "K=V + GQA"]),
        ("DeepSeek", ["K=V + MQA", "MLA", "MLA with K=V"]),
        ("MLA", ["MLA", "MLA with K=V"]),
        ("gqa", ["GQA", "K=V + GQA", "MHA-4"]),
        ("differential", ["Differential"]),
        ("rotary", ["RoPE", "RoPE with Q=K"]),
        ("reformer", ["Reformer", "Self-masked Q=K"]),
        ("linear", ["ALiBi"]),
        ("2405.12981", ["CLA", "CLA with K=V"]),
        ("grouped shared", ["K=V + GQA"]),
        ("K=V n_heads=4 kv_heads=1", ["K=V + MQA"]),
        ("own position scheme", ["Learned positions", "RoPE"]),
        ("Ainslie", ["GQA"]),
        ("Llama", ["GQA", "RoPE"]),
        ("no such thing", []),
        (" - ", []),
    ],
)
def test_the_catalogue_is_searched_by_name_alias_and_description(query, found):
    """Entries whose name or alias has the words come first; letters within a word do not count."""
    names = [named.name for named in search(query)]
    assert names[: len(found)] == found
    assert bool(names) == bool(found)


def test_a_search_offers_nothing_that_lacks_the_word():
    """ "linear" once offered learned positions, which have its letters in this order."""
    assert "Learned positions" not in [named.name for named in search("linear")]
