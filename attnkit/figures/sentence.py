"""Figures of a real model on a sentence: those of the toys, with a real model's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnkit.analysis.attention_map import levels_of
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.foundation.words import counted, listed
from attnkit.realmodels.sentence import MOST_TOKENS, PLACES, SentenceReading, symmetric_share
from attnkit.training.summary import percent
from attnkit.variants.palette import FURTHER

MOST = 0.5
"""Attention on one place from which a head is said to look there."""

LONGEST_LABEL = 14
"""Most letters of a token beside a map; hovering shows all."""


def sentence_film(reading: SentenceReading) -> InspectionResult:
    """Return header and arrays of `attnkit/ui/assets/sentence.js`, for the reading's shown head."""
    (layer, head), scores = reading.shown_head, reading.scores
    n_layers, n_heads, n = scores.shape[:3]
    own = scores[layer, head]
    even = ((own + own.T) / 2).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(even)[::-1]
    squares = (eigenvalues**2).sum()
    share = float(symmetric_share(own))
    visible = np.where(reading.hidden[layer], 0, own)
    stages = [1 - symmetric_share(one) for one in (own, visible, reading.pattern[layer, head])]
    all_stages = np.full((n_layers, n_heads, 3), np.nan)
    all_stages[layer, head] = stages
    places = [name for name in PLACES if name in reading.table]
    framed = {
        "0.scores": own[None],
        "0.map": reading.pattern[layer, head],
        "0.shares": np.array([[share, 1 - share]]),
        "0.eigenvalues": eigenvalues[None],
        "0.negative": np.array([(np.minimum(eigenvalues, 0) ** 2).sum() / (squares or 1.0)]),
        "0.stages": all_stages,
        "0.mass": reading.table[places].to_numpy().reshape(n_layers, n_heads, -1),
    }
    framed = {name: array[None].astype(np.float32) for name, array in framed.items()}
    framed |= {f"0.grid.{i}": levels_of(reading.pattern[i])[None] for i in range(n_layers)}
    labels = _labels(reading)
    titles = [f"{label} (token {i + 1})" for i, label in enumerate(t.text for t in reading.tokens)]
    variant = {"name": reading.model, "text": reading.model, "color": FURTHER[0]}
    header: dict[str, Any] = {
        "view": "sentence",
        "request": {"layer": layer, "head": head, "sentence": reading.sentence},
        "layer": layer,
        "head": head,
        "title": reading.model,
        "steps": [0],
        "counted_from": 0,
        "variants": [variant | {"n_heads": n_heads, "lacking": "", "refusal": ""}],
        "places": [f"Layer {i}" for i in range(n_layers)],
        "layers": [_axes(labels, titles, f"Layer {i}") for i in range(n_layers)],
        "texts": {},
        "askable": [],
        "row": -1,
        "square": True,
        "n_keys": n,
        "positions": list(range(n)),
        "labels": labels,
        "full_labels": titles,
        "all_labels": labels,
        "target": [-1] * n,
        "reverse": [-1] * n,
        "n_examples": 1,
        "causal": reading.causal,
        "masses": places,
        "notes": [{"n_maps": 1, "rules": "", "self_mask": False}],
        "sentences": {
            "conclusion": [describe_head(reading)],
            "heads": [[describe_heads(reading).rstrip(".")]],
        },
    }
    return InspectionResult(header, framed, {})


def describe_head(reading: SentenceReading) -> str:
    """Return where the shown head looks, and how symmetric its scores are, in sentences."""
    layer, head = reading.shown_head
    table, name = reading.table, f"Layer {layer}, head {head}"
    row = table[(table["layer"] == layer) & (table["head"] == head)].iloc[0]
    masses = {place: float(row[place]) for place in PLACES if place in table}
    share = float(row["symmetric"])
    parts = f"scores are {percent(share)} symmetric and {percent(1 - share)} antisymmetric"
    if not masses:
        return f"{name}: its {parts}."
    place = max(masses, key=masses.__getitem__)
    most, even = percent(masses[place]), percent(row[f"{place}_even"])
    where = f"{PLACES[place]}, where an even spread would put {even}"
    if masses[place] >= MOST:
        return f"{name} puts {most} of its attention on {where}. Its {parts}."
    return f"{name} spreads its attention; the most, {most}, is on {where}. Its {parts}."


def describe_heads(reading: SentenceReading) -> str:
    """Return how many heads look at each place, and the range of symmetric shares."""
    table = reading.table
    masses = table[[place for place in PLACES if place in table]]
    looking = masses[masses.max(axis=1) >= MOST].idxmax(axis=1).value_counts(sort=False)
    found = [
        f"{counted(n, 'head')} {'looks' if n == 1 else 'look'} at {PLACES[str(place)]}"
        for place, n in looking.items()
    ]
    looks = f"By most of their attention, {listed(found)}. " if found else ""
    low, middle, high = (percent(x) for x in table["symmetric"].quantile([0, 0.5, 1]))
    centred = percent(table["symmetric_centred"].median())
    random = percent((1 + 1 / len(reading.tokens)) / 2)
    return (
        f"{looks}Of all {counted(len(table), 'head')}, scores are {low} to {high} symmetric, "
        f"{middle} in the median. That counts a level that all scores of a head share, which is "
        f"symmetric but which the softmax ignores: without it, the median is {centred}. Random "
        f"scores of as many tokens would give about {random}."
    )


def explain(reading: SentenceReading) -> list[str]:
    """Return what else a reader must know: cut sentences, masked scores, parts of models."""
    sentences = list(reading.notes)
    n = len(reading.tokens)
    if n < reading.n_tokens:
        sentences.append(
            f"The sentence has {reading.n_tokens:,} tokens. The model reads, and the figures show, "
            f"the first {n}"
            + (
                "."
                if n < MOST_TOKENS
                else f", because maps of more than {MOST_TOKENS} cannot be read."
            )
        )
    if reading.causal:
        sentences.append(
            "This model lets no token look at a later one, so its attention there is 0. The scores "
            "of these pairs, above the diagonal, are those that it would have without its mask. "
            "They are shown and count in the symmetric share, although the model never uses them."
        )
    return sentences


def strongest_heads(reading: SentenceReading) -> pd.DataFrame:
    """Return for each place how many heads look there, and the one that does so most."""
    table, rows = reading.table, []
    for place in (place for place in PLACES if place in reading.table):
        most = table.iloc[int(table[place].to_numpy().argmax())]
        rows.append(
            {
                "most attention on": PLACES[place],
                "heads": int((table[place] >= MOST).sum()),
                "strongest": f"layer {int(most['layer'])}, head {int(most['head'])}",
                "its attention": percent(most[place]),
                "spread evenly": percent(most[f"{place}_even"]),
            }
        )
    return pd.DataFrame(rows)


def _labels(reading: SentenceReading) -> list[str]:
    """Return the tokens as they are typed, the longest ones cut."""
    texts = [token.text for token in reading.tokens]
    return [t if len(t) <= LONGEST_LABEL else f"{t[: LONGEST_LABEL - 1]}…" for t in texts]


def _axes(labels: list[str], titles: list[str], title: str) -> dict[str, Any]:
    """Return rows and columns of a layer's maps, as `attention_map.axes_of` does for the toys."""
    n = len(labels)
    nothing, positions = [-1] * n, list(range(n))
    return {
        "rows": labels,
        "columns": labels,
        "column_titles": titles,
        "target": nothing,
        "reverse": nothing,
        "right": nothing,
        "cut": "",
        "title": title,
        "row_positions": positions,
        "column_positions": positions,
        "rest": False,
        "is_asked": False,
    }
