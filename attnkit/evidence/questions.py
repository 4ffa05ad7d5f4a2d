"""Answers to five threads that ask why the projections differ, made from evidence for claims.

A sentence of an answer has one text for each verdict on its claim: held, did not hold, undecided.
Its numbers are filled in from the evidence, so new evidence gives new answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.evidence.record import Evidence
from attnkit.training.summary import percent


@dataclass(frozen=True)
class Sentence:
    """A sentence of an answer, with one template per verdict.

    In templates `{arm}` is the mean accuracy of an arm in percent, `{arm:loss}` its mean of another
    measure, and `{arm:solved}` the number of its runs that have solved the task, all after the base
    steps. `{arm:@8}`, `{arm:loss@8}` and `{arm:solved@8}` are read at 8 times the base steps.
    `{arm:steps}` is the median number of steps to solve the task, and `{arm:rises}` says whether
    accuracy still rises at the last step.

    Attributes:
        claim: Id of the claim whose verdict selects the template.
        held: Template if the claim held.
        failed: Template if the claim did not hold.
        undecided: Template if the claim is undecided.
    """

    claim: str
    held: str
    failed: str
    undecided: str

    def template(self, verdict: Verdict) -> str:
        """Return the template for a verdict."""
        templates: dict[Verdict, str] = {
            "held": self.held,
            "did not hold": self.failed,
            "undecided": self.undecided,
        }
        return templates[verdict]

    def in_words(self, evidence: Evidence, verdict: Verdict) -> str:
        """Return the sentence for a verdict, with the numbers of the evidence."""
        return self.template(verdict).format_map(_Numbers(evidence))


@dataclass(frozen=True)
class Question:
    """A question that a thread asks, and its answer.

    Attributes:
        id: Identifier in links.
        title: The question in a few words.
        asked: Quotation from the thread.
        source: Citation of the thread.
        answer: Sentences of the answer.
        claims: Ids of the claims that the answer rests on. The page plots the first one, and
            visitors can run it again.
        guess: Question about the first claim, for a visitor who has not seen the answer.
        guesses: Possible answer to `guess` → the verdict that it predicts.
    """

    id: str
    title: str
    asked: str
    source: str
    answer: tuple[Sentence, ...]
    claims: tuple[str, ...]
    guess: str
    guesses: Mapping[str, Verdict]


class _Numbers(dict[str, "_Number"]):
    """Values that templates can name: the arms of the evidence."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__({name: _Number(evidence, name) for name in evidence.scores})


@dataclass(frozen=True)
class _Number:
    """Results of an arm, formatted as `Sentence` describes."""

    evidence: Evidence
    arm: str

    def __format__(self, spec: str) -> str:
        if spec == "rises":
            rises = self.evidence.still_rises(self.arm)
            return "and it still rises" if rises else "where it no longer rises"
        if spec == "steps":
            doublings = self.evidence.scores[self.arm]["steps_to_solve"][-1]
            median = np.median(np.where(np.isnan(doublings), np.inf, doublings))
            return f"{2**median:,.0f} steps" if np.isfinite(median) else "more steps than we gave"
        name, _, times = spec.partition("@")
        measure, at = name or "accuracy", int(times or 1)
        if measure == "solved":
            n_solved, n = self.evidence.n_solved(self.arm, at)
            return f"{n_solved} of {n}"
        mean = self.evidence.mean(self.arm, measure, at)
        if np.isnan(mean):
            return "nothing (diverged)"
        if measure in ("loss", "asymmetry"):
            return f"{mean:.2f}"
        return percent(mean) if mean < 0.99 else f"{math.floor(1000 * mean) / 10:g}%"


