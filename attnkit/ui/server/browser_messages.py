"""Repairs of what Streamlit takes from browsers, and of what it expects them to keep.

Values of widgets: a browser sends values that its widgets can have. Anybody else may send anything
for any widget: text for a number, an option that is not there, the press of a button that is no
longer on the page. Streamlit trusts the kind of a value, and runs callbacks before it checks
options. It registers every widget with its kind, options and callback. Values that do not fit are
dropped here, and the widget keeps its last value.

Large messages: Streamlit decides what is sent as a hash by the list of kept messages that comes
with every message of the browser. The browser drops messages after later runs of the page, so on a
loaded server a list may be older than what it has dropped. It then stops at a hash without its
message ("Cached ForwardMsg MISS") until it connects anew, and loses what is typed meanwhile. Here
the server decides by what it has sent itself, in the order in which the browser receives it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from streamlit import config
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_cache import create_reference_msg
from streamlit.runtime.state import get_session_state
from streamlit.runtime.state.common import (
    RegisterWidgetResult,
    WidgetMetadata,
    is_element_id,
    unpack_widget_state_value,
)
from streamlit.runtime.state.session_state import (
    STREAMLIT_INTERNAL_KEY_PREFIX,
    Serialized,
    SessionState,
    WStates,
)
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient

from attnkit.tasks.own_data import MOST_BYTES

LONGEST_TEXT = 4 * MOST_BYTES
"""Most characters of a text. Larger data of one's own than are allowed get a message, up to here;
on a hosted copy, messages are much shorter."""


@cache
def check_widget_values() -> None:
    """Check all values of widgets in this process from now on."""
    set_all, register = SessionState.set_widgets_from_proto, SessionState.register_widget
    set_metadata = WStates.set_widget_metadata

    def set_allowed(self: SessionState, states: WidgetStates) -> None:
        """Set the values that are allowed. A widget that is not on the page loses its callback."""
        known = self._new_widget_state.widget_metadata
        for state in states.widgets:
            if _element_of(state.id) not in self._old_state:
                known.pop(state.id, None)
        set_all(self, WidgetStates(widgets=[s for s in states.widgets if is_allowed(s, known)]))

    def register_checked(
        self: SessionState, metadata: WidgetMetadata[Any], user_key: str | None
    ) -> RegisterWidgetResult[Any]:
        """Register a widget, without a value that came before the widget and is not allowed."""
        early = self._new_widget_state.states.get(metadata.id)
        if isinstance(early, Serialized) and not fits(early.value, metadata):
            del self._new_widget_state.states[metadata.id]
        return register(self, metadata, user_key)

    def keep_kind(self: WStates, metadata: WidgetMetadata[Any]) -> None:
        """Keep the kind of a widget that was cleared, which Streamlit would forget."""
        known = self.widget_metadata.get(metadata.id)
        if metadata.value_type is None and known is not None:
            metadata = replace(metadata, value_type=known.value_type)
        set_metadata(self, metadata)

    WStates.set_widget_metadata = keep_kind  # type: ignore[assignment,method-assign]
    SessionState.set_widgets_from_proto = set_allowed  # type: ignore[assignment,method-assign]
    SessionState.register_widget = register_checked  # type: ignore[method-assign]


def send_choices_again() -> None:
    """Send what is chosen in all widgets with options to the browser, in a run of a page.

    A browser names a choice by its label. After the labels have changed, it would show the old one.
    """
    state = get_session_state()._state
    for widget, metadata in [*state._new_widget_state.widget_metadata.items()]:
        key = state._key_id_mapper.id_key_mapping.get(widget)
        if metadata.formatted_options is not None and key is not None and key in state:
            state[key] = state[key]


def fits(state: WidgetState, metadata: WidgetMetadata[Any]) -> bool:
    """Return whether a widget can have a value."""
    kind = state.WhichOneof("value")
    if kind is None:  # cleared
        return True
    if kind != metadata.value_type:
        return False
    if kind == "file_uploader_state_value":  # to read it would take the files
        return True
    if kind == "string_value" and len(state.string_value) > LONGEST_TEXT:
        return False
    if kind == "string_array_value":
        chosen = list(state.string_array_value.data)
    else:
        chosen = [state.string_value]
    options, most = metadata.formatted_options, metadata.max_array_length
    if most is not None and len(chosen) > most:
        return False
    if options is not None:
        return len(set(chosen)) == len(chosen) and set(chosen) <= set(options)
    try:
        metadata.deserializer(unpack_widget_state_value(state))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return False
    return True


def is_allowed(state: WidgetState, known: dict[str, WidgetMetadata[Any]]) -> bool:
    """Return whether a value fits its widget; without a widget yet, it is checked later.

    Streamlit would take an id of another form for a key of the session, which has no value then.
    """
    if not is_element_id(state.id) and not state.id.startswith(STREAMLIT_INTERNAL_KEY_PREFIX):
        return False
    metadata = known.get(state.id)
    return metadata is None or fits(state, metadata)


def _element_of(widget: str) -> str:
    """Return the id of the element of a widget; the events of a component are a widget, too."""
    element = widget.removeprefix(f"{STREAMLIT_INTERNAL_KEY_PREFIX}_")
    return widget if element == widget else element.partition("__")[0]


class KeptMessages:
    """Hashes of messages that a browser keeps for certain, by the rules of Streamlit's frontend."""

    def __init__(self) -> None:
        self._n_runs = 0
        self._kept: dict[str, tuple[int, str]] = {}  # number of the last run with it, its fragment

    def __contains__(self, message: ForwardMsg) -> bool:
        """Whether the browser keeps a message when it receives what is sent next."""
        return message.metadata.cacheable and message.hash in self._kept

    def note(self, message: ForwardMsg) -> None:
        """Note that a message, or its hash, was sent."""
        kind, finished = message.WhichOneof("type"), message.script_finished
        if kind == "script_finished" and finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            self._end_run(set(message.metadata.run.fragment_ids))
        if message.metadata.cacheable:
            self._kept[message.hash] = self._n_runs, message.delta.fragment_id

    def _end_run(self, fragments: set[str]) -> None:
        """Forget what the browser drops at the end of a run of fragments, or of a whole page.

        It is forgotten one run before the browser drops it, which may count a run later than here.
        """
        self._n_runs += 1
        oldest = self._n_runs - max(0, config.get_option("global.maxCachedMessageAge") - 1)
        self._kept = {
            name: (n, fragment)
            for name, (n, fragment) in self._kept.items()
            if n >= oldest or (fragments and fragment not in fragments)
        }


@cache
def decide_what_browsers_keep() -> None:
    """Let the server decide in this process from now on which messages it sends as a hash."""
    write, request = StarletteSessionClient.write_forward_msg, AppSession.request_rerun
    kept: WeakKeyDictionary[StarletteSessionClient, KeptMessages] = WeakKeyDictionary()

    def write_unless_kept(self: StarletteSessionClient, msg: ForwardMsg) -> None:
        messages = kept.setdefault(self, KeptMessages())
        write(self, create_reference_msg(msg) if msg in messages else msg)
        messages.note(msg)  # one that was too large is not kept, and no longer marked as cacheable

    def request_without_list(self: AppSession, client_state: ClientState | None) -> None:
        if client_state is not None:
            client_state.ClearField("cached_message_hashes")
        request(self, client_state)

    StarletteSessionClient.write_forward_msg = write_unless_kept  # type: ignore[method-assign]
    AppSession.request_rerun = request_without_list  # type: ignore[method-assign]
