"""Heads of the Atlas: one row for each, and their text in a link."""

import pytest
from made_atlas import made_atlas

from attnkit.figures.groups import heads_in
from attnkit.ui.atlas import Head


def test_every_head_has_one_row_whatever_the_setting():
    """Every head has exactly one row in every setting, also in models without that setting."""
    table = made_atlas().table
    for fold in (False, True):
        for offset in (0, 4):
            heads = heads_in(table, fold, offset)
            assert not heads.duplicated(["model", "kind", "layer", "head"]).any()
            assert len(heads) == 2 * 5 + 3 * 6 + 3


@pytest.mark.parametrize("text", ["", "a/b/c", "a/b/1/x", "a/b/-1/2", "a/b//", "a/b/1/", "a/b/²/1"])
def test_what_names_no_head_is_none(text):
    """A text without two whole numbers at its end names no head."""
    assert Head.of(text) is None


def test_a_link_is_read_as_it_was_written():
    """A link to a head reads back, also with a slash in the model's name."""
    head = Head("owner/name", "cross", 3, 11)
    assert Head.of(head.link) == head
