"""Evidence in words: findings, predictions, tables of claims, and answers to the questions."""

import re
from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.listing import readable, to_markdown
from attnkit.evidence.presentation import (
    ClaimInWords,
    cache_in_words,
    claims_in_words,
    disagreement,
    score_in_words,
)
from attnkit.evidence.question import Answer, Numbers, Reply, Topic
from attnkit.evidence.questions import QUESTIONS, WHY, answers_in_markdown
from attnkit.evidence.record import Curve, Records, load_shipped
from attnkit.evidence.values import values_in_words
from attnkit.evidence.verdict import judge_statement
from attnkit.evidence.words import (
    finding_in_words,
    found_in_words,
    main_statement,
    rises_in_words,
    settings_in_words,
    statements_table,
    tuning_table,
)
from attnkit.figures.evidence_report import to_html
from attnkit.foundation.words import capitalised
from attnkit.training.summary import fixed
from attnkit.ui.claims.rerun_area import guess_in_words, markdown_table
from attnkit.ui.markdown import plain

HELD, FAILED, UNDECIDED = Verdict


def unable(claim, **options):
    """Return evidence that Q=K is worse."""
    return made_up(claim, MadeUp(QKV=1.0, Q_K=0.5), **options)


def claim_of(*statements):
    """Return a small claim with other statements."""
    return small_claim(statements=statements)


def numbers_in(text):
    """Return the numbers of a sentence, in their order."""
    found = re.findall(r"[+−]?(?:\d[\d,]*(?:\.\d+)?|∞)", text)
    return [float(one.replace("−", "-").replace(",", "").replace("∞", "inf")) for one in found]


def test_a_finding_is_told_as_its_statement_its_opposite_or_a_frequency():
    """An amount by which at most half of the seeds differ is told as "more often"."""
    for claim in CLAIMS.values():
        for statement, n_worse in product((*claim.statements, *claim.confirmation[1]), (3, 4)):
            is_rare = n_worse == 3 and not statement.measured.compares_means
            often = statement.more_often if is_rare else ""
            text = (statement.asserts_difference and often) or statement.text
            failed = (not statement.asserts_difference and often) or statement.opposite
            seven = replace(judge_statement(statement, np.zeros(7)), n_worse=n_worse)
            found = [
                found_in_words(statement, replace(seven, p_held=p_held, p_not=p_not))
                for p_held, p_not in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
            ]
            with about(claim):
                assert found[:2] == [capitalised(text), capitalised(failed)]
                assert found[2].endswith(f": “{capitalised(text)}”")
                assert not any("did not hold" in one or one.count(": ") > 1 for one in found)


@given(
    hnp.arrays(float, st.integers(6, 20), elements=st.sampled_from([-0.5, -0.25, 0, 0.25, nan])),
    st.sampled_from([worse, better, no_worse]),
    st.sampled_from(["accuracy", "steps_to_solve", "mass_on_target", "loss"]),
)
def test_a_finding_is_told_with_its_numbers(values, builder, measure):
    """Counted pairs with their median, or a mean, each with its interval and its unit."""
    statement = builder("a", "b", 0.1, measure=measure)
    units = {"accuracy": " points", "steps_to_solve": " doublings", "loss": " nats"}
    unit, scale = units.get(measure, ""), 100 if measure == "accuracy" else 1
    digits = 1 if unit in (" points", " doublings") else 3
    finding = judge_statement(statement, values)
    told = finding_in_words(statement, finding)
    lost = [n for n in [int(np.isnan(values).sum())] if n]
    known = [finding.effect, finding.effect_low, finding.effect_high]
    effects = [scale * effect for effect in known if not np.isnan(effect)]
    texts = [fixed(effect, digits, "+") for effect in effects]
    assert not texts or f"difference {texts[0]}{unit}" in told
    assert len(texts) < 3 or f"[{texts[1]} to {texts[2]}]" in told
    assert ("diverged with" in told) == bool(lost)
    if measure == "loss":
        expected = [*effects, *lost, *([len(values)] if lost else [])]
    else:
        assert told.startswith("better with" if builder is better else "worse with")
        shares = [100 * finding.share_low, 100 * finding.share_high]
        counts = [finding.n_better, finding.n_alike]
        expected = [finding.n_worse, len(values), *shares, *counts, *lost, *effects]
    assert numbers_in(told) == pytest.approx(expected, abs=1.0)


