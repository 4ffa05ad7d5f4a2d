"""Links: whatever somebody writes is read, and what is wrong costs nothing else."""

import random
import resource
import time
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from idle import idle_service, show, visit
from random_links import draw_link
from searching import briefly, times

from attnkit.experiment.costs import equalise
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
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.service.server import server_settings
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS, text

MOST_PLAIN = 400  # plain links that can be read in the time of any other
MOST_TOLD = 6000  # characters that a page may say of one link
MOST_KILOBYTES = 300_000  # memory that all fuzzed links together may add

HASH, AWAY, LOST = "0123456789abcdef", "a" * 16, "f" * 16
STORED = Experiment(task="mutual", d_head=3)
FIELDS = sorted({name for task in TASKS for name in settings(task)} | {"task", "sharing", "v"})
VARIANTS = [named.variant.value for named in CATALOGUE.values()]
WORDS = [*OPTIONS, *(f"{name}={value}" for name in OPTIONS for value in ("1", "7", "m/4", "I"))]

GARBAGE = [
    *("", " ", "0", "-1", "1.5", "9" * 5000, "1e308", "1e999", "nan", "-inf", "0x10", "1_000", "٣"),
    *("None", "true", "null", "[[[[[[]]]]]]", '{"a": {"b": {"c": [1, 2, {}]}}}', "[" * 90_000),
    *("x" * 100_000, "é" * 60_000, "a " * 50_000, "\u202eklart", "a\x00b", "\r\n\r\n# Free"),
    *("<script>alert(1)</script>", "[x](javascript:alert(1))", "$\\frac{1}{0}$ :red[x] `y`"),
    *("'; DROP TABLE results; --", "../../etc/passwd", "__class__", "self", "%00%ff%fe", ",,,,,,"),
    ",".join(f"QKV temperature={i / 100:g}" for i in range(1, 1001)),
    ",".join(f"QKV kv_rank=m/4 d_head={i % 64 + 1} temperature={i}" for i in range(1, 101)),
    "QKV" * 10_000,
    ",".join([*GROUPS, *FIELDS]),
]
"""Values that links have had, or that somebody would try."""


def stored(hash):
    """A store that has one result, lacks most, and is away for some."""
    return {HASH: STORED, AWAY: "the database is away"}.get(hash)


def value_of(setting):
    """Texts that a setting allows: its ends, its default, anything between."""
    if setting.kind is bool:
        return st.sampled_from(["true", "false", "1", "0"])
    if setting.choices:
        return st.sampled_from(setting.choices)
    ends = st.sampled_from([setting.low, setting.high, setting.default])
    if setting.kind is int:
        return (ends | st.integers(int(setting.low), int(setting.high))).map(str)
    return (ends | st.floats(setting.low, setting.high)).map(str)


@st.composite
def valid_fields(draw, most=6):
    """Settings each of which is allowed; together they may contradict each other."""
    task = draw(st.sampled_from(list(TASKS)))
    known = settings(task)
    names = draw(st.lists(st.sampled_from(list(known)), unique=True, max_size=most))
    fields = {"v": "1", "task": task} | {name: draw(value_of(known[name])) for name in names}
    one_word_too_many = st.lists(st.sampled_from(WORDS), max_size=2)
    variant = st.tuples(st.sampled_from(VARIANTS), one_word_too_many)
    chosen = draw(st.lists(variant.map(lambda parts: " ".join([parts[0], *parts[1]])), max_size=4))
    return fields | ({"sharing": ",".join(chosen)} if chosen else {})


@st.composite
def fuzzed_links(draw):
    """A link with anything from nothing to everything wrong."""
    fields = draw(valid_fields())
    name = st.sampled_from(FIELDS) | st.text(max_size=8)
    value = st.sampled_from(GARBAGE) | st.text(max_size=12)
    kinds = st.sampled_from("value name lost swap run hide many".split())
    for kind in draw(st.lists(kinds, max_size=4)):
        if kind == "value":
            fields[draw(name)] = draw(value)
        elif kind == "name":
            fields[draw(value)] = draw(value)
        elif kind == "run":
            fields["run"] = draw(st.sampled_from([HASH, LOST, AWAY]) | value)
        elif kind == "hide":
            hidden = draw(st.lists(st.sampled_from([*GROUPS, *FIELDS]) | value, max_size=4))
            fields["hide"] = ",".join(hidden)
        elif kind == "many":
            stem = draw(name)
            fields |= {f"{stem}{i}": str(i) for i in range(draw(st.sampled_from([50, 900])))}
        elif fields:
            one, other = (draw(st.sampled_from(sorted(fields))) for _ in range(2))
            if kind == "lost":
                at = draw(st.integers(0, 9))
                fields[one] = fields[one][:at] + fields[one][at + 1 :]
            else:
                fields[one], fields[other] = fields[other], fields[one]
    return fields


