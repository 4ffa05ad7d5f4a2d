"""Attention without W_V on a new task for a frozen embedding."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.one_embedding import ARMS
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="value_for_new_tasks",
    title=mark("A frozen embedding needs W_V for a new task"),
    question=mark("An embedding has learnt one task and is frozen. Does a new one need W_V?"),
    source=mark("the second answer, point 3, in a thread on the use of the value, Stack Exchange"),
    says=mark(
        "“Having learnable W_Vs allows more adaptability to different tasks, as well as allowing "
        "you to use the same basic embedding for different tasks …”"
    ),
    prediction=mark(
        "It does not hold: values are only ever read through the output matrix, and W_V W_O is one "
        "linear map as W_O alone is."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "Values are read only through the output matrix, and with one head W_V W_O is one linear "
        "map: W_O alone can be that map."
    ),
    seen_note=mark(
        "The prediction was written before any recorded run of this comparison and was not "
        "changed, but a first pass on other seeds was seen and the number of seeds was then raised "
        "from 12 to 20."
    ),
    arms=ARMS,
    statements=(worse("V=I", "QKV", unable=True),),
    n_seeds=160,
)
register_claim(CLAIM)
