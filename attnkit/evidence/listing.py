"""Tables of all verdicts in English: text for the command line, Markdown for docs/claims.md."""

from __future__ import annotations

from attnkit.evidence.presentation import (
    COLUMNS,
    TRAINED_WITH,
    Outcome,
    claims_in_words,
    score_in_words,
)
from attnkit.evidence.record import Records
from attnkit.foundation.tables import markdown_table


def readable(records: Records) -> str:
    """Return a plain-text table of verdicts, one claim per line, and a note on how to read it."""
    lines = [f"{'claim':22} {'verdict':13} {'predicted':13} {'seen before':15} main finding"]
    for words in claims_in_words(records):
        claim = words.claim
        predicted = "" if words.outcome is Outcome.TRUE else claim.expected
        cells = f"{claim.id:22} {words.verdict:13} {predicted:13} {claim.seen:15}"
        lines.append(f"{cells} {words.cells['numbers']}")
    return "\n".join([*lines, f"\n{score_in_words(records)} {_reading_note(records)}"])


def to_markdown(records: Records) -> str:
    """Return the table of docs/claims.md: verdicts, predictions, and what we had seen before."""
    columns = ("claim", "verdict_in_full", "predicted", "seen", "numbers")
    rows = []
    for words in claims_in_words(records):
        cells = {**words.cells, "claim": f"`{words.claim.id}` {words.claim.title}"}
        rows.append([*(cells[name] for name in columns), words.trained_with])
    table = markdown_table([*(COLUMNS[name] for name in columns), TRAINED_WITH], rows)
    return f"{table}\n\n{score_in_words(records)} {_reading_note(records)}"


def _reading_note(records: Records) -> str:
    if any(record.quick for record in records.values()):
        partial = [name for name, record in records.items() if record.is_partial]
        note = "Quick form: each verdict is read alone, at 95%."
        if partial:
            note += (
                " Of these claims only one statement was tested, which did not hold in the shipped "
                f"evidence: {', '.join(partial)}."
            )
        return note
    first = ", ".join(str(seed) for seed in sorted({r.first_seed for r in records.values()}))
    return f"Verdicts are read together, at a level of 5% (Holm). Seeds count up from {first}."
