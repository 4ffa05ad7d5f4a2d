"""What every way to tie a trained model costs at once: values in, small tables with bars out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.training.summary import percent
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing


@dataclass(frozen=True)
class Way:
    """One way to tie a trained model.

    Attributes:
        variant: as it was trained.
        tie: what is tied then. by: with which numbers it goes on.
        text: the variant that is trained, tied halfway and trained on; empty if there is none.
        refusal: why it cannot be tied so; empty if it can.
        before, at_once: its accuracy; at once is NaN where it cannot be tied.
    """

    variant: str
    tie: str
    by: str
    text: str
    refusal: str
    before: float
    at_once: float

    @property
    def how(self) -> str:
        """Which numbers it goes on with, as shown."""
        return self.by.replace("_", " ")

    @property
    def finding(self) -> str:
        """What tying does at once."""
        if self.refusal:
            return f"{self.tie}, {self.how}: not possible. {self.refusal}"
        return f"{self.tie}, {self.how}: {percent(self.before)} → {percent(self.at_once)} at once."


def ways_of(inspected: InspectionResult) -> list[Way]:
    """The rows of the view "ties"."""
    variants = inspected.header["variants"]
    return [
        Way(
            variants[row["variant"]]["text"],
            row["tie"],
            row["by"],
            row["text"],
            row["refusal"],
            float(inspected.fixed["untied"][row["variant"]]),
            float(inspected.fixed["tied"][place]),
        )
        for place, row in enumerate(inspected.header["rows"])
    ]


def ways_table(ways: Sequence[Way], chosen: Way, chance: float) -> str:
    """The ways of one variant as small tables, one for each tie: name, bar, number."""
    ties = dict.fromkeys(way.tie for way in ways)
    groups = "".join(_group(tie, ways, chosen, chance) for tie in ties)
    legend = (
        f"<span>{_LINE.format('ak-before')} before tying {percent(ways[0].before)}</span>"
        f"<span>{_LINE.format('ak-chance')} chance {percent(chance)}</span>"
        "<span>▸ chosen</span>"
    )
    return f'<div class="ak-ways">{groups}</div><div class="ak-legend">{legend}</div>'


def ways_csv(ways: Sequence[Way]) -> str:
    """All ways of all variants."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["sharing", "tie", "by", "accuracy_before", "accuracy_at_once", "why_not"])
    for way in ways:
        at_once = "" if way.refusal else way.at_once
        table.writerow([way.variant, way.tie, way.by, way.before, at_once, way.refusal])
    return text.getvalue()


_LINE = '<i class="ak-sample {}" aria-hidden="true"></i>'


def _group(tie: str, ways: Sequence[Way], chosen: Way, chance: float) -> str:
    color = COLORS[Sharing(tie)]
    rows = "".join(_row(way, way == chosen, color, chance) for way in ways if way.tie == tie)
    square = f'<span style="color:{color}" aria-hidden="true">■</span>'
    return f"<table><caption>{square} {escape(tie)}</caption><tbody>{rows}</tbody></table>"


def _row(way: Way, is_chosen: bool, color: str, chance: float) -> str:
    mark, current = ("▸ ", ' aria-current="true"') if is_chosen else ("", "")
    name = f'<th scope="row">{mark}{escape(way.how)}</th>'
    if way.refusal:
        return f'<tr{current}>{name}<td colspan="2" class="ak-not">{escape(way.refusal)}</td></tr>'
    bar = (
        f'<i style="width:{way.at_once:.1%};background:{color}"></i>'
        f'<i class="ak-chance" style="left:{chance:.1%}"></i>'
        f'<i class="ak-before" style="left:{way.before:.1%}"></i>'
    )
    return (
        f'<tr{current}>{name}<td><div class="ak-bar" aria-hidden="true">{bar}</div></td>'
        f"<td>{percent(way.at_once)}</td></tr>"
    )
