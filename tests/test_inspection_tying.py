"""Keys and values tied after training: the maps, the measurement, what is said and drawn."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from kinds import tiny
from reference import DOZEN, SHAPES, Reference, sized
from trained_runs import trained

from attnkit.analysis import Inspection, inspect, measure_tying, tying_table
from attnkit.analysis.inspection import tying
from attnkit.analysis.inspection.tying import CannotBeTied, map_steps_for
from attnkit.analysis.inspection.value_maps import EXAMPLES
from attnkit.analysis.linear_maps import (
    linear_map,
    orthogonal_map,
    random_orthogonal_maps,
    reduced_map,
    truncated,
)
from attnkit.analysis.similarity import linear_cka
from attnkit.analysis.tying import ALPHAS, COLUMNS, MAP_RATES, Repair, TyingResult, repairs_for
from attnkit.figures.tying import (
    mixture_label,
    mixture_text,
    plot_mixtures,
    repairs_table,
    tying_csv,
    tying_results,
)
from attnkit.model.model import Model
from attnkit.model.reference import cross_entropy
from attnkit.training import metrics
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.training.recorder import record
from attnkit.variants import Variant

CPU = torch.device("cpu")
MAP_STEPS = 4
"""Steps of the trained map in these tests."""

# maps

GENERATOR = np.random.default_rng(3)
KEYS = GENERATOR.normal(size=(2, 3, 53, 7))
VALUES = KEYS @ GENERATOR.normal(size=(2, 3, 7, 7)) + GENERATOR.normal(size=(2, 3, 53, 7))


def test_every_map_solves_the_problem_that_defines_it():
    """Each head by itself, against numpy's solvers; rounding errors of keys are not fitted."""
    few = KEYS.copy()
    few[0, 0, :, 5:] = 0.0
    smallest, full, orthogonal = (
        linear_map(few, VALUES),
        linear_map(KEYS, VALUES),
        orthogonal_map(KEYS, VALUES),
    )
    for at in np.ndindex(2, 3):
        expected = np.linalg.lstsq(few[at], VALUES[at], rcond=None)[0]
        np.testing.assert_allclose(smallest[at], expected, rtol=1e-9, atol=1e-9)
        left, _, right = np.linalg.svd(KEYS[at].T @ VALUES[at])
        np.testing.assert_allclose(orthogonal[at], left @ right, atol=1e-12)
        for rank in (2, 7):
            reduced, cut = reduced_map(KEYS, VALUES, rank)[at], truncated(full, rank)[at]
            assert np.linalg.matrix_rank(reduced) == rank
            for found, of in ((cut, full[at]), (KEYS[at] @ reduced, KEYS[at] @ full[at])):
                left, singular, right = np.linalg.svd(of, full_matrices=False)
                expected = (left[:, :rank] * singular[:rank]) @ right[:rank]
                np.testing.assert_allclose(found, expected, atol=1e-9)
    keys = KEYS[0, 0].copy()
    keys[:, 6] = keys[:, 5] + 1e-7 * GENERATOR.normal(size=53)
    assert np.abs(linear_map(keys, VALUES[0, 0])).max() < 10


def test_random_maps_are_orthogonal_and_repeatable():
    """Equal seeds give equal maps, other seeds give others, and no direction is preferred."""
    maps = random_orthogonal_maps([1, 0], 3, 5)
    identity = np.broadcast_to(np.eye(5), (3, 5, 5))
    np.testing.assert_allclose(maps @ maps.swapaxes(1, 2), identity, atol=1e-12)
    np.testing.assert_array_equal(maps, random_orthogonal_maps([1, 0], 3, 5))
    assert not np.allclose(maps, random_orthogonal_maps([1, 1], 3, 5))
    mean = random_orthogonal_maps([2], 4000, 3).mean(0)
    np.testing.assert_allclose(mean, np.zeros((3, 3)), atol=0.05)


# measurement

CASES = {
    "one head": ("directed", "QKV", {}),
    "two layers of two heads": ("directed", "QKV", {"n_heads": 2, "n_layers": 2, "d_mlp": 7}),
    "shared keys and values": ("directed", "MQA n_heads=4", {}),
    "standard blocks": ("directed", "QKV", {"blocks": "standard", "n_heads": 2}),
    "an encoder and a decoder": ("dictionary", "QKV", {"n_heads": 2}),
    "repeated examples": ("reverse", "QKV", {}),
}


