"""What pages send to browsers: joined scripts, texts that people typed, drawings made once."""

import gc
import json
import re
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from unittest.mock import Mock

import pytest
from finished import one_variant
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.figures.curves import plot_metric as draw_metric
from attnkit.foundation.language import reading
from attnkit.ui import standalone
from attnkit.ui.cache import (
    Cache,
    board,
    cached_with_snapshot,
    curves_only,
    finding,
    plot_metric,
    sharing_table,
)
from attnkit.ui.components import packed_once
from attnkit.ui.markdown import plain
from attnkit.ui.standalone import inline_script, script, standalone_html

# scripts

MODULES = sorted(
    file.name.removesuffix(".js")
    for file in (files("attnkit") / "ui" / "assets").iterdir()
    if file.name.endswith(".js")
)
DECLARED = re.compile(r"^(?:export default )?(?:async )?(?:function|const|let) (\w+)", re.MULTILINE)


def test_a_script_imports_nothing_and_declares_each_name_once():
    """Otherwise a browser refuses it as a whole; imported modules stand above their users.

    In a `<script>` of a page nothing is exported, and nothing ends it before its end.
    """
    for name in MODULES:
        source = script(name)
        assert not re.search(r"^(import|export (?!default))", source, re.MULTILINE), name
        names = DECLARED.findall(source)
        assert len(names) == len(set(names)) > 0, name
        if re.search("^export default", source, re.MULTILINE):
            source, function = inline_script(name)
            assert not re.search("^export", source, re.MULTILINE), name
            assert f"function {function}(" in source, name
            assert "</script" not in source, name
    source = script("attention")
    places = [source.index(f"function {name}(") for name in ("once", "heatMap", "filmPage")]
    assert places == sorted(places)
    with pytest.raises(ValueError, match=r"ink\.js: got no default export"):
        inline_script("ink")


def test_a_script_has_the_translations_of_its_own_messages(monkeypatch):
    """A visitor's language is part of the script; the board's small component has no texts."""
    known = {"tour.js": {"Done": "Fertig"}, "menu_words.js": {"Save": "Sichern"}}
    monkeypatch.setattr(standalone, "script_messages", lambda code: known)
    for name, texts in (("tour", {"Done": "Fertig"}), ("board", {"Save": "Sichern"}), ("late", {})):
        english, other = ({"language": "en", "texts": {}}, {"language": "xx", "texts": texts})
        assert script(name, "xx").count(json.dumps(other)) == 1, name
        assert script(name, "xx").replace(json.dumps(other), json.dumps(english)) == script(name)


def test_a_saved_page_folds_its_command_away():
    """The command that trains the run again stands below the figures, and only if it is known."""
    given = ("Title", "attention", b"blob", "Note.")
    page = standalone_html(*given, "python -m attnkit <train>")
    assert "<pre>python -m attnkit &lt;train&gt;" in page
    assert page.index('<div id="film">') < page.index("<details>")
    assert "<details>" not in standalone_html(*given)


# texts

AUTOLINKS = r"(https?://|www(?=\.))([-.\w]+)|(?:^|\s|[^\w])([-.\w+]+)@([-\w]+(?:\.[-\w]+)+)"
"""What Streamlit's Markdown makes links of, after it has resolved escapes."""

PARTS = (
    "https:// HTTP:// www. WWW. eva@evil.invalid f@g.h a?b=c evil.invalid W_Q **x** <b> a/b a: \\ "
    "wwwhat Jindřich"
).split()


@given(st.lists(st.sampled_from([*PARTS, " "]), max_size=4).map("".join))
@briefly(60)
def test_typed_texts_are_shown_as_typed_and_without_links(text):
    """Nothing that can be seen is added, and to texts without an address nothing but escapes."""
    shown = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", plain(text))
    assert not re.search(AUTOLINKS, shown, re.IGNORECASE)
    assert shown.replace("\u2060", "") == text
    assert ("\u2060" in shown) <= bool(re.search(r"://|www\.|@", text, re.IGNORECASE))


# drawings

