"""Keys and values tied after training, against formulas in double precision."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kinds import tiny
from reference import DOZEN, SHAPES, Reference, sized
from trained_runs import trained

from attnkit.analysis import Inspection, inspect, measure_tying, tying_table
from attnkit.analysis.inspection import tying
from attnkit.analysis.inspection.tying import FITTED_EXAMPLES, absorbed
from attnkit.analysis.linear_maps import random_orthogonal_maps
from attnkit.analysis.similarity import linear_cka
from attnkit.analysis.tying import ALPHAS, COLUMNS, Repair, repairs_for
from attnkit.figures.tying import tying_results
from attnkit.model.model import Model
from attnkit.training import metrics
from attnkit.training.camera import record
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.variants import Variant

CPU = torch.device("cpu")
CASES = {
    "one head": ("directed", "QKV", {}),
    "two layers of two heads": ("directed", "QKV", {"n_heads": 2, "n_layers": 2, "d_mlp": 7}),
    "shared keys and values": ("directed", "MQA n_heads=4", {}),
    "standard blocks": ("directed", "QKV", {"blocks": "standard", "n_heads": 2}),
    "an encoder and a decoder": ("dictionary", "QKV", {"n_heads": 2}),
    "repeated examples": ("reverse", "QKV", {}),
}
every_case = pytest.mark.parametrize("case", CASES)


@cache
def result_of(case):
    """Two seeds of a short run with weights that were moved, so that accuracies differ."""
    task, variant, settings = CASES[case]
    result = trained(tiny(task, sharing=[variant], n_eval=64, **settings))
    generator = np.random.default_rng(7)
    moved = [
        {
            name: value + 0.1 * generator.standard_normal(value.shape).astype("f4")
            for name, value in own.items()
        }
        for own in result.parameters
    ]
    return replace(result, parameters=moved)


@cache
def measured(case):
    """The result of the measurement on this run."""
    result = result_of(case)
    experiment = result.experiment
    return measure_tying(experiment, experiment.sharing[0], result.parameters, 8)


def of_seed(case, seed):
    """The reference, the parameters in double precision, and the held-out examples of a seed."""
    result = result_of(case)
    experiment = result.experiment
    own = {name: torch.from_numpy(a).double() for name, a in result.parameters[seed].items()}
    examples = held_out_examples(experiment, [seed], CPU)
    return Reference(experiment, experiment.sharing[0]), own, examples


def accuracy(reference, own, examples):
    """Accuracy by the formula."""
    logits = reference.logits(own, examples.tokens[0])
    return float(metrics.accuracy(logits[None], examples.labels))


def with_values(own, change):
    """The parameters with other values: `change` gets the name's beginning and its letter."""
    names = [name for name in own if name[-4:] in (".W_V", ".b_V")]
    return own | {name: change(name[:-1]) for name in names}


def fitted(case, seed, solve):
    """For each layer and head, what `solve` makes of keys and values of training examples."""
    reference, own, _ = of_seed(case, seed)
    experiment = result_of(case).experiment
    data, batches = TrainingData(experiment, [seed], CPU), []
    while sum(len(batch) for batch in batches) < FITTED_EXAMPLES:
        batches.append(data.next()[0][0])
    reference.logits(own, torch.cat(batches)[:FITTED_EXAMPLES])
    layers = []
    for number, (stages, (_, looks, *_)) in enumerate(
        zip(reference.stages, reference.layers, strict=True)
    ):
        rows = stages["rows"][:, list(looks)]
        here = {
            name.partition(".")[2]: value for name, value in own.items() if f"{number}." in name
        }
        keys, values = (
            reference.heads(rows, here, role, reference.d_v).transpose(0, 1).flatten(1, 2).numpy()
            for role in ("K", "V")
        )
        layers.append([solve(k, v) for k, v in zip(keys, values, strict=True)])
    return layers


def least_squares(keys, values):
    """The linear map of one head."""
    return np.linalg.lstsq(keys, values, rcond=1e-5)[0]


