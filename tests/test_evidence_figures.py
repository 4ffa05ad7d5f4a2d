"""Figures of evidence and the report: they show the seeds as they are, and say so."""

import itertools
import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from plotted import accepted
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.presentation import claims_in_words, score_in_words
from attnkit.evidence.provenance import seen_in_words
from attnkit.evidence.question import Answer
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import Records, load_shipped
from attnkit.evidence.tuning import Tried, Tuned
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, statements_table
from attnkit.figures.differences import describe_differences, plot_differences
from attnkit.figures.evidence import describe_evidence, plot_evidence
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import describe_learning, plot_learning
from attnkit.training.statistics import mean_interval, median_interval
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

QKV, Q_K = np.array([[90, 92, 94, 96, 98, 100, 100], [50, 51, 52, 53, 54, 55, 96]]) / 100
LOSS_QKV, LOSS_Q_K = np.linspace(0.2, 0.32, 7), np.array([0.9, 0.8] * 4)[:7]

CLAIM = small_claim(
    arms=(arm("QKV", task="dual_role"), arm("Q=K", task="dual_role")),
    statements=(
        worse("Q=K", "QKV"),
        better("QKV", "Q=K", 0.3, measure="loss"),
        Statement("QKV is good", "QKV is not good", "QKV", measure="loss", low=-1, high=0.5),
    ),
    n_seeds=7,
)


def made(claim=CLAIM, only=("QKV", "Q=K"), accuracy=Q_K, loss=LOSS_Q_K):
    """Return evidence that nobody trained, with other values of Q=K."""
    scores = {
        "QKV": {"accuracy": QKV[None], "loss": LOSS_QKV[None]},
        "Q=K": {"accuracy": accuracy[None], "loss": loss[None]},
    }
    evidence = made_up(CLAIM, MadeUp(), first_seed=3)
    tuned = {name: Tuned(0.005) for name in scores}
    return replace(evidence, claim=claim, scores={name: scores[name] for name in only}, tuned=tuned)


def texts_of(figure):
    """Return the labels of the lines of a figure of learning, in one line each."""
    labels = [one for one in figure["layout"]["annotations"] if one.get("showarrow", True)]
    return [one["text"].replace("<br>", " ") for one in labels]


def names_in(figure):
    """Return the names beside the rows."""
    return figure["layout"]["yaxis"]["ticktext"]


def marks(figure):
    """Return the traces of seeds and those of means."""
    traces = {False: [], True: []}
    for trace in figure["data"]:
        traces[trace["marker"]["size"] > 10].append(trace)
    return traces[False], traces[True]


LONG = {**TINY, "up_to": 8}
MARRIED = {**TINY, "task": "mutual", "n_entries": 6}
SLOW = small_claim(
    arms=(arm("Q=K", **LONG), arm("QKV", **LONG)),
    statements=(worse("Q=K", "QKV", 2, measure="steps_to_solve", at=8),),
)


def test_every_registered_claim_can_be_drawn():
    """It can be drawn whatever its arms, measures and regions are; Plotly accepts all values."""
    for evidence in load_shipped().values():
        rows, differences = plot_evidence(evidence), plot_differences(evidence)
        learning = plot_learning(evidence)
        with about(evidence.claim):
            shown = len(evidence.scores) - len(evidence.rivals)
            assert len(rows["layout"]["yaxis"]["tickvals"]) == shown
            assert len(differences["layout"]["annotations"]) == len(evidence.statements)
            long = {one.name for one in evidence.arms.values() if one.up_to > 1}
            assert (learning is not None) == bool(long & {*evidence.scores})
            course = plot_learning(evidence, evidence.claim.statements[0])
            for figure in (rows, differences, learning, course):
                accepted(figure)


def test_a_row_is_an_arm_with_its_seeds_their_average_and_interval():
    """In the order of the claim, though the record has another; the mean of losses alone."""
    figure = plot_evidence(made(only=("Q=K", "QKV")))
    assert [name.partition("<br>")[0] for name in names_in(figure)] == ["QKV", "Q=K"]
    seeds, means = marks(figure)
    for place, (trace, mark, values) in enumerate(zip(seeds, means, (QKV, Q_K), strict=True)):
        np.testing.assert_allclose(trace["x"], 100 * values)
        assert np.all(np.abs(np.array(trace["y"]) - place) < 0.5)
        interval = median_interval(100 * values)
        (x,), bar = mark["x"], mark["error_x"]
        assert x == pytest.approx(float(interval.mean))
        assert x - bar["arrayminus"][0] == pytest.approx(max(0, float(interval.low)))
        assert x + bar["array"][0] == pytest.approx(min(100, float(interval.high)))
    colors = [mark["marker"]["color"] for mark in means]
    assert colors == [COLORS[Sharing.QKV], COLORS[Sharing.Q_K]]
    assert seeds[1]["hovertext"][0].split("<br>")[:2] == ["Q=K", "seed 3: 50%"]
    assert "0.005" in seeds[1]["hovertext"][0]
    chance = 100 * CLAIM.arms[0].experiment.task.chance
    drawn = figure["layout"]
    assert drawn["annotations"][0]["text"] == f"chance {chance:.3g}%"
    loss = plot_evidence(made(), "loss")  # in nats, all of them inside the axis, without chance
    assert loss["layout"]["annotations"] == []
    assert marks(loss)[0][0]["x"] == pytest.approx(LOSS_QKV)
    assert marks(loss)[1][0]["x"] == pytest.approx([float(mean_interval(LOSS_QKV).mean)])
    assert "QKV: mean 0.260 nats [" in describe_evidence(made(), "loss")
    assert "QKV: median 96% [90% to 100%], 7 seeds" in describe_evidence(made())
    assert "4 of 7" in names_in(figure)[0]


