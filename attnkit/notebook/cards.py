"""Cards that notebooks show below a cell: values of other rooms in sentences, tables and diagrams.

Cards load nothing, and they are the same for equal values. Only those of films and of sentences
have a script, in a frame of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from html import escape

from attnkit.analysis.attention_map import example_of, telling_layer
from attnkit.analysis.reasons import headline
from attnkit.claims import Claim
from attnkit.evidence.presentation import ClaimInWords, claims_in_words
from attnkit.evidence.questions import Answer, Question
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.evidence.words import statements_table
from attnkit.examples import default_of, load_example
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import settings
from attnkit.figures.board import planned_columns
from attnkit.figures.example import thumbnail
from attnkit.figures.groups import groups_of, heads_in, number_text
from attnkit.figures.head_numbers import COLUMNS, head_numbers
from attnkit.figures.portrait import describe_angles, describe_spectra, describe_split
from attnkit.figures.sentence import describe_heads, explain, sentence_film
from attnkit.foundation.display import Displayed
from attnkit.foundation.language import tr
from attnkit.foundation.settings import InvalidExperiment, shown
from attnkit.foundation.tables import html_list
from attnkit.foundation.words import counted
from attnkit.notebook.plots import figures_of
from attnkit.notebook.style import card, drawing, grid, paragraph, swatch, table
from attnkit.realmodels.answer import TIED, conclusion, tied_layers
from attnkit.realmodels.atlas import Atlas, MeasuredHead
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.sentence import SentenceReading
from attnkit.training.film import Film
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import (
    finding,
    percent,
    percent_interval,
    sharing_table,
    solved_in_words,
    two_decimals,
)
from attnkit.ui.standalone import standalone_html
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

MOST_DIAGRAMS = 12
"""Most variants with diagrams; all variants are in the table."""

DIAGRAM_WIDTH = 190
"""Smallest width of a variant's column in pixels."""

MOST_CLAIMS = 4
"""Most claims of a question that are not folded away."""

MOST_FRAMES = 24
"""Most frames in the player of a film, so that a notebook stays small."""

MOST_BYTES = 1_000_000
"""Largest size of a player; a film of long examples has fewer frames."""

PLAYER_HEIGHT = 640
"""Height of the player in pixels."""

ATLAS_MEASURES = (
    *("overlap_qk", "overlap_qv", "overlap_kv", "symmetry", "directionality"),
    *("tie_qk", "tie_kv"),
)
"""Measures in the table of an atlas."""

MOST_GROUPS = 40
"""Most rows of the table of an atlas."""


@singledispatch
def card_of(value: Displayed) -> str:
    """Return the card of a value: a self-contained piece of HTML.

    Raises:
        TypeError: If there is no card for values of this type.
    """
    raise TypeError(f"value: got {type(value).__name__}, which has no card")


@card_of.register
def _(experiment: Experiment) -> str:
    n = len(experiment.sharing)
    columns = planned_columns(experiment)
    drawn = [_column(column) for column in columns[:MOST_DIAGRAMS]]
    left_out = ""
    if len(drawn) < n:
        left_out = f"The first {len(drawn)} of {n} variants are drawn; the table has all."
    return card(
        f"{_runs_in_words(experiment)}, {experiment.training.steps:,} steps",
        paragraph(experiment.task.question),
        _example(experiment),
        paragraph(_changes(experiment)),
        grid(drawn, DIAGRAM_WIDTH),
        paragraph(left_out, "quiet small"),
        _costs(experiment, columns),
        paragraph("ak.train(experiment) trains it.", "quiet small"),
    )


@card_of.register
def _(variant: Variant) -> str:
    try:
        experiment = default_of(variant)
    except InvalidExperiment as error:
        return card(variant, paragraph(variant.meaning), paragraph(str(error), "quiet small"))
    columns = planned_columns(experiment)
    return card(
        variant,
        grid([_column(columns[0])], DIAGRAM_WIDTH),
        paragraph(f"Costs on the task “{experiment.task.title}”:", "quiet small"),
        _costs(experiment, columns),
    )