@pytest.fixture(autouse=True)
def caches_of_torch(monkeypatch, tmp_path):
    """The first optimiser of torch names a folder in the environment; here it is gone after it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def shaken(parameters):
    """Parameters that were moved, so that what starts at zero or one matters, too."""
    draw = np.random.default_rng(7).standard_normal
    return [
        {name: value + 0.1 * draw(value.shape).astype("f4") for name, value in own.items()}
        for own in parameters
    ]


def result_of(case):
    """Two seeds of a short run, whose weights were moved."""
    task, variant, settings = CASES[case]
    result = trained(tiny(task, sharing=[variant], n_eval=64, **settings))
    return replace(result, parameters=shaken(result.parameters))


def accuracy(reference, own, experiment, seed):
    """Accuracy by the formula on a seed's held-out examples."""
    examples = held_out_examples(experiment, [seed], CPU)
    logits = reference.logits(own, examples.tokens[0])
    return float(metrics.accuracy(logits[None], examples.labels))


def keys_and_values(reference, own, experiment, seed):
    """Keys and values, (g, t, d), of each layer on the first training examples, by the formula."""
    data, batches = TrainingData(experiment, [seed], CPU), []
    while sum(map(len, batches)) < EXAMPLES:
        batches.append(data.next()[0][0])
    reference.logits(own, torch.cat(batches)[:EXAMPLES])
    layers = []
    for number, (_, looks, *_) in enumerate(reference.layers):
        rows = reference.stages[number]["rows"][:, list(looks)]
        start = f"{number}."
        here = {name.removeprefix(start): w for name, w in own.items() if name.startswith(start)}
        heads = (reference.heads(rows, here, role, reference.d_v) for role in "KV")
        layers.append([one.transpose(0, 1).flatten(1, 2).numpy() for one in heads])
    return layers


def map_of(repair, keys, values, seed, layer):
    """The maps of a repair for the heads of one layer."""
    if repair.kind == "random":
        return random_orthogonal_maps([seed, layer], len(keys), repair.rank)
    if repair.kind == "orthogonal":
        return orthogonal_map(keys, values)
    if repair.kind == "reduced":
        return reduced_map(keys, values, repair.rank)
    return truncated(linear_map(keys, values), repair.rank)


def with_map(own, maps):
    """The untied parameters with W_V = W_K M, head by head."""
    blocks = [torch.block_diag(*map(torch.as_tensor, of_layer)) for of_layer in maps]
    names = [name for name in own if name[-4:] in (".W_V", ".b_V")]
    return own | {n: own[f"{n[:-1]}K"] @ blocks[int(n.partition(".")[0])] for n in names}


def trained_by_torch(reference, own, start, experiment, seed):
    """The maps of all layers after a few steps of torch's Adam, with the best of the rates."""
    ends = []
    for rate in MAP_RATES:
        data = TrainingData(experiment, [seed], CPU)
        maps = [torch.from_numpy(one).clone().requires_grad_() for one in start]
        optimiser = torch.optim.Adam(maps, lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, MAP_STEPS)

        def loss(batch, maps=maps):
            tokens, labels = batch
            logits = reference.logits(with_map(own, maps), tokens[0])
            return cross_entropy(logits[None], labels).sum()

        for _ in range(MAP_STEPS):
            optimiser.zero_grad()
            loss(data.next()).backward()
            optimiser.step()
            schedule.step()
        batches = [data.next()]
        while sum(len(tokens[0]) for tokens, _ in batches) < EXAMPLES:
            batches.append(data.next())
        with torch.no_grad():
            sizes = [len(tokens[0]) for tokens, _ in batches]
            losses = [float(loss(batch)) for batch in batches]
        ends.append((np.average(losses, weights=sizes), rate, [m.detach().numpy() for m in maps]))
    return min(ends, key=lambda end: end[0])[2]


def doubles(parameters):
    """The parameters of a run in double precision."""
    return {name: torch.from_numpy(value).double() for name, value in parameters.items()}


