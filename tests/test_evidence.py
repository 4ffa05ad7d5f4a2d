"""Evidence in words and in figures: they tell the seeds as they are."""

import re
from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np
import pytest
from plotted import accepted
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import SCHEDULES, arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.presentation import (
    ClaimInWords,
    cache_in_words,
    claims_in_words,
    disagreement,
    readable,
    score_in_words,
    to_markdown,
)
from attnkit.evidence.questions import (
    QUESTIONS,
    WHY,
    Answer,
    Numbers,
    Sentence,
    answers_in_markdown,
)
from attnkit.evidence.record import Curve, Records, Tuned, load_shipped
from attnkit.evidence.words import (
    finding_in_words,
    main_finding,
    rises_in_words,
    statements_table,
    values_in_words,
)
from attnkit.figures.evidence import (
    describe_differences,
    describe_evidence,
    describe_learning,
    plot_differences,
    plot_evidence,
    plot_learning,
)
from attnkit.training.statistics import mean_interval, median_interval
from attnkit.ui.claims import guess_in_words
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

HELD, FAILED, UNDECIDED = Verdict
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
    tuned, scores = {name: Tuned(0.005) for name in scores}, {name: scores[name] for name in only}
    evidence = made_up(CLAIM, MadeUp(), first_seed=3)
    return replace(evidence, claim=claim, scores=scores, tuned=tuned)


def texts_of(figure):
    """Return the labels of the lines of a figure of learning, in one line each."""
    labels = [one for one in figure["layout"]["annotations"] if one.get("showarrow", True)]
    return [one["text"].replace("<br>", " ") for one in labels]


def names_in(figure):
    """Return the names beside the rows."""
    return figure["layout"]["yaxis"]["ticktext"]


def marks(figure):
    """Return the traces of seeds and those of means."""
    seeds = [trace for trace in figure["data"] if trace["marker"]["size"] <= 10]
    return seeds, [trace for trace in figure["data"] if trace not in seeds]


LONG = {**TINY, "up_to": 8}
MARRIED = {**TINY, "task": "mutual", "n_entries": 6}
SLOW = small_claim(
    arms=(arm("Q=K", **LONG), arm("QKV", **LONG)),
    statements=(worse("Q=K", "QKV", 2, measure="steps_to_solve", at=8),),
)


def test_a_row_is_an_arm_with_its_seeds_their_average_and_interval():
    """In the order of the claim, though the record has another; the mean of losses alone."""
    figure, told = plot_evidence(made(only=("Q=K", "QKV"))), describe_evidence(made())
    assert [name.partition("<br>")[0] for name in names_in(figure)] == ["QKV", "Q=K"]
    assert "4 of 7" in names_in(figure)[0]
    assert "QKV: median 96% [90% to 100%], 7 seeds" in told
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
    assert f"{chance:.3g}%" in figure["layout"]["annotations"][0]["text"]
    of_losses = made(replace(CLAIM, statements=CLAIM.statements[1:]))
    loss = plot_evidence(of_losses)  # in nats, all of them inside the axis, without chance
    assert loss["layout"]["annotations"] == []
    assert marks(loss)[0][0]["x"] == pytest.approx(LOSS_QKV)
    assert marks(loss)[1][0]["x"] == pytest.approx([float(mean_interval(LOSS_QKV).mean)])
    assert "QKV: mean 0.260 nats [" in describe_evidence(of_losses)


def test_diverged_seeds_and_what_is_missing_are_left_out_and_told():
    """A measure that an arm has not, and of a run that goes on: an arm, all seeds, all but one."""
    lost, nothing = np.array([np.nan, 0.5, np.nan, *[0.5] * 4]), np.full(7, np.nan)
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
    for plot in (plot_evidence, plot_differences):
        for values in (nothing, np.array([0.5, *nothing[1:]])):
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
    given = {**MARRIED, "up_to": 8, "steps": 9}
    married = (arm(text, f"{text}, married", **given) for text in ("Q=K", "QKV"))
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
    arms = (arm("K=V", **text), arm("QKV", **text))
    claim = small_claim(arms=arms, statements=(no_worse("K=V", "QKV", measure="loss", at=4),))
    evidence = made_up(claim, MadeUp(QKV=-1.0, K_V=[-2.0, -1.5, -1.2]))
    shapes = plot_learning(evidence)["layout"]["shapes"]
    to_beat = arms[0].experiment.task.loss_to_beat
    assert [one["y0"] for one in shapes if one["y0"] == one["y1"]] == [to_beat]
    told = describe_learning(evidence)
    for loss, steps in ((3.0, 8), (2.5, 16), (2.2, 32)):
        assert f"{loss:.2f} nats after {steps} steps" in told
    arms = (*small_claim().arms, arm("Q=K", "Q=K, married", **MARRIED))
    statements = (worse("Q=K", "QKV", unable=True), worse("Q=K, married", "QKV"))
    evidence = unable(small_claim(arms=arms, statements=statements))
    assert texts_of(plot_learning(evidence, statements[0])) == ["Q=K", "QKV"]
    assert "96 steps" not in describe_learning(evidence, statements[0])
    assert plot_learning(replace(evidence, curves={}), statements[0]) is None  # an older record


