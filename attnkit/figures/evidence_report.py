"""Report of all evidence as one HTML page that works without a server, network or other files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from attnkit.claims import FAMILIES, Claim, Verdict
from attnkit.evidence.question import (
    Question,
    number_sentences,
    reason_sentences,
    short_answer,
)
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import Evidence, verdicts_of
from attnkit.evidence.trials import N_TUNING_SEEDS, RATES
from attnkit.evidence.verdict import MARKS, RULE
from attnkit.evidence.words import (
    main_finding,
    prediction_in_words,
    rises_in_words,
    rows_of,
    score_in_words,
    seen_in_words,
)
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY, describe_evidence, plot_evidence
from attnkit.figures.learning import LEARNING_KEY, describe_learning, plot_learning
from attnkit.figures.panels import Figure
from attnkit.training.engine import in_words

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
.verdict { font-weight: 600; white-space: nowrap; }
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


def to_html(records: Sequence[Evidence]) -> str:
    """Return the HTML page of records that are read together.

    Its colours follow the light or dark mode of the system.
    """
    from plotly.offline import get_plotlyjs

    verdicts = verdicts_of(records)
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
{_summary(records, verdicts)}
{_failed(records, verdicts)}
{_answers(records, verdicts)}
{_method()}
{_claims(records, verdicts)}
</main>
<script>{plotly}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _about(records: Sequence[Evidence]) -> str:
    versions = ", ".join(dict.fromkeys(record.version for record in records)) or "none"
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


def _quick(records: Sequence[Evidence]) -> str:
    quick = [record for record in records if record.quick]
    if not quick:
        return ""
    subject = "All records" if len(quick) == len(records) else f"{len(quick)} records"
    return (
        f'\n<p class="note"><strong>Quick form.</strong> {subject} here have only '
        f"{len(quick[0].seeds)} seeds, each verdict is read alone, and nothing was trained longer "
        "to make sure of an inability. Intervals are wide; the full form may say otherwise.</p>"
    )


def _summary(records: Sequence[Evidence], verdicts: Mapping[str, Verdict]) -> str:
    counts = ", ".join(f"{list(verdicts.values()).count(verdict)} {verdict}" for verdict in MARKS)
    rows = []
    for record in records:
        claim, verdict = record.claim, verdicts[record.claim.id]
        rows.append(
            [
                f'<a href="#{escape(claim.id)}">{escape(claim.title)}</a>',
                escape(claim.source),
                escape(claim.expected)
                + ("" if verdict == claim.expected else " <b>(wrong)</b>")
                + (" (changed since the first run began)" if record.changed else ""),
                escape(claim.seen),
                _verdict(verdict),
                escape(main_finding(record)),
            ]
        )
    head = ("Claim", "Who says it", "We predicted", "Seen before", "Verdict", "Found")
    return (
        f"<h2>Verdicts</h2>\n<p>{escape(counts)}. {escape(score_in_words(records))}</p>\n"
        f"{_table('All verdicts', head, rows)}"
    )


def _failed(records: Sequence[Evidence], verdicts: Mapping[str, Verdict]) -> str:
    failed = [
        record.claim for record in records if verdicts[record.claim.id] != record.claim.expected
    ]
    if not failed:
        return "<h2>Predictions that did not come true</h2>\n<p>None.</p>"
    items = "\n".join(
        f'<li><a href="#{escape(claim.id)}">{escape(claim.title)}</a>: we predicted '
        f"“{escape(claim.expected)}”, the verdict is {_verdict(verdicts[claim.id])}. "
        f"{escape(_reason(claim, verdicts[claim.id]))}</li>"
        for claim in failed
    )
    return f"<h2>Predictions that did not come true</h2>\n<ul>\n{items}\n</ul>"


def _answers(records: Sequence[Evidence], verdicts: Mapping[str, Verdict]) -> str:
    by_id = {record.claim.id: record for record in records}
    parts = [_answer(question, by_id, verdicts) for question in QUESTIONS.values()]
    answers = "\n".join(part for part in parts if part)
    return f"<h2>The questions that people asked</h2>\n{answers}" if answers else ""


def _answer(
    question: Question, by_id: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> str:
    conclusion = short_answer(question, by_id, verdicts)
    texts = number_sentences(question, by_id)
    if not conclusion and not texts:
        return ""
    used = [sentence.claim for sentence in (*question.conclusion, *question.reason)]
    used += [numbers.claim for numbers in question.numbers]
    missing = [name for name in dict.fromkeys(used) if name not in by_id]
    note = f"\n<p><i>(Not on this page: {escape(', '.join(missing))}.)</i></p>" if missing else ""
    links = ", ".join(
        f'<a href="#{escape(name)}">{escape(by_id[name].claim.title)}</a>'
        for name in question.claims
        if name in by_id
    )
    reason = escape(" ".join(reason_sentences(question, by_id, verdicts)))
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return (
        f"<h3>{escape(question.title)}</h3>\n"
        f"<p><strong>{escape(conclusion)}</strong> {reason}</p>\n"
        f"<ul>\n{items}\n</ul>{note}\n<p>Rests on: {links}.</p>\n"
        f"<p><small>Asked: “{escape(question.asked)}” ({escape(question.source)})</small></p>"
    )


def _method() -> str:
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    items = [escape(" ".join(item.split())) for item in re.split(r"(?m)^\d+\. ", RULE)[1:]]
    rule = "\n".join(
        "<li>" + re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", item) + "</li>" for item in items
    )
    tuning = (
        f"The learning rate of every arm was tuned with the same budget: {len(RATES)} rates "
        f"({rates} times the task’s own) with {N_TUNING_SEEDS} seeds each, which are not used for "
        "anything else."
    )
    return f"<h2>How verdicts are made</h2>\n<ol>\n{rule}\n</ol>\n<p>{escape(tuning)}</p>"


def _claims(records: Sequence[Evidence], verdicts: Mapping[str, Verdict]) -> str:
    parts = []
    families = [*FAMILIES, *(record.claim.family for record in records)]
    for family in dict.fromkeys(families):
        sections = "\n".join(
            _section(record, verdicts[record.claim.id])
            for record in records
            if record.claim.family == family
        )
        if sections:
            parts.append(f"<h2>{escape(family)}</h2>\n{sections}")
    return "\n".join(parts)


def _section(evidence: Evidence, verdict: Verdict) -> str:
    claim = evidence.claim
    alone = evidence.judgement.verdict
    verdict_text = _verdict(verdict)
    if alone != verdict:
        verdict_text += f" when read with all others; read alone: {escape(alone)}"
    outcome = prediction_in_words(claim, verdict)
    if outcome == "was wrong":
        outcome = f"<strong>{outcome}</strong>"
    seeds = f"{len(evidence.seeds)}, from {evidence.seeds[0]} to {evidence.seeds[-1]}"
    facts = {
        "Question": escape(claim.question),
        "Claim": escape(claim.says),
        "Source": escape(claim.source),
        "Prediction": f"{escape(claim.prediction)} This prediction {outcome}.",
        "Seen before": escape(seen_in_words(claim, evidence)),
        "Verdict": verdict_text,
        "Reason": escape(_reason(claim, verdict)),
        "Seeds": escape(seeds + (" (quick form)" if evidence.quick else "")),
        "Record": f"attnkit {escape(evidence.version)}, hash <code>{escape(evidence.hash)}</code>, "
        f"trained by {escape(in_words(evidence.engine, evidence.processor))}",
    }
    terms = "\n".join(f"<dt>{term}</dt><dd>{fact}</dd>" for term, fact in facts.items() if fact)
    name = escape(claim.id)
    return f"""<section class="claim" id="{name}" aria-labelledby="{name}-title">