def test_values_are_means_or_medians_in_the_unit_of_the_measure():
    """Shares in whole percent, losses with two decimals; two differences of four arms."""
    steps, hand = {"measure": "steps_to_solve"}, ("By hand", "Not by hand")
    four = {"second_left": "K=V", "second_right": "QKV"}
    expected = {
        worse("Q=K", "QKV"): "50% against 99%",
        worse("K=V", "QKV"): "diverged against 99%",
        worse("Q=K", "QKV", measure="loss"): "0.50 against 0.00 nats",
        Statement(*hand, "Q=K", "QKV", "loss", high=0.1, **four): "0.50 against diverged nats",
        Statement(*hand, "QKV", measure="mean_accuracy", high=0.5): "100%",
        worse("Q=K", "QKV", 2, **steps): "against 1,024 steps, median",
        worse("QKV", "Q=K", 2, **steps): "1,024 steps against ",
        worse("K=V", "Q=K", 2, **steps): "with both, median",
        Statement(*hand, "QKV", measure="loss", high=0.5): "0.00 nats",
    }
    bench = MadeUp(Q_K=0.5, QKV=0.999, K_V=nan)
    evidence = made_up(claim_of(*expected), bench)
    for name, solved_at in (("Q=K", inf), ("K=V", inf), ("QKV", 10)):
        evidence.scores[name]["steps_to_solve"] = np.full((1, 17), float(solved_at))
        evidence.scores[name]["mean_accuracy"] = np.ones((1, 17))
    for statement, finding in zip(evidence.statements, evidence.findings, strict=True):
        told = values_in_words(evidence, statement, finding)
        assert expected[statement] in told
        assert told.endswith(", 17 seeds")


def test_where_some_seeds_differ_their_numbers_are_told():
    """Those that fall behind or get ahead, those the other way round, and those that solve it."""
    for statement, n in ((worse("Q=K", "QKV"), 8), (better("QKV", "Q=K"), 1)):
        evidence = made_up(claim_of(statement), MadeUp(QKV=1.0, Q_K=1.0))
        evidence.scores["Q=K"]["accuracy"][0, :n] = 0.2
        evidence.scores["QKV"]["accuracy"][0, -2:-1] = 0.2
        (finding,) = evidence.findings
        told = values_in_words(evidence, statement, finding)
        solved = [16, 17, 17 - n, 17] if n == 1 else [17 - n, 17, 16, 17]
        assert numbers_in(told) == [n, 17, 1, *solved]
        assert told in ClaimInWords(evidence.claim, evidence, finding.verdict).found
        assert "more often" in statements_table(evidence).rows[0][0]


def test_the_main_statement_is_the_first_that_decides():
    """So what is found agrees with the verdict; what only stands alone is called probable."""
    claim = claim_of(no_worse("K=V", "QKV"), no_worse("Q=K", "QKV"))
    evidence = made_up(claim, MadeUp(QKV=1.0, K_V=1.0, Q_K=0.5))
    assert main_statement(evidence, FAILED)[0] == claim.statements[1]
    part = claim_of(worse("Q=K", "QKV"), worse("K=V", "QKV"))
    some = made_up(part, MadeUp(QKV=1.0, K_V=1.0, Q_K=0.5))
    some.scores["K=V"]["accuracy"][0, :7] = 0.5
    assert main_statement(some, UNDECIDED) == (part.statements[1], some.findings[1])
    told = ClaimInWords(claim, evidence, FAILED).found
    assert told == f"{claim.statements[1].opposite} (50% against 100%, 17 seeds)."
    one = unable(claim_of(worse("Q=K", "QKV")))
    found = [ClaimInWords(one.claim, one, verdict, 2).found for verdict in (HELD, UNDECIDED)]
    assert ["probably" in one for one in found] == [False, True]
    assert [ClaimInWords(one.claim, one, UNDECIDED, n).tested.count(".") for n in (1, 2)] == [2, 3]
    open_ = ClaimInWords(one.claim, made_up(one.claim, MadeUp(QKV=nan)), UNDECIDED, 2)
    assert one.claim.statements[0].text in open_.found
    assert "probably" not in open_.found


