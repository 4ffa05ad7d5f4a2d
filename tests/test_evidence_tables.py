"""What pages say of evidence: tables of claims, words beside a guess, links into the Lab."""

from small_claims import evidence_of_all, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.statements import worse
from attnkit.evidence.found import main_statement
from attnkit.evidence.record import verdicts_of
from attnkit.experiment.experiment import from_params
from attnkit.ui.claim_rerun import quick_trials
from attnkit.ui.evidence import (
    claims_table,
    disagreement,
    guess_in_words,
    lab_links,
    statement_with_verdict,
    tuning_table,
)
from attnkit.ui.lab import MOST_COLUMNS
from attnkit.ui.markdown import plain


def test_predictions_that_failed_are_seen_as_such_in_the_table_of_claims():
    """So are those that nothing decides; without evidence all claims stand there as not run."""
    evidence = evidence_of_all()
    verdicts = verdicts_of(evidence.values())
    wrong = [name for name, verdict in verdicts.items() if verdict != CLAIMS[name].expected]
    undecided = [name for name in wrong if verdicts[name] == "undecided"]
    assert wrong
    table = claims_table(evidence, verdicts)
    assert list(table.claim) == [claim.title for claim in CLAIMS.values()]
    assert (table.came_true == "? undecided").sum() == len(undecided)
    assert table.came_true.isin(["✗ no", "? undecided"]).sum() == len(wrong)
    assert list(table.seen) == [claim.seen for claim in CLAIMS.values()]
    assert set(claims_table({}, {}).verdict) == {"not run yet"}


def test_what_is_found_agrees_with_the_verdict():
    """The main statement is the one that decides; a stricter verdict of the claim is explained."""
    records = evidence_of_all()
    verdicts = verdicts_of(records.values())
    for name, evidence in records.items():
        told = statement_with_verdict(evidence, verdicts[name])
        _, finding = main_statement(evidence, verdicts[name])
        stricter = verdicts[name] == "undecided" != finding.verdict
        assert ("Read together" in told) == stricter
        if verdicts[name] != "undecided":
            assert f"**{verdicts[name]}**" in told


def test_the_links_set_up_what_was_compared():
    """Every claim's open in the Lab, which shows so many columns."""
    for name, claim in CLAIMS.items():
        experiments = [
            trial.experiment for trial in quick_trials(claim, evidence_of_all()[name], 0)
        ]
        found = lab_links(experiments)
        assert len({label for label, _ in found}) == len(experiments)
        for (_, params), experiment in zip(found, experiments, strict=True):
            opened = from_params(params)
            assert opened.sharing == experiment.sharing[:MOST_COLUMNS]
            assert opened.replace(sharing=experiment.sharing) == experiment


def test_a_verdict_that_differs_from_the_shipped_one_is_explained():
    """In a plain sentence; equal ones are not."""
    one, two = small_claim(), small_claim(statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")))
    assert disagreement(one, "held", "held", 17) == ""
    assert disagreement(one, "held", None, 0) == ""
    few = disagreement(one, "undecided", "held", 17)
    assert few == "8 seeds are few: no verdict. The shipped one rests on 17."
    assert "2 things at once" in disagreement(two, "undecided", "did not hold", 17)
    assert "stricter" in disagreement(one, "held", "undecided", 17)
    assert "the opposite of the shipped 17" in disagreement(one, "held", "did not hold", 17)


def test_a_guess_is_judged_by_the_evidence_with_more_seeds():
    """By the run itself where nothing is shipped."""
    assert guess_in_words("held", "held", None) == "Your guess was right."
    assert guess_in_words("held", "undecided", None) == "Your guess was wrong."
    assert guess_in_words("held", "held", "held") == "Your guess was right."
    by = guess_in_words("held", "undecided", "held")
    assert by == "By the shipped evidence your guess was right."


def test_learning_rates_that_were_tried_stand_in_a_table():
    """The chosen one is marked; what was judged by loss says so."""
    tuned = evidence_of_all()["ranking"].tuned
    table = tuning_table(tuned)
    assert table.count("✓") == len(tuned)
    assert all(plain(name) in table for name in tuned)
    assert "| loss |" in table
