"""Evidence in words: what is found on a statement, its numbers, predictions, tables of claims."""

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
from attnkit.evidence import presentation
from attnkit.evidence.listing import readable, to_markdown
from attnkit.evidence.presentation import (
    ClaimInWords,
    Outcome,
    cache_in_words,
    claims_in_words,
    disagreement,
    new_claims,
    score_in_words,
)
from attnkit.evidence.record import Records, load_shipped
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


def test_it_is_told_whether_accuracy_still_rises():
    """Both for the run with a constant rate and for that with a schedule."""
    rising = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    able = small_claim(arms=tuple(arm(v, up_to=8, **TINY) for v in ("Q=K", "QKV", "K=V")))
    told = rises_in_words(rising)
    assert all(f"{schedule} rate still rises" in told for schedule in SCHEDULES)
    assert numbers_in(told) == [96, 96]
    assert "Q=K has stopped rising by 48" in rises_in_words(unable(able, quick=True))
    for evidence in (unable(small_claim(), quick=True), unable(claim_of(no_worse("Q=K", "QKV")))):
        assert rises_in_words(evidence) == ""


def test_sizes_of_runs_and_of_caches_are_told_as_far_as_they_differ():
    """Three layers keep keys and values of six numbers; a key can be rotated again."""
    settings = settings_in_words(CLAIMS["heads_buy_direction"])
    for told in ("Entries 8;", "Heads 1 or 4;", "Head width 16;", "Model width 32;", "1,500."):
        assert told in settings
    assert "MLP" not in settings
    assert "MLP width 0 or 128" in settings_in_words(CLAIMS["mlp_buys_direction"])
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


def test_what_had_been_seen_is_told_with_a_prediction():
    """So are the day of the first run, and what was changed since."""
    known = small_claim()
    claim = replace(known, seen="a prototype", seen_note="It had shown Q=K at 0.5.")
    evidence = replace(unable(known), claim=claim)
    both = replace(evidence, first_run=replace(evidence.first_run, rule="another"))
    for run, begun, changed in (
        (None, False, ""),
        (unable(claim, quick=True), False, ""),
        (evidence, True, "The prediction has"),
        (both, True, "The rule and the prediction have"),
    ):
        told = ClaimInWords(claim, run).seen
        assert "a prototype" in told
        assert claim.seen_note in told
        assert ("2026-11-23" in told) == begun
        assert changed in told
        assert ("changed" in told) == bool(changed)


def test_tables_have_a_line_for_every_claim_and_the_score_of_all():
    """In text and in Markdown; a prediction is told where something else came."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong", seen="a prototype"), MadeUp(QKV=1.0, Q_K=1.0))
    later = replace(right, claim=small_claim("later", n_seeds=40, prediction="It holds now."))
    records = Records.of([right, wrong, later, made_up(small_claim("open"), MadeUp(QKV=nan))])
    score = score_in_words(records)
    assert numbers_in(score) == [2, 3, 0, 1]
    assert score.index("nothing") < score.index("a prototype")
    assert score_in_words(Records()) == ""
    _, first, second, *_, last = readable(records).splitlines()
    assert first.split()[:4] == ["right", "held", "nothing", "Q=K"]
    assert second.split()[:5] == ["wrong", "undecided", "held", "a", "prototype"]
    assert first.endswith(claims_in_words(records)[0].found_in_numbers)
    assert last.startswith(score)
    head, line, *rows, _, last = to_markdown(records).splitlines()
    assert {row.count("|") for row in (head, line, *rows)} == {7}
    cells = [[cell.strip() for cell in row.split("|")[1:5]] for row in rows]
    assert cells[0] == ["`right` A small claim", "✓ held", "held", "nothing"]
    assert cells[1][1] == "? undecided (read alone: did not hold)"
    assert cells[2][2].startswith("held (changed")
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


def test_predictions_that_failed_are_seen_as_such_in_the_cells_of_claims():
    """So are those that nothing decides; without evidence all claims stand there as not run."""
    records = load_shipped()
    for words in claims_in_words(records):
        with about(words.claim):
            is_open = words.verdict is UNDECIDED
            mark = "yes" if words.verdict == words.claim.expected else "? " if is_open else "✗ "
            assert words.cells["came_true"].startswith(mark)
            alone = main_statement(words.evidence, words.verdict)[1].verdict
            assert ("Read together" in words.tested) == (is_open and alone is not UNDECIDED)
            assert is_open or words.verdict in words.tested
    none = claims_in_words(Records(), CLAIMS.values())
    assert {(one.cells["verdict"], one.cells["came_true"]) for one in none} == {("not run yet", "")}
    tuned = records["ranking"].tuned
    table = markdown_table(tuning_table(records["ranking"]))
    assert [name for name in (*tuned, *SCHEDULES) if plain(name) not in table] == []


def test_a_run_is_explained_beside_the_shipped_verdict_and_a_guess_judged_by_more_seeds():
    """In a plain sentence where they differ; by the run itself where nothing is shipped."""
    one, two = small_claim(), claim_of(worse("Q=K", "QKV"), worse("K=V", "QKV"))

    def run_of(claim, own):
        level = {HELD: 0.5, UNDECIDED: 1.0}[own]
        run = made_up(claim, MadeUp(QKV=1.0, Q_K=level, K_V=level), quick=True)
        assert run.judgement.verdict is own
        return run

    assert disagreement(ClaimInWords(one), run_of(one, HELD)) == ""
    for claim, own, shipped, told, numbers in (
        (one, HELD, HELD, "", []),
        (one, UNDECIDED, HELD, "no verdict", [8, 17]),
        (two, UNDECIDED, FAILED, "no verdict", [8, 2, 17]),
        (one, HELD, UNDECIDED, "stricter", [8, 17]),
        (one, HELD, FAILED, "opposite", [8, 17]),
    ):
        text = disagreement(ClaimInWords(claim, unable(claim), shipped), run_of(claim, own))
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