def test_a_statement_is_told_cell_by_cell():
    """Failures of both arms, pairs, difference, and the verdict; in three cells where narrow."""
    evidence = unable(small_claim())
    table = statements_table(evidence)
    first, (_, longer, *_), _ = table.rows
    text, solved, pairs, difference, verdict = first
    statement, finding = evidence.statements[0], evidence.findings[0]
    counts, _, rest = finding_in_words(statement, finding).partition("; ")
    assert (text, solved) == (statement.text, "Q=K: 0 of 17; QKV: 17 of 17")
    assert numbers_in(pairs.removeprefix(counts)) == [len(evidence.rivals)]
    assert (difference, verdict) == (rest, "✓ held")
    assert longer.startswith("Q=K, 96 steps, constant rate: 0 of 17; ")
    ((_, *cells),) = statements_table(unable(claim_of(worse("Q=K", "QKV", measure="loss")))).rows
    assert cells[:2] == ["", ""]
    assert numbers_in(cells[2]) == [0.5, 0.5, 0.5]
    assert all(cell in table.narrow.rows[0][1] for cell in (solved, pairs, difference))
    rising = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    assert all(f"{one} rate still rises" in rises_in_words(rising) for one in SCHEDULES)
    able = small_claim(arms=tuple(arm(v, up_to=8, **TINY) for v in ("Q=K", "QKV", "K=V")))
    assert "Q=K has stopped rising by 48" in rises_in_words(unable(able, quick=True))
    assert rises_in_words(unable(claim_of(no_worse("Q=K", "QKV")))) == ""


def test_sizes_of_runs_and_of_caches_are_told_as_far_as_they_differ():
    """Three layers keep keys and values of six numbers; a key can be rotated again."""
    settings = settings_in_words(CLAIMS["heads_buy_direction"])
    assert ("Heads 1 or 4;" in settings, "1,500." in settings, "MLP" in settings) == (1, 1, 0)
    recall = {"task": "mqar", "d_model": 16, "d_head": 6, "n_layers": 3, "positions": "rope"}
    for variants, given_, sizes in (
        (("K=V", "Q=K=V"), {}, [36, 18]),
        (("QKV", "Q=V"), {"positions": "none"}, [36]),
        (("QKV", "K=V", "K=V rotate_values"), {}, [36, 36, 18, 18]),
    ):
        arms = tuple(arm(variant, **{**recall, **given_}) for variant in variants)
        statements = [no_worse(one, variants[0]) for one in variants[1:]]
        claim = small_claim(arms=arms, statements=statements)
        assert numbers_in(cache_in_words(claim)) == sizes