def _runs_in_words(experiment: Experiment) -> str:
    n_variants, n_seeds = len(experiment.sharing), experiment.n_seeds
    counts = f"{counted(n_variants, 'variant')}, {counted(n_seeds, 'seed')}"
    return f"{experiment.task.title}: {counts}"


def _costs(experiment: Experiment, columns: Sequence[dict[str, str]]) -> str:
    rows = []
    for column, variant in zip(columns, experiment.sharing, strict=True):
        costs = experiment.costs(variant)
        name = f"{swatch(column['color'])}{escape(column['name'])}"
        numbers = [costs.parameters, costs.kv_cache, costs.multiply_adds]
        rows.append([name, *("–" if n is None else f"{n:,}" for n in numbers)])
    heads = ["Variant", "Parameters", "KV cache, numbers per token", "Multiply-adds per token"]
    return table(heads, rows)


def _column(column: dict[str, str]) -> str:
    second = f" ({column['second']})" if column["second"] else ""
    words = f"<b>{escape(column['name'])}</b>{escape(second)}"
    text = escape(column["meaning"])
    return (
        f'<div class="column"><div class="head">{column["diagram"]}'
        f'<div>{swatch(column["color"])}{words}</div></div><p class="quiet small">{text}</p></div>'
    )


def _example(experiment: Experiment) -> str:
    """Return a drawing of an example of the task if one of the same settings ships."""
    try:
        shipped = load_example(experiment.task.name)
    except (OSError, ValueError):
        return ""
    if shipped.experiment.task != experiment.task:
        return ""
    return drawing(thumbnail(experiment.task, example_of(shipped)))


def _changes(experiment: Experiment) -> str:
    known = settings(experiment.task.name)
    changed = [
        f"{known[name].label} {shown(value)}"
        for name, value in experiment.to_params().items()
        if name in known
    ]
    if not changed:
        return "All settings are the defaults of the task."
    return f"Settings that differ from the defaults of the task: {', '.join(changed)}."


@card_of.register
def _(result: Result) -> str:
    return card_of(result.snapshot)


@card_of.register
def _(snapshot: Snapshot) -> str:
    experiment, steps = snapshot.experiment, snapshot.experiment.training.steps
    title = f"{_runs_in_words(experiment)}, step {snapshot.step:,} of {steps:,}"
    parts = [paragraph(experiment.task.question, "quiet"), _progress(snapshot)]
    reason = headline(snapshot, experiment.first_seed) if snapshot.step else None
    if reason is not None:
        sentence = reason.in_words(experiment, experiment.first_seed)
        parts.append(f"<p><b>{escape(sentence)}</b></p>")
    parts += [paragraph(finding(snapshot)), _accuracies(snapshot)]
    modules = (experiment.wiring(variant).module for variant in experiment.sharing)
    below = [solved_in_words(experiment.task)]
    below += [tr(module.missing) for module in modules if module is not None and module.missing]
    below.append(figures_of(snapshot))
    if snapshot.step:
        seconds = snapshot.seconds
        took = f"{seconds:.1f} seconds" if seconds < 90 else f"{seconds / 60:.1f} minutes"
        below.append(f"Trained in {took} by {snapshot.trained_by}.")
    return card(title, *parts, *(paragraph(text, "quiet small") for text in below))


def _progress(snapshot: Snapshot) -> str:
    if snapshot.status == "stopped":
        return paragraph("Stopped before the last step.")
    if snapshot.status == "finished":
        return ""
    share = f"{snapshot.step / snapshot.experiment.training.steps:.0%}"
    return (
        f'<div class="bar" role="img" aria-label="{share} of the steps are done">'
        f'<span style="width:{share}"></span></div>'
    )


