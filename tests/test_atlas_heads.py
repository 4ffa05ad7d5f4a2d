"""Heads of the Atlas: one row for each, and their text in a link."""

import pytest
from made_atlas import made_atlas

from attnkit.ui.atlas import Head, heads_in

pytestmark = pytest.mark.server


def test_every_head_has_one_row_whatever_the_setting():
    """Also where a model has no rows of that setting."""
    table = made_atlas().table
    for fold in (False, True):
        for offset in (0, 4):
            heads = heads_in(table, fold, offset)
            assert not heads.duplicated(["model", "kind", "layer", "head"]).any()
            assert len(heads) == 2 * 5 + 3 * 6 + 3


@pytest.mark.parametrize("text", ["", "a/b/c", "a/b/1/x", "a/b/-1/2", "a/b//", "a/b/1/", "a/b/²/1"])
def test_what_names_no_head_is_none(text):
    """Two whole numbers at the end."""
    assert Head.of(text) is None


def test_a_link_is_read_as_it_was_written():
    """Strokes in a model's name included."""
    head = Head("owner/name", "cross", 3, 11)
    assert Head.of(head.link) == head
