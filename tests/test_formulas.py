"""Every variant computes its formula, as `reference.py` has it, with its gradients."""

import contextlib
import random

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from random_experiments import sizes
from reference import (
    CPU,
    DOZEN,
    KNOWN,
    ONE_SIDE,
    SHAPES,
    TWO_SIDES,
    VARIANTS,
    InspectedExample,
    possible,
    settings_of,
    shake,
)
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.cohort import Cohort
from attnkit.training.engine import kernel_knows
from attnkit.variants import OPTIONS, Variant

EVERY_SHAPE = {**SHAPES, **ONE_SIDE, **{f"two sides, {n}": one for n, one in TWO_SIDES.items()}}


def looked_at(experiment, n_steps):
    """Return inspected examples of a cohort after some steps; no parameter is 0."""
    cohort = Cohort(experiment, [1, 0], CPU)
    shake(cohort.model)
    cohort.advance(n_steps)
    return InspectedExample(cohort.model, experiment)


@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_all_variants_compute_their_formulas(shape, seed):
    """Answers, scores, patterns and gradients after three steps, side by side."""
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
                scores = [scores for scores, _ in looked.layers[looked.run(variant)]]
                error = max((s - s.mT).abs().max() / s.abs().max() for s in scores)
                symmetric = experiment.wiring(variant.stages[0]).symmetric
                assert error < 1e-5 if symmetric else error > 1e-3, "symmetry"
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
VALUES = {"d_head": ["m/h", "14", "2d"], "d_k": ["3", "d/2", "m/4"], "kv_heads": ["1", "2"]}


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
    widths = {"d_head": [6, 7, 22], "n_heads": [1, 2, 4], "d_model": [16, 48]}
    positions = ["none", "learned", *OPTIONS["positions"].samples]
    drawn = {name: draw(st.sampled_from(values)) for name, values in widths.items()}
    experiment = draw(sizes(**drawn, n_seeds=2))
    for n_words in range(len(words), 0, -1):  # without the last ones if they do not go together
        for one in (draw(st.sampled_from(positions)), "none"):  # rotary ones need an even width
            with contextlib.suppress(InvalidExperiment):
                return experiment.replace(sharing=" ".join(words[:n_words]), positions=one)
    return reject()


@given(compositions())
@briefly(40)
def test_any_composition_that_is_allowed_computes_its_formula(experiment):
    """No combination of words is accepted and then computes something else, or nothing."""
    looked_at(experiment, 1).check(experiment.sharing[0])


def test_what_the_kernel_trains_and_what_torch():
    """A variant that loses its kernel trains many times as slowly."""
    of_kernel = ["QKV positions=rope rope_width=4", "Q=K skew=2"]
    of_torch = ["QKV positions=rope rotate_values", "QKV v_norm", "QKV kv_residual=2"]
    for text in (*of_kernel, *of_torch, "K=V shared_half"):
        known = kernel_knows(Experiment(sharing=[text]), Variant(text))
        assert known is (text in of_kernel), text
