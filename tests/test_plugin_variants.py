"""Options and names of one's own: what is accepted, and what becomes of those that misbehave."""

import pytest

from attnkit.experiment import Experiment
from attnkit.foundation.plugins import import_plugins
from attnkit.foundation.settings import InvalidExperiment
from attnkit.variants import (
    CATALOGUE,
    OPTIONS,
    InvalidVariant,
    Option,
    Variant,
    read_variants,
    register,
    register_option,
    text,
)


@pytest.fixture(autouse=True)
def untouched():
    """What a test registers is gone after it."""
    names, options = dict(CATALOGUE), dict(OPTIONS)
    yield
    for known, before in ((CATALOGUE, names), (OPTIONS, options)):
        known.clear()
        known.update(before)


def option(**attributes):
    """A new kind of option."""
    return type("Own", (Option,), {"name": "own_word", "help": "It does something.", **attributes})


@pytest.mark.parametrize("name", ["no help", "Upper", "", "q=k", "I"])
def test_an_option_needs_a_name_that_can_be_typed(name):
    """Small letters, digits and underscores."""
    with pytest.raises(ValueError, match=r"name: got .*allowed small letters"):
        register_option(option(name=name))


def test_an_option_needs_a_help():
    """It is shown in the table of words."""
    with pytest.raises(ValueError, match="help: own_word has none"):
        register_option(option(help=""))


@pytest.mark.parametrize("hook", ["check", "resize", "rewire"])
def test_an_option_that_fails_is_told_as_bad_input(hook):
    """Whatever it raises; the Lab and the command line show the reason."""

    def fail(*_):
        raise TypeError("not like this")

    register_option(option(**{hook: fail}))
    with pytest.raises(InvalidExperiment, match=r"a word of it fails \(TypeError: not like this\)"):
        Experiment(sharing=["QKV own_word"])


def test_a_name_is_found_in_any_case_and_spacing():
    """As it was registered, and otherwise."""
    register("Mine = best", "Q=K temperature=2")
    for typed in ("Mine = best", "mine=best", "  MINE =  best"):
        assert Variant(typed) == "Q=K temperature=2"


def test_a_module_that_prints_and_exits_is_a_problem_in_words(tmp_path, monkeypatch, capsys):
    """Nothing of it reaches standard output, where JSON or frames may be written."""
    (tmp_path / "my_rude_variants.py").write_text("print('hello')\nraise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ATTNKIT_MODULES", "my_rude_variants")
    assert import_plugins() == ["ATTNKIT_MODULES: 'my_rude_variants' cannot be imported (3)"]
    assert capsys.readouterr().out == ""


def test_so_many_variants_are_refused():
    """One link must not keep a server busy."""
    with pytest.raises(InvalidVariant, match="there are 101, allowed at most 100"):
        read_variants([f"QKV temperature={i + 1}" for i in range(101)])


def test_a_text_too_long_when_written_out_is_refused(monkeypatch):
    """So that what is accepted can be read again."""
    monkeypatch.setattr(text, "LONGEST", 18)
    with pytest.raises(InvalidVariant, match="at most 18 characters, and written out it has 21"):
        Variant("temperature=7.125")