def test_every_claim_has_its_figures_its_table_and_its_lines():
    """Every arm and statement is drawn, and how arms learn if any of them trains for long."""
    for words in claims_in_words(load_shipped()):
        evidence = words.evidence
        with about(words.claim):
            rows, differences = plot_evidence(evidence), plot_differences(evidence)
            shown = len(evidence.scores) - len(evidence.rivals)
            assert len(rows["layout"]["yaxis"]["tickvals"]) == shown
            assert len(differences["layout"]["annotations"]) == len(evidence.statements)
            assert len(statements_table(evidence).rows) == len(evidence.statements)
            long = {one.name for one in evidence.arms.values() if one.up_to > 1}
            learning = plot_learning(evidence)
            assert (learning is not None) == bool(long & {*evidence.scores})
            for figure in (rows, differences, learning):
                assert figure is None or accepted(figure)
            accepted(plot_learning(evidence, words.claim.statements[0]))
            words_of_all = [*words.facts.values(), rises_in_words(evidence)]
            assert not any("{" in text for text in words_of_all)


def unable(claim, **options):
    """Return evidence that Q=K is worse."""
    return made_up(claim, MadeUp(QKV=1.0, Q_K=0.5), **options)


def claim_of(*statements, **given):
    """Return a small claim with other statements."""
    return small_claim(statements=statements, **given)


def numbers_in(text):
    """Return the numbers of a sentence, in their order."""
    found = re.findall(r"[+−]?(?:\d[\d,]*(?:\.\d+)?|∞)", text)
    return [float(one.replace("−", "-").replace(",", "").replace("∞", "inf")) for one in found]


def test_values_are_means_or_medians_in_the_unit_of_the_measure():
    """Shares in whole percent, losses with two decimals; two differences of four arms."""
    steps, hand = {"measure": "steps_to_solve"}, ("By hand", "Not by hand")
    four = {"second_left": "K=V", "second_right": "QKV"}
    expected = {
        worse("Q=K", "QKV"): "50% against 99%",
        worse("K=V", "QKV"): "diverged against 99%",
        worse("Q=K", "QKV", measure="loss"): "0.50 against 0.00 nats",
        Statement(*hand, "Q=K", "QKV", "loss", high=0.1, **four): "0.50 against diverged nats",
        worse("Q=K", "QKV", 2, **steps): "against 1,024 steps, median",
        worse("QKV", "Q=K", 2, **steps): "1,024 steps against ",
        worse("K=V", "Q=K", 2, **steps): "with both, median",
        Statement(*hand, "QKV", measure="loss", high=0.5): "0.00 nats",
    }
    evidence = made_up(claim_of(*expected), MadeUp(Q_K=0.5, QKV=0.999, K_V=nan))
    for name, solved_at in (("Q=K", inf), ("K=V", inf), ("QKV", 10)):
        evidence.scores[name]["steps_to_solve"] = np.full((1, 17), float(solved_at))
    for finding in evidence.findings:
        told = values_in_words(evidence, finding)
        assert expected[finding.statement] in told
        assert told.endswith(", 17 seeds")


def test_where_some_seeds_differ_their_numbers_are_told():
    """The words give how many seeds fall behind, how many are ahead, and how many solve it."""
    for statement, n in ((worse("Q=K", "QKV"), 8), (better("QKV", "Q=K"), 1)):
        evidence = made_up(claim_of(statement), MadeUp(QKV=1.0, Q_K=1.0))
        evidence.scores["Q=K"]["accuracy"][0, :n] = 0.2
        evidence.scores["QKV"]["accuracy"][0, -2:-1] = 0.2
        (finding,) = evidence.findings
        told = values_in_words(evidence, finding)
        solved = [16, 17, 17 - n, 17] if n == 1 else [17 - n, 17, 16, 17]
        assert numbers_in(told) == [n, 17, 1, *solved]
        assert told in ClaimInWords(evidence.claim, evidence, finding.verdict).found
        assert "more often" in statements_table(evidence).rows[0][0]