@pytest.mark.parametrize("case", CASES)
def test_mixtures_repairs_and_similarity_are_those_of_the_formula(case):
    """α W_K + (1 − α) W_V for both roles, W_K's values times a map, and CKA of keys and values."""
    result = result_of(case)
    experiment, (variant,) = result.experiment, result.experiment.sharing
    found = measure_tying(experiment, variant, result.parameters, 8, map_steps=MAP_STEPS)
    for seed in (0, 1):
        own, reference = doubles(result.parameters[seed]), Reference(experiment, variant)
        expected = {"before": accuracy(reference, own, experiment, seed)}
        measured = {"before": found.before[seed]}
        for alpha in (0.0, 0.3, 0.5, 0.85, 1.0):
            mixed = {
                name: alpha * own[f"{name[:-1]}K"] + (1 - alpha) * own[f"{name[:-1]}V"]
                for name in own
                if name[-4:] in (".W_K", ".b_K", ".W_V", ".b_V")
            }
            expected[alpha] = accuracy(reference, own | mixed, experiment, seed)
            measured[alpha] = found.mixed[seed, ALPHAS.index(alpha)]
        layers = keys_and_values(reference, own, experiment, seed)
        for repair in found.repairs:
            maps = [map_of(repair, *layer, seed, i) for i, layer in enumerate(layers)]
            if repair.kind == "trained":
                maps = trained_by_torch(reference, own, maps, experiment, seed)
            expected[repair] = accuracy(reference, with_map(own, maps), experiment, seed)
            measured[repair] = found.of_repair(repair)[seed]
        assert measured == pytest.approx(expected, abs=1e-6)
        cka = [[linear_cka(k, v) for k, v in zip(*layer, strict=True)] for layer in layers]
        np.testing.assert_allclose(found.cka[seed], cka, atol=1e-5)
    assert len(np.unique(found.mixed)) > 5


REFUSED = {
    "K=V": "separate",
    "Q=K": "separate",
    "QKV exclusive": "outputs of the heads",
    "QKV V=I d_head=m/h": "has no matrix",
    "QKV d_k=3": "the same width",
    "QKV scaled": "values after W_V",
    "QKV kv_rank=3": "in two steps",
    "QKV kv_every=2": "layers share matrices",
    "QKV O=I d_head=m/h": "no W_O",
}


def test_what_cannot_be_tied_is_refused_in_one_line():
    """The message names the field, the variant, what is allowed, and why."""
    for variant, reason in REFUSED.items():
        experiment = tiny("directed", sharing=[variant], n_layers=2, n_seeds=1, d_model=32)
        given = re.escape(f"sharing: got {experiment.sharing[0]}, allowed ")
        with pytest.raises(ValueError, match=f"^{given}.*{reason}.*$"):
            tying_table(experiment)


def test_every_mechanism_is_refused_or_repaired_as_the_formula_says():
    """A random map, which needs no fit, shows whether W_O can take up what the values lack."""
    refused = set()
    for variant in [*DOZEN, *map(Variant, ("QKV positions=rope", "QKV qk_norm", "Q=K"))]:
        experiment = sized([variant], SHAPES["three heads"] | {"n_seeds": 1, "n_eval": 64})
        model = Model(experiment, [0], CPU)
        (parameters,) = shaken([{n: v.numpy() for n, v in model.run_parameters(0).items()}])
        try:
            found = measure_tying(experiment, variant, [parameters], 0, map_steps=1)
        except CannotBeTied:
            refused.add(variant.value)
            continue
        maps = [
            random_orthogonal_maps([0, i], found.cka.shape[2], found.repairs[0].rank)
            for i in range(found.cka.shape[1])
        ]
        own, reference = with_map(doubles(parameters), maps), Reference(experiment, variant)
        repaired = found.of_repair(Repair("random", found.repairs[0].rank))
        expected = accuracy(reference, own, experiment, 0)
        assert repaired == pytest.approx([expected], abs=0.005), variant.value
    assert "Q=K" in refused
    assert not {"QKV", "QKV positions=rope", "QKV qk_norm"} & refused


def test_a_run_that_has_diverged_has_no_accuracies():
    """Its numbers are NaN, and the other seed keeps its own."""
    result = result_of("one head")
    first, second = result.parameters
    lost = {name: np.full_like(value, np.nan) for name, value in first.items()}
    both, one = (
        measure_tying(
            result.experiment, result.experiment.sharing[0], [run, second], 8, map_steps=1
        ).arrays
        for run in (first, lost)
    )
    for name, array in one.items():
        assert np.isnan(array[0]).all()
        np.testing.assert_array_equal(array[1], both[name][1])


def test_the_table_has_a_row_for_every_seed_and_way():
    """It trains an experiment, or takes a result; variants without separate W_K are left out."""
    experiment = tiny("directed", sharing=["QKV", "K=V", "MQA n_heads=2"])
    table = tying_table(experiment, map_steps=1)
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == 2 * 2 * (len(ALPHAS) + len(repairs_for(6)))
    assert list(table["sharing"].unique()) == ["QKV", "QKV n_heads=2 kv_heads=1"]
    kinds = {"mixture", "linear map", "trained map", "reduced map", "orthogonal map", "random map"}
    assert set(table["way"]) == kinds
    assert table["alpha"].isna().tolist() == table["rank"].notna().tolist()
    assert (table.groupby(["sharing", "seed"])["accuracy_before"].nunique() == 1).all()
    assert table.equals(tying_table(trained(experiment), map_steps=1))
    assert [repair.rank for repair in repairs_for(16)] == [16, 16, 8, 4, 2, 1, 16, 16, 8, 4, 2, 1]
    assert [repair.rank for repair in repairs_for(3)] == [3, 3, 2, 1, 3, 3, 2, 1]


