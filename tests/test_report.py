"""The report: one page that needs nothing else, and says what the records say."""

import dataclasses
import json
import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
from small_claims import MadeUp, evidence_of_all, made_up

from attnkit.claims import CLAIMS
from attnkit.evidence.question import (
    number_sentences,
    reason_sentences,
    short_answer,
)
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import verdicts_of
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, rows_of, score_in_words, seen_in_words
from attnkit.figures.differences import plot_differences
from attnkit.figures.evidence import plot_evidence
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import plot_learning

VOID = {"meta", "br", "link", "img", "input", "hr"}


def tuned(evidence):
    """Return evidence with learning rates of which one diverged."""
    rates = {name: Tuned(0.01, {0.005: np.nan, 0.01: 0.9}) for name in evidence.scores}
    return dataclasses.replace(evidence, tuned=rates, version="0.1.0")


def made(claim, **options):
    """Return evidence that nobody trained."""
    return tuned(made_up(claim, MadeUp(lambda _: None, QKV=0.99, Q_K=0.5), **options))


@cache
def records():
    """Return the evidence for all claims."""
    return list(map(tuned, evidence_of_all().values()))


@cache
def page():
    """Return the page of all claims."""
    return to_html(records())


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.texts, self.ids, self.data = [], [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Keep it, open until it is closed."""
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """It closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Text that is read, and figures."""
        if self.open and self.open[-1] == "script":
            self.data.append(data)
        elif "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        """All that is read."""
        return " ".join(" ".join(self.texts).split())

    def figures(self):
        """The figures as data."""
        return [json.loads(text) for text in self.data if text.startswith('{"data"')]


@cache
def read():
    """The page of all claims."""
    return Reader(page())


def test_the_page_is_whole_and_needs_nothing_else():
    """Every tag is closed, every claim has an id and links lead to them; nothing is loaded.

    Neither script, style, font nor picture comes from anywhere; Plotly, most of it, is there once.
    """
    found = read()
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    targets = {attrs["href"] for tag, attrs in found.tags if tag == "a"}
    assert all(target[0] == "#" and target[1:] in found.ids for target in targets)
    assert set(CLAIMS) <= set(found.ids)
    assert not [attrs for tag, attrs in found.tags if "src" in attrs or tag == "link"]
    styles = "".join(re.findall(r"<style>(.*?)</style>", page(), re.DOTALL))
    assert "url(" not in styles
    assert "@import" not in styles
    assert page().count("plotly.js v") == 1


def test_the_page_can_be_heard_and_walked_through_by_keys():
    """Headings are in order, headers say what they head, and there is a way past the top."""
    tags = read().tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in tags if tag == "th")
    kinds = [tag for tag, _ in tags]
    assert kinds.count("caption") == kinds.count("table")
    assert ("html", {"lang": "en"}) in tags
    first = next(attrs for tag, attrs in tags if tag == "a")
    assert first == {"class": "skip", "href": "#content"}


def test_claims_are_told_in_full():
    """With source, prediction, what had been seen, statements, tuning, and links as text."""
    text = read().text
    for evidence in records():
        claim = evidence.claim
        said = (claim.title, claim.question, claim.says, claim.source, claim.prediction, claim.hash)
        more = (seen_in_words(claim, evidence), rises_in_words(evidence), evidence.experiments[0])
        for piece in (*said, *more):
            assert " ".join(piece.split()) in text, claim.id
        for row in rows_of(evidence):
            cells = (row.text, row.solved, row.pairs, row.median, row.mean)
            assert " ".join(filter(None, cells)) in text, claim.id
    assert "0.005: diverged, 0.01: 90.0%" in text


def test_figures_are_those_of_the_records():
    """Each has its words; that of learning stands under the seeds where arms are trained long."""
    plots = (plot_evidence, plot_learning, plot_differences)
    expected = [plot(one) for one in records() for plot in plots if plot(one) is not None]
    assert len(expected) > 2 * len(records())
    assert read().figures() == json.loads(json.dumps(expected))
    images = [attrs for _, attrs in read().tags if attrs.get("role") == "img"]
    assert len(images) == len(expected)
    assert all(attrs["aria-label"] for attrs in images)


def test_verdicts_are_those_that_stand_together():
    """In words, whatever their colours are."""
    verdicts = verdicts_of(records())
    n_wrong = sum(verdicts[one.claim.id] != one.claim.expected for one in records())
    assert score_in_words(records()) in read().text
    assert read().text.count("(wrong)") == n_wrong > 0
    for name, verdict in verdicts.items():
        section = page().split(f'<section class="claim" id="{name}"')[1].split("</section>")[0]
        assert f"</span> {verdict}</span>" in section.split("<dt>Verdict</dt>")[1].split("</dd>")[0]


def test_questions_are_answered_from_the_records():
    """In the sentences of the questions page."""
    known, verdicts = {one.claim.id: one for one in records()}, verdicts_of(records())
    for question in QUESTIONS.values():
        reason = " ".join(reason_sentences(question, known, verdicts))
        conclusion = short_answer(question, known, verdicts)
        for text in (conclusion, reason, *number_sentences(question, known)):
            assert " ".join(text.split()) in read().text != ""


def test_an_answer_says_which_claims_it_lacks():
    """A page of one claim does not pretend to be all."""
    needed = QUESTIONS["translation"].claims[0]
    text = Reader(to_html([made(CLAIMS[needed])])).text
    assert "Not on this page" in text


def test_quick_records_say_so_and_lack_arms():
    """The numbers of those that were not run are told in words."""
    quick = [made(CLAIMS[name], quick=True) for one in QUESTIONS.values() for name in one.claims]
    text = Reader(to_html(list({one.claim.id: one for one in quick}.values()))).text
    assert "{" not in text
    assert "Quick form" in text
    assert "Quick form" not in read().text


def test_a_prediction_that_was_changed_after_the_first_run_is_shown_as_such():
    """Both in the table of verdicts and where the claim stands in full."""
    claim = dataclasses.replace(CLAIMS["two_roles"], prediction="It holds, as we now know.")
    evidence = dataclasses.replace(made(CLAIMS["two_roles"]), claim=claim)
    text = Reader(to_html([evidence])).text
    assert "The prediction has been changed since the first run began." in text
    assert "held (changed since the first run began)" in text
    assert "(changed" not in Reader(to_html([made(CLAIMS["two_roles"])])).text


def test_no_sentence_says_that_predictions_were_made_blind():
    """The note on what had been seen differs from claim to claim."""
    assert "before the run" not in read().text.replace("before the runs of the record begin", "")


def test_the_rule_is_told_as_a_list():
    """It is the rule of the pages, without its marks of Markdown."""
    text = read().text
    for item in re.split(r"(?m)^\d+\. ", RULE)[1:]:
        assert " ".join(item.replace("**", "").split()) in re.sub(r" ([:.,;])", r"\1", text)
    assert "**" not in text


def test_what_claims_say_is_no_markup():
    """Not in text, in attributes or in the data of figures."""
    hostile = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"&"
    claim = CLAIMS["two_roles"]
    statements = tuple(dataclasses.replace(one, text=hostile) for one in claim.statements)
    texts = dict.fromkeys(("title", "question", "source", "says", "prediction", "reason"), hostile)
    evidence = made(dataclasses.replace(claim, **texts, statements=statements))
    html = to_html([dataclasses.replace(evidence, experiments=(hostile,), version=hostile)])
    found = Reader(html)
    assert found.open == []
    assert not any(tag == "img" for tag, _ in found.tags)
    assert sum(tag == "script" for tag, _ in found.tags) == 5  # three figures, Plotly, ours
    assert hostile in unescape(found.text)


def test_a_reason_that_nobody_knows_is_called_unknown():
    """Of a claim that came out otherwise than predicted."""
    claim = dataclasses.replace(CLAIMS["two_roles"], expected="did not hold", reason="")
    assert "The reason is unknown." in Reader(to_html([made(claim)])).text
    known = dataclasses.replace(claim, reason="Because it is so.")
    assert "Because it is so." in Reader(to_html([made(known)])).text
