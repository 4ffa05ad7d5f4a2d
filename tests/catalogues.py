"""Messages of the code and their translations. As a program: bring the catalogues up to date.

`python tests/catalogues.py` reads all messages from the code and writes them into the files of
translations: new ones without a translation, and without those that are gone.
"""

import re
import sys
import tomllib
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from attnkit.claims import Verdict
from attnkit.claims.files import SENTENCES, TEXTS, paragraphs
from attnkit.claims.statements import KINDS, label_of, part_of_name
from attnkit.evidence.questions import QUESTIONS, WHY
from attnkit.foundation.language import ENGLISH, LANGUAGES, Message

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "attnkit" / "foundation" / "catalogues"
KEYWORDS = {"tr": None, "mark": None, "Sentence": None, "tr_n": (1, 2), "trN": (1, 2)}


def texts_of_claim(file, *_, **__):
    """Yield the texts of a claim as Babel wants them: line, function, message and comments."""
    source = file.read().decode()
    claim = tomllib.loads(source)
    texts = [claim.get(name, "") for name in TEXTS]
    names = {arm["name"]: arm["name"].split(", ") for arm in claim["arms"] if "name" in arm}
    for one in claim["statements"]:
        texts += [one.get(name, "") for name in SENTENCES]
        compared = next(one[kind] for kind in (*KINDS, "difference") if kind in one)
        conditions = {name.partition(", ")[2] for name in compared}
        if len(conditions) == 1 and conditions != {""}:
            names |= {label_of(one): [str(label_of(one))] for one in conditions}
    for text in filter(None, texts):
        yield from ((1, None, one, []) for one in paragraphs(text))
    told = re.findall(r'# Translators: ([^\n]+)\n[^\n]*name = "([^"]+)"', source)
    comments = {name: [comment] for comment, name in told}
    for name, parts in names.items():
        words = [one for one in map(part_of_name, parts) if isinstance(one, Message)]
        yield from ((1, None, str(one), comments.get(name, [])) for one in words if not one.values)


def texts_of_questions(*_, **__):
    """Yield the texts of the questions, each for every verdict, as Babel wants them."""
    for one in (WHY, *QUESTIONS.values()):
        texts = [one.title, one.asked, one.source, one.guess, *one.guesses]
        texts += [numbers.template for numbers in one.numbers]
        for sentence, pair in product((*one.conclusion, *one.reason), product(Verdict, repeat=2)):
            texts += sentence.answer(*pair).values.values()
        yield from ((1, None, str(text), []) for text in texts if text)


METHODS = [
    ("**.py", "python"),
    ("ui/assets/*.js", "javascript"),
    ("claims/*.toml", texts_of_claim),
    ("evidence/questions.toml", texts_of_questions),
]


def messages_of_code():
    """Return a catalogue of all messages, without translations."""
    found = Catalog(project="attnkit", charset="utf-8")
    tags = {"comment_tags": ("Translators:",), "strip_comment_tags": True}
    extracted = extract_from_dir(str(ROOT / "attnkit"), METHODS, keywords=KEYWORDS, **tags)
    for name, line, message, comments, _ in extracted:
        if any(message if isinstance(message, tuple) else [message]):
            found.add(message, locations=[(f"attnkit/{name}", line)], auto_comments=comments)
    return found


def translations(code):
    """Return the catalogue of a language; an empty one if there is no file."""
    path = FOLDER / f"{code}.po"
    if not path.is_file():
        return Catalog(locale=code, project="attnkit", charset="utf-8")
    with path.open("rb") as file:
        return read_po(file, locale=code)


def update(code):
    """Write the messages of the code into the catalogue of a language."""
    catalogue = translations(code)
    catalogue.update(messages_of_code(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    catalogue.fuzzy = False
    catalogue.header_comment = f"# {LANGUAGES[code]}: texts of attnkit. See docs/contributing.md."
    catalogue.creation_date = catalogue.revision_date = datetime(2026, 11, 27, tzinfo=UTC)
    for message in catalogue:  # lines would change with every change of the code
        message.locations = sorted({(name, None) for name, _ in message.locations})
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{code}.po").open("wb") as file:
        write_po(file, catalogue, width=100, sort_output=False, omit_header=False)


if __name__ == "__main__":
    for each in sys.argv[1:] or LANGUAGES.keys() - {ENGLISH}:
        update(each)