RISING = [[0.1, 0.2], [0.5, 0.6], [0.9, 1.0]]


def test_what_was_made_of_a_snapshot_is_the_same_object():
    """For all arguments that it was made with; snapshots count by identity."""
    snapshot = one_variant(RISING)
    experiment = snapshot.experiment
    one, two = one_variant(RISING, d_head=5), one_variant(RISING, d_head=5)
    assert plot_metric(snapshot, "loss") is not plot_metric(one_variant(RISING), "loss")
    assert plot_metric(snapshot, "accuracy", one) is plot_metric(snapshot, "accuracy", one)
    assert plot_metric(snapshot, "accuracy", one) is not plot_metric(snapshot, "accuracy", two)
    assert plot_metric(snapshot, "accuracy", one) == draw_metric(snapshot, "accuracy", one)
    fading = curves_only(snapshot)  # what fades has its curves and no attention
    assert fading.probe.pattern.size == 0 < snapshot.probe.pattern.size
    for metric in ("accuracy", "loss"):
        assert draw_metric(one, metric, fading) == draw_metric(one, metric, snapshot)

    def show(_):  # every visitor's page runs in a thread of its own
        start.wait()
        return [board(snapshot, experiment, seed, 0, 0)["columns"] for seed in (0, 1)]

    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(show, range(8)))
    assert all(drawn == shown[0] for drawn in shown)
    assert board(snapshot, experiment, 0, 0, 0) is board(snapshot, experiment, 0, 0, 0)
    assert board(snapshot, experiment, 1, 0, 0) is not board(snapshot, experiment, 0, 0, 0)


def test_a_snapshot_that_nobody_has_any_more_is_not_kept():
    """However often the page was drawn while a run went on, beside whichever other."""
    snapshot, previous = one_variant(RISING), one_variant(RISING, d_head=5)
    gone = [weakref.ref(snapshot), weakref.ref(previous)]
    for show in (finding, sharing_table, curves_only):
        show(snapshot)
    board(snapshot, snapshot.experiment, 0, 0, 0)
    drawn = weakref.ref(curves_only(snapshot))
    plot_metric(snapshot, "accuracy", previous)
    del previous
    gc.collect()
    assert gone[1]() is None
    assert drawn() is not None
    del snapshot, show
    gc.collect()
    assert gone[0]() is drawn() is None


def test_of_one_snapshot_the_newest_drawings_are_kept():
    """Whoever tries all seeds, layers and heads fills no memory; a failure is tried again."""
    made, snapshot = [], one_variant(RISING)

    @cached_with_snapshot
    def count(_, number):
        made.append(number)
        if number < 0:
            raise ValueError("no")
        return number

    for number in [*range(200), 199, 0]:
        assert count(snapshot, number) == number
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            count(snapshot, -1)
    assert made == [*range(200), 0, -1, -1]


def test_a_drawing_is_packed_once():
    """For what it is drawn with, in the reader's language; packing is compact JSON."""
    drawing, data = {"text": "é"}, Mock(return_value={"text": "é"})
    kept = packed_once(drawing, data, "words")
    assert kept == json.dumps(drawing, separators=(",", ":")).encode()
    assert packed_once(drawing, data, "words") is kept
    assert data.call_count == 1
    with reading("de"):
        packed_once(drawing, data, "words")
    packed_once(drawing, data, "others")
    packed_once({**drawing}, data, "words")
    assert data.call_count == 4


def test_a_cache_is_bounded_and_forgets_the_least_recently_used():
    """By number and by bytes; what is too large for it is given back all the same."""
    cache = Cache(3, 100, len)
    for key in "abc":
        cache.put(key, key * 20)
    assert cache.get("a") == "a" * 20
    cache.put("d", "d" * 20)
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    cache.put("e", "e" * 70)
    assert [key for key in "acde" if cache.get(key)] == ["d", "e"]
    assert cache.n_bytes == 90
    assert cache.put("f", "f" * 500) == "f" * 500
    assert [key for key in "def" if cache.get(key)] == ["d", "e"]
    assert cache.n_bytes == 90
