"""The quick form of claims: what is tested again, with how many seeds, and in what time."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import arm
from attnkit.claims.statements import worse
from attnkit.evidence import gathering
from attnkit.evidence.gathering import Bench, gather, work_of_claim
from attnkit.evidence.power import pilot_of, power
from attnkit.evidence.presentation import ClaimInWords
from attnkit.evidence.quick import LIKELY, MOST_SEEDS, NEW_SEED, QuickForm
from attnkit.evidence.record import load_shipped
from attnkit.experiment.experiment import from_params
from attnkit.figures.evidence import describe_evidence
from attnkit.ui.claims.rerun_area import lab_links
from attnkit.ui.lab.lab import MOST_COLUMNS

HELD, FAILED, UNDECIDED = Verdict
ARMS = tuple(arm(sharing, **TINY) for sharing in ("Q=K", "K=V", "QKV"))
TWO = small_claim(
    arms=(replace(ARMS[0], up_to=2), *ARMS[1:]),
    statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")),
    n_seeds=40,
)
"""Q=K and K=V are both worse than QKV, where Q=K trains for longer."""


def steps_times(n, name):
    """Return a small claim whose arms train for n times the usual steps."""
    longer = {"steps": n * TINY["steps"]}
    arms = tuple(replace(one, settings={**one.settings, **longer}) for one in ARMS)
    return small_claim(name, arms=arms, statements=(worse("Q=K", "QKV"),))


def names(form):
    """Return the names of the arms of a form."""
    return [one.name for one in form.arms]


def test_a_refuted_claim_is_tested_by_the_cheapest_statement_that_refutes_it():
    """A claim that held or is undecided needs all of them, as does one without a record."""
    refuted = made_up(TWO, MadeUp(QKV=1.0, Q_K=1.0, K_V=1.0))
    assert names(QuickForm.of(TWO, refuted)) == ["K=V", "QKV"]
    assert QuickForm.of(TWO, refuted, whole=True).arms == TWO.arms
    first = made_up(TWO, MadeUp(QKV=1.0, Q_K=1.0, K_V=0.5))
    assert names(QuickForm.of(TWO, first)) == ["Q=K", "QKV"]
    held = made_up(TWO, MadeUp(QKV=1.0, Q_K=0.5, K_V=0.5))
    stale = replace(made_up(small_claim(), MadeUp(QKV=1.0, Q_K=1.0)), claim=TWO)
    for record in (held, stale, None):
        form = QuickForm.of(TWO, record)
        assert form.arms == TWO.arms
        assert form.untuned == (record is not held)
        assert form.untuned or set(form.tuned) == {"Q=K", "K=V", "QKV"}
    taken = small_claim(arms=(replace(ARMS[0], recipe_of="K=V"), *ARMS[1:]))  # over by the record
    form = QuickForm.of(taken, made_up(taken, MadeUp(QKV=1.0, Q_K=0.5)))
    assert names(form) == list(form.tuned) == ["Q=K", "QKV"]
    assert names(QuickForm.of(taken, None)) == ["Q=K", "K=V", "QKV"]


def test_a_claim_of_which_a_part_was_tested_is_refuted_or_undecided():
    """It never holds, however clear its part is, and its words promise no more."""
    record = made_up(TWO, MadeUp(QKV=1.0, Q_K=0.5, K_V=1.0))
    assert not record.is_partial
    for level, verdict in ((1.0, FAILED), (0.5, UNDECIDED)):
        bench = MadeUp(QKV=1.0, K_V=level)
        run = made_up(TWO, bench, quick=True, records={TWO.id: record})
        assert set(run.scores) == {"K=V", "QKV"}
        assert run.is_partial
        assert list(run.own_findings) == [TWO.statements[1]]
        assert run.judgement.verdict is verdict
        words = ClaimInWords(TWO, run, verdict)
        assert words.outlook == ""
        assert "probably" not in words.found
        assert "Read together" not in words.tested
        assert describe_evidence(run)


def test_the_links_set_up_what_was_compared():
    """Every claim's open in the Lab, which shows so many columns."""
    for shipped in load_shipped().values():
        claim = shipped.claim
        trials = QuickForm.of(claim, shipped, whole=True).trials(0)
        found = dict(lab_links([trial.experiment for trial in trials]))
        for params, trial in zip(found.values(), trials, strict=True):
            experiment, opened = trial.experiment, from_params(params)
            with about(claim):
                assert opened.sharing == experiment.sharing[:MOST_COLUMNS]
                assert opened.replace(sharing=experiment.sharing) == experiment


