"""Registry of the claims that threads and papers make about sharing; each is a file in TOML."""

from __future__ import annotations

from pathlib import Path

from attnkit.claims.base import CLAIMS, FAMILIES, Claim, Verdict, register_claim
from attnkit.claims.files import read_claim

__all__ = ["CLAIMS", "FAMILIES", "Claim", "Verdict", "read_claim", "register_claim"]

_files = sorted(Path(__file__).parent.glob("*.toml"))
for _claim in sorted(
    (read_claim(file, check_arms=False) for file in _files),
    key=lambda claim: FAMILIES.index(claim.family),
):
    register_claim(_claim)
