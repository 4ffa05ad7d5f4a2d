"""The Questions page without a browser: answers, evidence, and claims that a visitor runs again."""

import random
from unittest.mock import Mock

import pytest
from idle import link_of, open_page
from small_claims import TINY, small_claim
from visiting import plain_text, press, said, show, turn_to, visit, watch_series

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import worse
from attnkit.evidence import record
from attnkit.evidence.presentation import claims_in_words, score_in_words, total_in_words
from attnkit.evidence.questions import QUESTIONS, WHY, Answer
from attnkit.evidence.record import Records
from attnkit.evidence.trials import NEW_SEED
from attnkit.evidence.words import rises_in_words
from attnkit.service.service import MAX_RESTARTS, Refused, TrainingService
from attnkit.sweeps.conclusion import conclusion
from attnkit.sweeps.result import load_shipped as load_sweep
from attnkit.ui.markdown import plain
from attnkit.ui.pages.questions import ALL, CLAIM, NEW, SHOWN, VIEW
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


@pytest.fixture
def ours(monkeypatch):
    """Ship no evidence, and register a claim of our own: `ours(name, claim's fields)`."""
    monkeypatch.setattr(record, "load_shipped", Records)

    def register(name="small", **fields):
        monkeypatch.setitem(CLAIMS, name, small_claim(name, **fields))
        return CLAIMS[name]

    return register


@pytest.fixture
def small(ours):
    """Register a claim that trains in a moment, in two experiments, one of which is read twice."""
    long = {**TINY, "task": "mutual", "n_entries": 6, "up_to": 2}
    pairs = [(arm(text, **TINY), arm(text, f"{text}, married", **long)) for text in ("Q=K", "QKV")]
    married = worse("Q=K, married", "QKV, married", at=2)
    arms = [one for pair in zip(*pairs, strict=True) for one in pair]
    return ours(arms=tuple(arms), statements=(worse("Q=K", "QKV"), married), n_seeds=16)


def folded(tab):
    """Return what expanders say, without the backslashes against Markdown."""
    texts = [e for fold in tab.expander for kind in (fold.markdown, fold.caption) for e in kind]
    return "\n".join(map(plain_text, texts))


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


def test_a_question_is_answered_with_its_reason_numbers_and_a_picture(seed):
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
        assert f"attnkit {first.version}, claim {first.hash}" in folded(tab)
        assert text.count(first.hash) == folded(tab).count(first.hash)
        long = any(name in first.curves and one.up_to > 1 for name, one in first.arms.items())
        assert pictures(tab) == {"shipped", *(["learning"] if long else [])}
        assert {f"open_{name}" for name in question.claims} <= {b.key for b in tab.button}
        assert (tab.radio[0].options, tab.radio[0].value) == (list(question.guesses), None)
        if question.sweep:
            result = load_sweep(question.sweep)
            assert conclusion(result, *list(result.sweep.axes)[:2]).text in text


def test_new_claims_are_listed_and_a_faulty_link_is_told_once(monkeypatch):
    """Wrong predictions come first. A claim whose arms cannot be trained says so."""
    tab = open_page("questions", claim="x" * 90)
    assert f"claim='{'x' * 60}…'. Allowed: all, " in said(tab)
    text = said(choose(tab, VIEW, NEW))
    assert "x" * 60 not in text
    new = [words for words in claims_in_words(record.load_shipped()) if words.claim.is_new]
    decided = [words for words in new if words.verdict != "undecided"]
    ordered = sorted(decided, key=lambda words: text.index(words.found))
    wrong = [words.verdict != words.claim.expected for words in ordered]
    assert f"{sum(wrong)} of our {len(decided)} decided predictions were wrong" in text
    assert wrong == sorted(wrong, reverse=True)
    assert link_of(press(tab, f"open_new_{decided[0].claim.id}")) == {"claim": decided[0].claim.id}
    arms = (arm("QKV", d_head=-1), arm("Q=K", d_head=-1))
    monkeypatch.setitem(CLAIMS, "faulty", small_claim("faulty", arms=arms))
    tab = open_page("questions", claim="faulty")
    assert "Not run yet" in said(tab)
    assert "d_head: got -1, allowed" in plain_text(tab.error[0])


def test_claims_open_from_questions_links_and_their_table_with_all_evidence():
    """Who says it, what was expected, statements, learning rates, seeds, ways into the Lab."""
    shipped = record.load_shipped()
    tab = press(open_page("questions", question="two_spaces"), "open_direction")
    assert link_of(tab) == {"claim": "direction"}
    faulty = open_page("questions", claim="direction", seed="7", guess="no")
    assert "seed='7'" in said(faulty)
    assert link_of(faulty) == {"claim": "direction"}
    evidence, text = shipped["direction"], said(tab)
    (words,) = claims_in_words(shipped, [evidence.claim])
    claim = words.claim
    for told in (
        *(claim.question, claim.says, claim.source, claim.prediction, words.found, words.seen),
        *(statement.text for statement in evidence.statements),
        *(f"**{words.verdict}**, as predicted.", rises_in_words(evidence), words.structure),
    ):
        assert told in text
    assert pictures(tab) == {"shipped", "learning", "differences", "elsewhere"}
    assert len(tab.get("page_link")) == len(evidence.experiments)
    tab.query_params.clear()
    tab = turn_to(turn_to(tab, "guide"), "questions")
    assert link_of(tab) == {"claim": "direction"}
    assert link_of(choose(tab, CLAIM, None)) == {"claim": ALL}
    assert list(tab.dataframe[0].value.columns) == ["claim", "structure", "verdict", "found"]
    tab.toggle(key="all_columns").set_value(True)
    show(tab)
    assert {"predicted", "came_true", "seen", "source"} < set(tab.dataframe[0].value.columns)
    assert all(total in said(tab) for total in (score_in_words(shipped), total_in_words(shipped)))
    verdicts = shipped.verdicts.items()
    wrong = next(name for name, verdict in verdicts if verdict != CLAIMS[name].expected)
    assert f"; we predicted “{CLAIMS[wrong].expected}”" in said(choose(tab, CLAIM, wrong))


