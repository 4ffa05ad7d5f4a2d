"""Evidence in words: what is found on a statement, its numbers, predictions, tables of claims."""

from dataclasses import replace
from math import inf, nan

import numpy as np
from small_claims import TINY, MadeUp, evidence_of_all, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence import presentation
from attnkit.evidence.listing import readable, to_markdown
from attnkit.evidence.presentation import (
    ClaimInWords,
    Outcome,
    claims_in_words,
    disagreement,
    new_claims,
    score_in_words,
)
from attnkit.evidence.record import Records
from attnkit.evidence.values import values_in_words
from attnkit.evidence.verdict import judge_statement
from attnkit.evidence.words import (
    finding_in_words,
    found_in_words,
    main_statement,
    rises_in_words,
    statements_table,
    tuning_table,
)
from attnkit.ui.claims.rerun_area import guess_in_words, markdown_table
from attnkit.ui.markdown import plain

QUIET = {"say": lambda _: None}


def unable(claim, **options):
    """Return evidence that Q=K is worse."""
    return made_up(claim, MadeUp(**QUIET, QKV=1.0, Q_K=0.5), **options)


# what is found on a statement


def by_hand(*arms, measure="loss", **given):
    """Return a statement whose texts are its author's."""
    return Statement("By hand", "Not by hand", *arms, measure=measure, **given)


HELD, FAILED, UNDECIDED = Verdict
OPEN = "The seeds do not decide whether this is true:"
STEPS, SYMMETRY = {"measure": "steps_to_solve"}, {"measure": "asymmetry"}
OPPOSITES = [
    (worse("a", "b"), "a is at most 5 points worse than b"),
    (worse("a, sums", "b, sums"), "Sums: a is at most 5 points worse than b"),
    (no_worse("a", "b", measure="mean_accuracy"), "a is worse than b by more than 5 points"),
    (better("a", "b", 0.1, text="By hand"), "a is at most 10 points better than b"),
    (better("a", "b", 0), "a is at most as good as b"),
    (worse("a", "b", 0), "a is at least as good as b"),
    (worse("a", "b", 0, measure="loss"), "a has a lower loss than b"),
    (
        worse("a", "b", 0.01, measure="loss_all_along"),
        "a is at most 0.01 nats worse than b (mean loss during training)",
    ),
    (worse("a", "b", 2, **STEPS), "a needs at most 4 times the steps of b"),
    (no_worse("a", "b", 1, **STEPS), "a needs more than 2 times the steps of b"),
    (better("a", "b", 1, **STEPS), "b needs at most 2 times the steps of a"),
    (worse("a", "b", opposite="Keys are enough"), "Keys are enough"),
    (by_hand("a"), "Not by hand"),
]


def finding_of(statement, verdict, n_worse=7):
    """Return a finding with a verdict, with so many of seven pairs beyond the limit."""
    p_held, p_not = 1 - 1.0 * (verdict is HELD), 1 - 1.0 * (verdict is FAILED)
    finding = judge_statement(statement, np.zeros(7))
    return replace(finding, n_worse=n_worse, p_held=p_held, p_not=p_not)


def test_a_statement_that_did_not_hold_becomes_its_opposite():
    """No text has a double negative, and what confirms an inability has an opposite, too."""
    for statement, opposite in OPPOSITES:
        assert statement.opposite == opposite
    for options in ({}, STEPS, {"measure": "loss"}):
        one, other = worse("a", "b", 1, **options), no_worse("a", "b", 1, **options)
        assert (one.text, one.opposite) == (other.opposite, other.text)
    for claim in CLAIMS.values():
        for statement in (*claim.statements, *claim.confirmation[1]):
            texts = [found_in_words(statement, finding_of(statement, v)) for v in Verdict]
            assert len(set(texts)) == 3, texts
            assert not any(text.count(": ") > 1 for text in texts), texts
            assert not any("did not hold" in text for text in texts)
    _, (confirming, _) = small_claim().confirmation
    constant = "after 96 steps with a constant learning rate"
    for statement, verdict, told in (
        (worse("no a", "b"), HELD, "No a is worse than b by more than 5 points"),
        (by_hand("a"), UNDECIDED, f"{OPEN} “By hand”"),
        (confirming, FAILED, f"Q=K is at most 5 points worse than QKV {constant}"),
    ):
        assert found_in_words(statement, finding_of(statement, verdict)) == told


OFTEN = [
    (worse("a", "b"), HELD, "A falls behind b more often"),
    (worse("a, sums", "b, sums", text="By hand"), HELD, "Sums: a falls behind b more often"),
    (no_worse("a", "b", more_often="Keys lose more often"), FAILED, "Keys lose more often"),
    (better("a", "b", measure="mass_on_target"), HELD, "A gets ahead of b more often ("),
    (worse("a", "b", 2, **STEPS), HELD, "A falls behind b more often (steps to solve)"),
    (worse("a", "b"), UNDECIDED, f"{OPEN} “A falls behind b more often”"),
    (worse("a", "b"), FAILED, "A is at most 5 points worse than b"),
    (no_worse("a", "b"), HELD, "A is at most 5 points worse than b"),
    (worse("a", "b", measure="loss"), HELD, "A is worse than b by more than 0.05 nats"),
]