def test_diverged_seeds_and_what_is_missing_are_left_out_and_told():
    """A measure that an arm has not, and of a run that goes on: an arm, all seeds, all but one."""
    lost = np.array([np.nan, 0.5, np.nan, 0.5, 0.5, 0.5, 0.5])
    evidence = made(accuracy=lost, loss=lost)
    figure = plot_evidence(evidence)
    seeds, _ = marks(figure)
    assert names_in(figure)[1] == "Q=K<br>2 diverged"
    assert seeds[1]["x"] == [50.0] * 5
    assert "seed 4:" in seeds[1]["hovertext"][0]
    assert "2 diverged" in describe_evidence(evidence)
    assert "diverged with 2 of 7" in describe_differences(evidence)
    hostile = arm("K=V", "<b>bold</b>", task="dual_role")  # Plotly reads some tags in its texts
    claim = replace(CLAIM, arms=(*CLAIM.arms, hostile))
    named = replace(made(claim), scores={"<b>bold</b>": {"accuracy": QKV[None]}})
    assert names_in(plot_evidence(named))[0].startswith("&lt;b&gt;bold&lt;/b&gt;<br>")
    nothing = np.full(7, np.nan)
    for values, plot in itertools.product(
        (nothing, np.array([0.5, *nothing[1:]])), (plot_evidence, plot_differences)
    ):
        figure = accepted(plot(made(accuracy=values, loss=values)))
        assert not any(np.isnan(trace["x"]).any() for trace in figure["data"])
        accepted(plot(made(only=())))


def test_differences_are_those_of_the_pairs_beside_the_region_of_the_statement():
    """Filled where it holds. An open side ends where the axis does, which has the own unit."""
    figure = plot_differences(made())
    seeds, means = marks(figure)
    expected = 100 * (Q_K - QKV)
    np.testing.assert_allclose(seeds[0]["x"], expected)
    assert seeds[0]["marker"]["symbol"] == ["circle"] * 6 + ["circle-open"]
    assert means[0]["x"][0] == pytest.approx(np.median(expected))
    layout = figure["layout"]
    heading = layout["annotations"][0]["text"].replace("<br>", " ")
    for told in (heading, describe_differences(made())):
        assert CLAIM.statements[0].text in told
        assert "worse with 6 of 7 seeds" in told
    assert "held" in describe_differences(made())
    assert layout["xaxis2"]["title"]["text"].endswith("in nats")
    regions = [shape for shape in layout["shapes"] if shape["type"] == "rect"][1::2]
    low, _ = layout["xaxis2"]["range"]
    ends = [(layout["xaxis"]["range"][0], -5), (low, -0.3), (-1, 0.5)]
    assert [(one["x0"], one["x1"]) for one in regions] == [pytest.approx(end) for end in ends]


def test_runs_that_never_solve_their_task_are_counted_and_stand_at_the_edge():
    """Arms stand at the steps at which they are read; differences of steps are in doublings."""
    evidence = made_up(SLOW)
    for name, values in (("Q=K", [np.inf] * 5 + [5.0] * 12), ("QKV", [3.0] * 17)):
        evidence.scores[name]["steps_to_solve"] = np.tile(values, (4, 1))
    figure, differences = accepted(plot_evidence(evidence)), accepted(plot_differences(evidence))
    assert names_in(figure)[0] == "Q=K<br>48 steps<br>5 unsolved"
    assert "median 32 steps, 12 seeds, 5 unsolved" in describe_evidence(evidence)
    (pairs,), medians = marks(differences)
    assert medians[0]["x"] == [2.0]
    assert pairs["marker"]["symbol"].count("triangle-right") == 5
    assert pairs["hovertext"][0].endswith("+∞ doublings")