def cut(rank):
    """The function that fits a map of this rank."""

    def solve(keys, values):
        left, singular, right = np.linalg.svd(least_squares(keys, values))
        return (left[:, :rank] * singular[:rank]) @ right[:rank]

    return solve


def reduced(rank):
    """The function that fits the best map of this rank."""

    def solve(keys, values):
        full = least_squares(keys, values)
        right = np.linalg.svd(keys @ full, full_matrices=False)[2][:rank]
        return full @ right.T @ right

    return solve


def procrustes(keys, values):
    """The nearest orthogonal map of one head."""
    left, _, right = np.linalg.svd(keys.T @ values)
    return left @ right


def maps_of(case, seed, repair):
    """The maps of a repair for each layer and head, computed here."""
    if repair.kind == "random":
        linear = fitted(case, seed, least_squares)
        return [
            random_orthogonal_maps([seed, layer], len(heads), repair.rank)
            for layer, heads in enumerate(linear)
        ]
    solve = {"linear": cut(repair.rank), "reduced": reduced(repair.rank), "orthogonal": procrustes}
    return fitted(case, seed, solve[repair.kind])


def with_map(own, maps):
    """The untied parameters with W_V = W_K M, head by head."""

    def change(name):
        blocks = [torch.from_numpy(each) for each in maps[int(name.partition(".")[0])]]
        return own[f"{name}K"] @ torch.block_diag(*blocks)

    return with_values(own, change)


@every_case
def test_mixtures_are_those_of_the_formula(case):
    """Both roles get α W_K + (1 − α) W_V, with biases alike, in every layer."""
    result = measured(case)
    for seed in (0, 1):
        reference, own, examples = of_seed(case, seed)
        assert result.before[seed] == pytest.approx(accuracy(reference, own, examples), abs=1e-6)
        for alpha in (0.0, 0.3, 0.5, 0.85, 1.0):
            mixed = {
                name: alpha * own[f"{name[:-1]}K"] + (1 - alpha) * own[f"{name[:-1]}V"]
                for name in own
                if name[-4:] in (".W_K", ".b_K", ".W_V", ".b_V")
            }
            expected = accuracy(reference, own | mixed, examples)
            assert result.mixed[seed, ALPHAS.index(alpha)] == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(result.mixed)) > 5


@every_case
def test_repairs_are_those_of_the_formula(case):
    """Values are W_K's times a map that numpy's solvers find on training examples."""
    result = measured(case)
    for seed in (0, 1):
        reference, own, examples = of_seed(case, seed)
        for repair in result.repairs:
            repaired = with_map(own, maps_of(case, seed, repair))
            expected = accuracy(reference, repaired, examples)
            assert result.of_repair(repair)[seed] == pytest.approx(expected, abs=1e-6), repair


def test_a_map_costs_nothing_because_the_output_matrix_takes_it_up():
    """QKV with the values K M has the logits of K=V with the output matrices M W_O."""
    case = "two layers of two heads"
    reference, own, examples = of_seed(case, 0)
    maps = maps_of(case, 0, repairs_for(reference.d_v)[0])
    untied = reference.logits(with_map(own, maps), examples.tokens[0])
    tied = with_values(own, lambda name: own[f"{name}K"])
    for layer, of_heads in enumerate(maps):
        of_seeds = torch.from_numpy(np.stack(of_heads))[None]
        tied[f"{layer}.W_O"] = absorbed(own[f"{layer}.W_O"][None], of_seeds)[0]
    torch.testing.assert_close(reference.logits(tied, examples.tokens[0]), untied)


