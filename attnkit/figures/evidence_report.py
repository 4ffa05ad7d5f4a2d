"""Report of all evidence as one HTML page that works without a server, network or other files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape

from attnkit.claims import FAMILIES, Verdict
from attnkit.evidence.presentation import (
    COLUMNS,
    ClaimInWords,
    Outcome,
    claims_in_words,
    score_in_words,
)
from attnkit.evidence.question import Answer
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.simulation import errors_in_words
from attnkit.evidence.tuning import (
    ALL_DOUBLINGS,
    FINALISTS,
    FIRST_DOUBLINGS,
    SCREENING_SEEDS,
    SHORTENED,
    TUNING_SEEDS,
)
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import Table, longer_in_words, statements_table, tuning_table
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY, describe_evidence, plot_evidence
from attnkit.figures.learning import LEARNING_KEY, describe_learning, plot_learning
from attnkit.figures.panels import Figure
from attnkit.figures.recipes import RECIPES_KEY, describe_recipes, plot_recipes
from attnkit.foundation.language import ENGLISH, reading
from attnkit.foundation.tables import Cell, Row, html_list, html_table

TITLE = "Why do Q, K and V need different matrices? The evidence"

_STYLE = """
:root { color-scheme: light dark; --text: #151413; --ground: #ffffff; --border: #d0d2da;
  --soft: #f2f3f6; --link: #0b5fa5; }
@media (prefers-color-scheme: dark) { :root { --text: #fafafa; --ground: #0e1117;
  --border: #3d4150; --soft: #1a1d26; --link: #4aa3e0; } }
@media print { :root { color-scheme: light; --text: #000; --ground: #fff; --border: #bbb;
  --soft: #f2f3f6; --link: #0b5fa5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 16px 20px 48px; line-height: 1.5;
  font-family: "Source Sans 3", "Source Sans Pro", system-ui, sans-serif; color: var(--text);
  background: var(--ground); overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 8px 0; }
h2 { font-size: 1.35rem; margin: 40px 0 8px; }
h3 { font-size: 1.15rem; margin: 32px 0 6px; }
p, dd, li { max-width: 46em; }
a { color: var(--link); }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; padding: 6px 12px; background: var(--ground); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; margin: 8px 0; }
dt { font-weight: 600; } dd { margin: 0; }
.wide { overflow-x: auto; margin: 8px 0; }
.wide:focus-visible, a:focus-visible, summary:focus-visible {
  outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; min-width: 560px; font-size: .93rem; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
th, td { text-align: left; vertical-align: top; padding: 5px 10px 5px 0;
  border-bottom: 1px solid var(--border); }
thead th { border-bottom-width: 2px; }
.note { background: var(--soft); border-left: 4px solid var(--border); padding: 8px 14px;
  max-width: 48em; }
.claim { border-top: 1px solid var(--border); margin-top: 28px; }
.figures { display: grid; gap: 8px 24px; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
figure { margin: 8px 0; min-width: 0; }
figcaption { font-size: .88rem; }
.plot text { fill: var(--text) !important; }
.plot .hovertext text { fill: #fff !important; }
.plot .hovertext path { fill: #2b2f3a !important; stroke: #8a8f98 !important; }
summary { cursor: pointer; margin: 8px 0; color: var(--link); }
code { overflow-wrap: anywhere; background: var(--soft); padding: 1px 4px; font-size: .86rem; }
@media (max-width: 600px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; }
  body { padding: 12px 12px 40px; } }
@media print { body { max-width: none; padding: 0; } .figures { display: block; }
  figure, tr, h3 { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .skip { display: none; } .wide { overflow: visible; } }
"""

_SCRIPT = """
const drawn = new Set();
function draw(node, width) {
  const figure = JSON.parse(node.nextElementSibling.textContent);
  const font = { family: getComputedStyle(document.body).fontFamily, size: 13 };
  const layout = { ...figure.layout, font, ...(width ? { width } : {}) };
  Plotly.react(node, figure.data, layout, { responsive: !width, displayModeBar: false });
  drawn.add(node);
}
const plots = [...document.querySelectorAll(".plot")];
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && !drawn.has(target)) draw(target);
  }
}, { rootMargin: "600px" });
for (const node of plots) seen.observe(node);
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  for (const node of plots) draw(node, 660);
});
addEventListener("afterprint", () => { for (const node of plots) draw(node); });
"""


@reading(ENGLISH)
def to_html(records: Records) -> str:
    """Return the HTML page of records that are read together, in English.

    Its colours follow the light or dark mode of the system.
    """
    from plotly.offline import get_plotlyjs

    claims = claims_in_words(records)
    plotly = get_plotlyjs().replace("</script", "<\\/script")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(TITLE)}</title>
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the verdicts</a>
<header>
<h1>{escape(TITLE)}</h1>
{_about(records)}
</header>
<main id="content">
{_summary(records, claims)}
{_failed(claims)}
{_answers(records)}
{_method()}
{_claims(claims)}
</main>
<script>{plotly}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _about(records: Records) -> str:
    versions = ", ".join(dict.fromkeys(record.version for record in records.values())) or "none"
    text = (
        "Transformers share the projections for queries, keys and values in different ways. "
        "People ask what sharing costs, and papers answer. Here each claim is tested with tiny "
        "models. Beside every prediction stands what we had seen when we wrote it, and a rule "
        "turns the scores of all seeds into a verdict."
    )
    facts = (
        f"{len(records)} claims, made with attnkit {versions}; learning rates tuned for every arm."
    )
    return f"<p>{text}</p>\n<p>{escape(facts)}</p>{_quick(records)}"


def _quick(records: Records) -> str:
    quick = [record for record in records.values() if record.quick]
    if not quick:
        return ""
    sizes = sorted({record.n_seeds for record in quick})
    seeds = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    subject = "All records" if len(quick) == len(records) else f"{len(quick)} records"
    return (
        f'\n<p class="note"><strong>Quick form.</strong> {subject} here have only '
        f"{seeds} seeds, each verdict is read alone, a claim that did not hold in the shipped "
        "evidence is tested by only one of its statements, and nothing was trained longer to make "
        "sure of an inability. Intervals are wide; the full form may say otherwise.</p>"
    )


def _summary(records: Records, claims: Sequence[ClaimInWords]) -> str:
    found = list(records.verdicts.values())
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in Verdict)
    columns = ("claim", "source", "predicted", "came_true", "seen", "verdict_in_full", "numbers")
    table = Table("All verdicts", [COLUMNS[name] for name in columns], [])
    rows = [
        [_link(words), *(escape(words.cells[name]) for name in columns[1:])] for words in claims
    ]
    return (
        f"<h2>Verdicts</h2>\n<p>{escape(counts)}. {escape(score_in_words(records))}</p>\n"
        f"{_table(table, rows)}"
    )


def _failed(claims: Sequence[ClaimInWords]) -> str:
    failed = [words for words in claims if words.outcome is not Outcome.TRUE]
    listed = "<p>None.</p>"
    if failed:
        listed = html_list(
            f"{_link(words)}: we predicted “{words.claim.expected}”, the verdict is "
            f"{words.verdict_line}. {escape(words.reason)}"
            for words in failed
        )
    return f"<h2>Predictions that did not come true</h2>\n{listed}"


def _answers(records: Records) -> str:
    parts = [_answer(Answer(question, records)) for question in QUESTIONS.values()]
    answers = "\n".join(part for part in parts if part)
    return f"<h2>The questions that people asked</h2>\n{answers}" if answers else ""


def _answer(answer: Answer) -> str:
    question, records = answer.question, answer.records
    if not answer.conclusion and not answer.numbers:
        return ""
    missing = escape(", ".join(answer.missing))
    note = f"\n<p><i>(Not on this page: {missing}.)</i></p>" if missing else ""
    rests_on = (records[name].claim for name in question.claims if name in records)
    links = ", ".join(map(_link, claims_in_words(records, rests_on)))
    return (
        f"<h3>{escape(question.title)}</h3>\n"
        f"<p><strong>{escape(answer.conclusion)}</strong> {escape(answer.reason)}</p>\n"
        f"{html_list(map(escape, answer.numbers))}{note}\n<p>Rests on: {links}.</p>\n"
        f"<p><small>{escape(answer.asked)}</small></p>"
    )


def _method() -> str:
    rates = ", ".join(f"{2.0**doublings:g}" for doublings in FIRST_DOUBLINGS)
    items = [escape(" ".join(item.split())) for item in re.split(r"(?m)^\d+\. ", RULE)[1:]]
    rule = "\n".join(
        "<li>" + re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", item) + "</li>" for item in items
    )
    tuning = (
        f"The learning rate and the schedule (constant or cosine) of every arm were tuned in the "
        f"same way: {rates} times the task’s own rate with {SCREENING_SEEDS} seeds each, more "
        "rates until the best one has a smaller and a larger neighbour. If no run has learnt by "
        f"then, {len(ALL_DOUBLINGS)} rates with either schedule are tried, from "
        f"{2.0 ** ALL_DOUBLINGS[0]:g} to {2.0 ** ALL_DOUBLINGS[-1]:g} times the task’s own; "
        "records that are older than this step do not contain it. The best "
        f"{FINALISTS} are then tried with {TUNING_SEEDS} seeds, which are not used for anything "
        f"else. Long trainings are first tried for 1/{SHORTENED} of their steps."
    )
    rest = f"<p>{escape(tuning)}</p>\n<p>{escape(errors_in_words())}</p>"
    return f"<h2>How verdicts are made</h2>\n<ol>\n{rule}\n</ol>\n{rest}"


def _claims(claims: Sequence[ClaimInWords]) -> str:
    parts = []
    for family in dict.fromkeys((*FAMILIES, *(words.claim.family for words in claims))):
        sections = [
            _section(words, words.evidence)
            for words in claims
            if words.evidence is not None and words.claim.family == family
        ]
        if sections:
            parts += [f"<h2>{escape(family)}</h2>", *sections]
    return "\n".join(parts)


def _section(words: ClaimInWords, evidence: Evidence) -> str:
    name = escape(words.claim.id)
    terms = "\n".join(
        f"<dt>{term}</dt><dd>{escape(text)}</dd>" for term, text in words.facts.items()
    )
    return f"""<section class="claim" id="{name}" aria-labelledby="{name}-title">
<h3 id="{name}-title">{escape(words.claim.title)}</h3>
<dl>
{terms}
</dl>
<div class="figures">
{_figure(plot_evidence(evidence), describe_evidence(evidence), EVIDENCE_KEY)}
{_learning(evidence)}
{_figure(plot_differences(evidence), describe_differences(evidence), DIFFERENCES_KEY)}
</div>
{_table(statements_table(evidence))}
<details><summary>Learning rates and schedules, and the experiments to train again</summary>
{_recipes(evidence)}
{_table(tuning_table(evidence))}
<p>To train one of them again, paste its text after <code>?</code> in the dashboard’s address.</p>
{html_list(f"<code>{escape(text)}</code>" for text in evidence.experiments)}
</details>
</section>"""


def _figure(figure: Figure, words: str, key: str, above: str = "") -> str:
    data = json.dumps(figure, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    height = int(figure["layout"]["height"])
    return (
        f"<figure>{f'<p>{escape(above)}</p>' if above else ''}"
        f'<div class="plot" role="img" aria-label="{escape(words)}" '
        f'style="min-height:{height}px"></div><script type="application/json">{data}</script>'
        f"<figcaption>{escape(key)}</figcaption></figure>"
    )


def _learning(evidence: Evidence) -> str:
    figure = plot_learning(evidence)
    if figure is None:
        return ""
    return _figure(figure, describe_learning(evidence), LEARNING_KEY, longer_in_words(evidence))


def _recipes(evidence: Evidence) -> str:
    figure = plot_recipes(evidence)
    return "" if figure is None else _figure(figure, describe_recipes(evidence), RECIPES_KEY)


def _link(words: ClaimInWords) -> str:
    return f'<a href="#{escape(words.claim.id)}">{escape(words.claim.title)}</a>'


def _table(table: Table, rows: Iterable[Sequence[str]] | None = None) -> str:
    """Return a table in a scrolling box, with other rows in HTML if they are given."""
    if rows is None:
        rows = [[escape(cell) for cell in row] for row in table.rows]
    body: Iterable[Row] = ([Cell(first, is_name=True), *rest] for first, *rest in rows)
    caption = escape(table.caption)
    inner = html_table([escape(name) for name in table.head], body, caption=caption)
    return f'<div class="wide" role="group" tabindex="0" aria-label="{caption}">{inner}</div>'
