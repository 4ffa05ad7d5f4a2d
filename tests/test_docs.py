"""README.md and docs/: their size, their links, and the Python that they show."""

import re
import sys
from types import ModuleType

import pytest
from documents import PAGES, ROOT, sections_with_python

from attnkit import __version__
from attnkit.command.outputs import marks
from attnkit.evidence.presentation import to_markdown
from attnkit.evidence.record import load_shipped
from attnkit.training.summary import percent

SECTIONS = sections_with_python()


def test_readme_is_short_and_the_citation_names_this_version():
    """A stranger reads 8,000 bytes, not more; CITATION.cff is written by hand."""
    assert len((ROOT / "README.md").read_bytes()) <= 8000
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {__version__}" in lines


def test_the_five_answers_have_the_numbers_of_the_record():
    """They are written by hand, so a new record shows which of them to write anew."""
    record, readme = load_shipped(), (ROOT / "README.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\d\. \*\*.*", readme, re.MULTILINE)

    def worse(claim, statement):
        found = record[claim].findings[statement]
        return f"{found.n_worse} of {found.n_pairs}"

    def solved(claim, arm, at=1):
        return record[claim].n_solved(arm, at)[0]

    def letters(arm):
        return percent(record["cross_attention"].mean(arm, at=4))

    book, narrow = "Q=K=V, phone book", "K=V, 3 wide"
    numbers = (
        [
            f"K=V gets {letters('K=V, names')} right",
            f"three matrices {letters('QKV, names')}",
            f"without any matrix gets {letters('no matrix, names')} right",
        ],
        [f"is worse with {worse('no_value', 0)} seeds"],
        [
            f"worse with {worse('shared_qk', 1)} seeds",
            f"whom with {worse('direction', 0)}",
            f"with {worse('direction', 1)} after 32 times",
        ],
        [
            f"{solved('narrow_head', narrow)} of 40 runs have learnt a phone book after 600 steps",
            f"(QKV {solved('narrow_head', 'QKV, 3 wide')})",
            f"and {solved('narrow_head', narrow, 32)} after 19,200",
            f"with all {solved('parameters', 'K=V, 5 wide')} within 600 steps",
        ],
        [
            f"all {solved('one_matrix', 'Q=K=V, married')} seeds",
            f"a phone book with {solved('one_matrix', book)}",
            f"worse with {worse('one_matrix', 0)}, also after 8 times",
        ],
    )
    for answer, wanted in zip(answers, numbers, strict=True):
        assert [one for one in wanted if one not in answer] == []
    assert worse("no_value", 0) == worse("no_value", 1)


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
    assert sorted(named) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


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


def test_the_table_of_claims_is_that_of_the_shipped_evidence():
    """If there is any; `python -m attnkit claims --list --table docs/claims.md` writes it."""
    begin, end = marks("claims")
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    shipped = load_shipped()
    assert not shipped or text.split(begin)[1].split(end)[0].strip() == to_markdown(shipped)
