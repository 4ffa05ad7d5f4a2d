"""Queries that are half the token and half an MLP of it, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="nonlinear_queries",
    title=mark("Nonlinear queries beat a query matrix, and 12.5% more parameters"),
    question=mark("W_Q can be left out. What is gained if its numbers are spent on a small MLP?"),
    source=mark("Karbevski 2026, arXiv 2603.13381 (GPT-3 small; one seed)"),
    says=mark(
        "Queries (x + f(x)) / 2, where f is an MLP as large as W_Q, lower the loss by 1.2 to 2.4%, "
        "more than a wider MLP does that gives the model 12.5% more parameters."
    ),
    prediction=mark(
        "It does not hold: with the learning rate tuned for every arm, the loss is lower than that "
        "of QKV, but not than that of a wider MLP. A copy of the source's repository reports that "
        "the gain vanishes if the rate of QKV is tuned."
    ),
    expected=Verdict.FAILED,
    seen_note=mark("The variant had not been trained when the prediction was committed."),
    arms=arms(
        "QKV",
        ("QKV query_mlp=m/2", "nonlinear queries"),
        ("QKV d_mlp=80", "QKV, 12.5% larger"),
        **TEXT,
    ),
    statements=(
        better(
            "nonlinear queries",
            "QKV",
            0,
            measure="loss",
            text=mark("On text, nonlinear queries have a lower loss than QKV"),
            opposite=mark("On text, nonlinear queries have a higher loss than QKV"),
        ),
        better(
            "nonlinear queries",
            "QKV, 12.5% larger",
            0,
            measure="loss",
            text=mark(
                "On text, nonlinear queries have a lower loss than QKV with a wider MLP and 12.5% "
                "more parameters in its layers"
            ),
            opposite=mark(
                "On text, nonlinear queries have a higher loss than QKV with a wider MLP and 12.5% "
                "more parameters in its layers"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
