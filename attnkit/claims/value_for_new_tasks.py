"""Whether it is the value matrix that lets a frozen embedding serve a new task."""

from attnkit.claims.base import Claim, register_claim, worse
from attnkit.claims.one_embedding import ARMS

register_claim(
    Claim(
        id="value_for_new_tasks",
        title="Is it W_V that adapts?",
        question="An embedding has learnt one task and is frozen. Does a new one need W_V?",
        source="the second answer, point 3, in a thread on the use of the value, Stack Exchange",
        says="“Having learnable W_Vs allows more adaptability to different tasks, as well as "
        "allowing you to use the same basic embedding for different tasks …”",
        prediction="Contradicted: values are only ever read through the output matrix, and "
        "W_V W_O is one linear map as W_O alone is.",
        expected="contradicted",
        reason="Values are only ever read through the output matrix, and with one head W_V W_O "
        "is one linear map: W_O alone can be that map.",
        arms=ARMS,
        statements=(worse("V=I", "QKV", unable=True),),
    )
)
