"""README.md and docs/: their size, their links, and the Python that they show."""

import re
import sys
from types import ModuleType

import pytest
from documents import PAGES, ROOT, sections_with_python

from attnkit import __version__
from attnkit.claims import CLAIMS
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS

SECTIONS = sections_with_python()


@pytest.fixture
def untouched(monkeypatch, tmp_path):
    """Remove what the examples register and the files that they write."""
    monkeypatch.chdir(tmp_path)
    known = [(registry, dict(registry)) for registry in (CLAIMS, TASKS, CATALOGUE, OPTIONS)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)


def test_readme_is_short():
    """A stranger reads 8,000 bytes, not more."""
    assert len((ROOT / "README.md").read_bytes()) <= 8000


def test_the_citation_names_this_version():
    """CITATION.cff is written by hand."""
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {__version__}" in lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    """Links and pictures work where the files are read as they are, for example on GitHub."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    relative = [one for pair in targets for one in pair if one and ":" not in one]
    files = {target.partition("#")[0] for target in relative} - {""}
    assert [file for file in files if not (page.parent / file).is_file()] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(section, untouched, monkeypatch):
    """Its blocks run one after the other as one module, then the tests that they define."""
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for block in SECTIONS[section]:
        exec(compile(block, section, "exec"), vars(module))
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            test()
