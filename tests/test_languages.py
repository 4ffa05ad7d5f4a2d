"""Other languages: nothing is missing, nothing is put together from fragments, pages have no rest.

`tests/catalogues.py` brings the files of translations up to date.
"""

import ast
import json
import pickle
import random
import re
import string
from gettext import NullTranslations

import pytest
from babel.messages.extract import extract_from_dir
from catalogues import KEYWORDS, METHODS, ROOT, messages_of_code, translations
from hypothesis import given
from hypothesis import strategies as some
from idle import idle_service, link_of, open_page, show, visit
from searching import times
from small_claims import MadeUp, made_up

from attnkit.analysis.export import module_code
from attnkit.claims import CLAIMS, Verdict
from attnkit.evidence import record
from attnkit.evidence.presentation import claims_in_words
from attnkit.evidence.record import Records
from attnkit.experiment import Experiment
from attnkit.figures.diagram import variant_diagram
from attnkit.foundation import language
from attnkit.foundation.language import ENGLISH, LANGUAGES, Message, mark, reading, tr, tr_n
from attnkit.foundation.settings import message_of
from attnkit.tasks import TASKS
from attnkit.ui.lab.classroom import lessons
from attnkit.ui.language import TRANSLATED
from attnkit.ui.pages.questions import CLAIM, NEW, SHOWN
from attnkit.variants import CATALOGUE, OPTIONS, InvalidVariant, Variant
from attnkit.variants.catalogue import search

OTHERS = [code for code in LANGUAGES if code != ENGLISH]

CALLS = {"tr": 1, "tr_n": 2, "mark": 1, "Sentence": 1}
"""Arguments that are messages, by the name of the function."""