def test_a_page_measures_the_first_seeds_and_names_reasons(monkeypatch):
    """In each phase on its own examples; a few seeds are enough for an interval."""
    film = record(tiny("directed", sharing=["QKV", "Q=K"], n_seeds=1))
    results, refusals = tying_results(inspect(film, Inspection("tying")))
    assert [result.variant for result in results] == ["QKV"]
    assert [refusal.partition(":")[0] for refusal in refusals] == ["Q=K"]
    film = record(tiny("transfer", sharing=["QKV"], n_seeds=1))
    for step in film.steps:
        ((found,), _) = tying_results(inspect(film.at(step), Inspection("tying")))
        assert found.before[0] == film.at(step).metric("accuracy")[0, 0]
    result = result_of("one head")
    monkeypatch.setattr(tying, "MOST_SEEDS", 1)
    runs = [(result.experiment, result.parameters, 8)]
    film = record(result.experiment)
    ((found,), _) = tying_results(tying.inspect_tying(film, Inspection("tying"), runs))
    assert found.seeds == (0,)
    own, (variant,) = doubles(result.parameters[0]), result.experiment.sharing
    expected = accuracy(Reference(result.experiment, variant), own, result.experiment, 0)
    assert found.before[0] == pytest.approx(expected, abs=1e-6)


# What is said, drawn and taken away

HILL = 0.9 - 1.6 * np.abs(np.array(ALPHAS) - 0.4)
"""Accuracies with their best at α = 0.4: keep W_V has 26%, keep W_K has −6%, shown as none."""

RESULT = TyingResult(
    task="reverse",
    variant="QKV",
    seeds=(0, 1, 2),
    step=158,
    chance=0.1,
    n_examples=256,
    d_model=32,
    map_steps=300,
    repairs=repairs_for(8),
    before=np.array([0.99, 1.0, 0.98]),
    mixed=np.stack([HILL, HILL + 0.01, HILL - 0.01]).clip(0, 1),
    repaired=np.array(
        [[x, 0.9, 0.7, 0.5, 0.3, 0.4, 0, 0.75, 0.6, 0.35] for x in (0.8, 0.82, 0.78)]
    ),
    cka=np.full((3, 2, 1), 0.25),
)


def flat(level, before=0.9):
    """A result of one seed with one accuracy everywhere."""
    mixed, repaired = np.full((1, 21), level), np.full((1, 10), level)
    changed = {"mixed": mixed, "repaired": repaired, "before": np.array([before])}
    return replace(RESULT, seeds=(0,), cka=np.full((1, 2, 1), 0.5), **changed)


LOST = replace(flat(np.nan, np.nan), cka=np.full((1, 2, 1), np.nan))


def test_mixtures_are_told():
    """All that are within a point of the best, the known ones, and where nothing can be told."""
    shares = re.findall(r"\d+%", RESULT.mixture_finding)
    assert (shares[0], *shares[-3:]) == ("90%", "74%", "26%", "0%")
    assert re.search(r"mixture has α = 0.4: .*\[88 to 92%\] .* 99% \[", RESULT.mixture_finding)
    mixed = np.zeros((3, 21))
    mixed[:, 6:11] = [0.8, 0.805, 0.8, 0.796, 0.8]
    for first, last, told in (
        (0, 0.8, "α from 0.3 to 0.5 or α = 1: up to 80%"),
        (0.8, 0.3, "α = 0 or α from 0.3 to 0.5: up to 80%"),
    ):
        mixed[:, [0, 20]] = first, last
        assert told in replace(RESULT, mixed=mixed).mixture_finding
    for one, told in (
        (flat(0.9), "^All mixtures .* 90%, .* 90%"),
        (flat(0.11, before=0.12), "little yet: 12% .* 10%"),
        (LOST, "diverged"),
    ):
        assert re.search(told, one.mixture_finding)
    assert mixture_text(RESULT, 0.4) == "α = 0.4: 90% [88 to 92%]."
    assert "diverged" in mixture_text(LOST, 0.5)
    assert np.isnan(LOST.mean_cka)
    cka = np.array([[[0.2]], [[np.nan]], [[0.4]]])
    assert replace(RESULT, cka=cka).mean_cka == pytest.approx(0.3)
    level = np.array([[0.5], [0.6], [0.7]])  # a difference that all seeds share tells them apart
    mixed = level - 0.1 * (np.array(ALPHAS) > 0.3) - 0.02 * (np.array(ALPHAS) > 0.2)
    assert replace(RESULT, mixed=mixed).near_best.sum() == 5
    scatter = np.array([[0.03], [0.0], [-0.03]]) * (np.array(ALPHAS) > 0.2)  # one that scatters not
    noisy = replace(RESULT, mixed=mixed + scatter)
    assert noisy.near_best.tolist() == [alpha <= 0.3 for alpha in ALPHAS]
    assert "α from 0 to 0.3: up to 60%" in noisy.mixture_finding
    one = replace(noisy, mixed=mixed[1:2])
    assert one.near_best.tolist() == [alpha <= 0.2 for alpha in ALPHAS]
    lost = replace(noisy, mixed=np.append(mixed + scatter, np.full((1, 21), np.nan), 0))
    assert lost.near_best.tolist() == noisy.near_best.tolist()


