"""What a list says of stored experiments, and how they are searched."""

import json
from datetime import UTC, datetime

from kinds import tiny

from attnkit.service.history import (
    LONGEST_SEARCH,
    Search,
    StoredEntry,
    changed_settings,
    default_name,
    history_table,
    name_of,
)


def entry(name="", text=None, **given):
    """What a store lists of an experiment, or of a foreign text."""
    of, now = tiny("directed", **given), datetime(2026, 1, 2, 12, tzinfo=UTC)
    text = text or of.to_json()
    counts = (of.n_runs, of.training.steps, 1.5, "0", 17, False)
    return StoredEntry(of.hash, name, json.loads(text)["task"], text, *counts, now, now)


def test_a_name_says_task_variants_and_seeds():
    """Unless somebody gave another."""
    for settings, name in [
        ({"n_seeds": 3}, "Directed relation · 5 variants × 3 seeds"),
        ({"sharing": "QKV,Q=K,K=V", "n_seeds": 1}, "Directed relation · QKV, Q=K, K=V × 1 seed"),
        ({"sharing": ["Reformer"]}, "Directed relation · Reformer × 2 seeds"),
    ]:
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
    settings = {"task": "theirs", "sharing": ["Q=K new=1"], "n_seeds": 1, "deep": 3, "odd": True}
    text = json.dumps({"v": 1, **settings})
    assert default_name(text) == "theirs · Q=K new=1 × 1 seed"
    assert changed_settings(text) == "deep 3, odd on"
    table = history_table([entry(text=text)], {})
    assert table["task"].tolist() == ["theirs"]
    assert table["reached"].tolist() == [None]


def test_a_search_reads_words_and_settings():
    """A number after a setting's name is its value, not any number anywhere."""
    fitting = """|RELATION directed|d_head=5 relation|d_head = 5 steps 8|d_head|Q=K=V
        |Head width = 5 relation|self_mask true|positions none|seeds 2 directed"""
    for typed in fitting.split("|"):
        assert Search.of(typed).fits(entry(d_head=5)), typed
    # 5 is the width; `seeds reverse` has no value, so it is two words
    for typed in "d_head 6|steps 5|head width 6|self-mask off|seeds reverse".split("|"):
        assert not Search.of(typed).fits(entry(d_head=5)), typed


def test_a_search_asks_the_store_for_what_it_has():
    """Every piece stands in the canonical text; a long search is cut."""
    assert Search.of("d_head=5 Reverse").text == "reverse d_head 5"
    assert Search.of("head width 5 self-mask on").text == "d_head 5 self_mask true"
    assert Search.of("tokens 5").text == "5"  # the label of two settings
    assert Search.of("w" + " w" * 100_000).words == ("w",) * (LONGEST_SEARCH // 2)
    assert len(Search.of("x" * 100_000).text) == LONGEST_SEARCH
