"""What notebooks show: cards without script or server, the player of films, and figures."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from itertools import product
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest
from axe_playwright_python.sync_playwright import Axe
from filming import film_of
from kinds import tiny
from playwright.sync_api import expect
from small_claims import small_claim
from trained_runs import trained

import attnkit as ak
from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS, Answer
from attnkit.evidence.record import load_shipped
from attnkit.examples import load_example
from attnkit.notebook import style
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.shipped import load_atlas
from attnkit.training.summary import percent, sharing_table
from attnkit.variants import CATALOGUE

HOSTILE = """<script>alert("1")</script>'"&<b>"""


def shown(value, most=20_000):
    """Return the visible text of a value's card, which is small and has no script and no links."""
    html = value._repr_html_()
    assert len(html) < most, repr(value)
    assert not re.search(r"<script|url\(|@import", html)
    card = ET.fromstring(re.sub(r"<(br|img)\b([^>]*?)/?>", r"<\1\2/>", html))
    attributes = {name for node in card.iter() for name in node.attrib}
    assert not attributes & {"id", "src", "href"}
    assert not any(name.startswith("on") for name in attributes)
    return " ".join(card.itertext())


def a_head(atlas):
    """Return the first head of an atlas."""
    row = atlas.table[atlas.table["head"].notna()].iloc[0]
    setting = {"folded": bool(row["folded"]), "offset": int(row["offset"])}
    return atlas.head(row["model"], row["kind"], int(row["layer"]), int(row["head"]), **setting)


def test_every_value_has_a_small_card():
    """Tasks trained and as plans, claims with their verdicts, questions, variants with costs."""
    records = load_shipped()
    for task in ak.TASKS:
        snapshot = load_example(task)
        assert snapshot.experiment.task.title in shown(snapshot)
        assert shown(snapshot.experiment, 40_000)
    for name, claim in CLAIMS.items():
        assert ("Verdict:" in shown(claim)) == (name in records), name
    for question in QUESTIONS.values():
        text = shown(question)
        assert Answer(question, records).conclusion in text
        assert all(name in text for name in question.claims if name in records)
    for name in CATALOGUE:
        text = shown(ak.Variant(name), 12_000)
        assert (ak.Variant(name).value in text, "Parameters" in text) == (True, True), name
    assert "Parameters" not in shown(ak.Variant("QKV n_heads=7 kv_heads=5"))
    assert "Seeds 3" in shown(ak.Experiment(d_head=8, n_seeds=3))
    assert "Seeds" not in shown(ak.Experiment())
    html = film_of(steps=40, evaluate_every=1)._repr_html_()
    assert len(html) < 1_600_000
    assert (html.count("<iframe"), "<script" in html) == (1, False)  # a page in an attribute


def test_cards_say_what_has_no_number_yet():
    """A card of step 0 claims nothing, a running one has a bar, and diverged runs leave gaps."""
    example = load_example("directed")
    for row in sharing_table(example).to_dict("records"):
        assert {percent(row["accuracy"]), f"{row['parameters']:,}"} <= set(shown(example).split())
    assert "Untrained: " in shown(trained(tiny("directed"), 0))
    assert "50% of" in dataclasses.replace(example, status="running", step=300)._repr_html_()
    assert "Stopped before" in shown(dataclasses.replace(example, status="stopped"))
    history = {name: values * np.nan for name, values in example.history.items()}
    lost = dataclasses.replace(example, history=history, diverged_at=0 * example.diverged_at)
    assert "5 of 5 diverged" in shown(lost)
    assert "nan" not in lost._repr_html_().lower().replace("nano", "")


def test_many_variants_have_a_whole_table_and_five_panels_in_a_row():
    """The card of the plan says which diagrams are missing."""
    sharing = [f"QKV d_head={width}" for width in range(1, 41)]
    many = trained(ak.Experiment(task="phonebook", sharing=sharing, n_seeds=1), 0).snapshot
    assert "first 12 of 40" in shown(many.experiment, 80_000)
    assert many._repr_html_().count("<tr>") == 41
    layout = many.plot("attention").to_dict()["layout"]
    assert len({tuple(layout[name]["domain"]) for name in layout if name.startswith("xaxis")}) == 5