def test_the_main_statement_is_the_first_that_decides():
    """So what is found agrees with the verdict; what only stands alone is called probable."""
    claim = claim_of(no_worse("K=V", "QKV"), no_worse("Q=K", "QKV"))
    evidence = made_up(claim, MadeUp(QKV=1.0, K_V=1.0, Q_K=0.5))
    assert main_finding(evidence, FAILED).statement == claim.statements[1]
    told = ClaimInWords(claim, evidence, FAILED).found
    assert told == f"{claim.statements[1].opposite} (50% against 100%, 17 seeds)."
    part = claim_of(worse("Q=K", "QKV"), worse("K=V", "QKV"))
    some = made_up(part, MadeUp(QKV=1.0, K_V=1.0, Q_K=0.5))
    some.scores["K=V"]["accuracy"][0, :7] = 0.5
    assert main_finding(some, UNDECIDED) == some.findings[1]
    one = unable(claim_of(worse("Q=K", "QKV")))
    for evidence, verdict, is_probable in (
        (one, HELD, False),
        (one, UNDECIDED, True),
        (made_up(one.claim, MadeUp(QKV=nan)), UNDECIDED, False),
    ):
        assert ("probably" in ClaimInWords(one.claim, evidence, verdict, 2).found) == is_probable


def test_a_statement_is_told_in_three_cells():
    """Failures of both arms, pairs and difference stand in the middle, then the verdict."""
    evidence = unable(small_claim())
    (text, numbers, verdict), (_, longer, _), _ = statements_table(evidence).rows
    counts, _, rest = finding_in_words(evidence.findings[0]).partition("; ")
    assert (text, verdict) == (evidence.statements[0].text, "✓ held")
    beginning = f"Solved: Q=K: 0 of 17; QKV: 17 of 17. Seeds: {counts}"
    assert numbers.startswith(beginning)
    rivals, _, difference = numbers.removeprefix(beginning).partition(" Difference: ")
    assert (numbers_in(rivals), difference) == ([len(evidence.rivals)], f"{rest}.")
    assert longer.startswith("Solved: Q=K, 96 steps, constant rate: 0 of 17; ")
    ((_, loss, _),) = statements_table(unable(claim_of(worse("Q=K", "QKV", measure="loss")))).rows
    assert (loss.partition(":")[0], numbers_in(loss)) == ("Difference", [0.5, 0.5, 0.5])
    rising = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    assert all(f"{one} rate still rises" in rises_in_words(rising) for one in SCHEDULES)
    able = small_claim(arms=tuple(arm(v, up_to=8, **TINY) for v in ("Q=K", "QKV", "K=V")))
    assert "Q=K has stopped rising by 48" in rises_in_words(unable(able, quick=True))
    assert rises_in_words(unable(claim_of(no_worse("Q=K", "QKV")))) == ""


def test_sizes_of_caches_are_told_as_far_as_they_differ():
    """Three layers keep keys and values of six numbers; a key can be rotated again."""
    recall = {"task": "mqar", "d_model": 16, "d_head": 6, "n_layers": 3}
    for variants, positions, sizes in (
        (("K=V", "Q=K=V"), "rope", [36, 18]),
        (("QKV", "Q=V"), "none", [36]),
        (("QKV", "K=V", "K=V rotate_values"), "rope", [36, 36, 18, 18]),
    ):
        arms = tuple(arm(variant, positions=positions, **recall) for variant in variants)
        claim = small_claim(arms=arms, statements=[no_worse(v, variants[0]) for v in variants[1:]])
        assert numbers_in(cache_in_words(claim)) == sizes


