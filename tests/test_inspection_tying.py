"""Keys and values tied after training: the map, the measurement, what is said and drawn."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from kinds import tiny
from reference import Reference
from trained_runs import trained

from attnkit.analysis import Inspection, inspect, measure_tying, tying_table
from attnkit.analysis.inspection import surgery
from attnkit.analysis.inspection.surgery import EXAMPLES
from attnkit.analysis.tying import ALPHAS, TyingResult, linear_map
from attnkit.figures import ties as figures
from attnkit.figures.ties import tying_results
from attnkit.training import metrics
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.training.loops import record

CPU = torch.device("cpu")


def test_the_fitted_map_solves_the_problem_that_defines_it():
    """Each head is compared by itself, against numpy's solver."""
    generator = np.random.default_rng(3)
    keys = generator.normal(size=(2, 3, 53, 7))
    values = keys @ generator.normal(size=(2, 3, 7, 7)) + generator.normal(size=(2, 3, 53, 7))
    found = linear_map(keys, values)
    for at in np.ndindex(2, 3):
        expected = np.linalg.lstsq(keys[at], values[at], rcond=None)[0]
        np.testing.assert_allclose(found[at], expected, atol=1e-9)


# measurement

CASES = {
    "two layers of two heads": ("directed", "QKV", {"n_heads": 2, "n_layers": 2, "d_mlp": 7}),
    "shared keys and values": ("directed", "MQA n_heads=4", {}),
    "standard blocks": ("directed", "QKV", {"blocks": "standard", "n_heads": 2}),
    "an encoder and a decoder": ("dictionary", "QKV", {"n_heads": 2}),
    "repeated examples": ("reverse", "QKV", {}),
    "rotated keys": ("directed", "QKV positions=rope", {}),
}


def result_of(case):
    """Two seeds of a short run, whose weights were moved."""
    task, variant, settings = CASES[case]
    result = trained(tiny(task, sharing=[variant], n_eval=64, **settings))
    draw = np.random.default_rng(7).standard_normal
    moved = [
        {name: value + 0.1 * draw(value.shape).astype("f4") for name, value in own.items()}
        for own in result.parameters
    ]
    return replace(result, parameters=moved)


def examples_of(data):
    """Tokens and labels of the next batches of one seed, until there are enough examples."""
    batches = [data.next()]
    while sum(len(tokens[0]) for tokens, _ in batches) < EXAMPLES:
        batches.append(data.next())
    return [torch.cat(parts, 1) for parts in zip(*batches, strict=True)]


def keys_and_values(reference, own, tokens):
    """Keys and values of every layer as their matrices give them, (g, t, d)."""
    reference.logits(own, tokens[0, :EXAMPLES])
    for layer, (_, looks, *_) in enumerate(reference.layers):
        rows, start = reference.stages[layer]["rows"][:, list(looks)], f"{layer}."
        here = {name.removeprefix(start): w for name, w in own.items() if name.startswith(start)}
        heads = (reference.heads(rows, here, role, reference.d_v) for role in "KV")
        yield [one.transpose(0, 1).flatten(1, 2).numpy() for one in heads]


def with_maps(own, maps):
    """The parameters with W_V = W_K M, head by head."""
    blocks = [torch.block_diag(*of_layer) for of_layer in torch.as_tensor(maps)]
    names = [name for name in own if name[-4:] in (".W_V", ".b_V")]
    return own | {n: own[f"{n[:-1]}K"] @ blocks[int(n.partition(".")[0])] for n in names}


