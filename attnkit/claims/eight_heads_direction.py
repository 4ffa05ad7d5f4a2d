"""Q=K with eight heads, or with three layers, and much time on a relation with a direction."""

from attnkit.claims.base import Claim, Verdict, arm, register_claim
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="eight_heads_direction",
    title=mark("With time, eight heads of Q=K tell direction, and depth alone does not"),
    question=mark(
        "Q=K finds successor and predecessor alike. Do more heads or layers help, if they have "
        "time?"
    ),
    source=mark("attnkit's own, after the sweep of heads, width and layers"),
    says=mark(
        "More heads raise the accuracy of Q=K step by step; more layers without an MLP do nothing."
    ),
    prediction=mark(
        "It holds: with 32 times the steps, eight heads of 16 reach 99% with at least half of the "
        "seeds. One head stays at one half, with three layers, too, also with a schedule."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "Eight heads of Q=K climb more slowly the longer they train: 85% after 1,200 steps, 92% "
        "after 9,600 and 94% after 19,200, with 95% for the best of 20 seeds. One head in three "
        "layers is at one half after 600 steps, where QKV has 100%. After 9,600 steps its median "
        "is 54% with a constant and 59% with a cosine learning rate, and the best seed has 91%."
    ),
    seen="a prototype",
    seen_note=mark(
        "The sweep of this relation on the page Capacity had shown 87% with eight heads after "
        "1,200 steps, and 50% with one head in three layers. An earlier claim had noted that a "
        "model 64 wide got beyond one half with two layers."
    ),
    arms=(
        arm("Q=K n_heads=8", "Q=K, 8 heads", task="directed", d_head=16, up_to=32, tuned_at=8),
        arm("Q=K", "Q=K, 3 layers", task="directed", d_head=16, n_layers=3),
        arm("QKV", task="directed", d_head=16),
    ),
    statements=(
        no_worse(
            "Q=K, 8 heads",
            "QKV",
            at=32,
            text=mark(
                "On who reports to whom, eight heads of Q=K after 19,200 steps are at most 5 "
                "points worse than QKV"
            ),
            opposite=mark(
                "On who reports to whom, eight heads of Q=K after 19,200 steps are worse than QKV "
                "by more than 5 points"
            ),
            more_often=mark(
                "On who reports to whom, eight heads of Q=K after 19,200 steps fall behind QKV "
                "more often"
            ),
        ),
        worse(
            "Q=K, 3 layers",
            "QKV",
            0.3,
            unable=True,
            text=mark(
                "On who reports to whom, three layers of Q=K are worse than QKV by more than 30 "
                "points"
            ),
            opposite=mark(
                "On who reports to whom, three layers of Q=K are at most 30 points worse than QKV"
            ),
            more_often=mark(
                "On who reports to whom, three layers of Q=K fall behind QKV more often"
            ),
        ),
    ),
    n_seeds=20,
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
