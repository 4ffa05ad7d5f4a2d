"""Small tables to begin with where somebody has no data of one's own at hand."""

from __future__ import annotations

from attnkit.foundation.language import mark

_CAPITALS = """Argentina, Buenos Aires; Austria, Vienna; Brazil, Brasília; Canada, Ottawa;
Chile, Santiago; China, Beijing; Cuba, Havana; Egypt, Cairo; Ethiopia, Addis Ababa;
France, Paris; Greece, Athens; Iceland, Reykjavík; India, New Delhi; Indonesia, Jakarta;
Iran, Tehran; Japan, Tokyo; Kenya, Nairobi; Mexico, Mexico City; Morocco, Rabat;
Norway, Oslo; Peru, Lima; Poland, Warsaw; Senegal, Dakar; Turkey, Ankara"""

_REPORTS = """Ada Cem, Ben Cem, Cem Ida, Dov Ida, Eva Dov, Fay Dov, Gil Eva, Hal Eva, Ida Zoe,
Jo Cem, Kai Jo, Lea Jo, Max Kai, Nia Kai, Oli Lea, Pia Lea, Quin Max, Rio Nia, Sol Oli, Tom Pia,
Uma Quin, Vic Rio, Wim Sol, Xia Tom"""


def _pairs(text: str) -> str:
    rows = [entry.split(",") for entry in text.split(";")]
    return "\n".join(f"{key.strip()}\t{value.strip()}" for key, value in rows)


def _relations(text: str, relation: str) -> str:
    rows = [entry.split() for entry in text.split(",")]
    return "\n".join(f"{who}\t{relation}\t{whom}" for who, whom in rows)


EXAMPLES = {
    mark("Countries and capitals"): _pairs(_CAPITALS),
    mark("Who reports to whom"): _relations(_REPORTS, "reports to"),
}
"""Tables by their titles, with tabs between the cells."""