@pytest.mark.parametrize("case", CASES)
def test_mixtures_and_repairs_are_those_of_the_formula(case):
    """α W_K + (1 − α) W_V for both roles; values are W_K's times the map, head by head."""
    result = result_of(case)
    experiment, (variant,) = result.experiment, result.experiment.sharing
    found = measure_tying(experiment, variant, result.parameters, 8)
    for seed in (0, 1):
        weights = result.parameters[seed].items()
        own = {name: torch.from_numpy(value).double() for name, value in weights}
        reference = Reference(experiment, variant)
        changed, measured = {"before": own}, {"before": found.before[seed]}
        for alpha in (0.0, 0.3, 0.5, 0.85, 1.0):
            changed[alpha] = own | {
                f"{n[:-1]}{role}": alpha * own[f"{n[:-1]}K"] + (1 - alpha) * own[n]
                for n in own
                if n[-4:] in (".W_V", ".b_V")
                for role in "KV"
            }
            measured[alpha] = found.mixed[seed, ALPHAS.index(alpha)]
        tokens, _ = examples_of(TrainingData(experiment, [seed], CPU))
        layers = keys_and_values(reference, own, tokens)
        maps = np.stack([linear_map(*layer) for layer in layers])
        changed["fitted"], measured["fitted"] = with_maps(own, maps), found.fitted[seed]
        held = held_out_examples(experiment, [seed], CPU)
        logits = {w: reference.logits(one, held.tokens[0])[None] for w, one in changed.items()}
        expected = {way: float(metrics.accuracy(one, held.labels)) for way, one in logits.items()}
        assert measured == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(found.mixed)) > 5
    assert ((found.cka >= 0) & (found.cka <= 1 + 1e-9)).all()


def test_the_table_has_a_row_for_every_seed_and_way():
    """Variants without separate W_K are left out; a run that diverged has NaN, the other not."""
    experiment = tiny("directed", sharing=["QKV", "K=V", "MQA n_heads=2"])
    table = tying_table(experiment)
    assert len(table) == 2 * 2 * (len(ALPHAS) + 1)
    assert list(table["sharing"].unique()) == ["QKV", "QKV n_heads=2 kv_heads=1"]
    assert (table["alpha"].isna() == (table["way"] == "fitted map")).all()
    assert table.equals(tying_table(trained(experiment)))
    result = result_of("repeated examples")
    first, second = result.parameters
    lost = {name: np.full_like(value, np.nan) for name, value in first.items()}
    given = result.experiment, result.experiment.sharing[0]
    both, one = (measure_tying(*given, [run, second], 8) for run in (first, lost))
    for name in ("before", "mixed", "fitted", "cka"):
        assert np.isnan(getattr(one, name)[0]).all()
        np.testing.assert_array_equal(getattr(one, name)[1], getattr(both, name)[1])


def test_a_page_measures_the_first_seeds_and_names_reasons(monkeypatch):
    """It measures each phase on its own examples; what cannot be tied is refused in one line."""
    film = record(tiny("transfer", sharing=["QKV", "Q=K"], n_seeds=1))
    for step in film.steps:
        ((found,), (refusal,)) = tying_results(inspect(film.at(step), Inspection("tying")))
        assert (found.variant, refusal.partition(":")[0]) == ("QKV", "Q=K")
        assert found.before[0] == film.at(step).metric("accuracy")[0, 0]
    result = result_of("repeated examples")
    monkeypatch.setattr(surgery, "MOST_SEEDS", 1)
    runs = [(result.experiment, result.parameters, 8)]
    found = surgery.inspect_tying(record(result.experiment), Inspection("tying"), runs)
    assert tying_results(found)[0][0].seeds == (0,)
    for variant, reason in {
        "K=V": "separate",
        "QKV exclusive": "outputs of the heads",
        "QKV V=I d_head=m/h": "no matrix",
        "QKV d_k=3": "same width",
        "QKV scaled": "values after W_V",
        "QKV kv_rank=3": "two steps",
        "QKV kv_every=2": "layers share",
        "QKV O=I d_head=m/h": "no W_O",
    }.items():
        experiment = tiny("directed", sharing=[variant], n_layers=2, n_seeds=1, d_model=32)
        given = re.escape(f"sharing: got {experiment.sharing[0]}, allowed ")
        with pytest.raises(ValueError, match=f"^{given}.*{reason}.*$"):
            tying_table(experiment)


@pytest.mark.long(seconds=20)
def test_the_program_that_compares_maps_prints_its_table():
    """A row for each width, with the share that every kind of map brings back."""
    program = Path(__file__).parents[1] / "docs" / "value_maps.py"
    command = [sys.executable, program, *"--widths 4 32 --seeds 2 --map-steps 2".split()]
    head, _, *rows = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split("\n")[:4]
    kinds = "head fitted cut reduced orthogonal random trained".split()
    assert [cell.strip() for cell in head.strip("|").split("|")] == kinds
    assert [rows[0][:6], rows[1][:11]] == ["| 4 | ", "| 32 | 100%"]


# What is said, drawn and taken away