def test_every_mechanism_is_refused_or_repaired_as_the_formula_says(monkeypatch):
    """A random map, which needs no fit, shows whether W_O can take up what the values lack."""
    variants = [*DOZEN, *map(Variant, ("QKV positions=rope", "QKV qk_norm", *REFUSED))]
    refused, logits = {}, []

    def accuracy_of(found, labels):
        logits.append(found)
        return metrics.accuracy(found, labels)

    monkeypatch.setattr(tying, "metrics", SimpleNamespace(accuracy=accuracy_of))
    for variant in variants:
        experiment = sized([variant], SHAPES["three heads"] | {"n_seeds": 1, "n_eval": 16})
        model = Model(experiment, [0], CPU)
        parameters = {name: value.numpy() for name, value in model.run_parameters(0).items()}
        for value in parameters.values():
            value += 0.1 * np.random.default_rng(value.size).standard_normal(value.shape)
        try:
            result = measure_tying(experiment, variant, [parameters], 0)
        except ValueError as error:
            refused[variant.value] = str(error)
            continue
        n_heads, d_head = result.cka.shape[2], result.repairs[0].rank
        maps = [random_orthogonal_maps([0, layer], n_heads, d_head) for layer in (0, 1)]
        own = {name: torch.from_numpy(value).double() for name, value in parameters.items()}
        reference, examples = (
            Reference(experiment, variant),
            held_out_examples(experiment, [0], CPU),
        )
        expected = reference.logits(with_map(own, maps), examples.tokens[0])
        repaired = dict(zip(result.repairs, logits[-len(result.repairs) :], strict=True))
        found = repaired[Repair("random", d_head)][0].double()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=variant.value)
    assert all(text.startswith(f"sharing: got {name}, ") for name, text in refused.items())
    assert refused.keys() >= {Variant(text).value for text in REFUSED}
    assert not {"QKV", "QKV positions=rope", "QKV qk_norm"} & refused.keys()


REFUSED = ("QKV exclusive", "QKV positions=rope rotate_values", "Q=K", "K=V")


@pytest.mark.parametrize("case", ["one head", "standard blocks"])
def test_the_ends_and_the_middle_are_the_ways_that_are_shown_already(case):
    """α = 0 keeps W_V, α = 1 keeps W_K, and α = 0.5 is the average."""
    task, variant, settings = CASES[case]
    film = record(tiny(task, sharing=[variant], n_eval=64, **settings))
    ties = inspect(film, Inspection("ties"))
    shown = {
        row["by"]: accuracy
        for row, accuracy in zip(ties.header["rows"], ties.fixed["tied"], strict=True)
        if row["tie"] == "K=V"
    }
    ((result,), _) = tying_results(inspect(film, Inspection("tying")))
    for by, alpha in (("keep_V", 0.0), ("average", 0.5), ("keep_K", 1.0)):
        assert result.mixed[0, ALPHAS.index(alpha)] == pytest.approx(shown[by], abs=1e-6)
    assert result.before[0] == pytest.approx(ties.fixed["untied"][0], abs=1e-6)


@every_case
def test_cka_is_that_of_keys_and_values_on_training_examples(case):
    """For every layer and key-value head."""
    expected = fitted(case, 1, linear_cka)
    np.testing.assert_allclose(measured(case).cka[1], expected, atol=1e-5)


def test_a_seed_does_not_depend_on_the_others():
    """Both seeds measured together have the numbers that each has alone."""
    result = result_of("two layers of two heads")
    experiment, together = result.experiment, measured("two layers of two heads")
    for seed in (0, 1):
        alone = experiment.replace(first_seed=seed, n_seeds=1)
        parameters = [result.parameters[seed]]
        one = measure_tying(alone, experiment.sharing[0], parameters, 8)
        for name, array in one.arrays.items():
            np.testing.assert_allclose(array[0], together.arrays[name][seed], atol=1e-6)


def test_a_run_that_has_diverged_has_no_accuracies():
    """Its numbers are NaN, and the other seed keeps its own."""
    result = result_of("one head")
    lost = {name: np.full_like(value, np.nan) for name, value in result.parameters[0].items()}
    experiment, parameters = result.experiment, [lost, result.parameters[1]]
    found = measure_tying(experiment, experiment.sharing[0], parameters, 8)
    for name, array in found.arrays.items():
        assert np.isnan(array[0]).all()
        np.testing.assert_array_equal(array[1], measured("one head").arrays[name][1])


