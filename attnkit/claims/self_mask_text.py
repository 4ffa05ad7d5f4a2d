"""Q=K and QKV on text, each with and without the self-mask."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.reformer_text import ARMS, UP_TO
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="self_mask_text",
    title=mark("On text, Q=K falls behind QKV only without the self-mask"),
    question=mark(
        "Q=K is worse than QKV on text. Is sharing the cause, or that a token attends to itself?"
    ),
    source=mark("attnkit's own, after Kitaev et al. 2020, arXiv 2001.04451, section 2"),
    says=mark("With the self-mask in both, Q=K loses nothing; without it in either, it does."),
    prediction=mark(
        "It holds: in an audit of 600 steps Q=K without the self-mask lost 0.4 nats, and with it "
        "gained 0.08 on QKV without it. QKV with the self-mask was not in the audit; it should be "
        "about as good as without."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark("An audit with four seeds and 600 steps had shown three of the four arms."),
    arms=ARMS,
    statements=(
        worse(
            "Q=K",
            "QKV",
            0.03,
            measure="loss",
            at=UP_TO,
            text=mark(
                "On text without the self-mask, Q=K is worse than QKV by more than 0.03 nats"
            ),
            opposite=mark("On text without the self-mask, Q=K is at most 0.03 nats worse than QKV"),
        ),
        no_worse(
            "Q=K, self-mask",
            "QKV, self-mask",
            0.03,
            measure="loss",
            at=UP_TO,
            text=mark("On text with the self-mask, Q=K is at most 0.03 nats worse than QKV"),
            opposite=mark(
                "On text with the self-mask, Q=K is worse than QKV by more than 0.03 nats"
            ),
        ),
    ),
    n_seeds=20,
    family="Our own",
)
register_claim(CLAIM)
