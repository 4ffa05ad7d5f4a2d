"""Sweeps in tables, sentences and figures, and the page Capacity that shows them."""

import math
import random
import re
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from idle import link_of, open_page
from plotted import accepted
from searching import briefly
from test_metrics import expected_of
from visiting import drawn, plain_text, press, said, show, turn_to, watch_series

from attnkit.figures import capacity as phases
from attnkit.figures.grid import cell_texts
from attnkit.foundation.language import tr
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps import cells as capacity
from attnkit.sweeps import conclusion as sentences
from attnkit.sweeps.boundary import Boundary, boundary, half_point, mean_ratio
from attnkit.sweeps.conclusion import conclusion
from attnkit.sweeps.specification import InvalidSweep
from attnkit.ui import sweeps as own_sweeps
from attnkit.ui.pages import capacity as page
from attnkit.ui.sweeps import OWN, PLAN, SECTIONS, CapacityChoice, Cell, cells_of
from attnkit.variants import Variant

X, Y, STEPS = "d_head", "n_entries", "steps_to_threshold"
WIDTHS, ENTRIES = (1, 2, 3, 4, 6, 8, 12, 16), (2, 4, 8, 16)


def made_sweep(solves, *, sharing=("QKV", "K=V"), axes=None, n_seeds=5, base=None):
    """Return a result whose runs solve the task with the probability `solves(variant, point)`."""
    axes, base = axes or {X: WIDTHS, Y: ENTRIES}, base or {"task": "phonebook"}
    sweep = Sweep(base=base, axes=axes, sharing=list(sharing), n_seeds=n_seeds)
    generator, rows = np.random.default_rng(0), []
    for point, variant, each in product(sweep.points(), sweep.sharing, sweep.seeds):
        chance, width = solves(variant.value, point), float(point.get(X, 8))
        solved = generator.random() < chance
        row = {"sharing": variant.value, "seed": each, "learning_rate": 0.005, "error": None}
        row |= {"accuracy": 1.0 if solved else 0.9 * chance}
        row |= {"steps_to_threshold": 200.0 + each if solved else math.nan}
        costs = zip(capacity.COSTS, (40, 70, 2, 100), strict=True)
        rows.append({**row, **{cost: int(times * width) for cost, times in costs}, **point})
    return SweepResult(sweep, pd.DataFrame(rows).astype({"error": object}))


def wider(needed, **options):
    """Return a result of variants that solve the task from some width of their heads on."""
    return made_sweep(
        lambda name, point: float(point[X] >= needed[name]), sharing=needed, **options
    )


def logistic(**half):
    """Return a function: probabilities that are one half at a width of each variant."""
    return lambda name, point: 1 / (1 + (half[name.replace("=", "")] / point["d_head"]) ** 5.8)


def cells_where(result, where):
    """Return which runs are those of some cells."""
    return np.logical_and.reduce([result.runs[name] == value for name, value in where.items()])


def without(result, **where):
    """Return a result without the runs of some cells."""
    runs = result.runs[~cells_where(result, where)]
    return SweepResult(result.sweep, runs.reset_index(drop=True))


def failed(result, **where):
    """Return a result in which some cells could not be trained."""
    runs, bad = result.runs.copy(), cells_where(result, where)
    runs.loc[bad, ["accuracy", "steps_to_threshold"]] = math.nan
    runs.loc[bad, "error"] = "d_head: got 12, allowed less <than> that"
    return SweepResult(result.sweep, runs)


WHOLE = wider({"QKV": 3, "K=V": 6})
HOLED = without(made_sweep(logistic(QKV=3, KV=6)), d_head=4, sharing="K=V")
HOLED = failed(without(HOLED, d_head=3, sharing="QKV", seed=0), d_head=12, sharing="K=V")
"""A cell was not run at every number of entries, one failed, one lacks a seed."""