def test_what_happens_with_half_of_the_seeds_or_fewer_is_told_as_a_frequency():
    """The statement itself would tell of an amount, by which most seeds do not differ."""
    for statement, verdict, told in OFTEN:
        for n_worse, is_often in ((1, True), (3, True), (4, False)):
            found = found_in_words(statement, finding_of(statement, verdict, n_worse))
            assert found.startswith(told) or not is_often, found
            assert ("more often" in found) == (is_often and "more often" in told)
    rare = worse("Q=K", "QKV")
    evidence = made_up(claim_of(rare), MadeUp(**QUIET, QKV=1.0, Q_K=1.0))
    evidence.scores["Q=K"]["accuracy"][0, :8] = 0.2
    (finding,) = evidence.findings
    told = "8 of 17 seeds fall behind, 0 the other way round; 9 of 17 against 17 of 17 seeds solve"
    assert told in ClaimInWords(evidence.claim, evidence, finding.verdict).found
    assert "more often" in statements_table(evidence).rows[0][0]
    assert (
        "“Q=K falls behind QKV more often”" in ClaimInWords(evidence.claim, evidence, HELD).tested
    )
    gets = made_up(claim_of(better("QKV", "Q=K")), MadeUp(**QUIET, QKV=1.0, Q_K=1.0))
    gets.scores["Q=K"]["accuracy"][0, :1] = 0.2
    assert "1 of 17 seeds gets ahead" in values_in_words(gets, gets.statements[0], gets.findings[0])


def claim_of(*statements):
    """Return a small claim with other statements."""
    return small_claim(statements=statements)


TWO = by_hand("Q=K", "QKV", high=0.1, second_left="K=V", second_right="QKV")
VALUES = {
    worse("Q=K", "QKV"): "50% against 99%",
    worse("K=V", "QKV"): "diverged against 99%",
    worse("Q=K", "QKV", measure="loss"): "0.50 against 0.00 nats",
    TWO: "0.50 against diverged nats",
    by_hand("QKV", measure="mean_accuracy", high=0.5): "100%",
    worse("Q=K", "QKV", 2, **STEPS): "more than we gave against 1,024 steps, median",
    worse("QKV", "Q=K", 2, **STEPS): "1,024 steps against more than we gave, median",
    worse("K=V", "Q=K", 2, **STEPS): "more steps than we gave with both, median",
    by_hand("QKV", measure="loss", high=0.5): "0.00 nats",
}


def test_values_are_means_or_medians_in_the_unit_of_the_measure():
    """Shares in whole percent, losses with two decimals; two differences of four arms."""
    bench = MadeUp(**QUIET, Q_K=0.5, QKV=0.999, K_V=nan)
    evidence = made_up(small_claim(statements=tuple(VALUES)), bench)
    for name, steps in (("Q=K", inf), ("K=V", inf), ("QKV", 10)):
        evidence.scores[name]["steps_to_solve"] = np.full((1, 17), float(steps))
        evidence.scores[name]["mean_accuracy"] = np.ones((1, 17))
    for statement, finding in zip(evidence.statements, evidence.findings, strict=True):
        told = values_in_words(evidence, statement, finding)
        assert told == f"{VALUES[statement]}, 17 seeds"


def test_the_main_statement_is_the_first_that_decides():
    """So what is found agrees with the verdict; what only stands alone is called probable."""
    claim = claim_of(no_worse("K=V", "QKV"), no_worse("Q=K", "QKV"))
    evidence = made_up(claim, MadeUp(**QUIET, QKV=1.0, K_V=1.0, Q_K=0.5))
    assert main_statement(evidence, FAILED)[0] == claim.statements[1]
    part = claim_of(worse("Q=K", "QKV"), worse("K=V", "QKV"))
    some = made_up(part, MadeUp(**QUIET, QKV=1.0, K_V=1.0, Q_K=0.5))
    some.scores["K=V"]["accuracy"][0, :7] = 0.5
    least_certain = main_statement(some, UNDECIDED)
    assert least_certain == (part.statements[1], some.findings[1])
    told = "Q=K is worse than QKV by more than 5 points (50% against 100%, 17 seeds)."
    assert ClaimInWords(claim, evidence, FAILED).found == told
    claim = claim_of(worse("Q=K", "QKV"))
    found = [ClaimInWords(claim, unable(claim), verdict, 2).found for verdict in (HELD, UNDECIDED)]
    probable = told.replace(" (", "” (")
    assert found == [told, f"This is probably true: “{probable}"]
    open_ = made_up(claim, MadeUp(**QUIET, QKV=nan))
    found = ClaimInWords(claim, open_, UNDECIDED).found
    assert found.startswith(f"{OPEN} “Q=K is worse")


