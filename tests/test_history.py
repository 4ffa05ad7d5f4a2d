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
    """Return what a store lists of an experiment, or of a foreign text."""
    of, now = tiny("directed", **given), datetime(2026, 1, 2, 12, tzinfo=UTC)
    text = text or of.to_json()
    counts = (of.n_runs, of.training.steps, 1.5, "0", 17, False)
    return StoredEntry(of.hash, name, json.loads(text)["task"], text, *counts, now, now)


def test_a_name_says_task_variants_seeds_and_then_what_is_not_the_tasks_default():
    """Unless somebody gave a name. A task or a variant may be one that this copy does not have."""
    for settings, name in [
        ({"n_seeds": 3}, "Directed relation · 5 variants × 3 seeds"),
        ({"sharing": "QKV,Q=K,K=V", "n_seeds": 1}, "Directed relation · QKV, Q=K, K=V × 1 seed"),
        ({"sharing": ["Reformer"]}, "Directed relation · Reformer × 2 seeds"),
    ]:
        assert name_of(entry(**settings)) == name
        assert name_of(entry("Ours", **settings)) == "Ours"
    given = {"d_head": 5, "self_mask": False, "first_seed": 7, "blocks": "final_norm"}
    changed = set(changed_settings(entry(**given).text).split(", "))
    assert {"Head width 5", "Self-mask off", "First seed 7", "Steps 8"} <= changed
    assert "Blocks standard with final norm" in changed
    assert not [text for text in changed if text.startswith(("Seeds", "sharing", "task"))]
    settings = {"task": "theirs", "sharing": ["Q=K new=1"], "n_seeds": 1, "deep": 3, "odd": True}
    text = json.dumps({"v": 1, **settings})
    assert default_name(text) == "theirs · Q=K new=1 × 1 seed"
    assert changed_settings(text) == "deep 3, odd on"
    table = history_table([entry(text=text)], {})
    assert (table["task"][0], table["reached"][0]) == ("theirs", None)


def test_a_search_reads_words_and_settings():
    """A number after a setting's name is its value, not any number anywhere."""
    fitting = """|RELATION directed|d_head=5 relation|d_head = 5 steps 8|d_head|Q=K=V
        |Head width = 5 relation|self_mask true|positions none|seeds 2 directed"""
    for typed in fitting.split("|"):
        assert Search.of(typed).fits(entry(d_head=5)), typed
    # 5 is the width; `seeds reverse` has no value, so it is two words
    for typed in "d_head 6|steps 5|head width 6|self-mask off|seeds reverse".split("|"):
        assert not Search.of(typed).fits(entry(d_head=5)), typed
    assert Search.of("d_head=5 Reverse").text == "reverse d_head 5"  # what the store is asked for
    assert Search.of("tokens 5").text == "5"  # the label of two settings
    assert Search.of("w" + " w" * 100_000).words == ("w",) * (LONGEST_SEARCH // 2)
    assert len(Search.of("x" * 100_000).text) == LONGEST_SEARCH