def fuzz(n_examples):
    """Return settings of Hypothesis for so many large examples."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return examples(briefly(n_examples), suppress_health_check=slow)


@given(fields=fuzzed_links())
@fuzz(100)
def test_any_link_is_read(fields):
    """Each gives an experiment; what was not taken is told, in short."""
    link = read_link(fields, stored)
    assert len(problems_in_words(link.problems).encode()) < MOST_TOLD
    assert set(link.hidden) <= {*GROUPS, *FIELDS}
    if not link.problems and "run" not in fields:
        ours = {n: v for n, v in fields.items() if n != "hide" and is_link_field(n)}
        assert link.experiment == from_params(ours)
    written = link_params(link.experiment, link.hidden)
    assert len(written) < MOST_FIELDS
    again = read_link(written, stored)
    assert (again.experiment, again.hidden, again.problems) == (link.experiment, link.hidden, [])
    if written:
        text = link_text(link.experiment, link.hidden)
        assert dict(parse_qsl(text[1:], strict_parsing=True)) == written
    assert link.experiment.hash == Experiment(**link.experiment.settings()).hash


@given(valid_fields(most=2), st.sets(st.sampled_from([*FIELDS, "stepz", "n_eads", "power_b"])))
@briefly(50)
def test_a_wrong_field_costs_no_other(good, wrong):
    """Good settings survive any wrong values and misspelt names beside them."""
    try:
        expected = from_params(good)
    except InvalidExperiment:  # each is good, together they contradict each other
        assume(False)
    known = {*settings(good["task"]), "sharing", "stepz", "n_eads", "power_b"}
    wrong = (wrong & known) - good.keys()
    experiment, problems = from_broken_params({**good, **dict.fromkeys(wrong, "?")})
    assert experiment == expected
    assert {problem.field for problem in problems} == wrong


@pytest.mark.server
def test_pages_open_on_any_link(long, tmp_path):
    """No exception; one process, which is given nothing beyond the limits; memory stays."""
    with idle_service(tmp_path, hosted="true", max_waiting="1000") as processes:
        show(visit())  # all that every page needs is there
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        @given(fuzzed_links())
        @fuzz(30 if long else 3)
        def open_page(fields):
            tab = visit(**fields)
            said = sum(len(element.value) for element in (*tab.warning, *tab.error))
            assert said < 2 * MOST_TOLD
            train = tab.button(key="train")
            train.proto.disabled = False
            train.click()
            show(tab)

        open_page()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KILOBYTES
        assert len(processes) == 1
        begun = processes[0].begun
        assert [server_settings().problems(experiment) for experiment in begun] == [[]] * len(begun)
        assert processes[0].most_active <= server_settings().max_active


def test_run_brings_the_experiment_of_a_stored_result():
    """Settings beside it are told, but not the version, what is hidden, or fields of others."""
    link = read_link({"v": "1", "run": HASH, "hide": "steps", "ref": "news"}, stored)
    assert (link.experiment, link.hidden, link.problems) == (STORED, ("steps",), [])
    link = read_link({"run": HASH, "steps": "7"}, stored)
    assert link.experiment == STORED
    assert [problem.field for problem in link.problems] == ["steps"]


def test_a_run_that_is_not_there_is_told_and_the_rest_is_read():
    """Also if the store cannot be read."""
    for run, told in {
        "abc": "run: got 'abc', allowed sixteen digits from 0 to 9 and a to f",
        HASH.upper(): "allowed sixteen digits",
        f"{HASH}\n": "allowed sixteen digits",
        LOST: "but no result of that name is kept here, or no longer",
        AWAY: f"run: got '{AWAY}', but the database is away",
    }.items():
        link = read_link({"run": run, "d_head": "3"}, stored)
        assert link.experiment == Experiment(d_head=3)
        (problem,) = link.problems
        assert told in str(problem)


def test_controls_are_hidden_by_names_that_there_are():
    """All settings of any task and groups of controls, in one order; unknown ones are told."""
    link = read_link({"v": "1", "hide": " steps,colour,task , steps,,train", "steps": "70"}, stored)
    assert (link.experiment, link.hidden) == (Experiment(steps=70), ("task", "steps"))
    assert problems_in_words(link.problems).startswith("hide: got 'colour, train', allowed task, ")
    assert link_text(link.experiment, link.hidden) == "?v=1&steps=70&hide=task,steps"
    assert (link_text(Experiment()), link_text(Experiment(), ["task"])) == ("", "?v=1&hide=task")
    for task in TASKS:
        labels = hideable([task])
        assert list(labels) == [*GROUPS, *settings(task)], task
        assert all(labels.values())
        hidden = read_link({"task": task, "hide": ",".join(labels)}, stored).hidden
        assert hidden == tuple(name for name in hideable() if name in labels), task


# what a link may hold


def test_what_is_too_long_or_of_no_use_is_told_in_short():
    """Neither names nor values come back in full; all else is read."""
    for name, value, field, allowed in [
        ("steps", "9" * 100_000, "steps", f"at most {LONGEST_VALUE} characters"),
        ("x" * 100_000, "1", "link", f"at most {LONGEST_NAME} readable characters"),
        ("\u202espets\n# News", "1", "link", f"at most {LONGEST_NAME} readable characters"),
        ("steps", {"a": [[[]]]}, "steps", "a text or a number"),
        ("sharing", ["QKV", 1], "sharing", "a text or a number"),
        ("steps", 10**5000, "steps", "a whole number from 1 to 50000"),
        ("learning_rate", float("nan"), "learning_rate", "a number from"),
        ("n_seeds", "1e999", "n_seeds", "a whole number from 1 to 40"),
    ]:
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
        assert from_broken_params({"steps": "70", name: "news"}) == (Experiment(steps=70), []), name
    for name, meant in {"stepz": "steps", "shareing": "sharing", "d_hed": "d_head"}.items():
        (problem,) = from_broken_params({name: "3"})[1]
        assert problem.field == name
        assert f"did you mean {meant}?" in problem.allowed


def test_good_settings_stay_beside_contradictions():
    """However large all of them together are, only what must go is left out, and told."""
    large = {"task": "phonebook", "n_heads": "8", "n_layers": "4", "n_entries": "16"}
    large["batch_size"] = "512"  # each of them is allowed, but not all
    for given_ in ({"n_names": "7"}, {"n_seeds": "9", **large}, large):
        experiment, problems = from_broken_params({**given_, "learning_rate": "0.01"})
        assert experiment.training.learning_rate == 0.01
        assert experiment.task.name == given_.get("task", "directed")
        left_out = given_.keys() - experiment.to_params()
        assert {problem.field for problem in problems} == left_out
        assert len(left_out) <= 2, left_out
    (problem,) = from_broken_params({"n_names": "7"})[1]
    assert str(problem) == "n_names: got '7', but n_entries: got 8, allowed at most n_names (7)"


def test_equal_costs_are_given_up_where_they_make_models_too_large():
    """The message says so, and all other settings stay."""
    sizes = {"task": "phonebook", "n_entries": "20", "n_heads": "8", "d_head": "64"}
    sizes |= {"sharing": "QKV,K=V,Q=K=V", "n_layers": "2"}
    for batch_size in range(512, 0, -16):  # the largest with which costs are not equal
        alone, problems = from_broken_params({**sizes, "batch_size": str(batch_size)})
        if not problems:
            break
    equal = {"batch_size": str(batch_size), "equal": "kv_cache"}
    experiment, (problem,) = from_broken_params({**sizes, **equal})
    assert experiment == alone
    assert str(problem).startswith("equal: got 'kv_cache', but n_seeds: got 5, allowed at most ")


TIED = ",".join(f"QKV k_rank=m/4 tie=Q=V tie_at=0.{i}" for i in range(1, 12))
SLOW = {
    "sharing": f"{TIED},QKV n_heads=8 d_head=64",
    **{"task": "dictionary", "blocks": "standard", "n_layers": "4", "d_mlp": "64", "d_model": "64"},
    **{"equal": "multiply_adds", "n_train": "200000", "n_eval": "2048", "steps": "50000"},
}
"""A link that takes as long as any that was found."""


def seconds_of(fields):
    """Seconds of processor in which a link is read that nobody has read before."""
    for cached in (equalise, text._parse, text._wire):
        cached.cache_clear()
    begun = time.thread_time()
    read_link(fields, stored)
    return time.thread_time() - begun


def test_any_link_is_read_in_the_time_of_some_hundred_plain_ones(seed):
    """Variants of all words, costs made equal, wrong fields, contradictions, misspelt names."""
    rng = random.Random(seed)
    drawn = [SLOW, *(draw_link(rng) for _ in range(times(150)))]
    slowest = sorted(drawn, key=seconds_of)[-5:]
    plain = min(seconds_of({}) for _ in range(20))
    assert max(min(seconds_of(fields) for _ in range(3)) for fields in slowest) < MOST_PLAIN * plain


def test_a_wrong_variant_costs_no_other_and_values_of_json_are_read():
    """Numbers, truth values and lists mean what their texts do."""
    wrong = ["banana", "QKV n_heads=3 kv_heads=2", *(f"QKV kv_headz={i}" for i in range(5))]
    experiment, problems = from_broken_params({"sharing": ",".join(["Q=K", *wrong, "QKV"])})
    assert experiment.sharing == ("QKV", "Q=K")
    assert sorted(problem.value for problem in problems) == sorted(wrong)
    params = {"steps": 70, "causal": True, "learning_rate": 0.01, "sharing": ["QKV", "Q=K"]}
    assert from_broken_params(params) == (Experiment(**params), [])


def test_only_the_first_problems_are_told_in_full():
    """A page is no place for a hundred sentences."""
    problems = [Problem(f"f{i}", i, "none") for i in range(7)]
    assert problems_in_words(problems[:4]).count("allowed none.") == 4
    assert problems_in_words(problems).endswith("f3: got 3, allowed none. And 3 more.")
    assert problems_in_words([]) == ""