HILL = 0.9 - 1.6 * np.abs(np.array(ALPHAS) - 0.4)
RESULT = TyingResult(
    task="reverse",
    variant="QKV",
    seeds=(0, 1, 2),
    step=158,
    chance=0.1,
    n_examples=256,
    d_head=8,
    d_model=32,
    before=np.array([0.99, 1.0, 0.98]),
    mixed=np.stack([HILL, HILL + 0.01, HILL - 0.01]).clip(0, 1),
    fitted=np.array([0.8, 0.82, 0.78]),
    cka=np.full((3, 2, 1), 0.25),
)


def flat(level, before=0.9):
    """A result of one seed with one accuracy everywhere."""
    mixed, fitted, cka = np.full((1, 21), level), np.full(1, level), RESULT.cka[:1] + level
    before = np.array([before])
    return replace(RESULT, seeds=(0,), before=before, mixed=mixed, fitted=fitted, cka=cka)


LOST = flat(np.nan, np.nan)


def test_mixtures_and_repairs_are_told():
    """The best mixtures with their interval, and where nothing can be told."""
    shares = re.findall(r"\d+%", RESULT.mixture_finding)
    assert (shares[0], *shares[-3:]) == ("90%", "74%", "26%", "0%")
    assert re.search(r"mixture has α = 0.4: .*\[88 to 92%\] .* 99% \[", RESULT.mixture_finding)
    mixed = np.zeros((3, 21))
    mixed[:, [6, 7, 8, 9, 10, 20]] = [0.8, 0.805, 0.8, 0.796, 0.8, 0.8]
    assert "α from 0.3 to 0.5 or α = 1: up to 80%" in replace(RESULT, mixed=mixed).mixture_finding
    little = flat(0.11, before=0.12)
    for one, told in ((flat(0.9), "^All .* 90%, .* 90%"), (little, "12% .* 10%"), (LOST, "diver")):
        assert re.search(told, one.mixture_finding)
    numbers = re.findall(r"[+−]?\d+", RESULT.repair_finding)
    assert numbers == ["99", "+80", "+75", "+85", "8", "32"]
    assert re.search(r"nothing \(90%\)", flat(0.9).repair_finding)
    assert little.repair_finding == LOST.repair_finding == ""


def test_mixtures_are_near_the_best_unless_all_seeds_tell_them_apart():
    """A difference that scatters over seeds is none, and a seed that diverged does not count."""
    alphas, level = np.array(ALPHAS), np.array([[0.5], [0.6], [0.7]])
    mixed = level - 0.1 * (alphas > 0.3) - 0.02 * (alphas > 0.2)
    assert replace(RESULT, mixed=mixed).near_best.tolist() == (alphas <= 0.2).tolist()
    mixed = mixed + np.array([[0.03], [0.0], [-0.03]]) * (alphas > 0.2)
    for rows in (mixed, np.append(mixed, np.full((1, 21), np.nan), 0)):
        assert replace(RESULT, mixed=rows).near_best.tolist() == (alphas <= 0.3).tolist()


def test_what_is_drawn_and_taken_away_are_the_numbers():
    """The chosen mixture is marked, the map has its row, and JSON gives the result back."""
    for result in (RESULT, flat(0.5), LOST):
        figure = go.Figure(figures.plot_mixtures(result, 0.3))
        (mark,) = [trace for trace in figure.data if trace.mode == "markers"]
        assert mark.x == (0.3,)
        np.testing.assert_allclose(np.array(mark.y, float)[0], result.mixed[:, 6].mean(), atol=1e-5)
    html = figures.repairs_table(RESULT)
    rows = [row.split('scope="row">')[1] for row in html.split("<tr>")[1:]]
    assert len(rows) == 2
    assert "<td>80% [75 to 85%]</td>" in rows[1]
    again = TyingResult.from_parts(json.loads(json.dumps(RESULT.header)), RESULT.arrays)
    assert again.header == RESULT.header
    np.testing.assert_allclose(again.mixed, RESULT.mixed, atol=1e-6)
    table = pd.read_csv(io.StringIO(figures.tying_csv([RESULT, replace(RESULT, variant="MQA")])))
    assert len(table) == 2 * len(RESULT.table) == 2 * 3 * (21 + 1)
    assert list(table) == list(RESULT.table)
    assert table["sharing"].unique().tolist() == ["QKV", "MQA"]
