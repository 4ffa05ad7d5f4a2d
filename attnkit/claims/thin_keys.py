"""How wide queries and keys must be to select among so many entries."""

from typing import Any

from attnkit.claims.base import Claim, arm, no_worse, register_claim, worse

_SMALL: dict[str, Any] = {"task": "phonebook", "d_head": 16}
_LARGE = {**_SMALL, "n_entries": 32, "n_names": 64}

register_claim(
    Claim(
        id="thin_keys",
        title="Thin keys select",
        question="How many numbers must a query and a key have to select one of 8 or 32 entries?",
        source="reported: Thin Keys, arXiv 2603.04427 (abstract)",
        says="Selecting among N needs about log₂ N dimensions: far fewer than values need.",
        prediction="Supported: 3 for 8 entries and 5 for 32, with values 16 wide; 1 is too few.",
        expected="supported",
        arms=(
            arm("QKV", "8 entries, 16", **_SMALL),
            arm("QKV d_k=3", "8 entries, 3", **_SMALL),
            arm("QKV d_k=1", "8 entries, 1", **_SMALL),
            arm("QKV", "32 entries, 16", **_LARGE),
            arm("QKV d_k=5", "32 entries, 5", **_LARGE),
        ),
        statements=(
            no_worse("8 entries, 3", "8 entries, 16"),
            no_worse("32 entries, 5", "32 entries, 16"),
            worse("8 entries, 1", "8 entries, 16", unable=True),
        ),
        family="What papers say",
    )
)
