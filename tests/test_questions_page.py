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
    Outcome,
    cache_in_words,
    claims_in_words,
    new_claims,
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
from attnkit.ui.pages.questions import BETS
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

BOTH = {**TINY, "task": "mutual", "n_entries": 6}
"""Another setting, so that a claim has two experiments."""

MOST_WORDS = 700
"""Words of a question that are in sight when it opens."""

SWEPT = "expressiveness"
"""The question that a sweep answers, too."""


@pytest.fixture
def shipped():
    """Return the evidence that ships with the package."""
    return record.load_shipped()


@pytest.fixture
def nothing_shipped(monkeypatch):
    """Ship no evidence at all."""
    monkeypatch.setattr(record, "load_shipped", Records)


@pytest.fixture
def ours(monkeypatch, nothing_shipped):
    """Register a claim of our own: `ours(name, claim's fields)`."""

    def register(name="small", **fields):
        claim = small_claim(name, **fields)
        monkeypatch.setitem(CLAIMS, name, claim)
        return claim

    return register


@pytest.fixture
def small(ours):
    """A claim that trains in a moment, in two experiments, one of which is read twice."""
    long = {**BOTH, "up_to": 2}
    return ours(
        arms=(
            *(arm(text, **TINY) for text in ("Q=K", "QKV")),
            *(arm(text, f"{text}, married", **long) for text in ("Q=K", "QKV")),
        ),
        statements=(worse("Q=K", "QKV"), worse("Q=K, married", "QKV, married", at=2)),
        n_seeds=16,
    )


def texts_in(kinds):
    """Return the texts of elements, kind by kind, without the backslashes against Markdown."""
    return "\n".join(plain_text(element) for kind in kinds for element in kind)


def folded(tab):
    """Return the elements in expanders that say something."""
    return [e for fold in tab.expander for kind in (fold.markdown, fold.caption) for e in kind]


def in_sight(tab):
    """Return what is said outside of expanders."""
    hidden = set(map(id, folded(tab)))
    kinds = (tab.title, tab.markdown, tab.caption, tab.info, tab.subheader)
    return texts_in([e for e in kind if id(e) not in hidden] for kind in kinds)


def rerun_of(tab, name="small"):
    """Return what the visitor has trained of a claim."""
    return tab.session_state["reruns"].known[name]


def view(tab, name):
    """Open another question or list in the same tab."""
    tab.button_group(key=VIEW).set_value(name)
    return show(tab)


def guess(tab, text=None):
    """Guess something."""
    tab.radio[0].set_value(text or tab.radio[0].options[0])
    return show(tab)


def watch_rerun(tab, name="small"):
    """Look at the page until nothing trains any more."""
    return watch_series(tab, rerun_of(tab, name))


def links(tab):
    """Labels and addresses of the links into the Lab."""
    return {one.proto.label: one.proto.query_string for one in tab.get("page_link")}


def pictures(tab):
    """Keys of the figures."""
    keys = [element.key for element in tab.get("bidi_component")]
    return {key.removeprefix("picture_") for key in keys if key.startswith("picture")}


def choose_claim(tab, name):
    """Choose a claim from the list."""
    tab.selectbox(key=CLAIM).set_value(name)
    return show(tab)


def test_a_question_is_answered_in_few_plain_words_with_its_reason_numbers_and_a_picture(
    shipped, seed
):
    """And with its first claim and the asker's words; commands, hashes and versions are folded."""
    for name in {SWEPT, random.Random(seed).choice(list(QUESTIONS))}:
        question, answer = SHOWN[name], Answer(SHOWN[name], shipped)
        tab = open_page("questions", question=question.id)
        text, first = said(tab), shipped[question.claims[0]]
        (words,) = claims_in_words(shipped, [first.claim])
        order = (answer.conclusion, answer.reason, answer.numbers[0])
        assert sorted(order, key=text.index) == list(order)
        for told in (*answer.numbers, words.found, words.tested, question.asked):
            assert told in text
        assert f"attnkit {first.version}, claim {first.hash}" in texts_in([folded(tab)])
        long = any(name in first.curves and one.up_to > 1 for name, one in first.arms.items())
        assert pictures(tab) == {"shipped", *(["learning"] if long else [])}
        assert {f"open_{name}" for name in question.claims} <= {b.key for b in tab.button}
        assert (tab.radio[0].options, tab.radio[0].value) == (list(question.guesses), None)
        if question.sweep:
            result = shipped_sweeps.load_shipped(question.sweep)
            assert conclusion(result, *list(result.sweep.axes)[:2]).text in text
        labels = [*(button.label for button in tab.button), *tab.radio[0].options, *links(tab)]
        text = " ".join([in_sight(tab), *labels, *(one.title for one in QUESTIONS.values())])
        assert len(text.split()) < MOST_WORDS, question.id
        assert not re.search(r"[0-9a-f]{16}|attnkit|python|Holm|Student", text), question.id


