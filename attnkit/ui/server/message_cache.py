"""Large messages that a browser keeps, so that the server sends only their hash again.

Streamlit decides what is sent as a hash by the list of kept messages that comes with every message
of the browser. The browser drops messages after later runs of the page, so on a loaded server a
list may be older than what it has dropped. It then stops at a hash without its message ("Cached
ForwardMsg MISS") until it connects anew, and loses what is typed meanwhile. Here the server decides
by what it has sent itself, in the order in which the browser receives it.
"""

from __future__ import annotations

from functools import cache
from weakref import WeakKeyDictionary

from streamlit import config
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_cache import create_reference_msg
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient


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
