"""Links: settings, stored results, hidden controls, and what a link may not hold."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from setting_values import other_value

from attnkit.experiment.experiment import Experiment, from_params, settings
from attnkit.experiment.links import (
    GROUPS,
    LONGEST_NAME,
    LONGEST_VALUE,
    MOST_FIELDS,
    MOST_VARIANTS,
    from_broken_params,
    hideable,
    link_params,
    link_text,
    problems_in_words,
    read_link,
)
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.tasks import TASKS

HASH = "0123456789abcdef"
STORED = Experiment(task="phonebook", d_head=3)

LARGE = {
    "task": "phonebook",
    "n_heads": "8",
    "n_layers": "4",
    "n_entries": "16",
    "batch_size": "512",
}
"""Settings each of which is allowed, but not all of them."""


def stored(hash):
    """A store with one result."""
    return STORED if hash == HASH else None


def read(**params):
    """A link without a store."""
    return read_link(params, lambda _: None)


# stored results


def test_run_brings_the_experiment_of_a_stored_result():
    """With all its settings, and nothing is told."""
    link = read_link({"run": HASH}, stored)
    assert (link.experiment, link.hidden, link.problems) == (STORED, (), [])


def test_settings_beside_a_stored_result_are_told_and_not_taken():
    """The result has its own; the version and what is hidden may stand there."""
    link = read_link({"v": "1", "run": HASH, "steps": "7", "hide": "steps"}, stored)
    assert link.experiment == STORED
    assert link.hidden == ("steps",)
    assert [problem.field for problem in link.problems] == ["steps"]


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ("abc", "run: got 'abc', allowed sixteen digits"),
        (HASH.upper(), "allowed sixteen digits from 0 to 9 and a to f"),
        (f"{HASH}\n", "allowed sixteen digits"),
        ("f" * 16, "but no result of that name is kept here, or no longer"),
    ],
)
def test_a_wrong_or_forgotten_hash_is_told_and_the_rest_is_read(run, named):
    """The field, what was given, what is allowed."""
    link = read_link({"run": run, "d_head": "3"}, stored)
    assert link.experiment == Experiment(d_head=3)
    (problem,) = link.problems
    assert named in str(problem)


def test_a_store_that_cannot_be_read_is_told():
    """In its own words."""
    link = read_link({"run": HASH}, lambda _: "the database is away")
    assert link.experiment == Experiment()
    assert problems_in_words(link.problems) == f"run: got '{HASH}', but the database is away."


# hidden controls


def test_what_is_hidden_stands_in_one_order_and_changes_no_experiment():
    """However it was written; the settings stay as they are."""
    link = read(v="1", hide=" steps,task , steps,,d_head", steps="70")
    assert link.hidden == ("task", "d_head", "steps")
    assert link.experiment == Experiment(steps=70)
    assert link.problems == []


def test_unknown_names_are_told_and_the_others_are_hidden():
    """Once for all of them."""
    link = read(hide="colour,steps,train")
    assert link.hidden == ("steps",)
    assert problems_in_words(link.problems) == (
        "hide: got 'colour, train', allowed task, sharing, add_variant, settings, more, buttons "
        "or names of settings such as steps."
    )


def test_all_settings_of_any_task_can_be_hidden():
    """By their names, and groups of controls beside them, each with a label."""
    for task in TASKS:
        labels = hideable([task])
        assert list(labels) == [*GROUPS, *settings(task)], task
        assert all(labels.values())
        hidden = read(task=task, hide=",".join(labels)).hidden
        assert hidden == tuple(name for name in hideable() if name in labels), task


def test_a_link_with_hidden_controls_reads_back():
    """Version, what differs from the defaults, and what is hidden."""
    experiment = Experiment(d_head=3)
    params = link_params(experiment, ["task", "steps"])
    assert params == {"v": "1", "d_head": "3", "hide": "task,steps"}
    assert link_text(experiment, ["task", "steps"]) == "?v=1&d_head=3&hide=task,steps"
    link = read(**params)
    assert (link.experiment, link.hidden) == (experiment, ("task", "steps"))
    assert link_text(Experiment()) == ""
    assert link_text(Experiment(), ["task"]) == "?v=1&hide=task"


# what a link may hold


@pytest.mark.parametrize(
    ("name", "value", "field", "allowed"),
    [
        ("steps", "9" * 100_000, "steps", f"at most {LONGEST_VALUE} characters"),
        ("x" * 100_000, "1", "link", f"at most {LONGEST_NAME} readable characters"),
        ("\u202espets\n# News", "1", "link", f"at most {LONGEST_NAME} readable characters"),
        ("steps", {"a": [[[]]]}, "steps", "a text or a number"),
        ("sharing", ["QKV", 1], "sharing", "a text or a number"),
        ("steps", 10**5000, "steps", "a whole number from 1 to 50000"),
        ("learning_rate", float("nan"), "learning_rate", "a number from"),
        ("n_seeds", "1e999", "n_seeds", "a whole number from 1 to 40"),
    ],
    ids="long name lines nested mixed huge nan infinite".split(),
)
def test_what_is_too_long_or_of_no_use_is_told_in_short(name, value, field, allowed):
    """Neither names nor values come back in full; all else is read."""
    experiment, (problem,) = from_broken_params({name: value, "d_head": "3"})
    assert experiment == Experiment(d_head=3)
    assert problem.field == field
    assert allowed in problem.allowed
    assert len(str(problem)) < 250


def test_of_very_many_fields_or_variants_the_first_are_read():
    """Their number is told."""
    params = {"d_head": "3", **{f"steps{i}": "1" for i in range(MOST_FIELDS)}, "steps": "7"}
    experiment, problems = from_broken_params(params)
    assert experiment == Experiment(d_head=3)
    assert str(problems[0]).startswith(
        f"link: got {MOST_FIELDS + 2}, allowed at most {MOST_FIELDS}"
    )
    assert len(problems) == MOST_FIELDS
    texts = [f"QKV temperature={i / 100:g}" for i in range(1, 101)]
    experiment, (problem,) = from_broken_params({"sharing": ",".join(texts)})
    assert len(experiment.sharing) == MOST_VARIANTS
    assert str(problem).startswith(f"sharing: got 100, allowed at most {MOST_VARIANTS} variants")


def test_fields_of_others_are_ignored_and_misspelt_ones_told_with_the_nearest_name():
    """Mail programs and search engines add theirs; a slip never changes a link in silence."""
    for name in ("utm_source", "fbclid", "hello", "ref", "lang"):
        link = read(v="1", steps="70", **{name: "news"})
        assert (link.experiment, link.problems) == (Experiment(steps=70), []), name
        assert read_link({"run": HASH, name: "news"}, stored).problems == []
    for name, meant in {"stepz": "steps", "shareing": "sharing", "d_hed": "d_head"}.items():
        (problem,) = read(**{name: "3"}).problems
        assert problem.field == name
        assert f"did you mean {meant}?" in problem.allowed


def test_many_settings_that_contradict_each_other_are_given_up(monkeypatch):
    """After so many tries the defaults are taken, and all that is told."""
    tries = []

    def build(fields):
        tries.append(fields)
        return from_params({**fields, "n_entries": "12", "n_names": "8"})

    monkeypatch.setattr("attnkit.experiment.links.from_params", build)
    experiment, problems = from_broken_params({"d_head": "3", "steps": "7", "sharing": "QKV,Q=K"})
    assert experiment == Experiment()
    assert 0 < len(tries) <= 60
    assert problems


def test_only_the_first_problems_are_told_in_full():
    """A page is no place for a hundred sentences."""
    problems = [Problem(f"f{i}", i, "none") for i in range(7)]
    assert problems_in_words(problems[:1]) == "f0: got 0, allowed none."
    assert problems_in_words(problems).endswith("f3: got 3, allowed none. And 3 more.")
    assert problems_in_words([]) == ""


# what is good in a broken link


def test_broken_parameters_keep_the_good_fields():
    """Wrong and unknown fields take their defaults and are reported, one by one."""
    given = {"v": "0", "task": "taxes", "d_head": "3", "n_seeds": "99", "stepz": "3", "steps": "x"}
    experiment, problems = from_broken_params(given)
    assert experiment == Experiment(d_head=3)
    assert {problem.field for problem in problems} == given.keys() - {"d_head"}
    wrong = ["banana", "QKV n_heads=3 kv_heads=2", *(f"QKV kv_headz={i}" for i in range(5))]
    experiment, problems = from_broken_params({"sharing": ",".join(["Q=K", *wrong, "QKV"])})
    assert experiment.sharing == ("QKV", "Q=K")
    assert sorted(problem.value for problem in problems) == sorted(wrong)


def test_numbers_truth_values_and_lists_are_read_as_their_texts():
    """As JSON has them."""
    params = {"steps": 70, "causal": True, "learning_rate": 0.01, "sharing": ["QKV", "Q=K"]}
    assert from_broken_params(params) == (Experiment(**params), [])


@pytest.mark.parametrize("given", [{"n_names": "7"}, {"n_seeds": "9", **LARGE}, LARGE])
def test_good_fields_are_kept_when_others_disagree(given):
    """Good settings are kept beside some that disagree or are too large together."""
    experiment, problems = from_broken_params({**given, "learning_rate": "0.01"})
    assert experiment.training.learning_rate == 0.01
    assert problems


@given(st.data())
def test_a_broken_field_costs_no_other(data):
    """Good settings survive any wrong values and misspelt names beside them."""
    task = data.draw(st.sampled_from(list(TASKS)))
    known = settings(task)
    names = [n for n in known if n not in ("n_entries", "n_names", "steps", "n_seeds")]
    good = data.draw(st.sets(st.sampled_from(names), max_size=4))
    bad = data.draw(st.sets(st.sampled_from([*names, "stepz", "n_eads", "power_b"]))) - good
    params = {name: str(other_value(known[name])).lower() for name in good}
    try:
        expected = Experiment(task=task, **params)
    except InvalidExperiment:  # each is good, together they cost too much
        assume(False)
    experiment, problems = from_broken_params({"task": task, **params, **dict.fromkeys(bad, "?")})
    assert experiment == expected
    assert {problem.field for problem in problems} == bad