def test_nothing_is_given_away_in_the_quiet_mode():
    """Neither answer, claim, list nor sweep, until a guess, which stands above all else."""
    shipped, claim = record.load_shipped(), CLAIMS["direction"]
    tab = turn_to(visit(quiet="1"), "questions")
    hidden = [Answer(WHY, shipped).conclusion, *Answer(WHY, shipped).numbers]
    assert not any(text in said(tab) for text in hidden)
    assert plain(WHY.guess) in tab.radio[0].label
    assert not [button for button in tab.button if (button.key or "").startswith("open_")]
    assert not pictures(tab)
    for view, shown, unsaid in (
        ("expressiveness", "Trains", "How far it goes"),
        (NEW, "“Guess first” is on", "decided predictions"),
        (ALL, claim.says, total_in_words(shipped)),
    ):
        tab = choose(tab, VIEW, view)
        tab = tab if view != ALL else choose(tab, CLAIM, "direction")
        assert (shown in said(tab), unsaid in said(tab)) == (True, False)
    assert list(tab.dataframe[0].value.columns) == ["claim", "structure", "source"]
    assert claim.prediction not in said(tab)
    assert not pictures(tab)


def test_a_claim_is_guessed_run_on_new_seeds_and_told_beside_the_guess(small):
    """Nothing runs without a guess, of which the last counts; another run has other seeds."""
    tab = press(open_page("questions", claim="small"), "run_claim")
    assert "small" not in tab.session_state["reruns"].known
    tab = press(guess(guess(tab, "It will hold"), "It will not hold"), "run_claim")
    first = rerun_of(tab)
    tab = choose(turn_to(turn_to(tab, "guide"), "questions"), VIEW, "value")
    tab = choose(watch_series(tab, rerun_of(tab)), VIEW, ALL)
    assert not tab.radio[0].disabled
    assert (first.guess, len(first.seeds)) == ("did not hold", 8)
    assert min(first.seeds) >= NEW_SEED
    for told in ("Your guess was ", "| your run |", f"{first.seeds[0]} to {first.seeds[-1]}"):
        assert told in said(tab)
    assert pictures(tab) == {"own_small"}
    scores = first.evidence().scores
    found = {name: own["accuracy"].shape for name, own in scores.items()}
    assert found == {one.name: (one.up_to, 8) for one in small.arms}
    assert not set(rerun_of(press(tab, "run_claim")).seeds) & set(first.seeds)


@pytest.mark.parametrize("deaths", [0, 1, MAX_RESTARTS + 1])
def test_a_link_opens_a_run_again_and_one_that_its_server_left_goes_on(small, monkeypatch, deaths):
    """With the seeds and the guess of the link; nobody else's link trains anything by itself."""
    first = rerun_of(
        press(guess(open_page("questions", claim="small"), "It will hold"), "run_claim")
    )
    first.stop()
    link = {"claim": "small", "seed": str(first.seeds[0]), "guess": "held"}
    lost = {first.hash: deaths} if deaths else {}
    monkeypatch.setattr(TrainingService, "interrupted", lambda service, watcher: lost)
    tab = open_page("questions", **link)
    rerun = rerun_of(tab)
    assert link_of(tab) == link
    assert (rerun.experiments, rerun.guess, tab.radio[0].value) == (
        first.experiments,
        "held",
        "It will hold",
    )
    assert (rerun.moving, "not trained yet" in said(tab)) == (deaths == 1, deaths != 1)
    tab = watch_series(tab if deaths == 1 else press(tab, "go_on_claim"), rerun)
    assert (rerun.finished, link_of(tab)) == (True, link)


def test_a_run_stops_for_another_claim_and_is_taken_up_again_with_its_seeds(ours, monkeypatch):
    """At most one trains for a visitor, and the page has said so; a refusal is told until then."""
    for name, steps in (("slow", 20_000), ("small", 60)):
        settings = {**TINY, "steps": steps, "evaluate_every": steps // 20}
        pair = (arm("Q=K", **settings), arm("QKV", **settings))
        ours(name, title=f"A {name} claim", arms=pair, statements=(worse("Q=K", "QKV"),))
    tab = open_page("questions", claim="slow")
    with monkeypatch.context() as patched:
        full = Mock(side_effect=Refused("12 experiments wait already"))
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
    assert (rerun_of(tab, "slow"), first.seeds) == (first, seeds)
    assert "Stopped." in said(press(tab, "stop_claim"))
