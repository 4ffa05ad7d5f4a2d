"""Links: whatever somebody writes is read, and what is wrong costs nothing else."""

import random
from urllib.parse import parse_qsl

import pytest
from idle import idle_service, show, visit
from random_links import NAMES, draw_link
from searching import times

from attnkit.experiment.experiment import Experiment, from_params, settings
from attnkit.experiment.links import (
    GROUPS,
    LONGEST_NAME,
    LONGEST_VALUE,
    MOST_FIELDS,
    MOST_VARIANTS,
    from_broken_params,
    hideable,
    is_link_field,
    link_params,
    link_text,
    problems_in_words,
    read_link,
)
from attnkit.foundation.settings import Problem
from attnkit.service.server import server_settings
from attnkit.tasks import TASKS

MOST_TOLD = 6000  # characters that a page may say of one link
HASH, AWAY, LOST = "0123456789abcdef", "a" * 16, "f" * 16
STORED = Experiment(task="mutual", d_head=3)

GARBAGE = [
    *("", " ", "-1", "1.5", "9" * 5000, "1e308", "nan", "-inf", "0x10", "1_000", "٣"),
    *("None", "[[[[[[]]]]]]", '{"a": {"b": {"c": [1, 2, {}]}}}', "[" * 90_000, ",,,,,,"),
    *("x" * 100_000, "é" * 60_000, "a " * 50_000, "\u202eklart", "a\x00b", "\r\n\r\n# Free"),
    *("<script>alert(1)</script>", "[x](javascript:alert(1))", "$\\frac{1}{0}$ :red[x] `y`"),
    *("__class__", "self", "%00%ff%fe", "QKV" * 10_000, ",".join([*GROUPS, *NAMES])),
]
"""Values that links have had, or that somebody would try."""


def stored(hash):
    """A store that has one result, lacks most, and is away for some."""
    return {HASH: STORED, AWAY: "the database is away"}.get(hash)


def any_link(rng):
    """Return the fields of a link, of which some are garbage."""
    for_names, for_values = [*NAMES, *GARBAGE, "run", "hide"], [*GARBAGE, HASH, AWAY, LOST]
    garbage = {rng.choice(for_names): rng.choice(for_values) for _ in range(rng.choice([0, 1, 3]))}
    return draw_link(rng) | garbage


def test_any_link_is_read(seed):
    """Each gives an experiment that its own link opens; what was not taken is told, in short."""
    for number in range(times(150)):
        fields = any_link(random.Random(f"{seed} {number}"))
        link = read_link(fields, stored)
        assert len(problems_in_words(link.problems).encode()) < MOST_TOLD
        assert set(link.hidden) <= {*GROUPS, *NAMES, *settings("relations")}
        if not link.problems and "run" not in fields:
            ours = {n: v for n, v in fields.items() if n != "hide" and is_link_field(n)}
            assert link.experiment == from_params(ours)
        written = link_params(link.experiment, link.hidden)
        assert len(written) < MOST_FIELDS
        again = read_link(written, stored)
        assert (again.experiment, again.hidden) == (link.experiment, link.hidden)
        assert not again.problems
        if written:
            text = link_text(link.experiment, link.hidden)
            assert dict(parse_qsl(text[1:], strict_parsing=True)) == written
        assert link.experiment.hash == Experiment(**link.experiment.settings()).hash


@pytest.mark.server
def test_pages_open_on_any_link(seed, long, tmp_path):
    """No exception; one process, which is given nothing beyond the limits of a hosted copy."""

    def press_anyway(tab):
        train = tab.button(key="train")
        train.proto.disabled = False  # as a browser of one's own may do
        train.click()
        show(tab)

    limits = {"hosted": "true", "max_waiting": "1000", "max_megabytes": "100"}
    with idle_service(tmp_path, **limits) as processes:
        for number in range(100 if long else 3):
            tab = visit(**any_link(random.Random(f"{seed} {number}")))
            assert sum(len(one.value) for one in (*tab.warning, *tab.error)) < 2 * MOST_TOLD
            press_anyway(tab)
        for named, fields in {
            "Steps": {"steps": "20000", "n_seeds": "20"},
            "Parameters": {"d_model": "256", "d_mlp": "512", "n_layers": "4"},
            "Memory": {"batch_size": "512", "n_entries": "16", "n_heads": "8", "n_layers": "4"},
        }.items():
            tab = visit(v="1", **fields)
            assert any(named in error.value for error in tab.error)
            assert tab.button(key="train").disabled
            press_anyway(tab)
        (process,) = processes
        assert not any(map(server_settings().problems, process.begun))
        assert process.most_active <= server_settings().max_active


def test_run_brings_a_stored_result_or_is_told_and_the_rest_is_read():
    """Settings beside it are told, but not the version, what is hidden, or fields of others."""
    link = read_link({"v": "1", "run": HASH, "hide": "steps", "ref": "news"}, stored)
    assert (link.experiment, link.hidden, link.problems) == (STORED, ("steps",), [])
    link = read_link({"run": HASH, "steps": "7"}, stored)
    assert link.experiment == STORED
    assert [problem.field for problem in link.problems] == ["steps"]
    for run, told in {
        "abc": "'abc', allowed sixteen digits",
        HASH.upper(): "allowed sixteen digits",
        f"{HASH}\n": "allowed sixteen digits",
        LOST: LOST,
        AWAY: "the database is away",
    }.items():
        link = read_link({"run": run, "d_head": "3"}, stored)
        assert link.experiment == Experiment(d_head=3)
        (problem,) = link.problems
        assert (problem.field, told in str(problem)) == ("run", True)