def test_a_page_trains_maps_for_fewer_steps_where_a_step_costs_more():
    """At most a hundred, and none where even one would keep the page waiting for long."""
    book, plain = tiny("directed", sharing=["QKV"]), Variant("QKV")
    steps = [
        map_steps_for(book.replace(batch_size=512, n_layers=n, d_model=128, d_mlp=512), plain, 5)
        for n in (1, 2, 4)
    ]
    assert map_steps_for(book, plain, 5) == 100 >= steps[0] > steps[1] > steps[2]


def test_repairs_are_told_as_changes_in_points():
    """A repair may gain more than was lost, and may harm; one seed has no interval."""
    repaired = np.array([[0.95, 0.98, 0.83, 0.5, 0.3, 0.75, 0.1, 0.75, 0.6, 0.35]])
    told = RESULT.repair_finding, replace(flat(0.85), repaired=repaired).repair_finding
    assert [re.findall(r"[+−]?\d+", text) for text in told] == [
        ["99", "+80", "+75", "+85", "+90", "+70", "+40", "0", "8", "32"],
        ["5", "+10", "+13", "−2", "−10", "−75", "8", "32"],
    ]
    wide = replace(RESULT, d_model=8).repair_finding
    assert "arXiv 2503.05840" in wide
    assert "arXiv" not in RESULT.repair_finding
    assert re.search(r"nothing \(90%\)", flat(0.9).repair_finding)
    assert re.search(r"one point \(90%\)", flat(0.895, before=0.9).repair_finding)
    assert flat(0.11, before=0.12).repair_finding == LOST.repair_finding == ""


def test_what_is_drawn_and_taken_away_are_the_numbers():
    """The chosen mixture is marked, every repair has its row, and JSON gives the result back."""
    for result in (RESULT, flat(0.5), LOST):
        figure = go.Figure(plot_mixtures(result, 0.3))
        (mark,) = [trace for trace in figure.data if trace.mode == "markers"]
        assert mark.x == (0.3,)
        np.testing.assert_allclose(np.array(mark.y, float)[0], result.mixed[:, 6].mean(), atol=1e-5)
        assert "keep W_V" in figure.layout.xaxis.ticktext[0]
        assert "keep W_K" in figure.layout.xaxis.ticktext[-1]
    labels = [mixture_label(alpha) for alpha in (0.0, 0.35, 0.5, 1.0)]
    assert labels == ["0 (keep W_V)", "0.35", "0.5 (average)", "1 (keep W_K)"]
    html = repairs_table(RESULT)
    rows = [row.split('scope="row">')[1] for row in html.split("<tr>")[1:]]
    assert [row.split("<")[0] for row in rows] == [
        "no map", "fitted map", "trained map", "cut to rank 4", "cut to rank 2", "cut to rank 1",
        "orthogonal map", "random map",
    ]  # fmt: skip
    assert "<td>80% [75 to 85%]</td>" in rows[1]
    assert "before tying 99%" in html
    again = TyingResult.from_parts(json.loads(json.dumps(RESULT.header)), RESULT.arrays)
    assert (again.header, again.repairs) == (RESULT.header, RESULT.repairs)
    np.testing.assert_allclose(again.mixed, RESULT.mixed, atol=1e-6)
    table = pd.read_csv(io.StringIO(tying_csv([RESULT, replace(RESULT, variant="MQA")])))
    assert len(table) == 2 * len(RESULT.table) == 2 * 3 * (21 + 10)
    assert list(table) == list(COLUMNS)
    assert table["sharing"].unique().tolist() == ["QKV", "MQA"]
    assert table.loc[table["way"] == "linear map", "rank"].unique().tolist() == [8, 4, 2, 1]
