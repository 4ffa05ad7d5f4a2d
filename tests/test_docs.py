"""README.md and docs/: their size, their links, and the Python that they show."""

import re
import sys
from types import ModuleType

import pytest
from documents import PAGES, ROOT, sections_with_python

from attnkit import __version__
from attnkit.command.outputs import marks
from attnkit.evidence.listing import to_markdown
from attnkit.evidence.questions import answers_in_markdown
from attnkit.evidence.record import load_shipped

SECTIONS = sections_with_python()


def test_readme_is_short_and_the_citation_names_this_version():
    """A stranger reads 8,000 bytes, not more; CITATION.cff is written by hand."""
    assert len((ROOT / "README.md").read_bytes()) <= 8000
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {__version__}" in lines


def test_relative_links_lead_to_files():
    """Links and pictures work where the files are read as they are, for example on GitHub."""
    missing = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
        relative = [one for pair in targets for one in pair if one and ":" not in one]
        files = {target.partition("#")[0] for target in relative} - {""}
        missing += [(page.name, file) for file in files if not (page.parent / file).is_file()]
    assert missing == []


def test_the_website_has_all_pages():
    """mkdocs.yml names every page of docs/ once."""
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(named) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_changes_in_the_recipes_apply():
    """The lines that a recipe's diff keeps or removes stand in one file, in this order.

    Other lines may stand between them: whoever follows a recipe adds some.
    """
    files = [*ROOT.glob("attnkit/**/*.py"), *ROOT.glob("tests/*.py")]
    sources = [file.read_text(encoding="utf-8") for file in files]
    contributing = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    for diff in re.findall(r"```diff\n(.*?)```", contributing, re.DOTALL):
        kept = [re.escape(line[1:]) for line in diff.splitlines() if line[0] != "+"]
        pattern = re.compile("(?s:.*?)".join(kept))
        assert any(map(pattern.search, sources)), f"docs/contributing.md: change this diff\n{diff}"


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(section, untouched, monkeypatch, tmp_path):
    """Its blocks run one after the other as one module, then the tests that they define."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for block in SECTIONS[section]:
        exec(compile(block, section, "exec"), vars(module))
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            test()


@pytest.mark.parametrize("file", ["docs/claims.md", "README.md"])
def test_what_is_told_of_claims_is_that_of_the_shipped_evidence(file):
    """If there is any; `python -m attnkit claims --list --table FILE` writes it."""
    shipped, is_table = load_shipped(), file != "README.md"
    begin, end = marks("claims", "" if is_table else "answers")
    text = (ROOT / file).read_text(encoding="utf-8")
    expected = to_markdown(shipped) if is_table else answers_in_markdown(shipped)
    assert not shipped or text.split(begin)[1].split(end)[0].strip() == expected