def test_the_table_has_a_row_for_every_seed_and_way():
    """It trains an experiment, or takes a result; variants without separate W_K are left out."""
    experiment = tiny("directed", sharing=["QKV", "K=V", "MQA n_heads=2"])
    table = tying_table(experiment)
    ways = len(ALPHAS) + len(repairs_for(6))
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == 2 * 2 * ways
    assert list(table["sharing"].unique()) == ["QKV", "QKV n_heads=2 kv_heads=1"]
    assert set(table["way"]) == {
        "mixture", "linear map", "reduced map", "orthogonal map", "random map",
    }  # fmt: skip
    assert table["alpha"].isna().tolist() == table["rank"].notna().tolist()
    before = table.groupby(["sharing", "seed"])["accuracy_before"].nunique()
    assert (before == 1).all()
    again = tying_table(trained(experiment))
    assert table.equals(again)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("K=V", "W_Q, W_K and W_V are not separate matrices"),
        ("Q=K", "W_Q, W_K and W_V are not separate matrices"),
        ("QKV exclusive", "a rule changes the outputs of the heads before W_O"),
        ("QKV V=I d_head=m/h", "A role that is the token has no matrix"),
        ("QKV d_k=3", "values that are tied to queries or keys have the same width"),
        ("QKV scaled", "a rule changes the values after W_V"),
        ("QKV kv_rank=3", "keys or values are computed in two steps"),
        ("QKV kv_every=2", "layers share matrices"),
        ("QKV O=I d_head=m/h", "there is no W_O"),
    ],
)
def test_what_cannot_be_tied_is_refused_in_one_line(variant, reason):
    """The message names the field, the variant, what is allowed, and why."""
    experiment = tiny("directed", sharing=[variant], n_layers=2, n_seeds=1, d_model=32)
    with pytest.raises(ValueError, match="sharing: got") as caught:
        tying_table(experiment)
    message = str(caught.value)
    assert message.startswith(f"sharing: got {experiment.sharing[0]}, allowed a variant with separ")
    assert reason in message.partition("; here: ")[2]
    assert "\n" not in message


def test_a_view_names_the_reason_of_every_variant_that_has_none():
    """The others are measured all the same."""
    film = record(tiny("directed", sharing=["QKV", "Q=K"], n_seeds=1))
    results, refusals = tying_results(inspect(film, Inspection("tying")))
    assert [result.variant for result in results] == ["QKV"]
    assert refusals == ["Q=K: W_Q, W_K and W_V are not separate matrices"]


def test_a_page_measures_the_first_seeds_only(monkeypatch):
    """A few seeds are enough for an interval, and a visitor does not wait for more."""
    monkeypatch.setattr(tying, "MOST_SEEDS", 1)
    result = result_of("one head")
    film = record(result.experiment)
    runs = [(result.experiment, result.parameters, 8)]
    ((found,), _) = tying_results(tying.inspect_tying(film, Inspection("tying"), runs))
    assert found.seeds == (0,)
    assert found.before[0] == pytest.approx(measured("one head").before[0], abs=1e-6)


def test_ranks_are_different_and_smaller_than_the_head():
    """Narrow heads have fewer truncations."""
    assert [repair.rank for repair in repairs_for(16)] == [16, 8, 4, 2, 1, 16, 16, 8, 4, 2, 1]
    assert [repair.rank for repair in repairs_for(3)] == [3, 2, 1, 3, 3, 2, 1]
    assert repairs_for(1)[0] == Repair("linear", 1)


def test_an_earlier_task_is_measured_on_its_own_examples():
    """Before the main task begins, held-out and training examples are those of the earlier one."""
    experiment = tiny("transfer", sharing=["QKV"], n_seeds=1)
    film = record(experiment)
    for step in film.steps:
        ((result,), _) = tying_results(inspect(film.at(step), Inspection("tying")))
        assert result.before[0] == film.at(step).metric("accuracy")[0, 0]