def _accuracies(snapshot: Snapshot) -> str:
    experiment = snapshot.experiment
    on_loss = experiment.task.loss_to_beat is not None
    columns = ["Variant", "Accuracy", "95% interval"]
    columns += ["Loss"] if on_loss else ["Seeds that solve it", "Steps to solve it"]
    columns += ["Score asymmetry", "Parameters", "KV cache, numbers per token"]
    colors = colors_of(experiment.sharing)
    rows = []
    for i, row in enumerate(sharing_table(snapshot).to_dict("records")):
        variant = experiment.sharing[i]
        low, high = row["accuracy_low"], row["accuracy_high"]
        cells = [percent(row["accuracy"]), percent_interval(low, high) or "–"]
        if row["diverged"]:
            cells[1] = f"{row['diverged']} of {experiment.n_seeds} diverged"
        if on_loss:
            cells.append(two_decimals(row["loss"]))
        else:
            steps = row["steps_to_threshold"]
            cells.append(f"{row['solved']} of {experiment.n_seeds}")
            cells.append("–" if math.isnan(steps) else f"{steps:,.0f}")
        cells += [two_decimals(row["asymmetry"])]
        cache = experiment.costs(variant).kv_cache  # a module may not say it
        cells += [f"{row['parameters']:,}", "–" if cache is None else f"{cache:,}"]
        name = escape(title_of(variant))
        titled = f'<span title="{escape(variant.value, quote=True)}">{name}</span>'
        rows.append([swatch(colors[i]) + titled, *cells])
    return table(columns, rows)


@card_of.register
def _(claim: Claim) -> str:
    (words,) = claims_in_words(load_shipped(), [claim])
    has_record = words.evidence is not None and words.evidence.claim == claim
    return _claim_card(words if has_record else ClaimInWords(claim))


@card_of.register
def _(evidence: Evidence) -> str:
    return _claim_card(ClaimInWords(evidence.claim, evidence, evidence.judgement.verdict))


def _claim_card(words: ClaimInWords) -> str:
    parts = [f"<p><b>{name}:</b> {escape(text)}</p>" for name, text in words.facts.items()]
    if words.evidence is not None:
        found = statements_table(words.evidence)
        rows = [[escape(text or "–") for text in row] for row in found.rows]
        parts.append(table(found.head, rows, worded=True))
        parts.append(paragraph(figures_of(words.claim), "quiet small"))
    return card(words.claim.title, *parts)


@card_of.register
def _(question: Question) -> str:
    records = load_shipped()
    answer = Answer(question, records)
    rests_on = (records[name].claim for name in question.claims if name in records)
    claims = [
        f"{escape(words.verdict_line)}: {escape(words.claim.title)} "
        f"(<code>{words.claim.id}</code>). {escape(words.structure)}"
        for words in claims_in_words(records, rests_on)
    ]
    parts = [paragraph(answer.conclusion, "title"), paragraph(answer.reason)]
    if answer.numbers:
        parts += ["<p><b>The numbers</b></p>", html_list([escape(text) for text in answer.numbers])]
    if claims:
        first, others = claims[:MOST_CLAIMS], claims[MOST_CLAIMS:]
        parts += ["<p><b>The claims that the answer rests on</b></p>", html_list(first)]
        if others:
            summary = f"<summary>{len(others)} more</summary>"
            parts.append(f"<details>{summary}{html_list(others)}</details>")
        hint = f'ak.CLAIMS["{question.claims[0]}"] shows the first one.'
        parts.append(paragraph(hint, "quiet small"))
    return card(question.title, *parts, paragraph(answer.asked, "quiet small"))


@card_of.register
def _(film: Film) -> str:
    experiment = film.experiment
    title = f"Film of {experiment.task.title}, seed {experiment.first_seed}"
    if not film.frames:
        return card(title, paragraph("No frame is recorded yet.", "quiet"))
    player, n_shown = _player(film, title)
    n, last = len(film.frames), film.frames[-1]
    count = f"{counted(n, 'frame')}, step {film.steps[0]:,} to {film.steps[-1]:,}."
    if n_shown < n:
        count += f" The player has {n_shown} of them, so that a notebook stays small."
    rows = [
        [f"{swatch(color)}{escape(title_of(variant))}", percent(float(accuracy))]
        for variant, color, accuracy in zip(
            experiment.sharing,
            colors_of(experiment.sharing),
            last.metrics["accuracy"],
            strict=True,
        )
    ]
    accuracies = table(["Variant", f"Accuracy after {last.step:,} steps"], rows)
    return card(title, paragraph(count), accuracies, _framed(player, title))