def placeholders(text):
    """Return the names and formats of the values in a message."""
    return sorted((name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name)


def marks(text):
    """Return what must be the same in every language: marks of Markdown, code, tags and links."""
    code = re.findall(r"`[^`]*`|\]\([^)]*\)|</?\w+[^>]*>|:material/\w+:", text)
    return sorted(code), text.count("**"), text[:1].isspace(), text[-1:].isspace(), text.count("\n")


@pytest.mark.parametrize("code", OTHERS)
def test_a_language_has_every_message_and_no_other(code):
    """Each is translated, with the same values and marks; none is still English."""
    catalogue, wanted = translations(code), messages_of_code()
    assert {m.id for m in catalogue if m.id} == {m.id for m in wanted if m.id}
    faults = []
    for message in catalogue:
        if not message.id:
            continue
        ids = message.id if isinstance(message.id, tuple) else (message.id,)
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        if message.fuzzy or not all(texts):
            faults.append(("missing", ids[0]))
        for text in texts:
            allowed = [placeholders(one) for one in ids if "{" in one] or [[]]
            if text and (placeholders(text) not in allowed or marks(text) != marks(ids[-1])):
                faults.append(("differs", text))
            if text in ids and len(re.findall(r"\b[a-z]{4,}", text)) > 2:
                faults.append(("English", text))
    assert faults == []


def nodes():
    """Yield all nodes of the code, with the names of their files."""
    for path in sorted((ROOT / "attnkit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            yield path.name, node


def is_message(node):
    """Return whether a node is a call that gives a translated text."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS


def test_no_sentence_is_put_together_from_fragments():
    """Messages are literals, and nothing with words is joined to a translated text."""
    faults = []
    for file, node in nodes():
        parts = []
        if is_message(node):
            arguments = node.args[: CALLS[node.func.id]]
            if any(isinstance(argument, ast.JoinedStr | ast.BinOp) for argument in arguments):
                faults.append((file, node.lineno, "no literal"))
        elif isinstance(node, ast.JoinedStr):
            parts, inner = node.values, list(filter(is_message, ast.walk(node)))
            if any(isinstance(one.args[0], ast.Constant) for one in inner):
                faults.append((file, node.lineno, "a message in an f-string, where none is found"))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = inner = [node.left, node.right]
        texts = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
        no_words = r"<[^>]*>|&\w+;|:material/\w+:"
        has_words = any(re.search("[A-Za-z]{2,}", re.sub(no_words, "", text)) for text in texts)
        if has_words and any(map(is_message, inner)):
            faults.append((file, node.lineno, "words beside a translated text"))
    scripts = (ROOT / "attnkit" / "ui" / "assets").glob("*.js")
    in_template = re.compile(r"\$\{\s*trN?\(")
    faults += [path.name for path in scripts if in_template.search(path.read_text("utf-8"))]
    assert faults == []


class Marked(NullTranslations):
    """A language that puts marks around every message."""

    def gettext(self, message):
        """Return the message in marks."""
        return f"«{message}»"

    def ngettext(self, one, several, n):
        """Return the message for a number in marks."""
        return self.gettext(one if n == 1 else several)


@pytest.fixture
def marked(monkeypatch):
    """A language of marks, `zz`; drawings that are kept do not mix with others."""
    known = language._catalogue
    monkeypatch.setitem(LANGUAGES, "zz", "marks")
    marks = Marked()
    monkeypatch.setattr(language, "_catalogue", lambda code: marks if code == "zz" else known(code))
    monkeypatch.setattr(language, "_read", lambda code: ())


@given(n=some.integers(0, 10**7), name=some.text(), code=some.sampled_from(list(LANGUAGES)))
def test_values_stand_in_messages_as_they_are(n, name, code):
    """Braces of a value are no placeholders; digits are grouped as the language does it."""
    with reading(code):
        inner = mark("{name} of {n:,}", name=name, n=n)
        space = "," if code == ENGLISH else "" if code == "es" and n < 10_000 else "\u202f"
        expected = f"{n:,}".replace(",", space)
        assert tr("{inner}: {name}", inner=inner, name=name) == f"{name} of {expected}: {name}"
        assert tr_n("{n} q", "{n:,} qs", n).startswith("1 q" if n == 1 else expected)
    assert str(inner) == f"{name} of {n:,}"


def unmarked(text):
    """Return a text without what stands in marks, also if the text is cut off within them."""
    before = None
    while before != text:
        before, text = text, re.sub(r"«[^«»]*(?:»|…)", " ", text)
    return text


def texts_in(value):
    """Yield all texts in data that were sent to a component."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


def shown_texts(tab):
    """Yield the texts of a page: of Streamlit's elements, of tables, and of our components."""
    for element in (*tab.main, *tab.sidebar):
        names = ("body", "label", "help", "placeholder", "value", "alt")
        texts = [getattr(element.proto, name, "") for name in names]
        texts += [getattr(one, "content", one) for one in getattr(element.proto, "options", ())]
        yield from (text for text in texts if isinstance(text, str))
    for table in tab.dataframe:
        yield from texts_in(json.loads(table.proto.columns or "{}"))
        yield from texts_in(table.value.to_numpy().ravel().tolist())
    for element in tab.get("bidi_component"):
        yield from texts_in(json.loads(element.proto.bytes or "{}"))


def english(text):
    """Return whether a text is English in every language: it has two words or more."""
    left = re.sub(r"<[^>]*>|`[^`]*`|\$[^$]*\$|https?://\S+|\]\([^)]*\)", " ", unmarked(text))
    return re.search(r"\b[A-Za-z’]{3,} +[a-z’]{3,}\b", left) is not None


def states_of_lab(rng):
    """Yield the Lab with tasks and settings."""
    yield visit(lang="zz")
    for task in rng.sample(list(TASKS), min(times(4), len(TASKS))):
        state = rng.choice([{}, {"steps": "310"}, {"quiet": "1"}, {"n_heads": "999"}])
        yield visit(v="1", lang="zz", task=task, **state)


def states_of_questions(rng):
    """Yield questions, claims with all their evidence, and a claim that the visitor has run."""
    tab = open_page("questions", lang="zz", claim="all")
    tab.toggle(key="all_columns").set_value(True)
    yield show(tab)
    words = claims_in_words(record.load_shipped())
    undecided = [one.claim.id for one in words if one.verdict is Verdict.UNDECIDED]
    known = [{"question": rng.choice(list(SHOWN))}, {"question": NEW}]
    known += [{"claim": rng.choice(list(CLAIMS))}, {"claim": rng.choice(undecided)}]
    for link in (*known, {"claim": "x y"}):
        quiet = {"quiet": "1"} if rng.random() < 0.3 else {}
        yield open_page("questions", lang="zz", **link, **quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "load_shipped", Records)
        yield open_page("questions", lang="zz", question=rng.choice(list(SHOWN)))
    # A claim without a guess, while its models train, stopped, and with made-up results.
    name = rng.choice(list(CLAIMS))
    tab = open_page("questions", lang="zz", claim=name)

    def press(key):
        tab.button(key=key).click()
        return show(tab)

    yield press("run_claim")
    tab.radio[0].set_value("It will not hold")
    yield press("run_claim")
    for shown in (next(claim for claim in CLAIMS if claim != name), name):
        tab.selectbox(key=CLAIM).set_value(shown)
        yield show(tab)
    yield press("stop_claim")
    rerun = tab.session_state["reruns"].known[name]
    rerun.problem, rerun.n_finished = "", len(rerun.experiments)
    known = record.load_shipped()
    rerun._scores = made_up(CLAIMS[name], MadeUp(lambda _: None), quick=True, records=known).scores
    yield show(tab)


def states_of_guide(_rng):
    """Yield the Guide with its lessons."""
    yield open_page("guide", lang="zz")


@pytest.mark.server
@pytest.mark.parametrize("name", sorted(TRANSLATED))
def test_no_text_of_a_translated_page_is_left_in_english(tmp_path, marked, seed, name):
    """The page is opened with links and in states that are drawn from a seed."""
    states = {"lab": states_of_lab, "guide": states_of_guide, "questions": states_of_questions}
    with idle_service(tmp_path), reading("zz"):  # what the browser would send is in it
        for place, tab in enumerate(states[name](random.Random(seed))):
            texts = list(shown_texts(tab))
            assert any("«" in text for text in texts)
            assert list(filter(english, texts)) == [], (place, link_of(tab))


@pytest.mark.server
def test_a_link_decides_the_language(tmp_path, seed):
    """Its other settings count as ever; a link to a page in English only says so."""
    code = random.Random(seed).choice(OTHERS)
    with idle_service(tmp_path):
        assert visit(lang="xx").selectbox(key="lang").value == ENGLISH
        tab = visit(lang=code, task="translation", language="German", steps="310")
        assert tab.selectbox(key="lang").value == link_of(tab)["lang"] == code
        experiment = tab.session_state["lab"].experiment
        assert (experiment.task.language, experiment.training.steps) == ("German", 310)
        labels = []
        for one in (ENGLISH, code):
            links = open_page("guide", lang=one).get("page_link")
            labels.append({link.proto.page: link.proto.label for link in links})
    assert labels[0]["variants"] == "All variants"
    with reading(code):
        assert tab.button(key="train").label == tr("Train") != "Train"
        variants, answers = tr("All variants"), tr("The answers")
        marked = tr("{label} (in English)", label=variants)
        assert (labels[1]["variants"], labels[1]["questions"]) == (marked, answers)
    calls = [file for file, node in nodes() if getattr(node, "attr", "") == "page_link"]
    assert set(calls) == {"language.py"}  # so that no link is forgotten


@pytest.mark.parametrize("code", OTHERS)
def test_lessons_are_the_same_in_every_language(code):
    """Links, code, numbers and the order of headings are those of the English lesson."""
    folder = ROOT / "docs" / "lessons"
    for name in ("index", *lessons()):
        texts = [(place / f"{name}.md").read_text("utf-8") for place in (folder, folder / code)]
        texts = [re.sub(r"(?<=\d)[,\u202f](?=\d|%)", "", text) for text in texts]
        for pattern in (r"(?s)```.*?```", r"(?m)^#+ ", r"`[^`\n]+`", r"\d+(?:\.\d+)?%?"):
            found = [sorted(re.findall(pattern, text)) for text in texts]
            assert found[0] == found[1], (name, pattern)


def untranslated(text):
    """Return the words of a text outside of marks."""
    return re.findall(r"\w+", unmarked(text))


def test_options_and_entries_are_known_to_translators():
    """Explanations, helps and the reasons for which words do not go together."""
    found = extract_from_dir(str(ROOT / "attnkit" / "variants"), METHODS, keywords=KEYWORDS)
    known = {message for _, _, message, *_ in found}
    texts = [named.explanation for named in CATALOGUE.values() if named.origin[:7] == "attnkit"]
    for option in OPTIONS.values():
        if option.name != "module" and option.__module__.startswith("attnkit."):
            texts += [option.help, *option.refuses.values()]
    assert {text.template if isinstance(text, Message) else text for text in texts} <= known


def test_meanings_and_diagrams_are_translated_as_whole_sentences(marked):
    """Nothing in the diagram's label is English but names and texts; long notes are wrapped."""
    for name in (*CATALOGUE, *"Q=K V=I|K=V=I|Q=V=I O=I|Q=K=V=I|QKV kv_residual=2".split("|")):
        variant = Variant(f"{name} d_head=m/h" if "=I" in name else name)
        experiment = Experiment(task="phonebook", sharing=[variant])
        with reading("zz"):
            svg = variant_diagram(variant, experiment.wiring(variant), "#0072B2")
            meaning = variant.meaning
        lines = re.findall('class="ak-small">([^<]*)<', svg)
        assert max(map(len, lines), default=0) <= 24, name
        label = re.search('aria-label="([^"]*)"', svg)[1].removeprefix(variant.value)
        rest = re.sub(r"[QKV] (×\d+ ?)?(d\d+)?,? ?", "", unmarked(label))
        assert not untranslated(rest), (name, label)
        assert not untranslated(meaning), name
        assert "«" not in variant.meaning


def test_refusals_and_changes_are_translated_and_what_is_kept_is_english(marked):
    """Words, values, combinations and sizes are refused; the catalogue is searched in both."""
    refused = ["QKW", "QKV n_heads=9", "QKV positions", "K=V keyless", "Q=Q", "QKV tie_by=keep_K"]
    for text in [*refused, "QKV rotate_values=x", "K=V scaled rotate_values", "Q=K,x y"]:
        with pytest.raises(InvalidVariant, match=r"^[^«]*$") as caught:
            Variant(text)
        with reading("zz"):
            again = str(pickle.loads(pickle.dumps(caught.value)))
        assert not untranslated(again), again
    size = Experiment(sharing=["QKV"]).size
    with pytest.raises(ValueError, match="shape") as caught:
        Variant("K=V d_k=3 d_v=5").wire(size, 8)
    with reading("zz"):
        assert not untranslated(tr(message_of(caught.value)).replace("K=V d_k=3 d_v=5", ""))
        experiment = Experiment(sharing=["QKV", "Q=K=V"], equal="parameters", d_mlp=64)
        changes = experiment.adjusted("Q=K=V").changes
        assert changes
        assert "«" not in changes
        assert not untranslated(tr(changes))
        assert [named.name for named in search("narrow") if "narrow" in named.explanation]
        assert "«" not in module_code(Experiment(sharing=["Q=K"]), "Q=K")
