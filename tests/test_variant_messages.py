"""Texts about variants in the reader's language: all of them, and whole sentences."""

import pickle
import re
from gettext import NullTranslations

import pytest
from babel.messages.extract import extract_from_dir
from catalogues import KEYWORDS, METHODS, ROOT

from attnkit.analysis.export import module_code
from attnkit.experiment import Experiment
from attnkit.figures.diagram import variant_diagram
from attnkit.foundation import language
from attnkit.foundation.language import Message, reading, tr
from attnkit.foundation.settings import message_of
from attnkit.variants import CATALOGUE, OPTIONS, InvalidVariant, Variant
from attnkit.variants.catalogue import search

TRANSLATED = re.compile("«[^«»]*»")


class Marked(NullTranslations):
    """A catalogue that puts marks around what it translates."""

    def gettext(self, message):
        """Return a message with marks around it."""
        return f"«{message}»"

    def ngettext(self, one, several, n):
        """Return the form for a number with marks around it."""
        return f"«{one if n == 1 else several}»"


@pytest.fixture(autouse=True)
def _marked(monkeypatch):
    """Marks around every message in all languages but English."""
    english = language._catalogue("en")
    monkeypatch.setattr(language, "_catalogue", lambda code: english if code == "en" else Marked())


def untranslated(text):
    """Return what stands outside of the marks of translated texts, which may be nested."""
    while TRANSLATED.search(text):
        text = TRANSLATED.sub("", text)
    return text


def of_package(thing):
    """Whether a class is the package's own and not a test's."""
    return thing.__module__.startswith("attnkit.")


def test_options_and_entries_are_known_to_translators():
    """Explanations, helps and the reasons for which words do not go together."""
    found = extract_from_dir(str(ROOT / "attnkit" / "variants"), METHODS, keywords=KEYWORDS)
    known = {message for _, _, message, *_ in found}
    texts = [named.explanation for named in CATALOGUE.values() if named.origin[:7] == "attnkit"]
    for option in filter(of_package, OPTIONS.values()):
        if option.name == "module":
            continue
        texts += [option.help, *option.refuses.values()]
    assert len(texts) > 130
    assert {text.template if isinstance(text, Message) else text for text in texts} <= known


def test_meanings_and_diagrams_are_translated_as_whole_sentences():
    """Nothing in the diagram's label is English but names and texts; long notes are wrapped."""
    for name in (*CATALOGUE, *"Q=K V=I|K=V=I|Q=V=I O=I|Q=K=V=I|QKV kv_residual=2".split("|")):
        variant = Variant(f"{name} d_head=m/h" if "=I" in name else name)
        experiment = Experiment(task="phonebook", sharing=[variant])
        with reading("de"):
            svg = variant_diagram(variant, experiment.wiring(variant), "#0072B2")
            meaning = variant.meaning
        lines = re.findall('class="ak-small">([^<]*)<', svg)
        assert max(map(len, lines), default=0) <= 24, name
        label = re.search('aria-label="([^"]*)"', svg)[1].removeprefix(variant.value)
        rest = re.sub(r"[QKV] (×\d+ ?)?(d\d+)?,? ?", "", untranslated(label))
        assert not re.search(r"\w", rest), (name, label)
        assert not untranslated(meaning).strip(), name
        assert "«" not in variant.meaning


def test_refusals_are_translated():
    """Refusals of words, of values, of combinations and of sizes have no English left."""
    refused = ["QKW", "QKV n_heads=9", "QKV positions", "K=V keyless", "Q=Q", "QKV tie_by=keep_K"]
    for text in [*refused, "QKV rotate_values=x", "K=V scaled rotate_values", "Q=K,x y"]:
        with pytest.raises(InvalidVariant, match=r"^[^«]*$") as caught:
            Variant(text)
        with reading("de"):
            again = str(pickle.loads(pickle.dumps(caught.value)))
        assert not untranslated(again), again
    size = Experiment(sharing=["QKV"]).size
    with pytest.raises(ValueError, match=r"^tied roles need one shape") as caught:
        Variant("K=V d_k=3 d_v=5").wire(size, 8)
    with reading("de"):
        assert tr(message_of(caught.value)).startswith("«tied roles need one shape")


def test_changes_of_widths_are_translated_where_they_are_shown():
    """They are kept in English, so that readers of several languages share them."""
    with reading("de"):
        experiment = Experiment(sharing=["QKV", "Q=K=V"], equal="parameters", d_mlp=64)
        changes = experiment.adjusted("Q=K=V").changes
    assert "«" not in changes
    with reading("de"):
        assert not untranslated(tr(changes))


def test_the_catalogue_is_searched_in_both_languages_and_code_stays_english():
    """A reader may know the English word."""
    with reading("de"):
        assert [named.name for named in search("narrow") if "narrow" in named.explanation]
        assert "«" not in module_code(Experiment(sharing=["Q=K"]), "Q=K")