def test_without_evidence_and_sweep_it_says_what_to_type(nothing_shipped, monkeypatch, tmp_path):
    """Folded, and it offers to run the claim, at learning rates that nobody has tuned."""
    monkeypatch.setattr(shipped_sweeps, "FOLDER", tmp_path)
    shipped_sweeps.load_shipped.cache_clear()
    tab = open_page("questions", question=SWEPT)
    shipped_sweeps.load_shipped.cache_clear()
    assert "How far it goes" not in said(tab)
    assert "Not run yet" in said(tab)
    assert "attnkit claims narrow_head_slow narrow_head" in texts_in([folded(tab)])
    assert "python" not in in_sight(tab)
    assert "none is tuned yet" in said(tab)
    assert not tab.button(key="run_claim").disabled
    assert not tab.get("download_button")
    tab = view(tab, NEW)
    assert "Not run yet." in said(tab)
    assert "decided predictions" not in said(tab)


def test_a_faulty_link_is_told_once_and_the_address_is_then_a_good_one(shipped):
    """It names the field, the value and what is allowed."""
    for link, told, then in (
        ({"question": "why"}, "question='why'. Allowed: translation, value, ", {}),
        ({"claim": "x" * 90}, f"claim='{'x' * 60}…'. Allowed: all, alike_keys, ", {"claim": ALL}),
    ):
        tab = open_page("questions", **link)
        assert told in said(tab)
        assert link_of(tab) == then
        assert told not in said(view(tab, "value"))


def test_claims_open_from_questions_links_and_their_table_with_all_evidence(shipped):
    """Who says it, what was expected, statements, learning rates, seeds, ways into the Lab."""
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
    assert f"seeds, from {evidence.seeds[0]} to " in texts_in([folded(tab)])
    assert pictures(tab) == {"shipped", "learning", "differences", "recipes"}
    assert "How learning rates and schedules were found" in [fold.label for fold in tab.expander]
    assert len(links(tab)) == len(evidence.experiments)
    tab.query_params.clear()
    tab = turn_to(turn_to(tab, "guide"), "questions")
    assert link_of(tab) == {"claim": "direction"}
    assert tab.selectbox(key=CLAIM).value == "direction"
    assert link_of(choose_claim(tab, None)) == {"claim": ALL}
    assert list(tab.dataframe[0].value.columns) == ["claim", "verdict", "found"]
    assert score_in_words(shipped) not in said(tab)
    tab.toggle(key="all_columns").set_value(True)
    show(tab)
    assert {"predicted", "came_true", "seen", "source"} < set(tab.dataframe[0].value.columns)
    assert all(total in said(tab) for total in (score_in_words(shipped), total_in_words(shipped)))
    verdicts = shipped.verdicts.items()
    wrong = next(name for name, verdict in verdicts if verdict != CLAIMS[name].expected)
    assert f"; we predicted “{CLAIMS[wrong].expected}”" in said(choose_claim(tab, wrong))