def test_tables_have_a_line_for_every_claim_and_the_score_of_all():
    """In text and in Markdown; a prediction is told where something else came."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong", seen="a prototype"), MadeUp(QKV=1.0, Q_K=1.0))
    later = replace(right, claim=small_claim("later", n_seeds=40, prediction="It holds now."))
    records = Records.of([right, wrong, later, made_up(small_claim("open"), MadeUp(QKV=nan))])
    score = score_in_words(records)
    assert numbers_in(score) == [2, 3, 0, 1]
    _, first, second, *_ = readable(records).splitlines()
    assert first.split()[:4] == ["right", "held", "nothing", "Q=K"]
    assert second.split()[:5] == ["wrong", "undecided", "held", "a", "prototype"]
    head, line, *rows, _, _ = to_markdown(records).splitlines()
    assert {row.count("|") for row in (head, line, *rows)} == {7}
    cells = [[cell.strip() for cell in row.split("|")[1:5]] for row in rows]
    assert cells[0] == ["`right` A small claim", "✓ held", "held", "nothing"]
    assert cells[1][1] == "? undecided (read alone: did not hold)"
    marks = [words.cells["came_true"][:2] for words in claims_in_words(records)]
    assert marks[:2] == ["ye", "? "]
    assert {one.cells["verdict"] for one in claims_in_words(Records(), CLAIMS.values())} == {
        "not run yet"
    }
    shipped = load_shipped()["ranking"]
    table = markdown_table(tuning_table(shipped))
    assert all(plain(name) in table for name in (*shipped.tuned, *SCHEDULES))


def test_a_run_is_explained_beside_the_shipped_verdict_and_a_guess_judged_by_more_seeds():
    """In a plain sentence where they differ; by the run itself where nothing is shipped."""
    claim = small_claim()
    for own, shipped, told, numbers in (
        (HELD, HELD, "", []),
        (UNDECIDED, HELD, "no verdict", [8, 17]),
        (HELD, UNDECIDED, "stricter", [8, 17]),
        (HELD, FAILED, "opposite", [8, 17]),
    ):
        run = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5 if own is HELD else 1.0), quick=True)
        assert (run.judgement.verdict, disagreement(ClaimInWords(claim), run)) == (own, "")
        text = disagreement(ClaimInWords(claim, unable(claim), shipped), run)
        assert told in text
        assert numbers_in(text) == numbers
    for run, shipped, is_right in (
        (HELD, None, True),
        (UNDECIDED, None, False),
        (HELD, HELD, True),
        (UNDECIDED, HELD, True),
        (HELD, UNDECIDED, False),
    ):
        told = guess_in_words(HELD, run, shipped)
        assert ("right" in told, "wrong" in told) == (is_right, not is_right)
        assert ("shipped" in told) == (shipped not in (None, run))


def well_formed(*sentences):
    """Whether they read as sentences: nothing unfilled, nothing missing."""
    for sentence in sentences:
        assert not re.search(r"[{}]|\bnan\b|  ", sentence), sentence
        assert sentence[0].isupper()
        assert sentence.endswith((".", "?"))
    return True


def test_a_question_can_be_asked_guessed_and_answered():
    """Its answer begins with its verdict word; its numbers are told as far as they are known."""
    evidence = load_shipped()
    for question in QUESTIONS.values():
        assert question.title.endswith("?")
        assert sorted(question.guesses.values()) == sorted(Verdict)
        parts = (*question.conclusion, *question.reason, *question.numbers)
        assert {part.claim for part in parts} <= set(question.claims) <= set(CLAIMS)
        assert len(set(question.claims)) == len(question.claims)
        assert question.claims[0] in {part.claim for part in question.conclusion}
        for verdict, reply in product(Verdict, question.conclusion):
            text, probable = (reply.answer(verdict, v) for v in (verdict, Verdict.UNDECIDED))
            assert re.match(r"(Yes|No|Not decided)\b", text)
            assert text.startswith("Not decided") == (verdict is Verdict.UNDECIDED)
            yes_or_no = "Probably yes" if text.startswith("Yes") else "Probably not"
            assert probable.startswith("Not decided" if "Not decided" in text else yes_or_no)
        for verdict in Verdict:
            parts = (*question.conclusion, *question.reason)
            texts = [sentence.text(verdict) for sentence in parts]
            assert well_formed(*texts)
            assert not re.search(r"\d", " ".join(texts))
        answer = Answer(question, evidence)
        begins = ("Yes", "No", "It depends", "Not decided", "Probably yes", "Probably not")
        assert answer.conclusion.startswith(begins)
        assert len(answer.conclusion.split()) <= 20
        whole = answer.numbers
        assert len(whole) == len({numbers.claim for numbers in question.numbers}) in (3, 4)
        assert well_formed(*whole, answer.conclusion, answer.reason)
        assert all(re.search(r"\d", text) and "not run" not in text for text in whole)
        missing = question.numbers[0].claim
        some = Answer(question, Records({n: one for n, one in evidence.items() if n != missing}))
        assert some.numbers == whole[1:]
        assert missing in some.missing
        nothing = Answer(question, Records())
        assert (nothing.reason, nothing.conclusion, nothing.numbers) == ("", "", [])
    for reply in WHY.conclusion:
        texts = [reply.answer(*pair) for pair in product(Verdict, repeat=2)]
        assert (len(set(texts)), ["probably" in text for text in texts].count(True)) == (5, 4)
        assert well_formed(*texts)
    failed = [name for name, verdict in evidence.verdicts.items() if verdict is Verdict.FAILED]
    assert [name for name in failed if not CLAIMS[name].reason] == []


@pytest.mark.parametrize(
    ("accuracy", "n_together", "told"),
    [
        ({"Q_K": 0.5, "K_V": 1.0}, 1, "Yes for a. Yes for b."),
        ({"Q_K": 0.5, "K_V": 0.5}, 1, "It depends. Yes for a. No for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, 1, "No for a. No for b."),
        ({"Q_K": 0.5, "K_V": 1.0}, 10_000, "Yes for a. Probably yes for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, 10_000, "Probably not for a. No for b."),
        ({"QKV": np.nan}, 1, "Not decided for a. Not decided for b."),
    ],
)
def test_an_answer_follows_from_statements_and_the_number_of_claims(accuracy, n_together, told):
    """A statement is only probable where it does not stand at Holm's strictest level."""
    statements = (worse("Q=K", "QKV"), no_worse("K=V", "QKV"))
    claim = small_claim(statements=statements, n_seeds=40)
    record = made_up(claim, MadeUp(**{"QKV": 1.0, **accuracy}))
    begin = ("Yes", "Probably yes", "No", "Probably not", "Not decided")
    replies = [
        Topic(*(f"{one} for {what}." for one in begin)).reply(claim.id, "yes", at)
        for at, what in enumerate("ab")
    ]
    others = {f"other {n}": record for n in range(1, n_together)}
    records = Records({claim.id: record} | others)
    question = replace(QUESTIONS["value"], conclusion=tuple(replies))
    assert Answer(question, records).conclusion == told
    records.verdicts = {claim.id: Verdict.UNDECIDED}
    sentence = Reply(claim.id, "Yes.", "No.", "Open.", None)
    assert sentence.verdict_alone(record) is record.judgement.verdict
    assert sentence.text(sentence.verdict_together(records)) == "Open."