FINDINGS = [
    (
        worse("a", "b"),
        [-0.5] * 6 + [0.0] * 3,
        "worse with 6 of 9 seeds [30% to 93%], better with 0, alike with 3; "
        "median difference −50.0 points [−50.0 to +0.0]",
    ),
    (
        better("a", "b", 0, measure="accuracy_all_along"),
        [0.25] * 6 + [-0.25],
        "better with 6 of 7 seeds [42% to 99%], worse with 1, alike with 0; median difference +25",
    ),
    (no_worse("a", "b"), [0.0] * 5 + [-0.5, nan], "better with 0, alike with 5, diverged with 1; "),
    (
        worse("a", "b", 2, **STEPS),
        [inf] * 4 + [3.0, -inf],
        "alike with 0; median difference +∞ doublings",
    ),
    (by_hand("a", high=0, **SYMMETRY), [-0.25, -0.5] * 3, "mean −0.375 [−0.519 to −0.231]"),
    (worse("a", "b", 0, measure="loss"), [0.25, nan], "mean difference +0.250 nats, diverged with"),
]


def test_a_finding_is_told_in_a_few_words():
    """Counted pairs with their median, or a mean, each with its interval and its unit."""
    for statement, values, words in FINDINGS:
        told = finding_in_words(statement, judge_statement(statement, np.array(values)))
        assert words in told, (statement, told)


def test_a_statement_is_told_cell_by_cell():
    """Failures of both arms, pairs, difference, and the verdict."""
    first, (_, longer, *_), _ = statements_table(unable(small_claim())).rows
    _, solved, pairs, difference, verdict = first
    assert solved == "Q=K: 0 of 17; QKV: 17 of 17"
    counted = "worse with 17 of 17 seeds [80% to 100%], better with 0, alike with 0"
    assert pairs == f"{counted}; the same with 3 more learning rates or schedules"
    assert difference == "median difference −50.0 points [−50.0 to −50.0]"
    assert verdict == "✓ held"
    assert longer.startswith("Q=K, 96 steps, constant rate: 0 of 17; ")
    ((_, *cells),) = statements_table(unable(claim_of(worse("Q=K", "QKV", measure="loss")))).rows
    assert cells[:3] == ["", "", "mean difference +0.500 nats [+0.500 to +0.500]"]


def test_it_is_told_whether_accuracy_still_rises():
    """Both for the run with a constant rate and for that with a schedule."""
    rising = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    able = small_claim(arms=tuple(arm(v, up_to=8, **TINY) for v in ("Q=K", "QKV", "K=V")))
    twice = "; ".join(
        f"Q=K with a {schedule} rate still rises at 96 steps" for schedule in SCHEDULES
    )
    for evidence, told in (
        (rising, f"Accuracy: {twice}."),
        (unable(able, quick=True), "Accuracy: Q=K has stopped rising by 48 steps."),
        (unable(small_claim(), quick=True), ""),
        (unable(claim_of(no_worse("Q=K", "QKV"))), ""),
    ):
        assert rises_in_words(evidence) == told


# predictions


def test_what_had_been_seen_is_told_with_a_prediction():
    """So are the day of the first run, and what was changed since."""
    known = small_claim()
    claim = replace(known, seen="a prototype", seen_note="It had shown Q=K at 0.5.")
    evidence = replace(unable(known), claim=claim)
    both = replace(evidence, first_run=replace(evidence.first_run, rule="another"))
    before = "we had seen a prototype of this comparison. It had shown Q=K at 0.5."
    changed = "rediction has been changed since the first run"
    for run, told in (
        (None, f"When it was written, {before}"),
        (unable(claim, quick=True), before),
        (evidence, "The first run of the record began on 2026-11-23."),
        (evidence, f"The p{changed}"),
        (both, "The rule and the prediction have been changed since the"),
        (unable(claim), "Neither the prediction nor the rule has been changed"),
    ):
        assert told in ClaimInWords(claim, run).seen, told


