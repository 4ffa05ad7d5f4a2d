"""The quick form of claims: what is tested again, with how many seeds, and in what time."""

from dataclasses import replace

import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import LEAST_SEEDS, QUICK_SEEDS, arm
from attnkit.claims.statements import worse
from attnkit.evidence.gathering import gather
from attnkit.evidence.power import pilot_of, power
from attnkit.evidence.quick import LIKELY, QuickForm
from attnkit.evidence.record import load_shipped

HELD, FAILED, UNDECIDED = Verdict


def of_two(**given):
    """Return a claim that Q=K and K=V are both worse than QKV, where Q=K trains for longer."""
    arms = (arm("Q=K", up_to=2, **TINY), arm("K=V", **TINY), arm("QKV", **TINY))
    own = {"arms": arms, "statements": (worse("Q=K", "QKV"), worse("K=V", "QKV")), "n_seeds": 40}
    return small_claim(**{**own, **given})


def quiet(**accuracy):
    """Return a bench of made-up numbers that says nothing."""
    return MadeUp(lambda _: None, **accuracy)


def names(form):
    """Return the names of the arms of a form."""
    return [one.name for one in form.arms]


# what is tested again


def test_a_refuted_claim_is_tested_by_the_cheapest_statement_that_refutes_it():
    """A claim that held or is undecided needs all of them, as does one without a record."""
    claim = of_two()
    refuted = QuickForm.of(claim, made_up(claim, quiet(QKV=1.0, Q_K=1.0, K_V=1.0)))
    assert (refuted.statements, names(refuted)) == (claim.statements[1:], ["K=V", "QKV"])
    first = QuickForm.of(claim, made_up(claim, quiet(QKV=1.0, Q_K=1.0, K_V=0.5)))
    assert (first.statements, names(first)) == (claim.statements[:1], ["Q=K", "QKV"])
    held = made_up(claim, quiet(QKV=1.0, Q_K=0.5, K_V=0.5))
    stale = made_up(small_claim(), quiet(QKV=1.0, Q_K=1.0))
    for record in (held, replace(stale, claim=claim), None):
        form = QuickForm.of(claim, record)
        assert form.statements == claim.statements
        assert set(form.tuned) == ({"Q=K", "K=V", "QKV"} if record is held else set())


def test_an_arm_whose_recipe_is_taken_over_is_trained_as_well():
    """Its record holds the recipe."""
    arms = (arm("Q=K", recipe_of="K=V", **TINY), arm("K=V", **TINY), arm("QKV", **TINY))
    claim = small_claim(arms=arms)
    form = QuickForm.of(claim, made_up(claim, quiet(QKV=1.0, Q_K=0.5)))
    assert names(form) == ["Q=K", "K=V", "QKV"]
    assert form.tuned["Q=K"] == form.tuned["K=V"]


def test_a_claim_of_which_a_part_was_tested_is_refuted_or_undecided():
    """It never holds, however clear its part is."""
    claim = of_two()
    record = made_up(claim, quiet(QKV=1.0, Q_K=0.5, K_V=1.0))
    for level, verdict in ((1.0, FAILED), (0.5, UNDECIDED)):
        bench = quiet(QKV=1.0, K_V=level)
        run = made_up(claim, bench, quick=True, records={claim.id: record})
        assert set(run.scores) == {"K=V", "QKV"}
        assert [statement for statement, _ in run.own_findings] == [claim.statements[1]]
        assert run.judgement.verdict is verdict


# how many seeds


def test_the_fewest_seeds_are_taken_that_are_likely_to_decide():
    """A clear difference takes few, "no worse" takes 17; if too few are known, all are taken."""
    different, alike = quiet(QKV=1.0, Q_K=0.5), quiet(QKV=1.0, Q_K=1.0)
    for n_seeds, bench, planned in ((40, different, 8), (40, alike, 17), (10, alike, 10)):
        claim = small_claim(n_seeds=n_seeds, statements=(worse("Q=K", "QKV"),))
        form = QuickForm.of(claim, made_up(claim, bench))
        assert form.n_seeds == planned
        assert {len(trial.experiment.seeds) for trial in form.trials(5)} == {planned}


def test_every_shipped_claim_is_planned_from_its_record():
    """The planned seeds are likely to decide, or they are as many as the quick form may have."""
    for name, shipped in load_shipped().items():
        claim, form = CLAIMS[name], QuickForm.of(CLAIMS[name], shipped)
        assert LEAST_SEEDS <= form.n_seeds <= claim.n_seeds
        assert set(names(form)) == set(form.tuned)
        likely = power(pilot_of(shipped, form.statements), form.n_seeds) >= LIKELY
        assert likely or form.n_seeds == min(QUICK_SEEDS, claim.n_seeds)


# in what time


@pytest.mark.parametrize("minutes", [0, 60])
def test_the_cheapest_claims_come_first_and_none_begins_that_would_end_too_late(minutes):
    """The first one tells the pace, and is tested in any case."""
    long = tuple(replace(one, up_to=4) for one in small_claim().arms)
    claims = [small_claim("long", arms=long), small_claim("short")]
    tested = gather(claims, quiet(QKV=1.0, Q_K=0.5), quick=True, minutes=minutes)
    expected = ["short", "long"] if minutes else ["short"]
    assert [evidence.claim.id for evidence in tested] == expected
