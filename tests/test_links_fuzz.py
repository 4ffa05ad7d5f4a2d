"""Fuzzed links: whatever somebody writes into the address, the parser and the pages stand it."""

import resource
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from idle import idle_service, show, visit
from searching import briefly

from attnkit.experiment import links
from attnkit.experiment.experiment import Experiment, from_params, settings
from attnkit.experiment.links import (
    GROUPS,
    MOST_FIELDS,
    is_link_field,
    link_params,
    link_text,
    problems_in_words,
    read_link,
)
from attnkit.service.server import server_settings
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS

MOST_TRIES = 120
"""Experiments that may be built for one link."""

MOST_TOLD = 6000
"""Characters that a page may say of one link."""

MOST_KILOBYTES = 300_000
"""Memory that all fuzzed links together may add to the most that was ever taken."""

HASH = "0123456789abcdef"
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
def variants(draw):
    """A variant that there is, with or without one word too many."""
    words = draw(st.lists(st.sampled_from(WORDS), max_size=2))
    return " ".join([draw(st.sampled_from(VARIANTS)), *words])


@st.composite
def valid_fields(draw):
    """Settings each of which is allowed; together they may contradict each other."""
    task = draw(st.sampled_from(list(TASKS)))
    known = settings(task)
    names = draw(st.lists(st.sampled_from(list(known)), unique=True, max_size=6))
    fields = {"v": "1", "task": task} | {name: draw(value_of(known[name])) for name in names}
    chosen = draw(st.lists(variants(), max_size=4))
    return fields | ({"sharing": ",".join(chosen)} if chosen else {})


@st.composite
def fuzzed_links(draw):
    """A link with anything from nothing to everything wrong."""
    fields = draw(valid_fields())
    name = st.sampled_from(FIELDS) | st.text(max_size=8)
    value = st.sampled_from(GARBAGE) | st.text(max_size=12)
    for kind in draw(
        st.lists(st.sampled_from("value name lost swap run hide many".split()), max_size=4)
    ):
        if kind == "value":
            fields[draw(name)] = draw(value)
        elif kind == "name":
            fields[draw(value)] = draw(value)
        elif kind == "run":
            fields["run"] = draw(st.sampled_from([HASH, "f" * 16, "a" * 16]) | value)
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


def stored(hash):
    """A store that has one result, lacks most, and is away for some."""
    return {HASH: STORED, "a" * 16: "the database is away"}.get(hash)


def kilobytes():
    """The most memory that this process has ever taken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fuzz(n_examples):
    """Return settings of Hypothesis for so many large examples."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return examples(briefly(n_examples), suppress_health_check=slow)


@given(fields=fuzzed_links())
@fuzz(100)
def test_any_link_is_read(fields):
    """Each gives an experiment with few tries; what was not taken is told, in short."""
    tries = []

    def count(given):
        tries.append(1)
        return from_params(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "from_params", count)
        link = read_link(fields, stored)
    assert len(tries) <= MOST_TRIES
    check(fields, link)


def check(fields, link):
    """What holds of every link that was read."""
    assert len(problems_in_words(link.problems)) < MOST_TOLD
    problems_in_words(link.problems).encode()
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


@pytest.mark.server
def test_pages_open_on_any_link(long, tmp_path):
    """No exception; one process, which is given nothing beyond the limits; memory stays."""
    with idle_service(tmp_path, hosted="true", max_waiting="1000") as processes:
        show(visit())  # all that every page needs is there
        before = kilobytes()

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
        assert kilobytes() - before < MOST_KILOBYTES
        assert len(processes) == 1
        begun = processes[0].begun
        assert [server_settings().problems(experiment) for experiment in begun] == [[]] * len(begun)
        assert processes[0].most_active <= server_settings().max_active