def test_tables_have_a_line_for_every_claim_and_the_score_of_all():
    """A prediction is told where something else came."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong", seen="a prototype"), MadeUp(QKV=1.0, Q_K=1.0))
    records = Records.of([right, wrong, made_up(small_claim("open"), MadeUp(QKV=nan))])
    assert numbers_in(score_in_words(records)) == [1, 2, 0, 1]
    lines = [line.split()[:3] for line in readable(records).splitlines()[1:3]]
    assert lines == [["right", "held", "nothing"], ["wrong", "undecided", "held"]]


def test_a_guess_is_judged_by_what_is_shipped_or_else_by_the_run():
    """A run that disagrees is explained, by its seeds and those of the record."""
    for own, shipped, told in ((1.0, HELD, "no verdict"), (0.5, FAILED, "opposite")):
        run = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=own), quick=True)
        text = disagreement(ClaimInWords(run.claim, unable(run.claim), shipped), run)
        assert (told in text, numbers_in(text)) == (True, [8, 17])
        assert disagreement(ClaimInWords(run.claim), run) == ""
    for run, shipped, is_right in (
        (HELD, None, True),
        (UNDECIDED, HELD, True),
        (HELD, UNDECIDED, False),
    ):
        assert ("right" in guess_in_words(HELD, run, shipped)) is is_right


def well_formed(*sentences):
    """Hold sentences against what all have: nothing unfilled or missing, and an end."""
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z“](?!.*([{}]|\bnan\b|  )).*[.?]", sentence, re.DOTALL), sentence


def test_a_question_can_be_asked_guessed_and_answered():
    """Its answer begins with its verdict word; its numbers are told as far as they are known."""
    evidence = load_shipped()
    for question in QUESTIONS.values():
        assert question.title.endswith("?")
        assert sorted(question.guesses.values()) == sorted(Verdict)
        sentences = (*question.conclusion, *question.reason)
        parts = {part.claim for part in (*sentences, *question.numbers)}
        assert parts <= set(question.claims) <= set(CLAIMS)
        assert question.claims[0] in {part.claim for part in question.conclusion}
        for verdict, reply in product(Verdict, question.conclusion):
            text, probable = (reply.answer(verdict, v) for v in (verdict, UNDECIDED))
            (begin,) = re.match(r"(Yes|No|Not decided)\b", text).groups()
            assert (begin == "Not decided") == (verdict is UNDECIDED)
            assert probable.startswith(
                {"Yes": "Probably yes", "No": "Probably not"}.get(begin, begin)
            )
        texts = [sentence.text(verdict) for sentence in sentences for verdict in Verdict]
        assert not re.search(r"\d", " ".join(texts))
        answer = Answer(question, evidence)
        well_formed(*texts, *answer.numbers, answer.conclusion, answer.reason)
        assert len(answer.conclusion.split()) <= 20
        assert all(re.search(r"\d", text) and "not run" not in text for text in answer.numbers)
        missing = question.numbers[0].claim
        some = Answer(question, Records({n: one for n, one in evidence.items() if n != missing}))
        assert some.numbers == answer.numbers[1:]
        nothing = Answer(question, Records())
        assert (nothing.reason, nothing.conclusion, nothing.numbers) == ("", "", [])
    for reply in WHY.conclusion:
        texts = [reply.answer(*pair) for pair in product(Verdict, repeat=2)]
        assert (len(set(texts)), ["probably" in text for text in texts].count(True)) == (5, 4)
    failed = [name for name, verdict in evidence.verdicts.items() if verdict is FAILED]
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
    claim = claim_of(worse("Q=K", "QKV"), no_worse("K=V", "QKV"), n_seeds=40)
    record = made_up(claim, MadeUp(**{"QKV": 1.0, **accuracy}))
    begin = ("{Yes|Probably yes}", "{No|Probably not}", "Not decided")
    replies = tuple(
        Sentence(claim.id, *(f"{one} for {what}." for one in begin), statement=at)
        for at, what in enumerate("ab")
    )
    records = Records({claim.id: record} | {f"other {n}": record for n in range(1, n_together)})
    assert Answer(replace(QUESTIONS["value"], conclusion=replies), records).conclusion == told
    records.verdicts = {claim.id: UNDECIDED}
    sentence = Sentence(claim.id, "Yes.", "No.", "Open.")
    assert sentence.verdicts(records) == (record.judgement.verdict, UNDECIDED)
    assert sentence.text(UNDECIDED) == "Open."


def test_numbers_are_means_over_seeds_at_multiples_of_the_steps():
    """In whole percent, with the solved runs where some are; losses as they are."""
    own = {
        "accuracy": np.array([[0.1, 0.3], [0.2, 0.6], [0.96, 0.7], [1.0, 0.95]]),
        "asymmetry": np.array([[0.25, 0.5]]),
        "loss": np.array([[1.25, 0.75], [0.5, 0.25]]),
    }
    accuracy = np.array([[0.1, 0.2], [0.96, 0.2], [1.0, 1.0]])
    curve = Curve.of(np.array([150.0, 300.0, 450.0]), accuracy, "accuracy")
    shipped, scores = load_shipped()["direction"], {"Q=K": own, "QKV": own}
    record = replace(shipped, scores=scores, curves={"Q=K": curve})

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
    shipped, bench = load_shipped(), MadeUp()
    lost = Records(shipped)
    for name, one in shipped.items():
        nothing = {arm: {m: v * nan for m, v in own.items()} for arm, own in one.scores.items()}
        lost[name] = replace(one, scores=nothing)
    planned = Records.of(
        made_up(CLAIMS[name], bench, quick=True, records=shipped) for name in shipped
    )
    for records, parts in (
        (lost, ("(diverged)", "more than we gave")),
        (planned, ("not run",)),
    ):
        answers = [Answer(question, records) for question in QUESTIONS.values()]
        told = [text for answer in answers for text in answer.numbers]
        well_formed(*told, *filter(None, (answer.reason for answer in answers)))
        assert all(any(part in text for text in told) for part in parts)
    assert all([to_markdown(planned), answers_in_markdown(planned), planned.to_json()])
