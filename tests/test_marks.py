"""Parts of files that commands write between marks."""

from pathlib import Path

import pytest

from attnkit.command.outputs import marks, split_at_marks, write_between_marks
from attnkit.evidence.presentation import to_markdown
from attnkit.evidence.record import load_shipped

CLAIMS = Path(__file__).parents[1] / "docs" / "claims.md"


def test_a_part_between_marks_is_replaced(tmp_path):
    """All other text is kept; an error tells which lines a file without marks needs."""
    begin, end = marks("bench")
    page = tmp_path / "page.md"
    page.write_text("nothing here", encoding="utf-8")
    with pytest.raises(ValueError, match="bench begins"):
        write_between_marks(page, "bench", "")
    assert page.read_text(encoding="utf-8") == "nothing here"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    write_between_marks(page, "bench", "| new |")
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n{begin}\n| new |\n{end}\nafter\n"
    assert split_at_marks(page, "bench") == ("before\n", "\nafter\n")


def test_the_table_of_claims_is_that_of_the_shipped_evidence():
    """If there is any; `python -m attnkit claims --list --table docs/claims.md` writes it."""
    begin, end = marks("claims")
    text = CLAIMS.read_text(encoding="utf-8")
    shipped = load_shipped()
    assert not shipped or text.split(begin)[1].split(end)[0].strip() == to_markdown(shipped)
