"""Registry of the claims that threads and papers make about sharing; each claim is a module."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from attnkit.claims.base import CLAIMS, FAMILIES, Claim, Verdict, register_claim

__all__ = ["CLAIMS", "FAMILIES", "Claim", "Verdict", "register_claim"]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

for _claim in sorted(CLAIMS.values(), key=lambda claim: FAMILIES.index(claim.family)):
    CLAIMS[_claim.id] = CLAIMS.pop(_claim.id)
