"""The Questions page without a browser: answers, evidence, and claims that a visitor runs again."""

import random
import re
from dataclasses import replace
from unittest.mock import Mock

import pytest
from idle import link_of, open_page
from small_claims import TINY, MadeUp, made_up, small_claim
from visiting import plain_text, press, said, show, turn_to, visit, watch_series

from attnkit.analysis.conclusion import conclusion
from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import worse
from attnkit.evidence import record
from attnkit.evidence.presentation import (
    cache_in_words,
    claims_in_words,
    score_in_words,
    total_in_words,
)
from attnkit.evidence.question import Answer
from attnkit.evidence.questions import QUESTIONS, WHY
from attnkit.evidence.quick import NEW_SEED
from attnkit.evidence.record import Records
from attnkit.evidence.words import rises_in_words
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import shipped as shipped_sweeps
from attnkit.ui.claims.choice import ALL, CLAIM, NEW, SHOWN, VIEW
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


@pytest.fixture
def ours(monkeypatch):
    """Ship no evidence, and register a claim of our own: `ours(name, claim's fields)`."""
    monkeypatch.setattr(record, "load_shipped", Records)

    def register(name="small", **fields):
        claim = small_claim(name, **fields)
        monkeypatch.setitem(CLAIMS, name, claim)
        return claim

    return register


@pytest.fixture
def small(ours):
    """A claim that trains in a moment, in two experiments, one of which is read twice."""
    long = {**TINY, "task": "mutual", "n_entries": 6, "up_to": 2}
    return ours(
        arms=(
            *(arm(text, **TINY) for text in ("Q=K", "QKV")),
            *(arm(text, f"{text}, married", **long) for text in ("Q=K", "QKV")),
        ),
        statements=(worse("Q=K", "QKV"), worse("Q=K, married", "QKV, married", at=2)),
        n_seeds=16,
    )


def folded(tab):
    """Return the elements in expanders that say something."""
    return [e for fold in tab.expander for kind in (fold.markdown, fold.caption) for e in kind]


def folded_text(tab):
    """Return what expanders say, without the backslashes against Markdown."""
    return "\n".join(map(plain_text, folded(tab)))


def rerun_of(tab, name="small"):
    """Return what the visitor has trained of a claim."""
    return tab.session_state["reruns"].known[name]


def choose(tab, key, name):
    """Open another question or list, or choose a claim from the list."""
    widget = tab.button_group(key=VIEW) if key == VIEW else tab.selectbox(key=CLAIM)
    widget.set_value(name)
    return show(tab)


def guess(tab, text=None):
    """Guess something."""
    tab.radio[0].set_value(text or tab.radio[0].options[0])
    return show(tab)


def pictures(tab):
    """Keys of the figures."""
    keys = [element.key for element in tab.get("bidi_component")]
    return {key.removeprefix("picture_") for key in keys if key.startswith("picture")}


def test_a_question_is_answered_in_few_plain_words_with_its_reason_numbers_and_a_picture(seed):
    """And with its first claim and the asker's words; commands, hashes and versions are folded."""
    shipped = record.load_shipped()
    for name in {"expressiveness", random.Random(seed).choice(list(QUESTIONS))}:
        question, answer = SHOWN[name], Answer(SHOWN[name], shipped)
        tab = open_page("questions", question=question.id)
        text, first = said(tab), shipped[question.claims[0]]
        (words,) = claims_in_words(shipped, [first.claim])
        order = (answer.conclusion, answer.reason, answer.numbers[0])
        assert sorted(order, key=text.index) == list(order)
        for told in (*answer.numbers, words.found, words.tested, question.asked):
            assert told in text
        assert f"attnkit {first.version}, claim {first.hash}" in folded_text(tab)
        long = any(name in first.curves and one.up_to > 1 for name, one in first.arms.items())
        assert pictures(tab) == {"shipped", *(["learning"] if long else [])}
        assert {f"open_{name}" for name in question.claims} <= {b.key for b in tab.button}
        assert (tab.radio[0].options, tab.radio[0].value) == (list(question.guesses), None)
        if question.sweep:
            result = shipped_sweeps.load_shipped(question.sweep)
            assert conclusion(result, *list(result.sweep.axes)[:2]).text in text
        hidden = set(map(id, folded(tab)))
        kinds = (tab.title, tab.markdown, tab.caption, tab.info, tab.subheader)
        text = " ".join(plain_text(e) for kind in kinds for e in kind if id(e) not in hidden)
        assert len(text.split()) < 600, question.id
        assert not re.search(r"[0-9a-f]{16}|attnkit|python|Holm|Student", text), question.id


