"""Every variant computes its formula, with its gradients, in all blocks and sides.

The formulas stand in `reference.py`, written apart from the library.
"""

import contextlib
import random

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from reference import (
    CPU,
    DOZEN,
    KNOWN,
    ONE_SIDE,
    SHAPES,
    TINY,
    TWO_SIDES,
    VARIANTS,
    InspectedExample,
    possible,
    settings_of,
    shake,
)
from searching import briefly
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.training.cohort import Cohort
from attnkit.training.data import stack
from attnkit.training.engine import kernel_knows
from attnkit.variants import OPTIONS, Variant

EVERY_SHAPE = {**SHAPES, **ONE_SIDE, **{f"two sides, {n}": one for n, one in TWO_SIDES.items()}}


def looked_at(experiment, n_steps):
    """Return inspected examples of a cohort after some steps; no parameter is 0."""
    cohort = Cohort(experiment, [1, 0], CPU)
    shake(cohort.model)
    cohort.advance(n_steps)
    return InspectedExample(cohort.model, experiment)


def check_symmetry(looked, variant):
    """Scores are symmetric exactly where the wiring says so: rounding, or far from it."""
    scores = [scores for scores, _ in looked.layers[looked.run(variant)]]
    error = max((s - s.mT).abs().max() / s.abs().max() for s in scores)
    symmetric = looked.experiment.wiring(variant.stages[0]).symmetric
    assert error < 1e-5 if symmetric else error > 1e-3


@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_all_variants_compute_their_formulas(shape, seed):
    """Answers, scores, patterns and gradients after three steps, side by side.

    All of them in one shape, in others one of every mechanism and some that are drawn. Every
    parameter learns, so no role that is tied has one of its own.
    """
    drawn = random.Random(f"{seed} {shape}").sample(VARIANTS, 2)
    chosen = VARIANTS if shape == "three heads" else [*DOZEN, *drawn]
    settings = settings_of(EVERY_SHAPE[shape])
    experiment = Experiment(sharing=possible(chosen, **settings), **settings)
    looked = looked_at(experiment, 3)
    wrong = {}
    for variant in experiment.sharing:
        try:
            looked.check(variant)
            assert looked.idle(variant) == []
            if shape in SHAPES:
                check_symmetry(looked, variant)
        except (AssertionError, KeyError) as error:
            wrong[str(variant)] = str(error)
    assert wrong == {}


def test_every_word_has_a_formula_and_is_among_the_dozen():
    """A word that is added needs its formula in tests/reference.py, and a name in the catalogue."""
    words = OPTIONS.keys() - {"module"}  # it is code of one's own, which is its own formula
    assert sorted(words - KNOWN) == []
    assert sorted(words - {word for variant in DOZEN for word in variant.given}) == []


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
    """Experiments of one variant of a sharing and some options, at some sizes."""
    form = draw(st.sampled_from(FORMS))
    words = [f"{form} d_head=m/h" if "I" in form else form]
    left_out = {"tie", "tie_by", "tie_at", "learning_rate"} | ({"d_head"} if "I" in form else set())
    known = sorted(OPTIONS.keys() & KNOWN - left_out)
    for name in draw(st.sets(st.sampled_from(known), max_size=5)):
        value = draw(st.sampled_from(VALUES.get(name, OPTIONS[name].samples)))
        words.append(name if value is None else f"{name}={value}")
    shape = {
        **EVERY_SHAPE[draw(st.sampled_from(list(EVERY_SHAPE)))],
        "d_model": draw(st.sampled_from([16, 48])),
        "n_heads": draw(st.sampled_from([1, 2, 4])),
        "d_head": draw(st.sampled_from([6, 7, 22])),
        "n_layers": draw(st.integers(1, 3)),
        "d_mlp": draw(st.sampled_from([0, 7])),
        "positions": draw(st.sampled_from(["none", *OPTIONS["positions"].samples])),
        "self_mask": draw(st.booleans()),
        "blocks": draw(st.sampled_from(["lean", "lean", "standard", "final_norm"])),
    }
    for n_words in range(len(words), 0, -1):  # without the last ones if they do not go together
        with contextlib.suppress(InvalidExperiment):
            return Experiment(sharing=" ".join(words[:n_words]), **settings_of(shape))
    return reject()  # rotary positions need an even width


@given(compositions())
@briefly(40)
def test_any_composition_that_is_allowed_computes_its_formula(experiment):
    """No combination of words is accepted and then computes something else, or nothing."""
    looked_at(experiment, 1).check(experiment.sharing[0])


# By hand, and against each other


def two_models(one, other, **given):
    """Models of one variant each, of the same seed."""
    sizes = {**TINY, "n_seeds": 1, "n_heads": 3, "d_head": 10, "n_layers": 2, **given}
    return [Model(Experiment(sharing=[text], **sizes), [0], CPU) for text in (one, other)]


def answers(model):
    """Logits, and scores of the first layer, for seven examples that all models of a size see."""
    layers, drawn = list[Layer](), model.task.draw(7, generator_for(3, "look"), held_out=False)
    return model.logits(stack([drawn], 1, CPU).tokens, layers), layers[0].scores


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
    assert_close(answers(one)[0], answers(other)[0], rtol=1e-5, atol=1e-5)


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
