"""Heads that are switched off and matrices that are tied at once: what is left, in another way."""

import numpy as np
import pytest
import torch
from filming import experiment_of, film_of
from reference import Reference

from attnkit.analysis.inspection import surgery
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.surgery import inspect_heads, inspect_ties
from attnkit.training import metrics
from attnkit.training.cohort import Cohort
from attnkit.training.data import held_out_examples
from attnkit.training.recorder import record
from attnkit.variants import Variant

CPU = torch.device("cpu")
ALL_TIES = {"Q=K": "QK", "K=V": "KV", "Q=V": "QV", "Q=K=V": "QKV"}


def heads_of(film):
    """What is found without heads."""
    return inspect_heads(film, Inspection("heads"))


def ties_of(film):
    """What is found if matrices are tied."""
    return inspect_ties(film, Inspection("ties"))


def rows_of(found, place=0):
    """(tie, by, text, refusal, accuracy) of a variant."""
    return [
        (row["tie"], row["by"], row["text"], row["refusal"], float(accuracy))
        for row, accuracy in zip(found.header["rows"], found.fixed["tied"], strict=True)
        if row["variant"] == place
    ]


def accuracy_without(film, place, layers, heads):
    """Accuracy by the formula if the rows of W_O that these heads go through are zero."""
    variant, experiment = film.experiment.sharing[place], film.experiment
    examples = held_out_examples(experiment, experiment.seeds, CPU)
    own = {n: torch.from_numpy(a).double() for n, a in film.frames[-1].parameters[place].items()}
    reference = Reference(experiment, variant)
    for layer in layers:
        by_head = own[f"{layer}.W_O"].unflatten(0, (reference.n_heads, -1)).clone()
        by_head[heads] = 0.0
        own[f"{layer}.W_O"] = by_head.flatten(0, 1)
    logits = reference.logits(own, examples.tokens[0])
    return float(metrics.accuracy(logits[None], examples.labels))


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("directed", {"n_heads": 2, "n_layers": 2, "d_mlp": 17}),
        ("dictionary", {"n_heads": 2}),
        ("swap", {"blocks": "standard", "d_mlp": 8}),
    ],
)
def test_a_head_that_is_switched_off_has_no_rows_in_w_o(task, settings):
    """One at a time, all of a layer, all of the model."""
    film = film_of(task, ("QKV", "Q=K=V", "MQA n_heads=4"), **settings, n_eval=128)
    found = heads_of(film)
    layers, everyone = range(len(film.experiment.layer_specs)), slice(None)
    for place, variant in enumerate(film.experiment.sharing):
        heads = range(film.experiment.wiring(variant).sizes.n_heads)
        expected = {
            "head": [[accuracy_without(film, place, [i], head) for head in heads] for i in layers],
            "layer": [accuracy_without(film, place, [i], everyone) for i in layers],
            "none": [accuracy_without(film, place, layers, everyone)],
        }
        for name, values in expected.items():
            np.testing.assert_allclose(found.fixed[f"{place}.{name}"], values, atol=1e-6)


@pytest.mark.parametrize("task", ["mqar", "dictionary", "transfer", "reverse"])
def test_the_whole_has_the_accuracy_of_the_lab(task):
    """At whichever frame comes last, that of an earlier task among them."""
    film = record(experiment_of(task, n_eval=64))
    for step in film.steps:
        seen = film.at(step)
        for found, name in ((heads_of(seen), "accuracy_whole"), (ties_of(seen), "untied")):
            assert (found.header["n_examples"], found.header["step"]) == (64, step)
            expected = seen.metric("accuracy")[0].astype("f4")
            np.testing.assert_array_equal(found.fixed[name], expected)
            np.testing.assert_array_equal(found.framed["accuracy"][0], expected)


def test_of_many_held_out_examples_the_first_are_answered(monkeypatch):
    """And the header says how many."""
    film = film_of(n_eval=64)
    monkeypatch.setattr(surgery, "MOST_EXAMPLES", 16)
    found = heads_of(film)
    assert found.header["n_examples"] == 16
    assert (found.fixed["accuracy_whole"] * 16 * 8 % 1 == 0).all()


def test_every_way_to_tie_is_tried():
    """All coarser sharings, by the average or any matrix that is there and would be tied.

    The texts are variants that are tied halfway; one that is tied in training has none.
    """
    film = film_of(sharing=("QKV", "Q=K", "K=V", "Q=K=V", "QKV tie=K=V"))
    found, start = ties_of(film), ties_of(film.at(0))
    ways = [[(tie, by) for tie, by, *_ in rows_of(found, place)] for place in range(5)]
    assert ways[0] == [
        (tie, by)
        for tie in ALL_TIES
        for by in ("average", *(f"keep_{role}" for role in ALL_TIES[tie]))
    ]
    assert ways[1] == [("Q=K=V", "average"), ("Q=K=V", "keep_Q"), ("Q=K=V", "keep_V")]
    assert ways[2] == [("Q=K=V", "average"), ("Q=K=V", "keep_Q"), ("Q=K=V", "keep_K")]
    assert ways[3] == []
    assert ways[4] == ways[2]
    assert len(rows_of(start, 4)) == 13
    assert {text for *_, text, _, _ in rows_of(found, 4)} == {""}
    for _, by, text, _, _ in rows_of(found):
        variant = Variant(text)
        assert len(variant.stages) == 2
        assert ("tie_by" in variant.given) == (by != "average")


@pytest.mark.parametrize("variant", ["QKV", "K=V", "MQA n_heads=2", "QKV diff", "K=V scaled"])
def test_tying_at_once_is_what_training_does_when_it_ties(variant):
    """The text that is told trains to the same weights, and is evaluated with this accuracy."""
    settings = {"n_eval": 128, "n_heads": 2, "learning_rate": 0.05}
    film = record(experiment_of("directed", sharing=[variant], **settings))
    rows = [row for row in rows_of(ties_of(film.at(2))) if not row[3]]
    for _, _, text, _, accuracy in rows:
        cohort = Cohort(experiment_of("directed", sharing=[text], **settings), [0], CPU)
        cohort.advance(2)
        assert cohort.experiment.tie_step(text) == cohort.evaluations[-1].step == 2
        assert accuracy == np.float32(cohort.evaluations[-1].metrics["accuracy"][0])
    assert len({row[-1] for row in rows}) > (len(rows) > 3)


def test_what_cannot_be_tied_says_why():
    """In plain words, a sentence, and without an accuracy; widths of equal costs are no reason."""
    for variant, tie, reason in (
        ("QKV d_k=3 d_v=10", "K=V", "Tied roles need one shape, but K has 1 × 3 and V has 1 × 10"),
        ("QKV K=I d_head=m/h", "Q=K", "A role that is the token has no matrix."),
        ("QKV kv_rank=m/4", "Q=K", ""),
    ):
        refused = [row for row in rows_of(ties_of(film_of(sharing=(variant,)))) if row[0] == tie]
        assert refused
        for *_, refusal, accuracy in refused:
            assert refusal.startswith(reason)
            assert refusal.endswith(".")
            assert np.isnan(accuracy)
    film = film_of(sharing=("QKV", "K=V"), equal="parameters")
    assert film.experiment.adjusted("K=V").changes
    found = ties_of(film)
    assert not any(row[3] for place in (0, 1) for row in rows_of(found, place))
    assert np.isfinite(found.fixed["tied"]).all()