def test_learning_is_drawn_for_long_arms_and_those_they_are_compared_with():
    """Arms that nothing long is compared with are left out; without long arms there is none."""
    figure = plot_learning(made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5)))
    assert texts_of(figure) == ["QKV", *(f"Q=K, 96 steps, {one} rate" for one in SCHEDULES)]
    assert plot_learning(made_up(small_claim(), MadeUp(QKV=1.0, Q_K=1.0))) is None
    married = (
        arm(text, f"{text}, married", **{**MARRIED, "up_to": 8, "steps": 9})
        for text in ("Q=K", "QKV")
    )
    statements = (worse("Q=K", "QKV", at=8), worse("Q=K, married", "QKV, married", at=8))
    evidence = made_up(small_claim(arms=(*SLOW.arms, *married), statements=statements))
    layout = plot_learning(evidence)["layout"]
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]
    assert [s["x0"] for s in layout["shapes"] if s["x0"] == s["x1"]] == [6, 9]  # base steps
    assert "Q=K, married: mean accuracy" in describe_learning(evidence)
    figure = plot_learning(made_up(SLOW, MadeUp(QKV=1.0, Q_K=[0.1, 0.4, 0.5, 0.9])))
    assert figure["layout"]["xaxis"]["type"] == "log"
    first = next(trace for trace in figure["data"] if trace["mode"] == "markers")
    assert first["x"] == [6, 12, 24, 48]
    assert first["y"] == pytest.approx([10, 40, 50, 90])


def test_learning_on_text_is_a_loss_to_beat_and_the_course_is_of_one_statement():
    """Arms that it does not compare, other tasks and confirming arms are left out of a course."""
    text = {"task": "language", "steps": 8, "up_to": 4}
    claim = small_claim(
        arms=(arm("K=V", **text), arm("QKV", **text)),
        statements=(no_worse("K=V", "QKV", measure="loss", at=4),),
    )
    evidence = made_up(claim, MadeUp(QKV=-1.0, K_V=[-2.0, -1.5, -1.2]))
    shapes = plot_learning(evidence)["layout"]["shapes"]
    to_beat = claim.arms[0].experiment.task.loss_to_beat
    assert [one["y0"] for one in shapes if one["y0"] == one["y1"]] == [to_beat]
    told = describe_learning(evidence)
    for loss, steps in ((3.0, 8), (2.5, 16), (2.2, 32)):
        assert f"{loss:.2f} nats after {steps} steps" in told
    arms = (*small_claim().arms, arm("Q=K", "Q=K, married", **MARRIED))
    statements = (worse("Q=K", "QKV", unable=True), worse("Q=K, married", "QKV"))
    evidence = made_up(small_claim(arms=arms, statements=statements), MadeUp(QKV=1.0, Q_K=0.5))
    assert texts_of(plot_learning(evidence, statements[0])) == ["Q=K", "QKV"]
    assert "96 steps" not in describe_learning(evidence, statements[0])
    assert plot_learning(replace(evidence, curves={}), statements[0]) is None  # an older record


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


def told_of(claim, **options):
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
    assert not [attrs for tag, attrs in tags if "src" in attrs or tag == "link"]
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert not re.search(r"url\(|@import", styles)
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
    assert "Not on this page" in reader_of(told_of(CLAIMS[QUESTIONS["translation"].claims[0]])).text
    asked = {name for one in QUESTIONS.values() for name in one.claims}
    quick = [told_of(CLAIMS[name], quick=True, records=load_shipped()) for name in asked]
    text = reader_of(*quick).text
    assert ("{" in text, "Quick form" in text) == (False, True)
    assert "Quick form" not in page()[1].text
    changed = replace(told_of(claim), claim=replace(claim, prediction="It holds, as we now know."))
    for evidence, told in ((changed, True), (told_of(claim), False)):
        text = reader_of(evidence).text
        assert (seen_in_words(evidence.claim, evidence) in text, "(changed" in text) == (True, told)
    unknown = replace(claim, expected="did not hold", reason="")
    assert "reason is unknown" in reader_of(told_of(unknown)).text
    assert "Because so." in reader_of(told_of(replace(unknown, reason="Because so."))).text


def test_what_claims_say_is_no_markup():
    """Not in text, in attributes or in the data of figures."""
    hostile = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"&"
    claim = CLAIMS["two_roles"]
    statements = tuple(replace(one, text=hostile) for one in claim.statements)
    texts = dict.fromkeys(("title", "question", "source", "says", "prediction", "reason"), hostile)
    evidence = told_of(replace(claim, **texts, statements=statements))
    found = reader_of(replace(evidence, experiments=(hostile,), version=hostile))
    assert found.open == []
    assert not any(tag == "img" for tag, _ in found.tags)
    assert sum(tag == "script" for tag, _ in found.tags) == 5  # three figures, Plotly, ours
    assert hostile in unescape(found.text)
