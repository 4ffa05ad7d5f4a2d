"""What a list says of stored experiments, and how they are searched."""

import json
from datetime import UTC, datetime

import pytest
from kinds import tiny

from attnkit.service.history import Search, changed_settings, default_name, history_table, name_of
from attnkit.service.store import LONGEST_SEARCH, StoredEntry

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def entry(name="", text=None, **given):
    """What a store lists of an experiment, or of a foreign text."""
    experiment = tiny("directed", **given)
    return StoredEntry(
        hash=experiment.hash,
        name=name,
        task=json.loads(text)["task"] if text else "directed",
        text=text or experiment.to_json(),
        n_runs=experiment.n_runs,
        steps=experiment.training.steps,
        seconds=1.5,
        version="0",
        n_bytes=17,
        pinned=False,
        created_at=NOON,
        used_at=NOON,
    )


FOREIGN = json.dumps(
    {"v": 1, "task": "theirs", "sharing": ["Q=K new=1"], "n_seeds": 1, "deep": 3, "odd": True}
)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"n_seeds": 3}, "Directed relation · 5 variants × 3 seeds"),
        ({"sharing": ["QKV", "Q=K"], "n_seeds": 1}, "Directed relation · QKV, Q=K × 1 seed"),
        ({"sharing": ["Reformer"]}, "Directed relation · Reformer × 2 seeds"),
    ],
)
def test_a_name_says_task_variants_and_seeds(settings, name):
    """Unless somebody gave another."""
    assert name_of(entry(**settings)) == name
    assert name_of(entry("Ours", **settings)) == "Ours"


def test_changed_settings_are_those_that_are_not_the_tasks_defaults():
    """With their names and choices on screen; variants and seeds stand in the name."""
    assert "Blocks standard with final norm" in changed_settings(entry(blocks="final_norm").text)
    changed = changed_settings(entry(d_head=5, self_mask=False, first_seed=7).text).split(", ")
    assert {"Head width 5", "Self-mask off", "First seed 7", "Steps 8"} <= set(changed)
    assert not [text for text in changed if text.startswith(("Seeds", "sharing", "task"))]


def test_foreign_settings_have_a_name_all_the_same():
    """A task or a variant that this copy does not have."""
    assert default_name(FOREIGN) == "theirs · Q=K new=1 × 1 seed"
    assert changed_settings(FOREIGN) == "deep 3, odd on"
    table = history_table([entry(text=FOREIGN)], {})
    assert table["task"].tolist() == ["theirs"]
    assert table["reached"].tolist() == [None]


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("", True),
        ("RELATION directed", True),
        ("d_head=5 relation", True),
        ("d_head = 5 steps 8", True),
        ("d_head 6", False),
        ("steps 5", False),  # 5 is the width
        ("d_head", True),
        ("Head width = 5 relation", True),
        ("head width 6", False),
        ("self_mask true", True),
        ("self-mask off", False),
        ("positions none", True),
        ("seeds 2 directed", True),
        ("seeds reverse", False),  # no value, so two words
        ("Q=K=V", True),
    ],
)
def test_a_search_reads_words_and_settings(typed, fits):
    """A number after a setting's name is its value, not any number anywhere."""
    assert Search.of(typed).fits(entry(d_head=5)) == fits


def test_a_search_asks_the_store_for_what_it_has():
    """Every piece stands in the canonical text."""
    assert Search.of("d_head=5 Reverse").text == "reverse d_head 5"
    assert Search.of("head width 5 self-mask on").text == "d_head 5 self_mask true"
    assert Search.of("tokens 5").text == "5"  # the label of two settings


def test_a_long_search_is_cut():
    """Every word costs a look at every entry."""
    assert Search.of("w" + " w" * 100_000).words == ("w",) * (LONGEST_SEARCH // 2)
    assert len(Search.of("x" * 100_000).text) == LONGEST_SEARCH