def _player(film: Film, title: str) -> tuple[str, int]:
    """Return the page of the player, small enough, and its number of frames."""
    from attnkit.analysis import Inspection, inspect  # imports torch

    layer = telling_layer(film.experiment.layer_specs)
    n_frames = min(MOST_FRAMES, len(film.frames))
    while True:
        thinned = film.thinned(n_frames)
        blob = inspect(thinned, Inspection("attention", layer=layer)).to_bytes()
        page = standalone_html(title, "attention", blob, framed=True)
        if len(page) <= MOST_BYTES or n_frames <= 2:
            return page, len(thinned.frames)
        n_frames = max(2, n_frames // 2)


def _framed(page: str, title: str) -> str:
    """Return a page in a frame of its own, below a note for places where scripts are off."""
    note = "No figures below? Then scripts are off here: trust this notebook, or open it elsewhere."
    frame = (
        f'<iframe srcdoc="{escape(page, quote=True)}" loading="lazy" '
        f'title="{escape(title, quote=True)}" '
        f'style="width:100%;height:{PLAYER_HEIGHT}px;border:0;border-radius:6px"></iframe>'
    )
    return paragraph(note, "quiet small") + frame


@card_of.register
def _(atlas: Atlas) -> str:
    heads = heads_in(atlas.table, fold=False, offset=0)
    n_models = atlas.table["model"].nunique()
    title = f"Atlas: {counted(n_models, 'model')}, {counted(len(heads), 'head')}"
    if heads.empty:
        return card(title, paragraph("No head is measured.", "quiet"))
    rows: dict[tuple[str, str], list[str]] = {}
    for measure in ATLAS_MEASURES:
        for group in groups_of(heads, measure):
            name = f"{swatch(group.color)}{escape(group.name)}" + "".join(
                f"<br>{words} in {share}"
                for tied, words in TIED.items()
                if (share := tied_layers(group.heads, tied))
            )
            empty = [name, f"{len(group.heads):,}", *["–"] * len(ATLAS_MEASURES)]
            cells = rows.setdefault((group.model, group.kind), empty)
            mean, _ = group.random
            random = (
                f' <span class="quiet">({number_text(mean)})</span>' if not math.isnan(mean) else ""
            )
            cells[2 + ATLAS_MEASURES.index(measure)] = number_text(group.median) + random
    columns = [
        "Model, kind of layer", "Heads", *(MEASURES[name].title for name in ATLAS_MEASURES)
    ]  # fmt: skip
    listed = list(rows.values())[:MOST_GROUPS]
    note = "Medians over heads; in brackets the level of random matrices of the same shape."
    if len(listed) < len(rows):
        note += f" The first {len(listed)} of {len(rows)} rows are shown."
    first = heads.iloc[0]
    place = f"{str(first['model'])!r}, {str(first['kind'])!r}, {first['layer']}, {first['head']}"
    return card(
        title,
        paragraph(conclusion(atlas.table)),
        table(columns, listed),
        paragraph(f"{note} One head: atlas.head({place}).", "quiet small"),
        paragraph(figures_of(atlas), "quiet small"),
    )


@card_of.register
def _(head: MeasuredHead) -> str:
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
    angles = describe_angles(portrait, int(head.row["d_model"]))
    parts += map(paragraph, (describe_split(portrait), describe_spectra(portrait), angles))
    return card(head.in_words, *parts, paragraph(figures_of(head), "quiet small"))


@card_of.register
def _(reading: SentenceReading) -> str:
    title = f"{reading.model}: {reading.sentence}"
    page = standalone_html(title, "sentence", sentence_film(reading).to_bytes(), framed=True)
    sentences = map(paragraph, (*explain(reading), describe_heads(reading)))
    return card(title, *sentences, _framed(page, title))