def test_records_atlases_and_heads_have_cards_and_figures():
    """A record has its verdict, an atlas a row per model, a head its measures."""
    record = load_shipped()["one_matrix"]
    assert f"✗ {record.judgement.verdict}" in shown(record)
    atlas = load_atlas()
    html, head = atlas._repr_html_(), a_head(atlas)
    assert all(model in html for model in atlas.table["model"].unique())
    assert head.in_words in shown(head)
    assert "only its numbers were kept" in shown(a_head(Atlas(atlas.table)))
    assert shown(Atlas(atlas.table.iloc[:0]))
    figures = [head.plot(kind) for kind in ("split", "spectra", "angles")]
    figures += [atlas.plot(measure="symmetry"), atlas.plot("scatter", x="overlap_kv")]
    assert len({figure.layout.title.text for figure in figures}) == 5


def test_texts_of_users_are_escaped(monkeypatch):
    """These are titles of tasks, names of variants, texts of claims, and names of models."""
    snapshot = load_example("directed")
    for name in ("title", "question"):
        monkeypatch.setattr(type(snapshot.experiment.task), name, HOSTILE)
    for module in ("variants.catalogue", "figures.board", "figures.panels", "notebook.cards"):
        monkeypatch.setattr(f"attnkit.{module}.title_of", lambda variant: HOSTILE)
    texts = dict.fromkeys(("title", "question", "source", "says", "prediction"), HOSTILE)
    claim = dataclasses.replace(CLAIMS["one_matrix"], **texts)
    atlas = Atlas(load_atlas().table.replace({"model": {"all-MiniLM-L6-v2": HOSTILE}}))
    question = dataclasses.replace(QUESTIONS["value"], title=HOSTILE, asked=HOSTILE)
    for value in (snapshot, snapshot.experiment, claim, question, atlas, a_head(atlas)):
        assert HOSTILE in shown(value)
        assert '<b>"' not in value._repr_html_()
    assert HOSTILE not in snapshot.plot().to_json()


def test_a_card_changes_nothing_outside_of_itself():
    """Every selector begins with its own class; who is not trusted sees texts, not drawings."""
    rules = style.STYLE.removeprefix("<style>").removesuffix("</style>")
    for rule in filter(None, (part.strip() for part in rules.split("}"))):
        selectors = re.sub(r"\([^)]*\)", "", rule.split("{")[0]).split(",")
        assert all(one.strip().startswith(f".{style.ROOT}.{style.ROOT}") for one in selectors)
    card = ak.Experiment()._repr_html_()
    before, _, after = card.partition('<div class="grid" style="')
    assert after.startswith("display:none;")
    assert "<svg" not in after[after.index('class="untrusted"') :]
    assert 'class="drawing" style="display:none"><svg' in before


def test_every_kind_of_figure_is_drawn_for_every_kind_of_task():
    """A figure has a panel per variant; scores are refused where none were recorded."""
    kinds = ("accuracy", "loss", "attention", "scores", "asymmetry")
    for task, kind in product(("directed", "translation", "language", "transfer"), kinds):
        snapshot = load_example(task)
        if kind == "scores" and snapshot.probe.scores is None:
            with pytest.raises(ValueError, match="no scores"):
                snapshot.plot(kind)
            continue
        layout = snapshot.plot(kind).to_dict()["layout"]
        assert sum(name.startswith("xaxis") for name in layout) == len(snapshot.experiment.sharing)
        assert snapshot.experiment.task.title in layout["title"]["text"]
    snapshot = load_example("directed")
    result = ak.Result(snapshot, [])
    figures = [result.plot(theme=one) for one in (None, "light", "dark")]
    assert {type(figure) for figure in figures} == {go.Figure}
    assert len({figure.layout.font.color for figure in figures}) == 3
    assert {figure.layout.paper_bgcolor for figure in figures} == {"rgba(0,0,0,0)"}
    snapshot = load_example("translation")
    options = [{}, {"seed": 1}, {"layer": 0}, {"head": 1}, {"head": "mean"}]
    maps = [str(snapshot.plot("attention", **one).data[0].z) for one in options]
    assert len(set(maps)) == len(maps)