<h3 id="{name}-title">{escape(claim.title)}</h3>
<dl>
{terms}
</dl>
<div class="figures">
{_figure(plot_evidence(evidence), describe_evidence(evidence), EVIDENCE_KEY)}
{_learning(evidence)}
{_figure(plot_differences(evidence), describe_differences(evidence), DIFFERENCES_KEY)}
</div>
{_statements(evidence)}
<details><summary>Learning rates, and the experiments to train again</summary>
{_tuning(evidence)}
<p>To train one of them again, paste its text after <code>?</code> in the dashboard’s address.</p>
<ul>
{_listed(evidence.experiments)}
</ul>
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
    return _figure(figure, describe_learning(evidence), LEARNING_KEY, rises_in_words(evidence))


def _statements(evidence: Evidence) -> str:
    rows = [
        [
            *map(escape, (row.text, row.solved, row.pairs, row.median, row.mean)),
            _verdict(row.verdict),
        ]
        for row in rows_of(evidence)
    ]
    head = ("Tested", "Solved", "Seeds", "Median", "Mean", "Verdict, read alone")
    return _table("All statements", head, rows)


def _tuning(evidence: Evidence) -> str:
    rows = []
    for name, tuned in evidence.tuned.items():
        tried = ", ".join(f"{rate:g}: {tuned.in_words(rate)}" for rate in tuned.tried)
        edge = "at the edge of what was tried" if tuned.at_edge else "no"
        cells = (name, f"{tuned.rate:g}", tuned.by, tried, edge)
        rows.append([escape(cell) for cell in cells])
    head = ("Arm", "Learning rate", "Chosen by", "Tried (rate: result)", "At the edge?")
    return _table("How learning rates were found", head, rows)


def _reason(claim: Claim, verdict: Verdict) -> str:
    """Return the reason for a verdict; empty for a predicted one without a recorded reason."""
    if claim.reason or verdict == claim.expected:
        return claim.reason
    return "The seeds do not settle it." if verdict == "undecided" else "The reason is unknown."


def _verdict(verdict: Verdict) -> str:
    mark = f'<span aria-hidden="true">{MARKS[verdict]}</span>'
    return f'<span class="verdict">{mark} {verdict}</span>'


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in a scrolling box; cells are HTML, and the first of a row is its header."""
    headers = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="group" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{headers}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>"
    )


def _listed(texts: Iterable[str]) -> str:
    return "\n".join(f"<li><code>{escape(text)}</code></li>" for text in texts)