def test_tables_have_a_line_for_every_claim_and_the_score_of_all():
    """In text and in Markdown; a prediction is told where something else came."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong", seen="a prototype"), MadeUp(QKV=1.0, Q_K=1.0))
    later = replace(right, claim=small_claim("later", n_seeds=40, prediction="It holds now."))
    records = Records.of([right, wrong, later, made_up(small_claim("open"), MadeUp(QKV=nan))])
    score = (
        "Predictions that came true: 2 of 3 where we had seen nothing, "
        "0 of 1 where we had seen a prototype."
    )
    assert score_in_words(records) == score
    assert score_in_words(Records()) == ""
    _, first, second, *_, last = readable(records).splitlines()
    assert first.split()[:4] == ["right", "held", "nothing", "Q=K"]
    assert second.split()[:5] == ["wrong", "undecided", "held", "a", "prototype"]
    assert first.endswith(claims_in_words(records)[0].found_in_numbers)
    assert last.startswith(score)
    assert "read together, at a level of 5% (Holm)" in last
    assert "read alone" in readable(Records.of([unable(small_claim(), quick=True)]))
    head, line, *rows, _, last = to_markdown(records).splitlines()
    assert {row.count("|") for row in (head, line, *rows)} == {7}
    assert rows[0].startswith("| `right` A small claim | ✓ held | held | nothing | Q=K is worse ")
    assert rows[1].startswith("| `wrong` A small claim | ? undecided (read alone: did not hold) |")
    assert "| held (changed since the first run began) | nothing |" in rows[2]
    assert last.startswith(score)


def test_new_claims_are_listed_with_failed_predictions_first(monkeypatch):
    """Undecided ones come last, expected or not; what is not new or was not run is left out."""
    fields = {
        "old": {},
        "open": {"is_new": True},
        "expected": {"is_new": True, "expected": "undecided"},
        "right": {"is_new": True},
        "wrong": {"is_new": True, "expected": "did not hold"},
        "unrun": {"is_new": True},
    }
    claims = {name: small_claim(name, n_seeds=6, **given) for name, given in fields.items()}
    monkeypatch.setattr(presentation, "CLAIMS", claims)
    records = Records.of(made_up(claims[name]) for name in claims if name != "unrun")
    undecided = dict.fromkeys(("open", "expected"), UNDECIDED)
    records.verdicts = dict.fromkeys(records, HELD) | undecided
    found = new_claims(records).items()
    names = [(outcome, [words.claim.id for words in group]) for outcome, group in found]
    wrong, true, undecided = Outcome
    assert names == [(wrong, ["wrong"]), (true, ["right"]), (undecided, ["open", "expected"])]


# what pages say


def test_predictions_that_failed_are_seen_as_such_in_the_cells_of_claims():
    """So are those that nothing decides; without evidence all claims stand there as not run."""
    records = evidence_of_all()
    words = claims_in_words(records, CLAIMS.values())
    wrong = [one for one in words if one.verdict != one.claim.expected]
    undecided = [one for one in wrong if one.verdict is UNDECIDED]
    came_true = [one.cells["came_true"] for one in words]
    assert came_true.count("? undecided") == len(undecided)
    assert came_true.count("✗ no") + len(undecided) == len(wrong) > 0
    none = claims_in_words(Records(), CLAIMS.values())
    assert {one.cells["verdict"] for one in none} == {"not run yet"}
    for one in words:
        alone = main_statement(one.evidence, one.verdict)[1].verdict
        assert ("Read together" in one.tested) == (one.verdict is UNDECIDED is not alone)
        assert one.verdict is UNDECIDED or one.verdict in one.tested
    tuned = records["ranking"].tuned
    table = markdown_table(tuning_table(records["ranking"]))
    names = (*tuned, *SCHEDULES, f"{tuned['QKV'].rate:g}")
    assert [name for name in names if plain(name) not in table] == []


def test_a_run_is_explained_beside_the_shipped_verdict_and_a_guess_judged_by_more_seeds():
    """In a plain sentence where they differ; by the run itself where nothing is shipped."""
    one, two = small_claim(), claim_of(worse("Q=K", "QKV"), worse("K=V", "QKV"))
    levels = {HELD: 0.5, UNDECIDED: 1.0}

    def run_of(claim, own):
        level = levels[own]
        run = made_up(claim, MadeUp(**QUIET, QKV=1.0, Q_K=level, K_V=level), quick=True)
        assert run.judgement.verdict is own
        return run

    assert disagreement(ClaimInWords(one), run_of(one, HELD)) == ""
    for claim, own, shipped, told in (
        (one, HELD, HELD, None),
        (one, UNDECIDED, HELD, "8 seeds are few: no verdict. The shipped one rests on 17."),
        (two, UNDECIDED, FAILED, "2 things at once"),
        (one, HELD, UNDECIDED, "stricter"),
        (one, HELD, FAILED, "the opposite of the shipped 17"),
    ):
        text = disagreement(ClaimInWords(claim, unable(claim), shipped), run_of(claim, own))
        assert told in text if told else text == ""
    for run, shipped, told in (
        (HELD, None, "Your guess was right."),
        (UNDECIDED, None, "Your guess was wrong."),
        (HELD, HELD, "Your guess was right."),
        (UNDECIDED, HELD, "By the shipped evidence your guess was right."),
    ):
        assert guess_in_words(HELD, run, shipped) == told
