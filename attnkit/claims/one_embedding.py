"""A new question to an embedding that is frozen: do projections let it serve?"""

from attnkit.claims.base import Claim, arm, register_claim, worse

ARMS = (
    arm("QKV", task="transfer"),
    arm("QKV V=I d_head=m/h", "V=I", task="transfer"),
    arm("Q=K=V=I O=I d_head=m/h", "no matrix", task="transfer"),
)

register_claim(
    Claim(
        id="one_embedding",
        title="One embedding, several tasks",
        question="An embedding has learnt one task and is frozen. Can it serve a new one without "
        "projections?",
        source="the second answer, point 3, in a thread on the use of the value, Stack Exchange",
        says="“Having learnable W_Vs allows … using the same basic embedding for different tasks "
        "(you don't retrain the basic embedding layer when fine-tuning, after all)”; put to the "
        "test here: no matrix at all.",
        prediction="Supported: without any matrix scores are what the frozen embedding happens to "
        "give, and it was made for another question.",
        expected="supported",
        arms=ARMS,
        statements=(worse("no matrix", "QKV", unable=True),),
    )
)
