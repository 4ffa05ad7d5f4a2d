"""Learnt and random value matrices in narrow heads on a frozen embedding."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="narrow_heads_new_task",
    title=mark("On a frozen embedding, several narrow heads lose without a learnt value matrix"),
    question=mark(
        "An embedding has learnt one task and is frozen. Four heads read 16 of its 32 numbers. "
        "Must they learn which?"
    ),
    source=mark(
        "attnkit's own, after the second answer, point 3, in a thread on the use of the value, "
        "Stack Exchange"
    ),
    says=mark(
        "“Having learnable W_Vs allows more adaptability to different tasks, as well as allowing "
        "you to use the same basic embedding for different tasks …” One wide head does not need "
        "it."
    ),
    prediction=mark(
        "It holds: the embedding cannot move what the new task asks for into the numbers that "
        "random value matrices read, so models with these are worse by more than 5 points."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "Learnt value matrices do help, by less than the limit of 5 points: all 60 seeds with them "
        "have at least 99% right, and 5 of 60 with random ones, which have 97% on average."
    ),
    seen_note=mark(
        "Random value matrices had not been trained when the prediction was committed; with one "
        "head as wide as the model, V=I had done as well as QKV on this task."
    ),
    arms=arms(
        ("QKV n_heads=4 d_head=4", "learnt, 4 wide"),
        ("QKV n_heads=4 d_head=4 fixed_values", "random, 4 wide"),
        ("QKV n_heads=4 d_head=m/h", "learnt, 8 wide"),
        ("QKV V=I n_heads=4 d_head=m/h", "V=I, 8 wide"),
        task="transfer",
    ),
    statements=(
        worse(
            "random, 4 wide",
            "learnt, 4 wide",
            text=mark(
                "On a frozen embedding, four heads of 4 numbers with random value matrices are "
                "worse than with learnt ones by more than 5 points"
            ),
            opposite=mark(
                "On a frozen embedding, four heads of 4 numbers with random value matrices are at "
                "most 5 points worse than with learnt ones"
            ),
            more_often=mark(
                "On a frozen embedding, four heads of 4 numbers with random value matrices fall "
                "behind those with learnt ones more often"
            ),
        ),
    ),
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