def test_new_claims_are_listed_with_what_became_of_their_predictions(shipped):
    """Each decided one has a figure and a button; the others have a button."""
    tab = open_page("questions", question="new")
    found, texts = new_claims(shipped), said(tab)
    decided = [*found[Outcome.WRONG], *found[Outcome.TRUE]]
    n_wrong = len(found[Outcome.WRONG])
    assert f"{n_wrong} of our {len(decided)} decided predictions were wrong" in texts
    places = [texts.index(words.found) for words in decided]
    assert places == sorted(places)
    assert all(cache_in_words(words.claim) in texts for words in decided)
    assert link_of(tab) == {"question": "new"}
    tab = press(tab, f"open_new_{decided[0].claim.id}")
    assert link_of(tab) == {"claim": decided[0].claim.id}
    assert link_of(press(tab, "back_to_new")) == {"question": "new"}


def test_nothing_is_given_away_in_the_quiet_mode(shipped):
    """Neither answer, claim, list nor sweep, until a guess, which stands above all else."""
    tab = turn_to(visit(quiet="1"), "questions")
    assert plain(WHY.guess) in tab.radio[0].label
    assert tab.subheader[0].value == "Predict, then run it now"
    hidden = [Answer(WHY, shipped).conclusion, *Answer(WHY, shipped).numbers]
    assert not any(text in said(tab) for text in hidden)
    assert not [button for button in tab.button if (button.key or "").startswith("open_")]
    assert not pictures(tab)
    tab = view(tab, SWEPT)
    assert "Trains" in said(tab)  # the page is there
    assert "How far it goes" not in said(tab)
    tab = view(tab, NEW)
    assert "“Guess first” is on" in said(tab)
    assert "decided predictions" not in said(tab)
    tab, claim = choose_claim(view(tab, ALL), "direction"), CLAIMS["direction"]
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
    assert not first.job.kept
    assert not first.moving or tab.radio[0].disabled
    tab = watch_rerun(view(turn_to(turn_to(tab, "guide"), "questions"), "value"))
    tab = view(tab, ALL)  # it went on while its visitor was elsewhere
    assert not tab.radio[0].disabled
    assert (first.finished, first.n_finished) == (True, 2)
    assert len(first.seeds) == 8
    assert min(first.seeds) >= NEW_SEED
    told = ("Your guess was ", "Learning rates were each task’s own", "| your run |")
    for words in (*told, f"{first.seeds[0]} to {first.seeds[-1]}"):
        assert words in said(tab)
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
    verdict = evidence.judgement.verdict
    assert verdict != "held"
    tab = open_page("questions", claim="small")
    for means, wrong in (("held", True), (verdict, False)):
        tab = guess(tab, next(text for text, meaning in BETS.items() if meaning == means))
        tab = watch_rerun(press(tab, "run_claim"))
        (outcome,) = [e.value for e in tab.markdown if "our guess was" in e.value]
        assert ("wrong" in outcome) == ("Because it is so" in outcome) == wrong
    cells = dict(cell for trial in rerun_of(tab).trials for cell in trial.cells)
    assert cells == {one.name: evidence.tuned[one.name].recipe for one in told.judged_arms}
    assert "| your run | shipped |" in said(tab)
    assert "Learning rates were" not in said(tab)


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
        assert "12 experiments wait" in said(tab)
        assert "12 experiments wait" in said(show(tab))
    tab, first = press(tab, "go_on_claim"), rerun_of(tab, "slow")
    assert "12 experiments wait" not in said(tab)
    job, seeds = first.job_id, first.seeds
    tab = choose_claim(tab, "small")
    assert "“A slow claim” trains for you now" in said(tab)
    tab = press(guess(tab), "run_claim")
    assert training_service().job(job).over
    tab = choose_claim(tab, "slow")
    small = rerun_of(tab).job
    while small is not None and not (small := training_service().job(small.id)).over:
        training_service().wait(small.id, small.version, 1.0)
    tab = press(tab, "go_on_claim")  # when the page does not know yet that the other has ended
    assert rerun_of(tab, "slow") is first
    assert first.seeds == seeds
    tab = press(tab, "stop_claim")
    assert first.problem == "Stopped."
    assert "Stopped." in said(tab)


def test_a_claim_whose_arms_cannot_be_trained_says_why(ours):
    """Somebody's own, with a faulty setting."""
    ours("faulty", arms=(arm("QKV", d_head=-1), arm("Q=K", d_head=-1)))
    tab = open_page("questions", claim="faulty")
    assert "d_head: got -1, allowed" in plain_text(tab.error[0])
