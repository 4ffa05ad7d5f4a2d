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
from attnkit.ui.server.browser_messages import check_widget_values, is_allowed
from attnkit.ui.server.service import gate

LINKS = {"atlas": {"show": "head"}, "questions": {"claim": "all"}, "capacity": {"show": "frontier"}}
PAGES = [page.name for pages in SECTIONS.values() for page in pages] + ["owner"]


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


def widgets_of(tab):
    """Return the kind of value and the options of every widget that was drawn, by its id."""
    metadata = tab._session_state._state._new_widget_state.widget_metadata
    return {name: (one.value_type, one.formatted_options or ()) for name, one in metadata.items()}


def forge(page, kept, seed, n_rounds):
    """Send forged values to a page, all widgets at once or a few, and draw it again each time."""
    draw, tab = random.Random(f"{seed} {page}"), open_page(page, **LINKS.get(page, {}))
    if page == "runs":
        tab = open_page(page, run=",".join(kept))
    if page == "owner":
        tab.text_input(key="owner_secret").set_value(OWNER_SECRET)
        tab.button(key="owner_sign_in").click()
        show(tab)
    widgets = widgets_of(tab)
    assert widgets
    for n in range(n_rounds):
        widgets |= widgets_of(tab)
        states = forged_states(draw, widgets, draw.choice((1.0, 0.3, 0.1)))
        for message in (states, WidgetStates()):
            tab._run(message)
            shown = [(one.message, one.stack_trace[-4:]) for one in tab.exception]
            assert not shown, (seed, page, n, shown, states)


def test_drawn_pages_do_not_fail_at_forged_values(service, seed):
    """A few pages by day, the owner's always among them."""
    for page in dict.fromkeys(("owner", *random.Random(seed).sample(PAGES, 3))):
        forge(page, service, seed, 4)


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("page", PAGES)
def test_no_page_fails_at_forged_values(page, service, seed):
    """Values of the widgets' own kinds or of any kind."""
    forge(page, service, seed, 60)


def test_a_widget_that_was_cleared_takes_its_next_value():
    """Its kind is known and checked, which Streamlit forgets when it reads the cleared value."""
    check_widget_values()
    states, widget = WStates(), "$$ID-0-name"
    states.set_widget_metadata(WidgetMetadata(widget, str, str, "string_value"))
    for value, is_taken in (({}, True), ({"string_value": "b"}, True), ({"int_value": 1}, False)):
        state = WidgetState(id=widget, **value)
        assert is_allowed(state, states.widget_metadata) == is_taken
        states.set_widget_from_proto(state)
        states[widget]
