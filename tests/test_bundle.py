"""Scripts joined from ES modules: each is one module, in which no name is declared twice."""

import re
from importlib.resources import files

import pytest

from attnkit.ui.bundle import inline_script, script
from attnkit.ui.standalone import standalone_html

MODULES = sorted(
    file.name.removesuffix(".js")
    for file in (files("attnkit") / "ui" / "assets").iterdir()
    if file.name.endswith(".js")
)
COMPONENTS = [n for n in MODULES if re.search("^export default", script(n), re.MULTILINE)]

DECLARED = re.compile(r"^(?:export default )?(?:async )?(?:function|class) (\w+)", re.MULTILINE)
ASSIGNED = re.compile(r"^(?:const|let) (.+)", re.MULTILINE)


def declared(source):
    """Return the names that are declared at the top level."""
    names = DECLARED.findall(source)
    for line in ASSIGNED.findall(source):
        before_values = re.split(r"[({\[]", line)[0]
        names += re.findall(r"(?:^|, )(\w+) = ", before_values)
    return names


def test_a_script_imports_nothing_and_declares_each_name_once():
    """Otherwise a browser refuses it as a whole."""
    for name in MODULES:
        source = script(name)
        assert not re.search(r"^(import|export (?!default))", source, re.MULTILINE), name
        names = declared(source)
        assert len(names) == len(set(names)) > 0, name
        assert len(re.findall("^export default", source, re.MULTILINE)) <= 1, name


def test_what_two_modules_import_is_there_once():
    """Imported modules stand above those that import them."""
    source = script("attention")
    assert source.count("export default function showAttention(") == 1
    places = [source.index(f"function {name}(") for name in ("once", "heatMap", "filmPage")]
    assert places == sorted(places)
    assert source.index("const PALETTE = {") < source.index("PALETTE.viridis")
    assert source.count("const PALETTE = ") == 1


def test_a_page_calls_the_function_that_was_exported():
    """A `<script>` of a page has no exports, and does not end before its end."""
    for name in COMPONENTS:
        source, function = inline_script(name)
        assert not re.search("^export", source, re.MULTILINE), name
        assert f"function {function}(" in source, name
        assert "</script" not in source, name


def test_a_module_without_default_export_is_refused():
    """The message names the file."""
    with pytest.raises(ValueError, match=r"ink\.js: got no default export"):
        inline_script("ink")


def test_a_saved_page_folds_its_command_away():
    """The command that trains the run again stands below the figures, and only if it is known."""
    page = standalone_html("Title", "attention", b"blob", "Note.", "python -m attnkit <train>")
    assert "<details><summary>Train it again</summary><pre>python -m attnkit &lt;train&gt;" in page
    assert page.index('<div id="film">') < page.index("<details>")
    assert "<details>" not in standalone_html("Title", "attention", b"blob", "Note.")
