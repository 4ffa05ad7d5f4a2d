"""Cards of variants, the short text of a head, and the arc in the drawing of a task."""

import pytest
from made_atlas import READER, made_atlas
from test_notebook_cards import read, words

from attnkit import Experiment, Variant
from attnkit.notebook.style import ROOT
from attnkit.variants import CATALOGUE


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_variant_has_a_small_card(name):
    """The card of every variant of the catalogue has its text form, a diagram and costs."""
    variant = Variant(name)
    html = variant._repr_html_()
    read(html)
    assert variant.value in words(html)
    assert "Parameters" in words(html)
    assert "<script" not in html
    assert len(html) < 12_000


def test_a_variant_that_is_impossible_at_the_usual_sizes_says_so():
    """Its card has the reason in place of costs."""
    html = Variant("QKV n_heads=7 kv_heads=5")._repr_html_()
    read(html)
    assert "does not divide" in words(html)
    assert "Parameters" not in words(html)


def test_the_text_of_a_head_is_its_place():
    """A notebook keeps it beside the card."""
    head = made_atlas().head(READER, "encoder", 1, 2)
    assert repr(head) == f"<Head of {READER}, encoder, layer 1, head 2>"


def test_the_arc_from_a_query_to_its_target_is_drawn():
    """The style sheet has a line for every class of the drawing of a task."""
    html = Experiment()._repr_html_()
    thumbnail = html.split('ak-thumb"')[1].split("</svg>")[0]
    drawn = {text.split('"')[0] for text in thumbnail.split('class="')[1:]}
    assert "ak-arc" in drawn
    rules = html.split("</style>")[0]
    assert [name for name in drawn if f".{ROOT} .ak-thumb .{name}" not in rules] == []
