"""Share: the link to what is set up, and class links, which hide controls."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import SCHEMA
from attnkit.links import hideable, link_text
from attnkit.ui.service import training_service
from attnkit.ui.session import Lab

OPEN = "share"
"""Key of the popover: whether it is open."""


@st.fragment
def share_form(lab: Lab, fits: bool) -> None:
    """The link to copy, and the form that makes a class link.

    Args:
        fits: whether what the widgets say can be trained, so that the link is to that.
    """
    experiment = lab.experiment
    labels = hideable([experiment.task.name])
    with st.container(key="share_links"):
        st.markdown("**Link to this experiment**")
        _to_copy(link_text(experiment))
        note = "Whoever opens it finds these settings."
        if not fits:
            note = "Something on screen cannot be trained; the link is the address of this page."
        known = training_service().find(experiment)
        if known is not None and known.stored:
            note += " The result is kept here, so it opens finished."
        st.caption(note)
        st.markdown("**Link for a class**")
        chosen = st.multiselect(
            "Hide these controls",
            labels,
            default=[name for name in lab.hidden if name in labels],
            format_func=labels.__getitem__,
            placeholder="Choose what to hide",
            key=f"hide_{experiment.task.name}",
        )
        if chosen:
            _to_copy(link_text(experiment, [name for name in labels if name in chosen]))
        st.caption(
            "For a calmer page: hidden settings keep the values they have now. "
            "“Show all controls” brings everything back."
        )


def _to_copy(query: str) -> None:
    """A whole link, with the address that the browser shows; a relative one if it is not known."""
    address = f"{st.context.url.rstrip('/')}/" if st.context.url else ""
    st.code(address + query or f"?v={SCHEMA}", language=None, wrap_lines=True)