def test_a_cell_has_the_statistics_of_its_seeds_its_costs_and_why_it_failed():
    """In the order of the sweep; what was not run has no row, and what failed no numbers."""
    rows = iter(capacity.cells(HOLED).to_dict("records"))
    for point, variant in product(HOLED.sweep.points(), HOLED.sweep.sharing):
        runs = capacity.slice_at(HOLED.runs[HOLED.runs["sharing"] == variant.value], point)
        if runs.empty:
            continue
        row = next(rows)
        assert {**point, "sharing": variant.value}.items() <= row.items()
        costs = list(capacity.COSTS)
        assert [row[name] for name in costs] == runs[costs].iloc[0].tolist()
        trained = runs[runs["error"].isna()]
        steps = trained["steps_to_threshold"].dropna()
        assert (row["n_seeds"], row["n_solved"]) == (len(trained), len(steps))
        found = [row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
        if trained.empty:
            assert row["error"].startswith("d_head: got 12")
            assert np.isnan([*found, row["solved"], row["steps_to_threshold"]]).all()
            continue
        assert row["error"] is None
        assert found == pytest.approx(expected_of(trained["accuracy"].to_numpy())[:3])
        assert row["solved"] == len(steps) / len(trained)
        assert row["steps_to_threshold"] == pytest.approx(steps.mean(), nan_ok=True)
    assert next(rows, None) is None
    tuned = capacity.cells(made_sweep(lambda *_: 1.0, axes={"learning_rate": (0.01, 0.02)}))
    assert tuned["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]
    with pytest.raises(ValueError, match="'n_entries'"):
        capacity.runs_at(WHOLE, {}, X)
    assert set(capacity.runs_at(WHOLE, {Y: 4}, X)[Y]) == {4}


def test_differences_are_paired_by_seed():
    """In points of accuracy and doublings of steps, over the seeds that both have."""
    table = capacity.difference(HOLED, "K=V", "QKV")
    trained = HOLED.runs[HOLED.runs["error"].isna()]
    kv, qkv = (trained[trained["sharing"] == one] for one in ("K=V", "QKV"))
    both = kv.merge(qkv, on=["d_head", "n_entries", "seed"])
    groups = dict(iter(both.groupby(["d_head", "n_entries"])))
    assert set(zip(table["d_head"], table["n_entries"], strict=True)) == set(groups)
    assert len(table) == len(groups)
    for row in table.to_dict("records"):
        pairs = groups[row["d_head"], row["n_entries"]]
        gaps = (pairs["accuracy_x"] - pairs["accuracy_y"]).to_numpy()
        assert row["n_pairs"] == len(gaps) == (4 if row["d_head"] == 3 else 5)
        assert [row["difference"], row["low"], row["high"]] == pytest.approx(expected_of(gaps)[:3])
        assert row["clear"] == (row["low"] > 0 or row["high"] < 0)
    table = capacity.difference(HOLED, "K=V", "QKV", STEPS)
    for row in table.to_dict("records"):
        pairs = groups[row["d_head"], row["n_entries"]]
        ratios = np.log2(pairs[f"{STEPS}_x"] / pairs[f"{STEPS}_y"])
        assert row["n_pairs"] == ratios.notna().sum()
        assert row["difference"] == pytest.approx(ratios.mean(), nan_ok=True)
    assert not capacity.difference(WHOLE, "QKV", "QKV")["clear"].any()
    assert capacity.difference(WHOLE, "Q=V", "QKV").empty  # which was not trained


LEVEL = st.integers(0, 5).map(lambda fifths: fifths / 5) | st.just(math.nan)


@given(st.lists(st.tuples(st.integers(1, 7), LEVEL), min_size=1, max_size=30))
def test_no_other_cell_beats_those_on_the_frontier(drawn):
    """Compared with all pairs, with ties; cells that could not be trained are on none."""
    table = pd.DataFrame(drawn, columns=["parameters", "accuracy"])
    best = set(capacity.frontier(table, "parameters").index)
    for i, (cost, level) in enumerate(drawn):
        beaten = any(c <= cost and a >= level and (c, a) != (cost, level) for c, a in drawn)
        assert (i in best) == (not beaten and not math.isnan(level))


def test_the_frontier_is_drawn_and_described():
    """Every cell is a dot with the index of its row."""
    table = capacity.slice_at(capacity.cells(failed(WHOLE, d_head=12, sharing="K=V")), {Y: 4})
    cost = "kv_cache_floats_per_token"
    others, line, best = accepted(phases.plot_frontier(table, cost))["data"]
    trained = table.index[table["accuracy"].notna()]
    assert sorted(others["customdata"] + best["customdata"]) == sorted(trained)
    assert best["customdata"] == capacity.frontier(table, cost).index.tolist()
    assert line["x"] == best["x"] == table.loc[best["customdata"], cost].tolist()
    told = phases.describe_frontier(table, cost)
    assert told.endswith(" 3 of 15 cells: QKV 0% for 2, K=V 0% for 2, QKV 100% for 6.")


def test_a_known_half_point_is_found_and_its_band_covers_what_is_not_known():
    """From many runs to within a few percent; bands of 95% cover 90 to 100 of 100 draws."""
    values, generator, n_covered = np.log2(WIDTHS), np.random.default_rng(0), 0
    share, five = 1 / (1 + np.exp(-3 * (values - np.log2(5)))), np.full(8, 5.0)
    found = half_point(values, 1000 * share, np.full(len(values), 1000.0))
    assert 2**found.value == pytest.approx(5, rel=0.03)
    assert found.low < np.log2(5) < found.high < found.low + np.log2(1.15)
    found = half_point(values, np.repeat([0, 5.0], 4), five)
    assert 3 < 2**found.low < 4.5 < 2**found.value < 5.5 < 2**found.high < 8
    falling = half_point(-values[::-1], np.repeat([5.0, 0], 4), five, rises=False)
    mirrored = [-found.value, -found.high, -found.low]
    assert [falling.value, falling.low, falling.high] == pytest.approx(mirrored, abs=0.1)
    for solved, value in ((0.0, math.inf), (5.0, -math.inf)):
        found = half_point(values, np.full(8, solved), five)
        assert found.value == value
        assert math.isinf(found.low) != math.isinf(found.high)
    for true in generator.uniform(np.log2(2.5), np.log2(10), 100):
        solved = generator.binomial(5, 1 / (1 + np.exp(-4 * (values - true))))
        found = half_point(values, solved.astype(float), five)
        n_covered += found.low <= true <= found.high
    assert 90 <= n_covered <= 100


def test_a_boundary_has_a_point_at_every_value_of_the_other_axis():
    """In the order of the sweep, between widths that fail and succeed, on axes of every kind."""
    found = boundary(WHOLE, "K=V", X, Y)
    assert (found.at, found.rises) == (list(ENTRIES), True)
    assert ((found.half > 4) & (found.half < 6)).all()
    assert ((found.low < found.half) & (found.half < found.high)).all()
    part = boundary(failed(WHOLE, d_head=8, n_entries=8), "K=V", X, Y)
    assert (part.at, part.half) == (found.at, pytest.approx(found.half, rel=0.1))
    single = WHOLE.runs[(WHOLE.runs[Y] != 4) | (WHOLE.runs[X] == 3)]
    assert boundary(SweepResult(WHOLE.sweep, single), "K=V", X, Y).at == [2, 8, 16]
    harder = boundary(made_sweep(lambda _, point: float(point[Y] <= point[X])), "QKV", Y, X)
    assert not harder.rises
    assert 4 < harder.half[harder.at.index(6)] < 8
    (half,) = boundary(wider({"QKV": 3, "K=V": 6}, axes={X: WIDTHS}), "QKV", X).half
    assert 2 < half < 3
    for chance in (0.0, 1.0):  # nothing separates runs
        assert boundary(made_sweep(lambda *_, c=chance: c), "QKV", X, Y) is None


def test_a_ratio_has_the_interval_of_both_boundaries():
    """As Zou and Donner add them: log₂ ratios of 1 and 3, with limits 1 below and 2 above."""
    result = made_sweep(logistic(QKV=3, KV=6, QK=3), sharing=("QKV", "K=V", "Q=K"))
    qkv, kv, qk = (boundary(result, name, X, Y) for name in ("QKV", "K=V", "Q=K"))
    there, back, equal = mean_ratio(kv, qkv), mean_ratio(qkv, kv), mean_ratio(qk, qkv)
    assert 1.5 < there.low < 2 < there.high
    assert equal.low < 1 < equal.high
    assert there.n_compared == equal.n_compared == 4
    assert there[:3] == pytest.approx((1 / back.ratio, 1 / back.high, 1 / back.low))
    limits = [2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [8.0, 16.0, 32.0]
    b = Boundary("QKV", X, Y, [2, 4, 8], *map(np.array, limits), rises=True, has_ratios=True)
    factors = np.array([2.0, 8.0, math.inf])
    a = replace(b, half=b.half * factors, low=b.low * factors, high=b.high * factors)
    found, half = mean_ratio(a, b), math.sqrt(2 * (1 + 4)) / 2
    assert found == pytest.approx((4, 2 ** (2 - half), 2 ** (2 + half), 2))
    assert (found.is_clear, mean_ratio(b, b).is_clear) == (True, False)


GRIDS = {X: WIDTHS, "d_model": (16, 32, 64, 128, 256), "d_mlp": WIDTHS, "n_heads": (1, 2, 4, 8)}
GRIDS |= {
    "n_layers": (1, 2, 3, 4),
    "steps": (10, 20, 40, 80, 160),
    "learning_rate": (0.001, 0.002, 0.004, 0.008, 0.016),
}


def swept(axis, other, needed, slope, n_seeds):
    """Return a sweep of variants that need some values of an axis; small ones if it falls."""
    depends = {other: (17, 29)} if other else {}

    def solves(name, point):
        beyond = point[axis] / needed[name] / (point[other] / 20 if other else 1)
        return 1 / (1 + beyond**-slope)

    axes = {axis: GRIDS[axis]} | depends
    return made_sweep(solves, sharing=list(needed), axes=axes, n_seeds=n_seeds)


def test_every_sentence_about_a_sweep_is_said_of_some_sweep_and_holds(monkeypatch):
    """Ratios are those of the boundaries; only what exceeds all others needs the most."""
    tables = (sentences._NEEDS, sentences._INTERVALS, sentences._LIMITS, sentences._SOLVE_AT)
    entries = [entry for table in tables for entry in table.values()]
    unsaid = {text for e in entries for text in (e.values() if isinstance(e, dict) else [e])}

    def translated(message, /, **values):
        unsaid.discard(message)
        return tr(message, **values)

    monkeypatch.setattr(sentences, "tr", translated)
    layouts = ({"QKV": 1, "K=V": 1}, {"QKV": 1}, {"QKV": 0, "K=V": 1, "Q=K": 0.05, "Q=V": 1.6})
    layouts += ({"QKV": 0, "K=V": 1.4, "Q=K": 0.05},)
    drawn = product(GRIDS, ((4, 1), (60, 5), (-4, 1), (-60, 5)), (None, "n_names"), layouts)
    for axis, (slope, n_seeds), other, layout in drawn:
        more = 2.5 if slope > 0 else 0.4
        middle = math.sqrt(GRIDS[axis][0] * GRIDS[axis][-1] / more)
        needed = {name: middle * more**power for name, power in layout.items()}
        result = swept(axis, other, needed, slope, n_seeds)
        text = conclusion(result, axis, other).text
        ratio = r"(\S+) needs (the)?[^.;]*?about (\S+) times as (?:\w+ )+?as (\S+) \("
        for name, most, times, base in re.findall(ratio, text):
            known = mean_ratio(*(boundary(result, one, axis, other) for one in (name, base)))
            assert float(times.replace(",", "")) == pytest.approx(known.ratio, rel=0.06)
            assert not known.low <= 1 <= known.high
            assert not most or "in no run" not in text
    assert unsaid == set()


def test_the_conclusion_says_which_variant_needs_the_most_and_by_how_much():
    """Only what is clear; what always or never solves the task is named, with no boundary."""
    for result, pattern in (
        (
            wider({"QKV": 3, "Q=K": 3, "K=V": 6, "Q=V": 4, "Q=K=V": 12}),
            r"Q=K=V needs the widest .* 4\.0 .* QKV .*\d\.\d to \d\.\d.* K=V .* 2\.0 .*"
            r"Q=V: 1\.\d .* Not .* Q=K \(1\.0 .*",
        ),
        (wider({"QKV": 3, "K=V": 6, "Q=V": math.inf}), "Q=V .* no run. K=V needs heads .*"),
        (wider({"QKV": 1, "K=V": 6}), "Half of .* K=V.* QKV .* every run."),
        (made_sweep(lambda *_: 0.0), r"No run .* QKV \d+%, K=V \d+%\."),
        (made_sweep(lambda *_: 1.0), ".* QKV 100%, K=V 100%."),
    ):
        text = conclusion(result, X, Y).text
        assert re.fullmatch(f"On “Phone book”: {pattern}", text), text
        assert ("widest" in text) == ("widest" in pattern), text
    assert "Nothing" in conclusion(SweepResult(WHOLE.sweep, WHOLE.runs[:0]), X, Y).text
    many = conclusion(wider({"QKV": 3} | {f"QKV d_mlp={4 * k}": 8 for k in range(1, 9)}), X, Y).text
    assert (many.count("times ("), many[-9:]) == (3, "4 others.")


GAPPY = failed(without(WHOLE, d_head=4, n_entries=8), d_head=12, sharing="K=V", n_entries=4)
CELLS = capacity.cells(GAPPY)
BOUNDS = [boundary(GAPPY, name, X, Y) for name in ("QKV", "K=V")]


def heatmaps(figure, colored=True):
    """Return the traces of cells, those with colours of the scale or the grey ones."""
    traces = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    return [trace for trace in traces if ("coloraxis" in trace) == colored]


def test_every_cell_stands_in_the_panel_of_its_variant_with_its_value():
    """And with the index of its row, by which the page opens the cell that was clicked."""
    for measure, (x, y) in product(("accuracy", STEPS, "solved"), ((X, Y), (Y, X))):
        figure, shown = (
            accepted(phases.plot_phase(CELLS, x, y, measure, BOUNDS if x == X else [])),
            {},
        )
        for trace, sharing in zip(heatmaps(figure), ("QKV", "K=V"), strict=True):
            for (i, upwards), (j, across) in product(enumerate(trace["y"]), enumerate(trace["x"])):
                row = trace["customdata"][i][j]
                if row is not None:
                    cell = CELLS.loc[row]
                    assert (cell[x], cell[y], cell["sharing"]) == (across, upwards, sharing)
                    shown[row] = trace["z"][i][j]
        assert len(shown) == len(CELLS)
        expected = CELLS[measure].reindex(list(shown)).to_numpy(float)
        found = np.array(list(shown.values()), float)
        assert (np.isnan(found) == np.isnan(expected)).all()
        if measure == STEPS:
            continue
        assert found == pytest.approx(expected, abs=1e-4, nan_ok=True)
        scale = figure["layout"]["coloraxis"]
        assert (scale["cmin"], scale["cmax"]) == (0, 1)
        edges = [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]
        assert [trace["xaxis"] for trace in edges] == (["x", "x2"] if x == X else [])
        for trace, bound in zip(edges, BOUNDS, strict=x == X):
            assert trace["x"][1:-1] == pytest.approx(bound.half)
            assert trace["y"][1:-1] == list(ENTRIES)
            assert trace["y"][0] == pytest.approx(2 / math.sqrt(2))
    grey = heatmaps(phases.plot_phase(CELLS, X, Y, STEPS), colored=False)[0]
    assert [line[grey["x"].index(1)] for line in grey["z"]] == [0.0] * len(ENTRIES)


def test_marks_and_words_of_a_phase_diagram_are_those_of_its_cells():
    """A cross says why a cell failed, a chosen one has a ring; the key explains what is there."""
    figure, n_cells = phases.plot_phase(CELLS, X, Y), len(WIDTHS) * len(ENTRIES)
    (cross,) = [t for t in figure["data"] if t.get("mode") == "markers"]
    assert (cross["x"], cross["y"]) == ([12], [4])
    assert "got 12, allowed less &lt;than&gt;<br>that" in cross["hovertext"][0]
    marks = re.findall(r"(\w+|×):", phases.phase_key(CELLS, n_cells, STEPS, BOUNDS))
    assert (marks, phases.phase_key(capacity.cells(WHOLE), n_cells)) == (["Grey", "×", "Blank"], "")
    row = CELLS[(CELLS["sharing"] == "K=V") & (CELLS[X] == 16) & (CELLS[Y] == 4)]
    *before, dark, pale = phases.with_mark(figure, row.index[0])["data"]
    assert before == figure["data"]
    panel = heatmaps(figure)[1]
    for ring in (dark, pale):
        place = [ring[key] for key in ("x", "y", "xaxis", "yaxis")]
        assert place == [[16], [4], panel["xaxis"], panel["yaxis"]]
    text = phases.describe_phase(CELLS, X, Y, "accuracy", BOUNDS)
    assert re.search(r"QKV: 31 cells, 0% to 100%.* 23 .* 2\.5 to 2\.5", text)
    told = r"K=V.* width 16, Entries 4.* 100%.*5 of 5 .*202 steps.* token 32"
    assert re.search(told, cell_texts(row, [X, Y])[0])
    line = accepted(phases.plot_slice(capacity.slice_at(CELLS, {Y: 4}), X, "accuracy"))["data"][1]
    assert line["x"] == pytest.approx([1, 2, 3, 4, 6, 8, 16], rel=0.03)  # beside each other
    assert line["y"][-1] == 1


def test_differences_have_numbers_where_the_interval_excludes_zero():
    """They are those of the table; zero is in the middle of the scale. Words count clear cells."""
    names, table = ("K=V", "QKV"), capacity.difference(GAPPY, "K=V", "QKV")
    steps = capacity.slice_at(capacity.difference(GAPPY, *names, STEPS), {Y: 2})
    accepted(phases.plot_difference(steps, X, None, names, STEPS))
    figure = accepted(phases.plot_difference(table, X, Y, names))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}
    axis = figure["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1
    assert [phases.difference_text(value, STEPS) for value in (1.0, -2.0)] == ["×2.0", "×0.25"]
    text = phases.describe_difference(table, X, Y, names)
    assert re.search("30 cells, −100 to 0.* K=V in 0 .* QKV in 7", text)


TINY = {"task": "directed", "n_values": 7, "d_model": 16}
TINY |= {"steps": 6, "evaluate_every": 3, "batch_size": 16, "n_eval": 16}
KV = Variant("K=V")
WIDE, NARROW = Cell((8, 6), KV), Cell((2, 6), KV)


@cache
def made_up(n_axes=2):
    """Return a result in which QKV solves the task in heads 3 wide, K=V 6 wide, Q=K never."""
    axes = {X: [2, 4, 8], Y: [6, 8], "n_layers": [1, 2]}
    needed = {"QKV": 3, "K=V": 6, "Q=K": 100}
    return wider(needed, axes=dict(list(axes.items())[:n_axes]), n_seeds=2, base=TINY)


@pytest.fixture
def shipped(monkeypatch, pages_service):
    """Ship a made-up sweep."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up())


@pytest.mark.server
@pytest.mark.usefixtures("shipped")
def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv(monkeypatch):
    """With its seeds, settings and learning rates; it opens even if training is refused."""
    result, lost = made_up(), failed(made_up(), d_head=8, sharing="K=V")
    assert page.row_of(without(result, d_head=8, n_entries=6), WIDE) is None
    assert "d_head: got 12" in page.numbers_of(page.row_of(lost, WIDE))[0]
    row, choice = page.row_of(result, WIDE), CapacityChoice()
    for mark in ([int(row.name)], 10**6, "cell"):
        page.take_mark(choice, result, mark)
        assert choice.cell == WIDE
    numbers = " ".join(page.numbers_of(row))
    for told in ("100%", "2 of 2", "200 steps", f"whole model {row['parameters']:,}", "0.005"):
        assert told in numbers
    full = Mock(side_effect=Refused("12 experiments wait already"))
    for submit in (TrainingService.submit, full):
        monkeypatch.setattr(TrainingService, "submit", submit)
        tab = press(open_page("capacity", cell=str(WIDE)), "capacity_lab")
        assert tab.session_state["lab"].experiment == page.lab_experiment(result, WIDE)
    experiment = page.lab_experiment(failed(result, d_head=2, sharing="Q=K"), WIDE)
    assert (experiment.sharing, list(experiment.seeds)) == (("QKV", KV), list(result.sweep.seeds))
    assert (experiment.size.d_head, experiment.task.n_entries) == (8, 6)
    assert page.lab_experiment(failed(result, d_head=8, sharing="QKV"), WIDE).sharing == (KV,)
    runs = result.runs.copy()
    runs.loc[runs["sharing"] == "K=V", "learning_rate"] = 0.02
    tuned = page.lab_experiment(SweepResult(result.sweep, runs), WIDE)
    assert tuned.training.learning_rate == 0.005
    assert tuned.sharing == ("QKV", "K=V learning_rate=0.02")


@given(st.data())
@briefly(50)
def test_a_link_keeps_every_choice_that_is_shown(data):
    """A link of a sweep with one, two or three axes opens the same choice for another visitor."""
    draw, sweep = data.draw, made_up(data.draw(st.sampled_from([1, 2, 3]))).sweep
    sent, found = CapacityChoice(), CapacityChoice()
    sent.read_for(sweep)
    sent.measure = draw(st.sampled_from(["accuracy", "steps_to_threshold", "solved"]))
    sent.section = draw(st.sampled_from(["", *SECTIONS]))
    sent.take_axis("x", draw(st.sampled_from(list(sweep.axes))))
    names = st.sampled_from(sweep.sharing)
    sent.variants = tuple(draw(st.lists(names, min_size=1, unique=True)))
    sent.one, sent.other = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    sent.fixed = {name: draw(st.sampled_from(values)) for name, values in sweep.axes.items()}
    sent.cell = draw(st.none() | st.sampled_from(cells_of(sweep)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapacityChoice, "set_link", lambda self, link: setattr(self, "link", link))
        sent.write_link()
        found.follow(dict(sent.link))
        found.read_for(sweep)
        found.write_link()
    assert (found.problems, found.link) == ([], sent.link)
    compared = ("one", "other") if sent.section == "difference" else ()
    for name in ("measure", "section", "x", "y", "beside", "variants", "cell", *compared):
        assert getattr(found, name) == getattr(sent, name), name


def test_what_a_sweep_does_not_have_is_a_default_and_told_if_a_link_asked_for_it():
    """Choosing the axis of the other side exchanges both. Another sweep needs no message."""
    choice, other = CapacityChoice(), Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.read_for(made_up().sweep)
    choice.take_axis("x", Y)
    assert (choice.x, choice.y) == (Y, X)
    choice.cell = WIDE
    choice.read_for(other)
    assert (choice.x, choice.y, choice.cell, choice.problems) == ("n_heads", "", None, [])
    assert set(choice.variants) <= set(other.sharing) == {choice.one, choice.other}
    wrong = {"measure": "beauty", "x": "colour", "show": "all", "cost": "gold", "variants": "Q=P"}
    wrong |= {"cell": "3/6/QKV", "one": "Q=P", Y: "7"}
    choice.follow({**wrong, "variants": "QKV,Q=P", "sweep": OWN})
    choice.read_for(made_up().sweep)
    told = [problem.split("'. Allowed: ")[0] for problem in choice.problems]
    assert sorted(told) == sorted(f"The link has {name}='{text}" for name, text in wrong.items())
    assert (choice.x, choice.variants, choice.cell) == (X, ("QKV",), None)
    choice.follow({"show": "matching"})  # a section of older versions
    assert (choice.section, choice.problems) == ("frontier", [])


@pytest.mark.server
@pytest.mark.usefixtures("shipped")
def test_the_page_concludes_shows_a_diagram_and_every_section(monkeypatch, seed):
    """A link is followed, kept while another page is open, and repaired once."""
    tab = open_page("capacity")
    assert plain_text(tab.markdown[0]) == conclusion(made_up(), X, Y).text
    data = drawn(tab, page.PHASE)
    assert [0, *(narrower["most"] for narrower in data["narrower"])] == list(phases.COLUMNS)
    assert data["picks"]
    assert data["alt"]
    assert len(data["save"]["table"]["rows"]) == made_up().sweep.n_cells
    tab.selectbox(key="capacity_pick").set_value(NARROW)
    tab = show(tab)
    assert link_of(tab)["cell"] == "2/6/K=V"
    assert "0 of 2 seeds" in said(tab)
    params = {"sweep": CapacityChoice.sweep, "show": "difference", "x": Y, "one": "Q=K"}
    tab = open_page("capacity", **params, y=X, other="K=V")  # the last two are defaults
    assert not tab.warning
    assert link_of(turn_to(turn_to(tab, "guide"), "capacity")) == params
    tab = open_page("capacity", sweep=OWN, measure="beauty")  # the sweep of another visitor
    assert "measure='beauty'. Allowed: accuracy" in plain_text(tab.warning[0])
    assert tab.session_state["capacity_chosen"].sweep == CapacityChoice.sweep
    assert not show(tab).warning
    drawer = random.Random(seed)
    for section in SECTIONS:
        n_axes = drawer.choice((1, 2, 3))
        monkeypatch.setattr(page, "load_shipped", Mock(return_value=made_up(n_axes)))
        tab = open_page("capacity", show=section, **({"n_layers": "1"} if n_axes == 3 else {}))
        assert (link_of(tab)["show"], [*tab.warning, *tab.error]) == (section, []), n_axes
    damaged = InvalidSweep("width.parquet: is not the result of a sweep")
    monkeypatch.setattr(page, "load_shipped", Mock(side_effect=damaged))
    tab = open_page("capacity")
    assert tab.error
    assert not tab.button(key="run_sweep").disabled


@pytest.mark.server
@pytest.mark.usefixtures("shipped")
def test_a_sweep_runs_from_the_form_and_fills_the_page(monkeypatch):
    """A wrong value is told and cannot run; it pauses and goes on to its end."""

    def tiny(**given):
        return Sweep(**{**given, "base": {**TINY, "n_names": 11, "task": given["base"]["task"]}})

    tiny.from_toml = Sweep.from_toml
    monkeypatch.setattr(own_sweeps, "Sweep", tiny)
    tab = open_page("capacity", show="live")
    tab.selectbox(key="form_task").set_value("directed")
    tab = show(tab)
    tab.number_input(key="form_seeds").set_value(1)
    tab.text_input(key="form_second_values").set_value("5, 6")
    tab.text_input(key="form_first_values").set_value("wide")
    tab = show(tab)
    assert "Head width" in tab.error[0].value
    assert tab.button(key="run_sweep").disabled
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab = press(press(show(tab), "run_sweep"), "pause_sweep")
    live = tab.session_state["live_sweep"]
    assert not live.moving
    link, wrong = link_of(tab), "The sweep of the link cannot be trained. "
    for left, plan, moves in (
        ({}, link[PLAN], False),
        (dict.fromkeys([live.hash], 1), link[PLAN], True),
        ({}, "steps = ", None),
        ({}, link[PLAN].replace("n_seeds = 1", "n_seeds = 5000"), None),
    ):
        with monkeypatch.context() as patched:  # as its server has left it
            interrupted = Mock(return_value=left)
            patched.setattr(TrainingService, "interrupted", interrupted)
            other = open_page("capacity", **link | {PLAN: plan})
        own = "live_sweep" in other.session_state
        assert (own, wrong in said(other)) == (moves is not None, moves is None)
        if own:
            again = other.session_state["live_sweep"]
            assert (again.sweep, again.moving, link_of(other)) == (live.sweep, moves, link)
            again.stop()
    tab = watch_series(press(tab, "go_on_sweep"), live)
    assert (live.finished, link_of(tab)["sweep"], live.result().n_missing) == (True, OWN, 0)
    assert len(drawn(tab, page.PHASE)["save"]["table"]["rows"]) == live.sweep.n_cells
    assert plain_text(tab.markdown[0]) == conclusion(live.result(), X, Y).text
