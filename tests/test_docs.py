"""README.md and docs/: their size, their links, the Python that they show, and own tasks."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from attnkit import __version__
from attnkit.claims import read_claim
from attnkit.command.arguments import marks
from attnkit.evidence.presentation import to_markdown
from attnkit.evidence.questions import answers_in_markdown
from attnkit.evidence.record import load_shipped
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS, register_task
from attnkit.tasks.phonebook import Phonebook
from attnkit.training import train

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_PART = re.compile(
    r"^#+ (?P<heading>[^\n]+)$|"
    r"^(?P<reason><!-- not run: [^\n]+ -->\n+)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def sections_with_python():
    """Return blocks of Python by page and heading, without those whose comment says why not."""
    found = {}
    for page in PAGES:
        heading = ""
        for part in _PART.finditer(page.read_text(encoding="utf-8")):
            heading = part["heading"] or heading
            if part["language"] == "python" and not part["reason"]:
                found.setdefault(f"{page.relative_to(ROOT)}: {heading}", []).append(part["code"])
    return found


SECTIONS = sections_with_python()


def test_readme_is_short_and_the_citation_names_this_version():
    """A stranger reads 8,000 bytes, not more; CITATION.cff is written by hand."""
    assert len((ROOT / "README.md").read_bytes()) <= 8000
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {__version__}" in lines


def test_relative_links_lead_to_files():
    """Links and pictures work on GitHub, too, and mkdocs.yml names every page of docs/ once."""
    missing = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        targets = re.findall(r"(?:\]\(|(?:src|href)=\")([^)\s\":#]+)(?=[)\s\"#])", text)
        missing += [(page.name, one) for one in targets if not (page.parent / one).is_file()]
    assert missing == []
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(named) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_changes_in_the_recipes_apply():
    """The lines that a recipe's diff keeps or removes stand in one file, in this order."""
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


def test_claims_of_the_documentation_are_read(tmp_path):
    """Each is a file in TOML that begins with a title."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"```toml\n(title = .*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "one.toml").write_text(block, encoding="utf-8")
        assert read_claim(tmp_path / "one.toml").arms[0].name == "QKV"


@pytest.mark.parametrize("file", ["docs/claims.md", "README.md"])
def test_what_is_told_of_claims_is_that_of_the_shipped_evidence(file):
    """If there is any; `python -m attnkit claims --list --table FILE` writes it."""
    shipped, is_table = load_shipped(), file != "README.md"
    begin, end = marks("claims", "" if is_table else "answers")
    text = (ROOT / file).read_text(encoding="utf-8")
    expected = to_markdown(shipped) if is_table else answers_in_markdown(shipped)
    assert not shipped or text.split(begin)[1].split(end)[0].strip() == expected


def test_the_task_of_the_documentation_trains(tmp_path, monkeypatch, run, untouched):
    """QKV learns it in Python; the command line knows it where the environment names its module."""
    (code,) = SECTIONS["docs/tasks.md: Your own task"]
    exec(code, {"__name__": "my_task"})
    result = train(Experiment(task="largest", sharing=["QKV"], n_seeds=1, d_model=16))
    assert result.snapshot.history["accuracy"][-1, 0] > 0.9
    del TASKS["largest"]
    (tmp_path / "my_task.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("ATTNKIT_MODULES", "my_task")
    monkeypatch.chdir(tmp_path)  # as with an installed command, which does not look there
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(ROOT))])
    monkeypatch.setitem(sys.modules, "my_task", None)
    del sys.modules["my_task"]  # and again after the test, whoever imports it
    for command, told in (
        ("tasks", r"^largest +Largest\. Which number"),
        ("train --task largest --seeds 1 --steps 2", "largest: 5 runs, step 2 of 2"),
    ):
        code, output, _ = run(*command.split())
        assert code == 0
        assert re.search(told, output, re.MULTILINE)


def test_a_task_that_cannot_be_registered_is_told_why(untouched):
    """It replaces nothing; a new version of a class replaces the old one."""
    before = dict(TASKS)

    def own_task(**members):
        body = {"name": "own", "__module__": "my_tasks", "__annotations__": {}, **members}
        return type("Own", (Phonebook,), body)

    for members, told in [
        *(({key: None}, f"{key}: Own") for key in "name title question source family".split()),
        *(({"name": name}, f"name: got {name!r}") for name in ("Mine", "my task", "", "9")),
        ({"family": "Riddles"}, "family: got 'Riddles'"),
        ({"name": "phonebook"}, "attnkit.tasks.phonebook.Phonebook"),
        ({"name": "phonebook", "__qualname__": "Phonebook"}, "attnkit.tasks.phonebook.Phonebook"),
    ]:
        with pytest.raises(ValueError, match=re.escape(told)):
            register_task(own_task(**members))
        assert before == TASKS
    versions = [own_task(__module__="__main__", name="mine") for _ in range(2)]
    for version in versions:
        register_task(version)  # a cell of a notebook is run twice
    assert TASKS["mine"] is versions[1]
