"""The recipes of docs/contributing.md, each followed to the letter in a fresh copy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
MANY_LINES = re.DOTALL | re.MULTILINE
SECTIONS = dict(re.findall(r"^## (A \w+)\n(.*?)(?=^## |\Z)", TEXT, MANY_LINES))
RECIPES = {heading: text for heading, text in SECTIONS.items() if "```" in text}
BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n\n(?:<!-- .*? -->\n\n)?"
    r"```(?P<language>python|toml|diff)\n(?P<code>.*?)^```$",
    MANY_LINES,
)
COMMAND = r"`((?:python -m (?:pytest|attnkit)|python tests/|mypy)[^`]*)`"
IMPORTS = r"^(?:from|import) .*\n"


@pytest.mark.long(seconds=150)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_can_be_followed(recipe, tmp_path):
    """Its files and changes apply, and the commands that it names succeed."""
    copy = tmp_path / "attnkit"
    subprocess.run(["git", "clone", "--quiet", ROOT, copy], check=True)
    (copy / "node_modules").symlink_to(ROOT / "node_modules")
    for block in BLOCK.finditer(RECIPES[recipe]):
        if block["language"] == "diff":
            apply(block["code"], copy)
            continue
        path = copy / re.search(r"`((?:attnkit|pages|tests)/\S+\.\w+)`", block["before"])[1]
        if path.exists():
            code = re.sub(IMPORTS, "", block["code"], flags=re.MULTILINE).strip()
            path.write_text(f"{path.read_text('utf-8')}\n\n{code}\n", "utf-8")
        else:
            path.write_text(block["code"], "utf-8")
    subprocess.run(["git", "-C", copy, "add", "--all"], check=True)
    for command in re.findall(COMMAND, RECIPES[recipe]):
        if {"--ship", "train"} & {*command.split()} or command.endswith("attnkit examples"):
            continue  # these take minutes to hours, or need no more than what was run before
        words = command.replace('"', "").replace("tests/test_tasks*.py", tasks(copy)).split()
        words = words if words[0] != "mypy" else ["python", "-m", "mypy"]
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=copy, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"


def tasks(copy):
    """Return what a shell makes of `tests/test_tasks*.py`."""
    return " ".join(sorted(f"tests/{path.name}" for path in copy.glob("tests/test_tasks*.py")))


def apply(diff, copy):
    """Change the one file that has the lines which a diff keeps or removes, in this order."""
    lines = diff.splitlines()
    kept = [re.escape(line[1:]) + "\n" for line in lines if line[0] != "+"]
    new = "".join(line[1:] + "\n" for line in lines if line[0] != "-")
    files = [*copy.glob("attnkit/**/*.py"), *copy.glob("tests/*.py")]
    sources = {file: file.read_text("utf-8") for file in files}
    ((file, source),) = [pair for pair in sources.items() if re.search("".join(kept), pair[1])]
    file.write_text(re.sub("".join(kept), lambda _: new, source, count=1), "utf-8")
