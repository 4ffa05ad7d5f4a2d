"""Links to the experiment of the Lab, and class links, which hide controls."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

import streamlit as st
from streamlit.net_util import get_internal_ip

from attnkit.experiment.experiment import SCHEMA
from attnkit.experiment.links import hideable, link_text
from attnkit.foundation.language import mark, tr
from attnkit.service.server import server_settings
from attnkit.tasks import OwnData
from attnkit.tasks.own_data import is_hash
from attnkit.ui.address import CLASS, QUIET, dashboard_address
from attnkit.ui.lab import classroom
from attnkit.ui.lab.lab import Lab
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment

_WITH_DATA = mark("Your data are part of the link: whoever has it can read them.")

_WITHOUT_DATA = mark(
    "Your data are too long for a link: it names them only by their hash, and whoever opens it is "
    "asked to add them."
)

OPEN = "share"
"""Key of the popover; its value tells whether it is open."""


@fragment
def share_form(lab: Lab, fits: bool) -> None:
    """Draw the link to copy, and the form that makes a class link."""
    experiment = lab.experiment
    labels, params = hideable([experiment.task.name]), experiment.to_params()
    address, warning = reachable(dashboard_address())
    with st.container(key="share_links"):
        if (room := classroom.joined()) is not None:
            st.markdown(tr("**Link that collects the class's guesses**"))
            link = classroom.link_to(address, room.code)
            st.code(link, language=None, wrap_lines=True)
        st.markdown(tr("**Link to this experiment**"))
        _to_copy(address, link_text(experiment), lab.quiet)
        notes = [tr("It opens with these settings.")]
        if not fits:
            notes = [
                tr("Something on screen cannot be trained; the link is the address of this page.")
            ]
        existing = training_service().find(experiment, lab.watcher)
        if existing is not None and existing.stored and not lab.quiet:
            notes.append(tr("The result is kept here, so it opens finished."))
        if isinstance(experiment.task, OwnData):
            in_link = "data" in params and not is_hash(params["data"])
            notes.append(tr(_WITH_DATA if in_link else _WITHOUT_DATA))
        st.caption(" ".join(notes))
        if warning:
            st.warning(warning, icon=":material/warning:")
        if CLASS in st.session_state:  # a page that a class's link has opened makes none
            return
        st.markdown(tr("**Link for a class**"))
        chosen = st.multiselect(
            tr("Hide these controls"),
            labels,
            default=[name for name in lab.hidden if name in labels],
            format_func=lambda name: tr(labels[name]),
            placeholder=tr("Choose what to hide"),
            key=f"hide_{experiment.task.name}",
        )
        guess_first = st.checkbox(
            tr("Results stay hidden until the visitor has guessed"),
            value=lab.quiet,
            key="share_quiet",
        )
        if chosen or guess_first:
            hidden = [name for name in labels if name in chosen]
            _to_copy(address, link_text(experiment, hidden), guess_first)
        st.caption(
            tr(
                "For a calmer page: hidden settings keep the values they have now. "
                "“Show all controls” brings everything back."
            )
        )


def reachable(address: str) -> tuple[str, str]:
    """Return an address that others can open, and a warning; empty if there is none.

    A loopback address such as localhost means the computer on which it is opened. It is replaced by
    this computer's address in its network, if the server listens there.
    """
    parts = urlsplit(address)
    if not _is_loopback(parts.hostname or ""):
        return address, ""
    if server_settings().hosted:  # it does not tell visitors its address in its network
        return address, tr(
            "This address works on this computer only: open the dashboard by its network address."
        )
    port = f":{parts.port}" if parts.port else ""
    listens_at = st.get_option("server.address")
    if listens_at not in (None, "0.0.0.0", "::"):
        return address, tr(
            "This link opens on this computer only, because attnkit listens at `{listens_at}`. To "
            "share it within your network, start attnkit with `python -m attnkit --host 0.0.0.0`.",
            listens_at=listens_at,
        )
    network = get_internal_ip()
    if network is None or _is_loopback(network):
        return address, tr("This link opens on this computer only, which is in no network.")
    return f"{parts.scheme}://{network}{port}{parts.path}", tr(
        "The link has this computer's address in its network, because `{host}` means “this "
        "computer” to everybody. Others can open it if they are in the same network, attnkit "
        "keeps running here, and this computer's firewall lets port {port} in.",
        host=parts.hostname,
        port=parts.port or 80,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _to_copy(address: str, query: str, quiet: bool) -> None:
    """Draw a link with a button that copies it; a relative link if the address is unknown."""
    if quiet:
        query = f"{query or f'?v={SCHEMA}'}&{QUIET}=1"
    link = address + query or f"?v={SCHEMA}"
    # A long link scrolls, so that what stands below it stays in sight.
    height: int | Literal["content"] = 120 if len(link) > 400 else "content"
    st.code(link, language=None, wrap_lines=True, height=height)
