"""Standard blocks, two sides, sparse labels and given embeddings compute their formulas.

A sample of the catalogue; all of it in lean blocks stands in `test_variants`.
"""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    KNOWN,
    ONE_SIDE,
    SAMPLE,
    TWO_SIDES,
    check_formulas,
    looks_at,
    sized,
)
from searching import briefly

from attnkit.foundation.settings import InvalidExperiment
from attnkit.variants import OPTIONS
from attnkit.variants.sharing import Sharing

SHAPES = {f"one side, {name}": shape for name, shape in ONE_SIDE.items()} | {
    f"two sides, {name}": shape for name, shape in TWO_SIDES.items()
}
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_variant = pytest.mark.parametrize("variant", SAMPLE)


@cache
def looked_at(shape):
    """The sample side by side: at the start, and after three steps."""
    return looks_at(sized(SAMPLE, SHAPES[shape]))


@every_shape
@every_variant
def test_answers_are_those_of_the_formula(shape, variant):
    """Logits, scores and patterns of every layer, at the start and after some steps."""
    for looked in looked_at(shape):
        looked.check_logits(variant)


@every_shape
@every_variant
def test_gradients_are_those_of_the_formula(shape, variant):
    """Of the mean loss of what is asked; zero for embeddings that are given."""
    looked_at(shape)[1].check_gradients(variant)


IDLE = (
    "b_plus",  # of (X)⁺, one number for all scores
    "b_K",  # of keys that nothing else reads, the same for all scores of a row
)
"""What cancels in the softmax: its gradient is rounding, or nothing."""


@every_shape
@every_variant
def test_every_parameter_learns(shape, variant):
    """None is there for nothing, besides what cancels."""
    looked = looked_at(shape)[1]
    found = looked.model.run_parameters(looked.run(variant), looked.gradient)
    idle = {name for name, value in found.items() if not value.any()}
    assert {name for name in idle if not name.endswith(IDLE)} == set()


@pytest.mark.parametrize("word", sorted(OPTIONS))
def test_every_word_has_a_reference_formula(word):
    """A word is compared with a formula that was written apart from it, in tests/reference.py."""
    assert word in KNOWN, f"add {word!r} to KNOWN and its formula to Reference"


VALUES = {"d_head": ["m/h", "14", "2d"], "d_k": ["3", "d/2"], "kv_heads": ["1", "2"]}


@st.composite
def compositions(draw):
    """Experiments of one variant of a sharing and some options, at one of the shapes; or None."""
    words = [draw(st.sampled_from([*Sharing, "QKV Q=I", "QKV V=I", "Q=K=I", "Q=K V=I", "Q=K=V=I"]))]
    left_out = {"tie", "tie_by", "tie_at", "learning_rate"}
    known = sorted(OPTIONS.keys() & KNOWN - left_out)
    for name in draw(st.sets(st.sampled_from(known), max_size=3)):
        value = draw(st.sampled_from(VALUES.get(name, OPTIONS[name].samples)))
        words.append(name if value is None else f"{name}={value}")
    shape = {
        **SHAPES[draw(st.sampled_from(list(SHAPES)))],
        "blocks": draw(st.sampled_from(["lean", "standard", "final_norm"])),
        "positions": draw(st.sampled_from(["none", *OPTIONS["positions"].samples])),
        "self_mask": draw(st.booleans()),
    }
    try:
        return sized(" ".join(words), shape)
    except InvalidExperiment:
        return None


@given(compositions())
@briefly(30)
def test_any_composition_is_refused_or_computes_its_formula(experiment):
    """Whatever words, blocks, sides and positions come together; after one step."""
    if experiment is not None:
        check_formulas(experiment)
