"""The report: one page that needs nothing else, and says what the records say."""

import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
from small_claims import MadeUp, about, made_up

from attnkit.claims import CLAIMS
from attnkit.evidence.presentation import claims_in_words, score_in_words
from attnkit.evidence.provenance import seen_in_words
from attnkit.evidence.question import Answer
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import Records, load_shipped
from attnkit.evidence.tuning import Tried, Tuned
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, statements_table
from attnkit.figures.differences import plot_differences
from attnkit.figures.evidence import plot_evidence
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import plot_learning


def tuned(evidence):
    """Return evidence with learning rates of which one diverged."""
    tried = (Tried(0.005, "constant", 3, 0, np.nan), Tried(0.01, "constant", 10, 0, 0.9))
    rates = {name: Tuned(0.01, "constant", tried=tried) for name in evidence.scores}
    return replace(evidence, tuned=rates, version="0.1.0")


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.data, self._texts = [], [], [], []
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag, attrs):
        """Keep it, open until it is closed."""
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "link", "img", "input", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """It closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Text that is read, and figures."""
        if self.open and self.open[-1] == "script":
            self.data.append(data)
        elif "style" not in self.open:
            self._texts.append(data)

    def tells(self, *texts):
        """Whether it has all of the texts, however they are wrapped."""
        assert [text for text in texts if " ".join(text.split()) not in self.text] == []
        return True


def made(claim, **options):
    """Return evidence that nobody trained."""
    return tuned(made_up(claim, MadeUp(QKV=0.99, Q_K=0.5), **options))


def reader_of(*evidence):
    """Return what a page of some claims is made of."""
    return Reader(to_html(Records.of(evidence)))


@cache
def records():
    """Return the records of all claims."""
    return Records.of(map(tuned, load_shipped().values()))


@cache
def page():
    """Return the page of all claims, and what it is made of."""
    html = to_html(records())
    return html, Reader(html)


def test_the_page_is_whole_can_be_heard_and_needs_nothing_else():
    """Every tag is closed, every claim has an id and links lead to them; nothing is loaded."""
    html, read = page()
    tags, kinds = read.tags, [tag for tag, _ in read.tags]
    assert read.open == []
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(CLAIMS) <= set(ids)
    links = [attrs for tag, attrs in tags if tag == "a"]
    assert {attrs["href"] for attrs in links} <= {f"#{one}" for one in ids}
    assert links[0] == {"class": "skip", "href": "#content"}
    assert not [attrs for tag, attrs in tags if "src" in attrs or tag == "link"]
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert not re.search(r"url\(|@import", styles)
    assert html.count("plotly.js v") == 1
    levels = [int(tag[1]) for tag in kinds if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in tags if tag == "th")
    assert kinds.count("caption") == kinds.count("table")
    assert ("html", {"lang": "en"}) in tags


def test_claims_answers_and_figures_are_those_of_the_records():
    """Every claim in full, and every figure with its words; the rule has no marks of Markdown."""
    html, read = page()
    claims = claims_in_words(records())
    n_wrong = sum(words.verdict != words.claim.expected for words in claims)
    assert read.tells(score_in_words(records()))
    assert read.text.count(": we predicted “") == n_wrong > 0
    for words in claims:
        with about(words.claim):
            more = (words.claim.title, rises_in_words(words.evidence))
            assert read.tells(*words.facts.values(), *more, words.evidence.experiments[0])
            for row in statements_table(words.evidence).rows:
                assert read.tells(" ".join(filter(None, row)))
            section = html.split(f'<section class="claim" id="{words.claim.id}"')[1]
            assert words.verdict in section.split("<dt>Verdict</dt>")[1].split("</dd>")[0]
    assert read.tells("constant: 0.005: diverged, 0.01: 0 of 10 (90%)")
    for question in QUESTIONS.values():
        answer = Answer(question, records())
        assert read.tells(answer.conclusion, answer.reason, *answer.numbers)
    for item in re.split(r"(?m)^\d+\. ", RULE)[1:]:
        words = " ".join(item.replace("**", "").split())
        assert words in re.sub(r" ([:.,;])", r"\1", read.text)
    assert "**" not in read.text
    plots = (plot_evidence, plot_learning, plot_differences)
    expected = [plot(one) for one in records().values() for plot in plots if plot(one) is not None]
    figures = [json.loads(text) for text in read.data if text.startswith('{"data"')]
    assert figures == json.loads(json.dumps(expected))
    images = [attrs for _, attrs in read.tags if attrs.get("role") == "img"]
    assert len(images) == len(expected)
    assert all(attrs["aria-label"] for attrs in images)


def test_what_is_missing_or_was_changed_is_told():
    """Claims that an answer lacks, arms of quick records, predictions that were changed."""
    claim = CLAIMS["two_roles"]
    assert "Not on this page" in reader_of(made(CLAIMS[QUESTIONS["translation"].claims[0]])).text
    asked = {name for one in QUESTIONS.values() for name in one.claims}
    quick = [made(CLAIMS[name], quick=True, records=load_shipped()) for name in asked]
    text = reader_of(*quick).text
    assert ("{" in text, "Quick form" in text) == (False, True)
    assert "Quick form" not in page()[1].text
    changed = replace(made(claim), claim=replace(claim, prediction="It holds, as we now know."))
    for evidence, told in ((changed, True), (made(claim), False)):
        text = reader_of(evidence).text
        assert (seen_in_words(evidence.claim, evidence) in text, "(changed" in text) == (True, told)
    unknown = replace(claim, expected="did not hold", reason="")
    assert "reason is unknown" in reader_of(made(unknown)).text
    assert "Because so." in reader_of(made(replace(unknown, reason="Because so."))).text


def test_what_claims_say_is_no_markup():
    """Not in text, in attributes or in the data of figures."""
    hostile = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"&"
    claim = CLAIMS["two_roles"]
    statements = tuple(replace(one, text=hostile) for one in claim.statements)
    texts = dict.fromkeys(("title", "question", "source", "says", "prediction", "reason"), hostile)
    evidence = made(replace(claim, **texts, statements=statements))
    found = reader_of(replace(evidence, experiments=(hostile,), version=hostile))
    assert found.open == []
    assert not any(tag == "img" for tag, _ in found.tags)
    assert sum(tag == "script" for tag, _ in found.tags) == 5  # three figures, Plotly, ours
    assert hostile in unescape(found.text)