def test_without_evidence_and_sweep_it_says_what_to_type(ours, monkeypatch, tmp_path):
    """Folded, and it offers to run the claim, or says why its arms cannot be trained."""
    monkeypatch.setattr(shipped_sweeps, "FOLDER", tmp_path)
    shipped_sweeps.load_shipped.cache_clear()
    tab = open_page("questions", question="expressiveness")
    shipped_sweeps.load_shipped.cache_clear()
    text = said(tab)
    assert ("How far it goes" in text, "Not run yet" in text) == (False, True)
    assert "attnkit claims narrow_head_slow narrow_head" in folded_text(tab)
    assert "none is tuned yet" in text
    assert not tab.button(key="run_claim").disabled
    tab = choose(tab, VIEW, NEW)
    assert ("Not run yet." in said(tab), "decided predictions" in said(tab)) == (True, False)
    ours("faulty", arms=(arm("QKV", d_head=-1), arm("Q=K", d_head=-1)))
    tab = open_page("questions", claim="faulty")
    assert "d_head: got -1, allowed" in plain_text(tab.error[0])


def test_new_claims_are_listed_and_a_faulty_link_is_told_once():
    """With their predictions; a decided claim opens and leads back."""
    faulty = open_page("questions", claim="x" * 90)
    assert f"claim='{'x' * 60}…'. Allowed: all, alike_keys, " in said(faulty)
    assert link_of(faulty) == {"claim": ALL}
    tab = choose(faulty, VIEW, NEW)
    text = said(tab)
    assert "x" * 60 not in text
    new = [words for words in claims_in_words(record.load_shipped()) if words.claim.is_new]
    decided = [words for words in new if words.verdict != "undecided"]
    wrong = [words for words in decided if words.verdict != words.claim.expected]
    assert f"{len(wrong)} of our {len(decided)} decided predictions were wrong" in text
    assert all(told in text for one in decided for told in (one.found, cache_in_words(one.claim)))
    right = [text.index(words.found) for words in decided if words not in wrong]
    assert all(text.index(words.found) < min(right) for words in wrong)  # they come first
    tab = press(tab, f"open_new_{decided[0].claim.id}")
    assert link_of(tab) == {"claim": decided[0].claim.id}
    assert link_of(press(tab, "back_to_new")) == {"question": "new"}


def test_claims_open_from_questions_links_and_their_table_with_all_evidence():
    """Who says it, what was expected, statements, learning rates, seeds, ways into the Lab."""
    shipped = record.load_shipped()
    tab = press(open_page("questions", question="two_spaces"), "open_direction")
    assert link_of(tab) == {"claim": "direction"}
    evidence, text = shipped["direction"], said(tab)
    (words,) = claims_in_words(shipped, [evidence.claim])
    claim = words.claim
    for told in (
        *(claim.question, claim.says, claim.source, claim.prediction, words.found, words.seen),
        *(statement.text for statement in evidence.statements),
        *(f"**{words.verdict}**, as predicted.", rises_in_words(evidence)),
    ):
        assert told in text
    assert f"seeds, from {evidence.seeds[0]} to " in folded_text(tab)
    assert pictures(tab) == {"shipped", "learning", "differences", "recipes"}
    assert len(tab.get("page_link")) == len(evidence.experiments)
    tab.query_params.clear()
    tab = turn_to(turn_to(tab, "guide"), "questions")
    assert link_of(tab) == {"claim": "direction"}
    assert link_of(choose(tab, CLAIM, None)) == {"claim": ALL}
    assert list(tab.dataframe[0].value.columns) == ["claim", "verdict", "found"]
    totals = (score_in_words(shipped), total_in_words(shipped))
    assert totals[0] not in said(tab)
    tab.toggle(key="all_columns").set_value(True)
    show(tab)
    assert {"predicted", "came_true", "seen", "source"} < set(tab.dataframe[0].value.columns)
    assert all(total in said(tab) for total in totals)
    verdicts = shipped.verdicts.items()
    wrong = next(name for name, verdict in verdicts if verdict != CLAIMS[name].expected)
    assert f"; we predicted “{CLAIMS[wrong].expected}”" in said(choose(tab, CLAIM, wrong))