def test_wrong_options_are_named():
    """The message has the field, the value and what is allowed."""
    snapshot, record = load_example("directed"), load_shipped()["one_matrix"]
    short = next(r for r in load_shipped().values() if all(arm.up_to == 1 for arm in r.claim.arms))
    atlas = load_atlas()
    place = {"model": "all-MiniLM-L6-v2", "kind": "encoder", "layer": 0, "head": 0}
    for call, options, message in (
        (snapshot.plot, {"kind": "acuracy"}, "kind: got 'acuracy', allowed accuracy, loss, "),
        (snapshot.plot, {"theme": "pink"}, "theme: got 'pink', allowed light, dark or None"),
        (snapshot.plot, {"kind": "loss", "seed": 1}, "seed: got 1, allowed options theme"),
        (snapshot.plot, {"kind": "attention", "seed": 9}, "seed: got 9, allowed 0 to 4"),
        (snapshot.plot, {"kind": "attention", "head": 7}, 'head: got 7, allowed 0 or "mean"'),
        (short.plot, {"kind": "learning"}, "no long runs"),
        (small_claim("unmeasured").plot, {}, "claim: got 'unmeasured', allowed"),
        (atlas.plot, {"measure": "symetry"}, "measure: got 'symetry', "),
        (a_head(Atlas(atlas.table)).plot, {}, "portrait"),
        (atlas.head, place | {"model": "x"}, "model: got 'x', allowed "),
        (atlas.head, place | {"head": -1}, "head: got -1, allowed 0 to 11"),
        (atlas.head, place | {"offset": 3}, "offset: got 3, allowed 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call(**options)
    for kind in ("scores", "differences", "learning"):  # a claim draws its shipped record
        assert record.plot(kind) == CLAIMS["one_matrix"].plot(kind)


def test_a_value_shows_its_card_and_its_first_figure(monkeypatch):
    """So it is in a kernel; a claim on trial has no figure, and a terminal writes a text."""
    outputs, atlas = [], load_atlas()
    shell = SimpleNamespace(display_pub=SimpleNamespace(publish=outputs.append))
    result = ak.Result(load_example("directed"), [])
    with pytest.raises(NotImplementedError):
        result._ipython_display_()
    monkeypatch.setattr("attnkit.foundation.display.jupyter_shell", lambda: shell)
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    for value, kind in ((result, "accuracy"), (a_head(atlas), "split"), (atlas, "distribution")):
        value._ipython_display_()
        (card, figure), outputs[:] = outputs, []
        assert card == {"text/html": value._repr_html_(), "text/plain": repr(value)}
        title = figure["application/vnd.plotly.v1+json"]["layout"]["title"]["text"]
        assert title == value.plot(kind).layout.title.text
    for value in (small_claim("unmeasured"), a_head(Atlas(atlas.table))):
        value._ipython_display_()
        assert [set(output) for output in outputs] == [{"text/html", "text/plain"}]
        outputs.clear()


@pytest.mark.browser
@pytest.mark.parametrize(
    "style", ["background: #fff; color: #212121", "background: #111; color: #ddd"]
)
def test_cards_are_readable_and_load_nothing(page, requested, style):
    """So they are light and dark, as a notebook colours its cells, and nothing is too wide."""
    example, atlas = load_example("directed"), load_atlas()
    values = [example, example.experiment, CLAIMS["one_matrix"], atlas, a_head(atlas)]
    body = "<hr>".join(value._repr_html_() for value in values)
    page.set_content(
        f'<!doctype html><html lang="en"><title>Cards</title><body style="{style}">'
        f"<main><h1>Cards</h1>{body}</main></body></html>"
    )
    for width in (1200, 640):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert requested == []


@pytest.mark.browser
def test_a_film_plays_in_the_theme_of_its_notebook(page, requested):
    """The text around the frame decides, whatever the system's theme is; no server is asked."""
    html = film_of()._repr_html_()
    light, dark = "rgb(255, 255, 255)", "rgb(14, 17, 23)"
    for scheme, text, expected in (
        ("light", "#212121", light),
        ("light", "oklch(0.93 0 0)", dark),
        ("dark", "#212121", light),
        ("dark", "#e0e0e0", dark),
    ):
        page.emulate_media(color_scheme=scheme)
        page.set_content(f'<body style="color: {text}">{html}</body>')
        frame = page.frame_locator("iframe")
        frame.get_by_role("slider").first.wait_for()
        expect(frame.locator("body")).to_have_css("background-color", expected)
    assert [url for url in requested if not url.startswith(("data:", "about:", "blob:"))] == []