def test_the_fewest_seeds_are_taken_that_are_likely_to_decide():
    """A clear difference takes few, "no worse" takes 17; if too few are known, all are taken."""
    different, alike = MadeUp(QKV=1.0, Q_K=0.5), MadeUp(QKV=1.0, Q_K=1.0)
    for n_seeds, bench, planned in ((40, different, 8), (40, alike, 17), (10, alike, 10)):
        claim = small_claim(n_seeds=n_seeds, statements=(worse("Q=K", "QKV"),))
        form = QuickForm.of(claim, made_up(claim, bench))
        assert form.n_seeds == planned
        assert {len(trial.experiment.seeds) for trial in form.trials(5)} == {planned}
    for n_seeds, planned in ((6, 6), (30, 15), (60, MOST_SEEDS)):
        assert QuickForm.of(small_claim(n_seeds=n_seeds), None).n_seeds == planned


@pytest.mark.parametrize("whole", [False, True])
def test_every_shipped_claim_is_planned_from_its_record(whole):
    """The planned seeds are likely to decide, or they are as many as the quick form may have."""
    for name, shipped in load_shipped().items():
        claim, form = CLAIMS[name], QuickForm.of(CLAIMS[name], shipped, whole=whole)
        arms = set(names(form))
        with about(claim):
            assert arms == set(form.tuned) <= set(shipped.scores)
            tested = [s for s in claim.statements if arms.issuperset(s.arms)]
            assert len(tested) == len(claim.statements) or not whole
            likely = power(pilot_of(shipped, tested), form.n_seeds) >= LIKELY
            assert likely or form.n_seeds == min(MOST_SEEDS, claim.n_seeds)


@pytest.mark.parametrize(("minutes", "reached"), [(0, 1), (2, 2), (60, 3)])
def test_the_cheapest_claims_come_first_and_none_begins_that_would_end_too_late(
    minutes, reached, monkeypatch
):
    """The pace is that of the claims before; the first claim is tested in any case."""
    now = [0.0]
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Timed(MadeUp):
        """A bench that trains for a minute of made-up time per unit of work."""

        def measure(self, trial):
            now[0] += 60 * self.work(trial)
            return super().measure(trial)

    claims = [steps_times(4, "long"), steps_times(1, "short"), steps_times(2, "middle")]
    records = {one.id: made_up(one, MadeUp(QKV=1.0, Q_K=0.5)) for one in claims}
    bench = Timed(QKV=1.0, Q_K=0.5)
    tested = gather(claims, bench, quick=True, records=records, minutes=minutes)
    assert [one.claim.id for one in tested] == ["short", "middle", "long"][:reached]


def test_what_has_to_be_tuned_first_counts_ten_times_and_what_is_kept_nothing(tmp_path):
    """So that the same command reaches further when it is repeated."""
    claim = steps_times(1, "short")
    record = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    bench = Bench(tmp_path, "cpu")
    known, unknown = (work_of_claim(claim, bench, one, NEW_SEED) for one in (record, None))
    assert unknown == pytest.approx(10 * known)
    assert known > 0
    for trial in QuickForm.of(claim, record).trials(NEW_SEED):
        bench.measure(trial)
    assert work_of_claim(claim, bench, record, NEW_SEED) == 0
    assert work_of_claim(claim, bench, record, NEW_SEED + 1) == known
