"""Claims in other structures: what is changed, what counts, and what is told."""

import math
import random
from dataclasses import replace

import pytest
from small_claims import TINY, MadeUp, about, small_claim

from attnkit import __main__
from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse, worse
from attnkit.evidence import elsewhere
from attnkit.evidence.elsewhere import (
    SIDES,
    Outcome,
    load_elsewhere,
    readable,
    search_elsewhere,
    shown_arms,
    structures,
    trials_of,
)
from attnkit.evidence.record import Recipe, load_shipped
from attnkit.experiment import Experiment
from attnkit.figures.evidence import describe_elsewhere, plot_elsewhere

ARMS = (arm("Q=K", **TINY), arm("QKV", **TINY))
OWN = {"mlp": 0, "width": 1, "layers": 1, "heads": 1, "entries": 1, "steps": 1}


def settings_of(one):
    """Return the settings of an arm after its base steps."""
    return Experiment(**{**one.settings, "n_seeds": 1}).settings()


class Somewhere(MadeUp):
    """A bench that trains nothing; accuracies depend on the experiment and on the rate."""

    def __init__(self, accuracy):
        super().__init__()
        self.accuracy_in = accuracy

    def measure(self, trial):
        """Return made-up numbers of every cell, each with accuracies of its own."""
        found = super().measure(trial)
        for (name, recipe), one in found.items():
            settings = trial.experiment.settings()
            one.scores["accuracy"][:] = self.accuracy_in(name.split(" ×")[0], settings, recipe.rate)
        return found


def test_one_side_is_changed_at_a_time_and_no_side_that_a_claim_compares():
    """Drawn claims, and two that compare numbers of heads and of layers."""
    for claim in random.Random(60).sample(list(CLAIMS.values()), 12):
        own = [settings_of(one) for one in shown_arms(claim)]
        with about(claim):
            assert any(arms == shown_arms(claim) for arms in structures(claim).values())
            for (side, value), arms in structures(claim).items():
                for one, before in zip(arms, own, strict=True):
                    after = settings_of(one)
                    changed = {name for name in after if after[name] != before[name]}
                    assert changed <= {"evaluate_every", *elsewhere._SETTINGS[side]}
                    if side in ("layers", "heads"):
                        assert after[f"n_{side}"] == value
                    elif side == "mlp":
                        assert after["d_mlp"] == value * after["d_model"]
                    else:
                        assert all(after[name] == int(value * before[name]) for name in changed)
    with_heads = small_claim(arms=(arm("Q=K n_heads=4", "four", **TINY), *ARMS))
    two_layers = small_claim(arms=(arm("Q=K", "two", **TINY, n_layers=2), *ARMS))
    for claim, left_out in ((with_heads, "heads"), (two_layers, "layers")):
        compared = (worse(claim.arms[0].name, "QKV"),)
        sides = {side for side, _ in structures(small_claim(arms=claim.arms, statements=compared))}
        assert sides == set(SIDES) - {left_out}


@pytest.mark.parametrize("compared", [worse, no_worse])
def test_a_claim_holds_fails_or_says_nothing_with_the_best_of_three_rates(compared):
    """Q=K learns with two layers, half of the seeds with an MLP, and no variant with 8 heads."""

    def accuracy(name, settings, rate):
        if settings["n_heads"] == 8:
            return 0.2
        if settings["d_mlp"]:
            return [1.0, 0.4, 1.0] if name == "Q=K" else 1.0
        learns = name == "QKV" or settings["n_layers"] == 2
        return 1.0 if learns and rate == 0.01 else 0.4

    unseen = arm("K=V", **TINY)  # QKV would have its rate, but it is not trained
    arms = (ARMS[0], unseen, replace(ARMS[1], recipe_of="K=V"))
    claim = small_claim(arms=arms, statements=(compared("Q=K", "QKV"),))
    result = search_elsewhere(claim, None, Somewhere(accuracy))
    differs, alike = (Outcome.HOLDS, Outcome.FAILS)[:: 1 if compared is worse else -1]
    for place in result.places:
        at = (place.side, place.value)
        is_mixed = place.side == "mlp" and place.value
        assert place.is_own == (OWN[place.side] == place.value)
        assert place.learns == (at != ("heads", 8))
        if at == ("heads", 8):
            assert place.outcome is Outcome.OPEN
        elif is_mixed:
            assert place.outcome is Outcome.MIXED
        else:
            assert place.outcome is (alike if at == ("layers", 2) else differs)
            assert place.rates["QKV"] == 2.0  # the task's own is 0.005
        assert set(place.values) == {"Q=K", "QKV"}
    assert {(p.side, p.value) for p in result.places} == structures(claim).keys()
    text, figure = readable(claim, result), plot_elsewhere(claim, result)
    assert len(text.splitlines()) == 1 + len(result.places)
    others = sum(not place.is_own for place in result.places)
    assert sum(len(mark["x"]) for mark in figure["data"]) == 2 * (1 + others)
    assert sum(map(describe_elsewhere(result).count, "✓✗~–")) == len(result.places)


def test_every_arm_is_trained_at_half_once_and_twice_its_rate_on_three_new_seeds():
    """The schedule stays that of the record."""
    trials = trials_of(ARMS, {"Q=K": Recipe(0.02, "cosine"), "QKV": Recipe(0.04, "constant")})
    cells = {cell for trial in trials for cell in trial.cells}
    rates = {"Q=K": ("cosine", 0.02), "QKV": ("constant", 0.04)}
    for name, (schedule, rate) in rates.items():
        for times in (0.5, 1, 2):
            assert (f"{name} ×{times:g}", (rate * times, schedule)) in cells
    assert len(cells) == 6
    assert {tuple(t.experiment.seeds) for t in trials} == {(920_000, 920_001, 920_002)}


def test_a_sentence_names_the_conditions_without_which_it_does_not_stand():
    """A claim that held must not fail elsewhere, one that did not must not hold, but as it says."""
    shipped = load_elsewhere()
    assert {"direction", "two_roles", "one_matrix", "narrow_head_slow"} <= shipped.keys()
    for name, result in shipped.items():
        verdict = load_shipped().verdicts[name]
        against = Outcome.FAILS if verdict is Verdict.HELD else Outcome.HOLDS
        sides = {place.side for place in result.places if place.outcome is against}
        with about(CLAIMS[name]):
            assert verdict is Verdict.UNDECIDED or sides <= set(CLAIMS[name].conditions)
            for place in result.places:
                assert all(0 <= n <= elsewhere.N_SEEDS for n in place.holding)
                assert not any(math.isnan(value) for value in place.values.values())


def test_the_command_trains_elsewhere_shows_it(tmp_path, monkeypatch, capsys):
    """A claim of one's own is trained with an MLP and without one."""
    file = tmp_path / "own.toml"
    settings = ", ".join(f"{name} = {value!r}" for name, value in TINY.items()).replace("'", '"')
    arms = "".join(f'[[arms]]\nvariant = "{one.variant}"\n' for one in ARMS)
    file.write_text(
        'title = "a"\nquestion = "b"\nsource = "c"\nsays = "d"\nprediction = "e"\n'
        f'expected = "held"\ncommon = {{ {settings} }}\n{arms}'
        '[[statements]]\nworse = ["Q=K", "QKV"]\n'
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(elsewhere, "SIDES", {"mlp": (0, 1)})
    monkeypatch.delitem(CLAIMS, "own", raising=False)
    try:
        assert __main__.main(["claims", str(file), "--elsewhere"]) == 0
    finally:
        CLAIMS.pop("own", None)
    assert "MLP none" in (out := capsys.readouterr().out)
    assert "MLP 1 ×" in out