def answer_sentences(
    question: Question, records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> list[str]:
    """Return the sentences of an answer whose claims have evidence.

    Args:
        question: The question.
        records: Id of the claim → its evidence.
        verdicts: Id of the claim → its verdict.
    """
    return [
        sentence.in_words(records[sentence.claim], verdicts[sentence.claim])
        for sentence in question.answer
        if sentence.claim in records
    ]


_UNDECIDED = "These seeds will not tell"

_ON_TEXT = (
    "In a text model after 4,800 steps one matrix for both has a loss of {K=V:loss@8} nats, two "
    "have {QKV:loss@8}; with one a decoder has to store half as much for each token."
)

_ON_TEXT_ONE = (
    "On text, after 4,800 steps, one matrix for all has a loss of {Q=K=V:loss@8} nats, three have "
    "{QKV:loss@8}. Part of the difference is that characters attend to themselves: Q=K has "
    "{Q=K:loss@8}, and with a self-mask, which prevents that, {Q=K, self-mask:loss@8} (QKV "
    "{QKV, self-mask:loss@8})."
)

_KEY_AND_VALUE = (
    "The key decides how much attention a token gets; the value is what the token then passes on. "
    "In the same way a phone book is searched by name and gives a number."
)

_WITHOUT_VALUE = (
    "Without it models with one layer get {V=I, phone book} of a phone book right and "
    "{V=I, reports to} of who reports to whom, with it {QKV, phone book} and {QKV, reports to}."
)

_MUTUAL = (
    "Q=K looks up {Q=K, phone book} of a phone book and finds {Q=K, married} of who is married to "
    "whom, QKV {QKV, phone book} and {QKV, married}. In heads 2 wide {Q=K, 2 wide:solved@8} runs "
    "of Q=K have learnt the book after 4,800 steps, {QKV, 2 wide:solved@8} of QKV"
)

_TRANSLATIONS = (
    "of the letters of translated names, given the right letters before, K=V gets "
    "{K=V, names:@4} right, QKV {QKV, names:@4}, attention without any matrix "
    "{no matrix, names:@4}; of the words of a dictionary {K=V, dictionary}, {QKV, dictionary} and "
    "{no matrix, dictionary}"
)

_STEPS = (
    "in heads 3 numbers wide half of the runs of K=V have solved a phone book after "
    "{K=V, 3 wide:steps} (QKV {QKV, 3 wide:steps}), in heads 8 wide after "
    "{K=V, 8 wide:steps} (QKV {QKV, 8 wide:steps})"
)

_NEW_TASK = "{V=I:solved} runs solve it without W_V, {QKV:solved} with it"

_NO_MATRIX = (
    "Without any matrix, in the “original embedding space”, {no matrix:solved} runs answer the new "
    "question: questions then attend to themselves and to each other. If no token may attend to "
    "itself (self-mask), {no matrix, self-mask:solved} do."
)

_HEADS = (
    "after 12,000 steps one head has {Q=K:@8} right, two {Q=K, 2 heads:@8}, four "
    "{Q=K, 4 heads:@8}; four heads a quarter as wide {Q=K, 4 heads of 4:@8}"
)

_NARROW = (
    "in heads 3 numbers wide {K=V, 3 wide:solved} runs of K=V have solved a phone book after 600 "
    "steps, {K=V, 3 wide:solved@8} after 4,800 and {K=V, 3 wide:solved@32} after 19,200 (QKV "
    "{QKV, 3 wide:solved} and {QKV, 3 wide:solved@32}); in heads 2 wide {K=V, 2 wide:solved@8} "
    "after 4,800 (QKV {QKV, 2 wide:solved@8})"
)

_PARAMETERS = (
    "with as many attention parameters as QKV has in heads 3 wide (K=V 4 wide) "
    "{K=V, 4 wide:solved} runs solve a phone book within 600 steps, with a quarter more (5 wide) "
    "{K=V, 5 wide:solved}, with half as many again (6 wide) {K=V, 6 wide:solved}; QKV "
    "{QKV, 3 wide:solved}"
)

_ONE_MATRIX = (
    "{Q=K=V, married:solved} runs find spouses (three matrices {QKV, married:solved}), "
    "{Q=K=V, phone book:solved} look up a phone book ({QKV, phone book:solved}), and who reports "
    "to whom is {Q=K=V, reports to} right after 600 steps and {Q=K=V, reports to:@8} after 4,800 "
    "({QKV, reports to} and {QKV, reports to:@8})"
)

_SCORES = (
    "A score between two spaces is a learnt relation, and it becomes as symmetric as the "
    "relation: with free matrices its asymmetry is {QKV, married:asymmetry} for spouses and "
    "{QKV, reports to:asymmetry} for who reports to whom (0 is symmetric, ½ is unrelated; before "
    "training it is about 0.43). Symmetric does not mean similar: trained on spouses, hardly "
    "anybody (3 in 1,000) scores highest with themselves."
)

QUESTIONS: tuple[Question, ...] = (
    Question(
        id="translation",
        title="Why are K and V not the same in translation?",
        asked="My understanding is for translation task K should be the same with V, but in "
        "Transformer K and V are generated by two different(randomly initialized) matrix … Can any "
        "one tell me why?",
        source="eric2323223, “Why K and V are not the same in Transformer attention?”, Stack "
        "Exchange 2019",
        answer=(
            Sentence(
                "cross_attention",
                held=f"They translate better if they differ: {_TRANSLATIONS}.",
                failed=f"In small translations they can be the same: {_TRANSLATIONS}. But these "
                "need no matrix at all, so they cannot show what real translation would lose.",
                undecided=f"Our small translations do not decide it: {_TRANSLATIONS}.",
            ),
            Sentence(
                "narrow_head_slow",
                held=f"Sharing costs time, most where a head is narrow: {_STEPS}.",
                failed=f"Sharing costs some time: {_STEPS}.",
                undecided=f"Sharing seems to cost time, most where a head is narrow: {_STEPS}.",
            ),
            Sentence("ranking", *[_ON_TEXT] * 3),
        ),
        claims=("cross_attention", "narrow_head_slow", "ranking", "mqa_stacks"),
        guess="Train both on two small translations. Will K=V be worse?",
        guesses={
            "Yes, it will be worse": "held",
            "No, it will do as well": "did not hold",
            _UNDECIDED: "undecided",
        },
    ),
    Question(
        id="value",
        title="What is the value matrix for?",
        asked="Now, why do I need to multiply this with the value matrix again, and where does it "
        "come from? What's the difference between key and value?",
        source="a thread on the use of the value in self-attention, Stack Exchange",
        answer=(
            Sentence(
                "no_value",
                held=f"{_KEY_AND_VALUE} It need not be multiplied with a matrix: the output matrix "
                f"that follows reads what it needs. {_WITHOUT_VALUE}",
                failed=f"{_KEY_AND_VALUE} Without the matrix something is lost. {_WITHOUT_VALUE}",
                undecided=f"{_KEY_AND_VALUE} Whether that needs a matrix is not decided. "
                f"{_WITHOUT_VALUE}",
            ),
            Sentence(
                "value_for_new_tasks",
                held=f"The matrix helps when a frozen embedding meets a new question: {_NEW_TASK}.",
                failed="A frozen embedding that meets a new question does not need it either, "
                f"because the output matrix can do the same: {_NEW_TASK}.",
                undecided="Whether it helps when a frozen embedding meets a new question is not "
                f"decided: {_NEW_TASK}.",
            ),
            Sentence("one_embedding", *[_NO_MATRIX] * 3),
        ),
        claims=("no_value", "value_for_new_tasks", "one_embedding"),
        guess="Take the value matrix away. Will models do worse?",
        guesses={
            "No, they will do as well": "held",
            "Yes, something will be lost": "did not hold",
            _UNDECIDED: "undecided",
        },
    ),
    Question(
        id="two_spaces",
        title="Must queries and keys live in different spaces?",
        asked='My question is now, how important actually is the aspect of "different spaces"? … '
        "What if we only use 1 weight matrix? … Wouldn't we still be able to find useful "
        "connections for each input?",
        source="a thread on W_Q and W_K, Stack Exchange 2023",
        answer=(
            Sentence(
                "shared_qk",
                held=f"It depends on the relation. For a mutual one they need not, in heads 8 "
                f"wide: {_MUTUAL}.",
                failed=f"Even for a mutual relation something is lost: {_MUTUAL}.",
                undecided=f"It depends on the relation. For a mutual one Q=K does as well with "
                f"most seeds, in heads 8 wide: {_MUTUAL}.",
            ),
            Sentence(
                "direction",
                held="For a relation with a direction one head must not use the same matrix for "
                "both: then the score of Ada for Cem equals that of Cem for Ada. Asked "
                "whom Ada reports to, Q=K is right in {Q=K}, and after 32 times the steps in "
                "{Q=K, 19,200 steps:@32}, {Q=K, 19,200 steps:rises}; QKV in {QKV}. One matrix on "
                "one side is enough: with keys that are the tokens themselves (K=I) {K=I:solved} "
                "runs learn it.",
                failed="A relation with a direction does not need them, either: Q=K finds whom Ada "
                "reports to with {Q=K}, QKV with {QKV}.",
                undecided="For a relation with a direction it is not decided: Q=K finds whom Ada "
                "reports to with {Q=K}, QKV with {QKV}.",
            ),
            Sentence(
                "heads_buy_direction",
                held=f"Two or four heads as wide as the one make up for much of it: {_HEADS}.",
                failed=f"Several heads do not make up for it: {_HEADS}.",
                undecided=f"Whether several heads make up for it is not decided: {_HEADS}.",
            ),
        ),
        claims=(
            "direction",
            "shared_qk",
            "two_roles",
            "heads_buy_direction",
            "mlp_buys_direction",
            "layer_buys_direction",
            "self_mask_needed",
            "reformer_text",
            "self_mask_text",
        ),
        guess="Ada reports to Cem, Cem to Dia. Will Q=K fall behind QKV in finding whom Ada "
        "reports to?",
        guesses={
            "Yes, it cannot tell direction": "held",
            "No, it will learn it": "did not hold",
            _UNDECIDED: "undecided",
        },
    ),
    Question(
        id="expressiveness",
        title="What expressiveness does K=V lose, and how many parameters buy it back?",
        asked="Could you please explain more about \"you'll lose a lot of expressiveness and might "
        'need much more parameters to achieve similar performances" ?',
        source="a comment on “Why K and V are not the same in Transformer attention?”, Stack "
        "Exchange 2019",
        answer=(
            Sentence(
                "narrow_head",
                held=f"In heads 3 wide K=V still lags after 32 times the steps: {_NARROW}.",
                failed=f"In heads 3 wide it loses speed of learning, not ability: {_NARROW}.",
                undecided="It loses speed of learning in narrow heads; whether it also loses "
                f"ability is not decided: {_NARROW}.",
            ),
            Sentence(
                "parameters",
                held=f"Somewhat wider heads make up for it: {_PARAMETERS}.",
                failed=f"K=V does not need half as many parameters again: {_PARAMETERS}.",
                undecided=f"How many parameters make up for it is not decided: {_PARAMETERS}.",
            ),
            Sentence(
                "alike_keys",
                held="The reason given in the thread holds: where names are nearly alike and "
                "their numbers differ, K=V gets {K=V} right, QKV {QKV}.",
                failed="The reason given in the thread, alike keys with different values, is not "
                "the cause: with names whose vectors have a cosine of 0.99, K=V gets {K=V} right "
                "and QKV {QKV} in heads 16 wide, because the shared vector holds the number beside "
                "the name, so the keys are no longer alike.",
                undecided="Whether the reason given in the thread holds, alike keys with different "
                "values, is not decided: K=V gets {K=V} right, QKV {QKV}.",
            ),
        ),
        claims=(
            "narrow_head",
            "narrow_head_slow",
            "parameters",
            "alike_keys",
            "ranking",
            "tie_average",
        ),
        guess="Make heads 3 numbers wide and train for 32 times the usual steps. Will K=V still be "
        "worse than QKV?",
        guesses={
            "Yes, it stays behind": "held",
            "No, it catches up": "did not hold",
            _UNDECIDED: "undecided",
        },
    ),
    Question(
        id="one_matrix",
        title="Why not one matrix for all three?",
        asked="My question is why the attention head matrices … should not be the same W = W_Q = "
        "W_K = W_V. … What does it mean to calculate the score as the dot-product of two vectors "
        "from two different semantic subspaces? Is this still some kind of similiarity …?",
        source="Hans-Peter Stricker, Stack Exchange",
        answer=(
            Sentence(
                "one_matrix",
                held=f"It can be one matrix in all that we tried: {_ONE_MATRIX}.",
                failed="The same matrix for all three is enough for spouses, and for a phone book "
                "with most seeds; but one head then scores both directions alike, so it cannot "
                f"tell who reports to whom: {_ONE_MATRIX}.",
                undecided=f"It is not decided: {_ONE_MATRIX}.",
            ),
            Sentence("symmetry_follows", *[_SCORES] * 3),
            Sentence("ranking", *[_ON_TEXT_ONE] * 3),
        ),
        claims=("one_matrix", "symmetry_follows", "ranking"),
        guess="One matrix for all on three relations. Will it do as well as three?",
        guesses={
            "Yes, on all of them": "held",
            "No, not on all": "did not hold",
            _UNDECIDED: "undecided",
        },
    ),
)
"""The five questions, in the order of the page."""
