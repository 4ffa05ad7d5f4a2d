"""Q=K with and without the self-mask on induction."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="self_mask_needed",
    title=mark("On induction, Q=K fails more often without the self-mask"),
    question=mark(
        "With Q=K a token gives itself a high score. Must it be kept from attending to itself?"
    ),
    source=mark("Kitaev et al. 2020, arXiv 2001.04451, section 2"),
    says=mark(
        "Tokens are not allowed to attend to themselves, since the dot product of a vector with "
        "itself is almost always larger than with others."
    ),
    prediction=mark(
        "It holds on induction, where the token's own earlier copy is what is looked for."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "It is often a matter of time: without the mask 29 of 60 runs have solved it after 500 "
        "steps and 16 of 20 after 4,000, with it 60 of 60 after 500. Signed factors, which keep "
        "scores symmetric but not positive, solve it without the mask as well."
    ),
    seen="a prototype",
    seen_note=mark(
        "Untuned runs had shown Q=K at 0.52 without the self-mask and at 1.00 with it; after a "
        "first pass on other seeds the number of seeds was raised from 10 to 20, and the "
        "prediction was left as it was. After the record the title was made weaker: it had said "
        "“needs”, but most runs solve the task without the mask in the end."
    ),
    arms=arms("QKV", "Q=K", ("Q=K self_mask", "Q=K, self-mask"), task="induction"),
    statements=(
        worse(
            "Q=K",
            "Q=K, self-mask",
            text=mark(
                "On induction, Q=K without the self-mask is worse than Q=K with it by more than 5 "
                "points"
            ),
            opposite=mark(
                "On induction, Q=K without the self-mask is at most 5 points worse than Q=K with it"
            ),
            more_often=mark(
                "On induction, Q=K without the self-mask falls behind Q=K with it more often"
            ),
        ),
    ),
    family="What papers say",
)
register_claim(CLAIM)