def test_numbers_are_means_over_seeds_at_multiples_of_the_steps():
    """In whole percent, with the solved runs where some are; losses as they are."""
    own = {
        "accuracy": np.array([[0.1, 0.3], [0.2, 0.6], [0.96, 0.7], [1.0, 0.95]]),
        "asymmetry": np.array([[0.25, 0.5]]),
        "loss": np.array([[1.25, 0.75], [0.5, 0.25]]),
    }
    steps = np.array([150.0, 300.0, 450.0])
    accuracy = np.array([[0.1, 0.2], [0.96, 0.2], [1.0, 1.0]])
    record = replace(
        load_shipped()["direction"],
        scores={"Q=K": own, "QKV": own},
        curves={"Q=K": Curve.of(steps, accuracy, "accuracy")},
    )

    def told(template, **changes):
        return Numbers("direction", template).in_words(replace(record, **changes))

    for template, words in {
        "{Q=K} and {Q=K:asymmetry} and {Q=K:loss}": "20% and 0.38 and 1.00",
        "{Q=K:@end}, {Q=K:solved@end}, {Q=K:loss@end}": "98%, 2 of 2, 0.38",
        "{Q=K:after}, {Q=K:after@2}, {Q=K:after@8}, {Q=K:after@end}": "600, 1,200, 4,800, 4,800",
        "{Q=K:half}": "300",
        "{Q=K:solved}, {Q=K:solved@4}": "0 of 2, 1 of 2",
        "{K=V}": "not run",
    }.items():
        assert told(template) == words
    assert re.findall(r"\d+%?", told("{Q=K:@4}")) == ["83%", "1", "2"]
    assert "+0.0 points" in told("{#1}")
    flat = {"Q=K": {"accuracy": own["accuracy"][[0, 3, 3, 3]]}}
    rises = [told("{Q=K:rises}"), told("{Q=K:rises}", scores=flat), told("{K=V:rises}")]
    assert ["still" in one for one in rises] == [True, False, False]
    assert len(set(rises)) == 3
    assert told("{Q=K}", scores={"Q=K": {"accuracy": np.array([[0.999, 1.0]])}}) == "99%"


def test_what_diverged_was_not_run_or_not_tested_is_told_in_words():
    """No text has a number that is none; the quick form has only arms that are judged."""
    bench, shipped = MadeUp(), load_shipped()
    lost = {}
    for name, one in shipped.items():
        nothing = {
            arm: {measure: np.full_like(values, np.nan) for measure, values in own.items()}
            for arm, own in one.scores.items()
        }
        lost[name] = replace(one, scores=nothing)
    planned = Records.of(
        made_up(CLAIMS[name], bench, quick=True, records=shipped) for name in shipped
    )
    assert any(len(one.own_findings) < len(one.claim.statements) for one in planned.values())
    for records, parts in (
        (Records.of(lost.values()), ("(diverged)", "more than we gave")),
        (planned, ("not run",)),
    ):
        answers = [Answer(question, records) for question in QUESTIONS.values()]
        told = [text for answer in answers for text in answer.numbers]
        assert well_formed(*told, *filter(None, (answer.reason for answer in answers)))
        assert all(any(part in text for text in told) for part in parts)
    assert "Quick form" in to_html(planned)
    assert all([to_markdown(planned), answers_in_markdown(planned), planned.to_json()])
