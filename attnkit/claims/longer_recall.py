"""Recall of more entries than were trained, with and without positions."""

from typing import Any

from attnkit.claims.base import Claim, Verdict, arm, register_claim
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

UP_TO = 4

_BOOK: dict[str, Any] = {"task": "phonebook", "n_entries": 4, "n_names": 64, "up_to": UP_TO}

_MEASURED: dict[str, Any] = {"measure": "longest_accuracy", "at": UP_TO}

CLAIM = Claim(
    id="longer_recall",
    title=mark("Without positions, keys of 6 numbers recall 8 times the entries that were trained"),
    question=mark("Does recall survive lengths that were never trained?"),
    source=mark("Maselko 2026, Separate, Project, and Amplify, doi:10.5281/zenodo.19422845"),
    says=mark(
        "One layer without positions, with keys of 6 numbers, recalls 16,384 pairs perfectly after "
        "training on at most 1,024; positions are antagonistic to recall."
    ),
    prediction=mark(
        "It holds. Without positions a score depends on the two names only, and training on 4 of "
        "64 names compares every name with every other. QKV and Q=K with keys of 6 numbers, "
        "trained on books of 4, lose at most 5 points on books of 32, and Q=K does as well as QKV. "
        "RoPE learns books of 4, too, but loses more than 5 points on books of 32: it turns keys "
        "by distances that were never trained. Learned positions cannot be tested: they have no "
        "vectors beyond the trained length."
    ),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "While the longer test was written, a run of QKV without positions, with one seed for "
        "tuning and 200 steps, had 98% right on books of 32. RoPE had been seen only after 40 "
        "steps, before it had learnt anything."
    ),
    arms=tuple(
        one
        for variant, name in (
            ("QKV d_k=6", "QKV"),
            ("Q=K d_k=6", "Q=K"),
            ("QKV d_k=6 positions=rope", "RoPE"),
        )
        for one in (
            arm(variant, f"{name}, 4 entries", **_BOOK),
            arm(
                variant,
                f"{name}, 32 entries",
                longer_test=8,
                recipe_of=f"{name}, 4 entries",
                **_BOOK,
            ),
        )
    ),
    statements=(
        no_worse(
            "QKV, 32 entries",
            "QKV, 4 entries",
            text=mark(
                "After training on 4 entries, QKV with 32 entries is at most 5 points worse than "
                "QKV with 4"
            ),
            opposite=mark(
                "After training on 4 entries, QKV with 32 entries is worse than QKV with 4 by more "
                "than 5 points"
            ),
            more_often=mark(
                "After training on 4 entries, QKV with 32 entries falls behind QKV with 4 more "
                "often"
            ),
            **_MEASURED,
        ),
        no_worse(
            "Q=K, 32 entries",
            "QKV, 32 entries",
            text=mark(
                "After training on 4 entries, Q=K with 32 entries is at most 5 points worse than "
                "QKV with 32"
            ),
            opposite=mark(
                "After training on 4 entries, Q=K with 32 entries is worse than QKV with 32 by "
                "more than 5 points"
            ),
            more_often=mark(
                "After training on 4 entries, Q=K with 32 entries falls behind QKV with 32 more "
                "often"
            ),
            **_MEASURED,
        ),
        worse(
            "RoPE, 32 entries",
            "RoPE, 4 entries",
            text=mark(
                "After training on 4 entries, RoPE with 32 entries is worse than RoPE with 4 by "
                "more than 5 points"
            ),
            opposite=mark(
                "After training on 4 entries, RoPE with 32 entries is at most 5 points worse than "
                "RoPE with 4"
            ),
            more_often=mark(
                "After training on 4 entries, RoPE with 32 entries falls behind RoPE with 4 more "
                "often"
            ),
            **_MEASURED,
        ),
    ),
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
