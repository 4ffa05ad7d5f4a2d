"""Multi-query recall of four and of eight pairs."""

from typing import Any

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

_FEW: dict[str, Any] = {"task": "mqar", "batch_size": 64, "n_pairs": 4, "length": 16}
_MANY: dict[str, Any] = {"task": "mqar", "batch_size": 64, "n_pairs": 8, "length": 32}

register_claim(
    Claim(
        id="recall_pairs",
        title="Eight pairs are recalled as well as four",
        question="Does attention recall eight pairs as well as four, with the same width?",
        source="Arora et al. 2023 (Zoology), arXiv 2312.04927",
        says="Attention solves multi-query recall whatever the number of pairs, at every width "
        "that was tried.",
        prediction="It holds, at a width of 32. K=V stands beside it: it needs room for keys and "
        "values, and 32 numbers should be enough.",
        expected="held",
        seen="an earlier run",
        seen_note="A prototype and untuned runs had shown QKV and K=V solving this recall; after "
        "a first pass on other seeds the statement about K=V was dropped, so the "
        "verdict is about QKV only. The number of seeds was raised from 20 to 40 after the first "
        "20 of the record had been seen: 20 cannot show “no worse” when all verdicts are read "
        "together, even if no seed is worse.",
        arms=(
            arm("QKV", "QKV, 4 pairs", **_FEW),
            arm("K=V", "K=V, 4 pairs", **_FEW),
            arm("QKV", "QKV, 8 pairs", **_MANY),
            arm("K=V", "K=V, 8 pairs", **_MANY),
        ),
        statements=(no_worse("QKV, 8 pairs", "QKV, 4 pairs"),),
        n_seeds=40,
        family="What papers say",
    )
)
