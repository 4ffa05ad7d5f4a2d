"""Hypothesis strategies that draw experiments of any kind and variants; problems of wrong ones."""

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from attnkit.experiment.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.variants import CATALOGUE

TINY = {"batch_size": 16, "n_eval": 16, "n_names": 17, "n_values": 13}

# Small values of the dials, for one task of every kind.
DIALS = {
    "directed": {"n_entries": (4, 5, 7, 11), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "phonebook": {"n_entries": (4, 5, 7, 11), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "mutual": {"n_entries": (4, 6, 10), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "mqar": {"n_tokens": (16, 22), "n_pairs": (2, 3), "length": (12, 14)},
    "dictionary": {"n_words": (2, 5, 7), "n_vocab": (11, 17), "order": ("same", "reversed")},
    "reverse": {"length": (2, 5, 7), "n_symbols": (8, 11)},
    "transfer": {"n_entries": (2, 5), "n_names": (11, 17), "n_values": (7, 13)},
    "neighbours": {"n_asking": (2, 3), "n_families": (3, 5), "n_values": (11, 13)},
    "language": {"length": (16, 19), "objective": ("next", "masked")},
}
BOOLEANS = (False, True)
CHOICES = {
    "n_seeds": (1, 2, 3), "first_seed": range(1000), "d_model": (16, 32, 48),
    "n_heads": (1, 2, 3, 5), "d_head": range(1, 20), "n_layers": (1, 2, 3), "d_mlp": (0, 1, 7, 37),
    "positions": ("none", "learned"), "causal": BOOLEANS, "self_mask": BOOLEANS,
    "blocks": ("lean", "standard", "final_norm"), "batch_size": (16, 32, 48), "clip": (0.0, 0.3),
    "n_train": (0, 0, 48, 80), "schedule": ("constant", "cosine"), "warm_up": (0.0, 0.5),
    "n_eval": (16, 48),
}  # fmt: skip


@st.composite
def sizes(draw, **fixed):
    """Draw an experiment of any kind and shape that trains a few steps in a moment."""
    task = draw(st.sampled_from(tuple(DIALS)))
    choices = {**CHOICES, **DIALS[task]}
    drawn = {name: draw(st.sampled_from(values)) for name, values in choices.items()}
    drawn |= {"task": task, "steps": 4, "evaluate_every": 2}
    if task == "dictionary":
        drawn["n_layers"] = min(2, drawn["n_layers"])
    if task == "transfer":
        drawn["earlier_steps"] = 2
    if drawn.get("objective") == "next":
        drawn["causal"] = True
    return Experiment(**{**drawn, **fixed})


COMPOSED = (
    "K=V n_heads=4 kv_heads=2 positions=rope",
    "K=V kv_rank=m/4 kv_every=2 unit_key",
    "Q=V keyless n_heads=3 d_head=5 positions=alibi",
    "Q=K sum signed d_head=7",
    "Q=K=V skew=4 unit_key d_head=6",
    "K=V qk_norm d_head=6 positions=rope rope_width=4",
    "K=V d_head=6 exclusive positions=rope rotate_values",
    "QKV d_k=3 d_v=11 d_mlp=13 shared_layers",
    "Q=K=V scaled positions=key_bias learning_rate=0.02",
    "QKV qk_norm positions=learned_plus",
    "QKV V=I O=I d_head=m/h self_mask",
    "QKV n_heads=2 start=Q=K=V tie=Q=K tie_by=keep_Q tie_at=0.6 positions=relative",
)

any_variant = st.sampled_from([*(named.variant for named in CATALOGUE.values()), *COMPOSED])


@st.composite
def mixed(draw, **fixed):
    """Draw an experiment whose variants are any of the catalogue and of `COMPOSED`."""
    sizes_drawn = draw(sizes(n_seeds=draw(st.integers(1, 3)), **fixed))
    chosen = draw(st.sets(any_variant, min_size=2, max_size=6))
    possible = []
    for variant in chosen:
        try:
            possible.append(sizes_drawn.replace(sharing=[variant]).sharing[0])
        except InvalidExperiment:  # a width that these sizes do not divide
            continue
    assume(possible)
    return sizes_drawn.replace(sharing=possible)


def problem_of(**given):
    """Return the only problem of wrong settings."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**given)
    (problem,) = caught.value.problems
    assert str(caught.value) == str(problem)
    return problem