def test_nothing_is_given_away_in_the_quiet_mode():
    """Neither answer, claim, list nor sweep, until a guess, which stands above all else."""
    shipped = record.load_shipped()
    tab = turn_to(visit(quiet="1"), "questions")
    assert plain(WHY.guess) in tab.radio[0].label
    hidden = [Answer(WHY, shipped).conclusion, *Answer(WHY, shipped).numbers]
    assert not any(text in said(tab) for text in hidden)
    assert not [button for button in tab.button if (button.key or "").startswith("open_")]
    assert not pictures(tab)
    text = said(choose(tab, VIEW, "expressiveness"))
    assert ("Trains" in text, "How far it goes" in text) == (True, False)
    text = said(choose(tab, VIEW, NEW))
    assert ("“Guess first” is on" in text, "decided predictions" in text) == (True, False)
    tab, claim = choose(choose(tab, VIEW, ALL), CLAIM, "direction"), CLAIMS["direction"]
    text = said(tab)
    assert list(tab.dataframe[0].value.columns) == ["claim", "source"]
    assert total_in_words(shipped) not in text
    assert (claim.says in text, claim.prediction in text) == (True, False)
    assert not pictures(tab)


def test_a_claim_is_guessed_run_on_new_seeds_and_told_beside_the_guess(small):
    """Nothing runs without a guess, of which the last counts; another run has other seeds."""
    tab = press(open_page("questions", claim="small"), "run_claim")
    assert "Guess first" in said(tab)
    assert "small" not in tab.session_state["reruns"].known
    tab = press(guess(guess(tab, "It will hold"), "It will not hold"), "run_claim")
    first = rerun_of(tab)
    assert first.guess == "did not hold"
    tab = choose(turn_to(turn_to(tab, "guide"), "questions"), VIEW, "value")
    tab = choose(watch_series(tab, rerun_of(tab)), VIEW, ALL)
    assert not tab.radio[0].disabled
    assert len(first.seeds) == 8
    assert min(first.seeds) >= NEW_SEED
    for told in ("Your guess was ", "| your run |", f"{first.seeds[0]} to {first.seeds[-1]}"):
        assert told in said(tab)
    assert pictures(tab) == {"own_small"}
    scores = first.evidence().scores
    found = {name: own["accuracy"].shape for name, own in scores.items()}
    assert found == {one.name: (one.up_to, 8) for one in small.arms}
    assert not set(rerun_of(press(tab, "run_claim")).seeds) & set(first.seeds)


def test_a_run_beside_shipped_evidence_takes_its_rates_and_a_wrong_guess_its_reason(
    small, monkeypatch
):
    """So only seeds differ; the verdict that decides is the shipped one."""
    told = replace(small, reason="Because it is so.")
    monkeypatch.setitem(CLAIMS, "small", told)
    evidence = made_up(told, MadeUp(QKV=1.0, Q_K=1.0))
    monkeypatch.setattr(record, "load_shipped", lambda: Records.of([evidence]))
    assert evidence.judgement.verdict != "held"
    tab = guess(open_page("questions", claim="small"), "It will hold")
    tab = press(tab, "run_claim")
    tab = watch_series(tab, rerun_of(tab))
    (outcome,) = [e.value for e in tab.markdown if "our guess was" in e.value]
    assert ("wrong" in outcome, "Because it is so" in outcome) == (True, True)
    cells = dict(cell for trial in rerun_of(tab).trials for cell in trial.cells)
    assert cells == {one.name: evidence.tuned[one.name].recipe for one in told.judged_arms}
    assert "| your run | shipped |" in said(tab)


def test_a_run_stops_for_another_claim_and_is_taken_up_again_with_its_seeds(ours, monkeypatch):
    """At most one trains for a visitor, and the page has said so; a refusal is told until then."""
    for name, steps in (("slow", 20_000), ("small", 60)):
        settings = {**TINY, "steps": steps, "evaluate_every": steps // 20}
        pair = (arm("Q=K", **settings), arm("QKV", **settings))
        ours(name, title=f"A {name} claim", arms=pair, statements=(worse("Q=K", "QKV"),))
    full = Mock(side_effect=Refused("12 experiments wait already"))
    tab = open_page("questions", claim="slow")
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", full)
        tab = press(guess(tab), "run_claim")
        assert all("12 experiments wait" in said(one) for one in (tab, show(tab)))
    tab, first = press(tab, "go_on_claim"), rerun_of(tab, "slow")
    assert "12 experiments wait" not in said(tab)
    job, seeds = first.job_id, first.seeds
    tab = choose(tab, CLAIM, "small")
    assert "“A slow claim” trains for you now" in said(tab)
    tab = press(guess(tab), "run_claim")
    assert training_service().job(job).over
    tab = choose(tab, CLAIM, "slow")
    small = rerun_of(tab).job
    while small is not None and not (small := training_service().job(small.id)).over:
        training_service().wait(small.id, small.version, 1.0)
    tab = press(tab, "go_on_claim")  # when the page does not know yet that the other has ended
    assert rerun_of(tab, "slow") is first
    assert first.seeds == seeds
    tab = press(tab, "stop_claim")
    assert first.problem == "Stopped."
    assert "Stopped." in said(tab)