def test_controls_are_hidden_by_names_that_there_are():
    """All settings of any task and groups of controls, in one order; unknown ones are told."""
    link = read_link({"v": "1", "hide": " steps,colour,task , steps,,train", "steps": "70"}, stored)
    assert (link.experiment, link.hidden) == (Experiment(steps=70), ("task", "steps"))
    assert problems_in_words(link.problems).startswith("hide: got 'colour, train', ")
    assert link_text(link.experiment, link.hidden) == "?v=1&steps=70&hide=task,steps"
    assert (link_text(Experiment()), link_text(Experiment(), ["task"])) == ("", "?v=1&hide=task")
    for task in TASKS:
        assert [*hideable([task])] == [*GROUPS, *settings(task)], task


def test_what_is_too_long_or_of_no_use_is_told_in_short():
    """Neither names nor values come back in full; of very many, the first are read."""
    for name, value, field, allowed in [
        ("steps", "9" * 100_000, "steps", str(LONGEST_VALUE)),
        ("\u202e" + "x" * 100_000, "1", "link", str(LONGEST_NAME)),
        ("steps", {"a": [[[]]]}, "steps", "a text"),
        ("sharing", ["QKV", 1], "sharing", "a text"),
        ("steps", 10**5000, "steps", "1 to 50000"),
        ("learning_rate", float("nan"), "learning_rate", "a number"),
        ("n_seeds", "1e999", "n_seeds", "1 to 40"),
        ("sharing", ",".join(f"QKV temperature={i / 100:g}" for i in range(1, 101)), "sharing", ""),
    ]:
        experiment, (problem,) = from_broken_params({name: value, "d_head": "3"})
        if allowed:
            assert experiment == Experiment(d_head=3)
        assert (problem.field, allowed in problem.allowed) == (field, True)
        assert len(str(problem)) < 250
    assert len(experiment.sharing) == MOST_VARIANTS
    params = {"d_head": "3", **{f"steps{i}": "1" for i in range(MOST_FIELDS)}, "steps": "7"}
    experiment, problems = from_broken_params(params)
    assert experiment == Experiment(d_head=3)
    assert str(problems[0]).startswith(f"link: got {MOST_FIELDS + 2}, ")
    told = problems_in_words([Problem(f"f{i}", i, "none") for i in range(7)])
    assert (told.count("allowed none."), told.endswith("And 3 more.")) == (4, True)


def test_a_slip_costs_only_what_is_wrong():
    """Mail programs add fields; a misspelt name has a nearest one; a variant costs no other."""
    for name in ("utm_source", "fbclid", "hello", "ref", "lang"):
        assert from_broken_params({"steps": "70", name: "news"}) == (Experiment(steps=70), []), name
    for name, meant in {"stepz": "steps", "shareing": "sharing", "d_hed": "d_head"}.items():
        (problem,) = from_broken_params({name: "3"})[1]
        assert (problem.field, f" {meant}?" in problem.allowed) == (name, True)
    wrong = ["banana", "QKV n_heads=3 kv_heads=2", *(f"QKV kv_headz={i}" for i in range(5))]
    experiment, problems = from_broken_params({"sharing": ",".join(["Q=K", *wrong, "QKV"])})
    assert experiment.sharing == ("QKV", "Q=K")
    assert sorted(problem.value for problem in problems) == sorted(wrong)
    params = {"steps": 70, "causal": True, "learning_rate": 0.01, "sharing": ["QKV", "Q=K"]}
    assert from_broken_params(params) == (Experiment(**params), [])  # values of JSON
    large = {"task": "phonebook", "n_heads": "8", "n_layers": "4", "n_entries": "16"}
    large["batch_size"] = "512"  # each of them is allowed, but not all
    for fields in ({"n_names": "7"}, {"n_seeds": "9", **large}, large):
        experiment, problems = from_broken_params({**fields, "learning_rate": "0.01"})
        assert experiment.training.learning_rate == 0.01
        left_out = fields.keys() - experiment.to_params()
        assert {problem.field for problem in problems} == left_out
        assert len(left_out) <= 2, left_out
    fits = {"task": "phonebook", "n_entries": "20", "n_heads": "8", "d_head": "64", "n_layers": "2"}
    fits |= {"sharing": "QKV,K=V,Q=K=V", "batch_size": "16"}
    while not from_broken_params({**fits, "batch_size": str(int(fits["batch_size"]) + 16)})[1]:
        fits["batch_size"] = str(int(fits["batch_size"]) + 16)
    experiment, (problem,) = from_broken_params({**fits, "equal": "kv_cache"})  # too large so
    assert experiment == from_params(fits)
    assert str(problem).startswith("equal: got 'kv_cache', ")
