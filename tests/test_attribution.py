"""Attributions: parts of two tokens add up to a score, and values of tokens to a logit, exactly."""

import random
from functools import cache

import numpy as np
import pytest
from filming import SHORT, film_of, reference_of, shaken
from kinds import KINDS, every_task
from numpy.testing import assert_allclose
from reference import NAMED, ONE_SIDE, SHAPES, TWO_SIDES, possible, settings_of

import attnkit as ak
from attnkit.analysis.inspection.attribution import NO_SUM
from attnkit.analysis.inspection.inspected_example import examples_of
from attnkit.analysis.inspection.lookup import inspect_attention
from attnkit.analysis.inspection.request import Inspection
from attnkit.tasks import NOTHING
from attnkit.training.recorder import record
from attnkit.variants.maps import SumOption

NEAR = 1e-5
"""Of the largest amount in a sum, which counts as 1 at least."""


@cache
def film_of_catalogue(shape):
    """All variants of the catalogue that a shape allows, at the last of few steps."""
    given = settings_of({**SHAPES, **ONE_SIDE, **TWO_SIDES}[shape] | SHORT | {"steps": 2})
    experiment = ak.Experiment(sharing=possible(NAMED, **given), **given)
    film = shaken(record(experiment))
    return film.at(film.steps[-1])


def arrays_of(found, place, frame=-1):
    """The arrays of a variant's attribution at one frame."""
    start = f"{place}.why."
    return {n.removeprefix(start): a[frame] for n, a in found.framed.items() if n.startswith(start)}


def check(film, asked):
    """Hold the sums of all variants that have the head against the formula; count the variants."""
    found = inspect_attention(film, Inspection("attention", **asked))
    header, n_checked = found.header, 0
    layer, head = asked["layer"], asked.get("head", 0)
    spec = film.experiment.layer_specs[layer]
    query = header["layers"][layer]["row_positions"][header["row"]]
    i, j = query - spec.query_positions[0], asked["key_position"] - spec.key_positions[0]
    for place in range(len(film.experiment.sharing)):
        arrays, variant = arrays_of(found, place), header["variants"][place]
        assert variant["attribution"]["note"] == ""
        reference, logits, _ = reference_of(film, place, len(film.frames) - 1)
        if head >= reference.n_heads:
            assert arrays == {}
            continue
        example, n_checked = asked.get("example", 0), n_checked + 1
        scores = reference.stages[layer]["scores"][example][head]  # (p, i, j)
        pairs = [("", "parts", "bias", scores[:, i, j])]
        if spec.square:
            pairs.append(("reverse", "reverse_parts", "reverse_bias", scores[:, j, i]))
        for _, parts, bias, score in pairs:
            total = arrays[parts].sum((-2, -1)) + arrays[bias]
            near = NEAR * max(1, np.abs(arrays[parts]).max())
            assert_allclose(total, score.numpy(), rtol=0, atol=near, err_msg=variant["text"])
        if header["is_asked"]:
            check_answer(film, header, arrays, variant, logits[example])
    return found, n_checked


def check_answer(film, header, arrays, variant, logits):
    """Hold the sums of both answers against the logits of the formula."""
    answer = header["layers"][header["layer"]]["row_positions"][header["row"]]
    logits = logits[answer - film.experiment.task.answers_from].numpy()
    layers = variant["attribution"]["layers"]
    amounts = [arrays["direct"].sum(-1)]
    amounts += [arrays[f"values.{layer}"].sum((-2, -1)) for layer in layers]
    for which, known in ((0, True), (1, header["right"] != NOTHING)):
        wanted = logits[arrays["classes"][which]] if known else np.nan
        total = sum(one[which] for one in amounts)
        assert_allclose(total, wanted, rtol=0, atol=NEAR * max(1, np.abs(logits).max()))
    assert arrays["classes"][0] == logits.argmax()


CATALOGUE = [  # shape, layer, head; at night the longest one, too
    ("one head", 0, 0),
    ("final norm", 1, 1),
    ("lean", 2, 0),
    pytest.param("standard", 4, 1, marks=pytest.mark.long(seconds=5)),
]


