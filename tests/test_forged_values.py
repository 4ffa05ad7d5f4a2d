"""Values that no browser sends: no page fails at one, or computes for long."""

import random
from contextlib import closing

import pytest
from browsing import OWNER_SECRET
from finished import store_finished
from forging import forged_states
from idle import idle_service, open_page, show
from kinds import tiny
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.state.common import WidgetMetadata
from streamlit.runtime.state.session_state import WStates

from attnkit.service.store import ResultStore
from attnkit.ui.routing import SECTIONS
from attnkit.ui.server.owner import gate
from attnkit.ui.server.widget_values import check_widget_values, is_allowed

pytestmark = pytest.mark.server

PAGES = [page.name for pages in SECTIONS.values() for page in pages] + ["owner"]

ROUNDS = 5
"""Messages of forged values for each page."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A hosted copy with an owner, whose training process trains nothing, and two results."""
    folder = tmp_path_factory.mktemp("forged")
    with closing(ResultStore(folder)) as store:
        kept = [store_finished(store, tiny("directed", n_seeds=n)) for n in (2, 3)]
    with idle_service(folder, hosted="true", owner_secret=OWNER_SECRET):
        gate.clear()
        yield kept
    gate.clear()


def opened(page, kept):
    """Open a page with as many of its widgets as possible."""
    links = {
        "runs": {"run": ",".join(kept)},
        "atlas": {"show": "head"},
        "questions": {"claim": "all"},
        "capacity": {"show": "matching"},
    }
    tab = open_page(page, **links.get(page, {}))
    if page == "owner":
        tab.text_input(key="owner_secret").set_value(OWNER_SECRET)
        tab.button(key="owner_sign_in").click()
        show(tab)
    return tab


def widgets_of(tab):
    """Return the kind of value and the options of every widget that was drawn, by its id."""
    metadata = tab._session_state._state._new_widget_state.widget_metadata
    return {name: (one.value_type, one.formatted_options or ()) for name, one in metadata.items()}


def failures(tab):
    """Return what the page shows of exceptions."""
    return [(one.message, one.stack_trace[-4:]) for one in tab.exception]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_fails_at_forged_values(page, service, seed, long):
    """All widgets at once or a few, of their own kind or of any; then the page is drawn again."""
    draw = random.Random(f"{seed} {page}")
    tab = opened(page, service)
    widgets = widgets_of(tab)
    assert widgets
    for n in range(ROUNDS * (20 if long else 1)):
        widgets |= widgets_of(tab)
        states = forged_states(draw, widgets, draw.choice((1.0, 0.3, 0.1)))
        tab._run(states)
        assert not tab.exception, (seed, n, failures(tab), states)
        tab._run(WidgetStates())
        assert not tab.exception, (seed, n, failures(tab), states)


def test_a_widget_that_was_cleared_takes_its_next_value():
    """Its kind is known and checked, which Streamlit forgets when it reads the cleared value."""
    check_widget_values()
    states = WStates()
    states.set_widget_metadata(WidgetMetadata("a", str, str, "string_value"))
    for value, is_taken in (({}, True), ({"string_value": "b"}, True), ({"int_value": 1}, False)):
        state = WidgetState(id="a", **value)
        assert is_allowed(state, states.widget_metadata) == is_taken
        states.set_widget_from_proto(state)
        states["a"]
