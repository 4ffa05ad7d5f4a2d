"""Cards of trained models' heads: an atlas, one head with its portrait, and a sentence read."""

from __future__ import annotations

import math
from html import escape

from attnkit.figures.groups import groups_of, heads_in, number_text
from attnkit.figures.head_numbers import COLUMNS, head_numbers
from attnkit.figures.portrait import describe_angles, describe_spectra, describe_split
from attnkit.figures.sentence import describe_heads, explain, sentence_film
from attnkit.foundation.words import counted
from attnkit.notebook.films import framed
from attnkit.notebook.plots import figures_of
from attnkit.notebook.style import card, paragraph, swatch, table
from attnkit.realmodels.answer import TIED, conclusion, tied_layers
from attnkit.realmodels.atlas import Atlas, MeasuredHead
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.sentence import SentenceReading
from attnkit.ui.standalone import standalone_html

SHOWN = (
    *("overlap_qk", "overlap_qv", "overlap_kv", "symmetry", "directionality"),
    *("tie_qk", "tie_kv"),
)
"""Measures in the table of an atlas."""

MOST_GROUPS = 40
"""Most rows of the table of an atlas."""


def atlas_card(atlas: Atlas) -> str:
    """Return the card of an atlas: a row per model and kind of layer."""
    heads = heads_in(atlas.table, fold=False, offset=0)
    models = list(dict.fromkeys(atlas.table["model"].astype(str)))
    title = f"Atlas: {counted(len(models), 'model')}, {counted(len(heads), 'head')}"
    if heads.empty:
        return card(title, paragraph("No head is measured.", "quiet"))
    rows: dict[tuple[str, str], list[str]] = {}
    for measure in SHOWN:
        for group in groups_of(heads, measure):
            name = f"{swatch(group.color)}{escape(group.name)}" + "".join(
                f"<br>{words} in {share}"
                for tied, words in TIED.items()
                if (share := tied_layers(group.heads, tied))
            )
            count = f"{len(group.heads):,}"
            cells = rows.setdefault((group.model, group.kind), [name, count, *["–"] * len(SHOWN)])
            mean, _ = group.random
            random = (
                f' <span class="quiet">({number_text(mean)})</span>' if not math.isnan(mean) else ""
            )
            cells[2 + SHOWN.index(measure)] = number_text(group.median) + random
    columns = ["Model, kind of layer", "Heads", *(MEASURES[name].title for name in SHOWN)]
    shown = list(rows.values())[:MOST_GROUPS]
    note = "Medians over heads; in brackets the level of random matrices of the same shape."
    if len(shown) < len(rows):
        note += f" The first {len(shown)} of {len(rows)} rows are shown."
    first = heads.iloc[0]
    place = f"{str(first['model'])!r}, {str(first['kind'])!r}, {first['layer']}, {first['head']}"
    return card(
        title,
        paragraph(conclusion(atlas.table)),
        table(columns, shown),
        paragraph(f"{note} One head: atlas.head({place}).", "quiet small"),
        paragraph(figures_of(atlas), "quiet small"),
    )


def measured_head_card(head: MeasuredHead) -> str:
    """Return the card of a head: its measures beside random levels, and its portrait in words."""
    numbers = [
        [escape(cell) for cell in number] for number in head_numbers(head.row, head.same_kind)
    ]
    note = (
        "Random: matrices of the same shape, mean ± SD; then how many SDs this head is from it. "
        "The last column is of all heads of this kind in this model."
    )
    parts = [table(COLUMNS, numbers), paragraph(note, "quiet small")]
    portrait = head.portrait
    if portrait is None:
        parts.append(paragraph("No figures of this head: only its numbers were kept.", "quiet"))
        return card(head.in_words, *parts)
    d_model = int(head.row["d_model"])
    texts = (
        describe_split(portrait), describe_spectra(portrait), describe_angles(portrait, d_model)
    )  # fmt: skip
    parts += [*map(paragraph, texts), paragraph(figures_of(head), "quiet small")]
    return card(head.in_words, *parts)


def sentence_card(reading: SentenceReading) -> str:
    """Return the card of a sentence that a model has read, with the figures of one head."""
    title = f"{reading.model}: {reading.sentence}"
    page = standalone_html(title, "sentence", sentence_film(reading).to_bytes(), framed=True)
    sentences = map(paragraph, (*explain(reading), describe_heads(reading)))
    return card(title, *sentences, framed(page, title))