@pytest.mark.parametrize(("shape", "layer", "head"), CATALOGUE)
def test_sums_are_exact_for_every_variant_of_the_catalogue(shape, layer, head, seed):
    """In lean and standard blocks, in one layer and in two, in a stack and across two sides.

    The seed draws example, query and key.
    """
    film, draw = film_of_catalogue(shape), random.Random(seed)
    first, end = film.experiment.layer_specs[layer].key_positions
    _, n_checked = check(
        film,
        {
            "layer": layer,
            "head": head,
            "key_position": draw.randrange(first, end),
            "query_index": draw.randrange(4),
            "example": draw.randrange(32),
        },
    )
    assert n_checked >= (54 if shape == "one head" else len(film.experiment.sharing) // 2)


@every_task
def test_sums_are_exact_on_every_task(task):
    """In the first and the last layer; the parts are the fields of its tokens, by name."""
    film = film_of(task, **KINDS.get(task, {}))
    film = film.at(film.steps[-1])
    for layer in {0, len(film.experiment.layer_specs) - 1}:
        _, end = film.experiment.layer_specs[layer].key_positions
        asked = {"layer": layer, "key_position": end - 1, "query_index": 1, "example": 2}
        found, _ = check(film, asked)
        parts = found.header["variants"][0]["attribution"]["parts"]["query"]
        names = film.experiment.task.field_names
        assert parts[: len(names)] == list(names)
    assert len(set(names)) == film.experiment.task.n_fields


def test_with_one_matrix_both_directions_add_the_same_numbers():
    """Also if keys have factors, or both are rotated; not with two matrices or unit keys."""
    same = ("Q=K", "Q=K=V", "Q=K signed", "Q=K positions=rope", "Q=K positions=relative")
    film = film_of("directed", (*same, "QKV", "K=V", "Q=K unit_key", "Q=K skew=2"))
    film = film.at(film.steps[-1])
    found = inspect_attention(film, Inspection("attention", key_position=3, query_index=1))
    texts = found.header["sentences"]["attribution"][-1]
    for place, (variant, text) in enumerate(zip(film.experiment.sharing, texts, strict=True)):
        arrays = arrays_of(found, place)
        apart = np.abs(arrays["parts"] - arrays["reverse_parts"]).max()
        is_same = variant.value in same
        assert (apart < 1e-12) == is_same, variant
        assert ("same numbers" in text, "other numbers" in text) == (is_same, not is_same), variant
        assert ("one matrix" in text) == (is_same and "relative" not in variant), variant


def test_parts_do_what_their_names_say():
    """A change of one field of the query's token changes the row of this field alone."""
    film = film_of("directed", ("QKV",))
    film = film.at(film.steps[-1])
    (frame,) = film.frames
    task, own = film.experiment.task, frame.parameters[0]
    asked = Inspection("attention", key_position=3, query_index=1)
    tokens = examples_of(task).tokens[0]
    arrays = arrays_of(inspect_attention(film, asked), 0)
    x = own["W_E"][tokens.numpy()].astype(float)  # (i, fields, m)
    sizes = np.sqrt((x.sum(1) ** 2).mean(-1) + 1e-6)
    rows = x / sizes[:, None, None]
    w_qk = own["0.W_Q"].astype(float) @ own["0.W_K"].astype(float).T
    d_k = film.experiment.wiring(film.experiment.sharing[0]).sizes.d_k
    wanted = rows[1] @ w_qk @ rows[3].T / np.sqrt(d_k)
    assert_allclose(arrays["parts"][0], wanted, atol=1e-9)


def test_tables_add_up_and_have_names():
    """One row per pair of parts and per value; groups add up to the totals."""
    found = ak.inspect(film_of(), ak.Inspection("attention", key_position=3, query_index=1))
    own = type(found).from_bytes(found.to_bytes()).attribution
    of = own.totals.groupby("quantity")
    for table, quantity, which in (
        (own.scores, "score", "direction"),
        (own.logits, "logit", "answer"),
    ):
        place = ["step", "variant", which, *["map"] * (quantity == "score")]
        amounts = table.groupby(place)["amount"].sum()
        wanted = of.get_group(quantity).rename(columns={"which": which}).set_index(place)["amount"]
        assert_allclose(amounts, wanted.loc[amounts.index], atol=1e-9)
    assert set(own.scores["query_part"]) == {"name", "boss", "number", "position bias"}
    assert set(own.logits["part"]) == {"value", "name", "boss", "number"}
    tokens = found.header["attribution"]["tokens"]
    read_from = own.logits[own.logits["part"] == "value"]
    assert (read_from["token"] == [tokens[p] for p in read_from["position"]]).all()
    reverse = own.scores[(own.scores["variant"] == "Q=K") & (own.scores["step"] == 4)]
    pairs = reverse.pivot_table("amount", ["query_part", "key_part"], "direction")
    swapped = pairs["reverse"].swaplevel().reindex(pairs.index)
    assert_allclose(swapped, pairs["forward"], atol=1e-12)


def test_without_a_key_there_is_no_attribution():
    """The message names the field; keys that do not exist are refused, and a hidden one is told."""
    found = ak.inspect(film_of(), ak.Inspection("attention"))
    assert not any(".why." in name for name in found.framed)
    with pytest.raises(ValueError, match="key_position: got none"):
        _ = found.attribution
    for wrong, allowed in ((8, "0 to 7"), (-1, ".* from 0")):
        with pytest.raises(ValueError, match=f"key_position: got {wrong}, allowed {allowed}"):
            ak.inspect(film_of(), ak.Inspection("attention", key_position=wrong))
    found = ak.inspect(film_of(), ak.Inspection("attention", key_position=2, query_index=2))
    assert all("mask hides" in text for text in found.header["sentences"]["attribution"][-1])


def test_a_variant_whose_scores_are_no_sum_says_so(monkeypatch):
    """As with a rule of one's own that bends scores."""
    film = film_of("directed", ("QKV", "QKV sum"))
    bent = staticmethod(lambda scores, layer: scores.sum(3, keepdim=True).tanh())
    monkeypatch.setattr(SumOption, "merge", bent)
    found = ak.inspect(film, ak.Inspection("attention", key_position=3))
    assert found.header["variants"][1]["attribution"]["note"] == NO_SUM
    assert found.header["sentences"]["attribution"][-1][1] == NO_SUM
    assert set(found.attribution.scores["variant"]) == {"QKV"}
