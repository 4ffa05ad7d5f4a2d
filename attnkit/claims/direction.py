"""Q=K on a relation with a direction: who reports to whom."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="direction",
    title=mark("With one head in one layer, direction needs W_Q ≠ W_K"),
    question=mark("Ada reports to Cem, but Cem does not report to Ada. Can Q=K tell?"),
    source=mark("the second answer in a thread on W_Q and W_K, Stack Exchange 2023"),
    says=mark("“One reason to have different Query and Key vectors is to allow asymmetry.”"),
    prediction=mark(
        "It holds: with one head, one layer and no MLP symmetric scores stay at one of two picked "
        "at random, about 0.52, also when trained longer or with a schedule."
    ),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "A prototype and untuned runs had shown Q=K staying at a half; after a first pass on other "
        "seeds the number of seeds was raised from 12 to 20 and a second statement, about K=V, was "
        "dropped. After the record the arm K=I was added, which is shown and not judged."
    ),
    arms=arms("QKV", "Q=K", "K=V", ("QKV K=I d_head=m/h", "K=I"), task="directed"),
    statements=(worse("Q=K", "QKV", unable=True),),
)
register_claim(CLAIM)
