"""K=V where keys are alike but values differ, as “network” is near “neural” and “social”."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="alike_keys",
    title=mark("Alike keys with different values defeat K=V"),
    question=mark(
        "Two names are nearly the same vector but have different numbers. Can one vector per entry "
        "be key and value?"
    ),
    source=mark(
        "Robin, Stack Exchange 2019, “Why K and V are not the same in Transformer attention?”"
    ),
    says=mark(
        "“… the two key vectors are similar. Nevertheless, the values … should be dissimilar Using "
        "the same representation for keys and values doesn't allow this.”"
    ),
    prediction=mark(
        "It does not hold. An entry's vector has room for a name and a number side by side; "
        "untuned runs solved it even at a cosine of 0.99."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "A vector 16 wide has room for a name and a number. Then the keys are not alike any more: "
        "names have a cosine of 0.99, the keys that K=V learns one of about 0.5."
    ),
    seen="a prototype",
    seen_note=mark(
        "Untuned runs had shown K=V solving this; after a first pass on other seeds the number of "
        "seeds was raised from 12 to 20, and the prediction was left as it was."
    ),
    arms=arms("QKV", "K=V", task="neighbours", cosine=0.99),
    statements=(worse("K=V", "QKV", unable=True),),
)
register_claim(CLAIM)
