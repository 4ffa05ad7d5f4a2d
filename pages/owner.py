"""The owner's page: who trains and waits, memory, versions and settings of this copy."""

import math
from collections import Counter

import pandas as pd
import streamlit as st

from attnkit.foundation.machine import free_and_total_memory, megabytes_of
from attnkit.foundation.settings import PREFIX
from attnkit.service.logs import versions
from attnkit.service.server import server_settings
from attnkit.ui.markdown import plain
from attnkit.ui.owner import (
    has_page,
    is_signed_in,
    n_sessions,
    queue_table,
    shut_seconds,
    sign_in,
    sign_out,
    store_megabytes,
    store_notes,
)
from attnkit.ui.routing import require_route
from attnkit.ui.service import training_service

require_route()
TICK_SECONDS = 2.0
OVER = ("finished", "stopped", "failed")


def try_secret() -> None:
    """Take what was typed, and note if it was wrong."""
    st.session_state.owner_was_wrong = not sign_in(st.session_state.owner_secret)


def door() -> None:
    """Ask for the secret."""
    st.markdown("For whoever runs this copy.")
    with st.form("owner_door", clear_on_submit=True, width=420):
        st.text_input(
            "Secret",
            type="password",
            autocomplete="current-password",
            max_chars=200,
            key="owner_secret",
        )
        st.form_submit_button("Sign in", on_click=try_secret, key="owner_sign_in")
    said = ["That is not the secret."] if st.session_state.pop("owner_was_wrong", False) else []
    if shut := shut_seconds():
        said.append(f"Your network can try again in {math.ceil(shut)} s.")
    if said:
        st.error(" ".join(said), width=420)


@st.fragment(run_every=TICK_SECONDS)
def now() -> None:
    """What changes: the numbers and the queue."""
    service = training_service()
    jobs = service.overview()
    figures(jobs)
    st.subheader("Experiments", anchor=False)
    st.dataframe(
        queue_table(jobs),
        hide_index=True,
        height=320,
        key="owner_queue",
        placeholder="",
        column_config={
            "state": st.column_config.TextColumn("State", width=75),
            "place": st.column_config.NumberColumn("Place", width=55, help="In the queue."),
            "task": st.column_config.TextColumn("Task", width=110),
            "hash": st.column_config.TextColumn("Experiment", width=135),
            "runs": st.column_config.NumberColumn("Runs", width=50, help="Variants × seeds."),
            "done": st.column_config.ProgressColumn(
                "Done", width=100, format="%.0f%%", min_value=0, max_value=100
            ),
            "steps": st.column_config.NumberColumn("Steps", width=60, format="localized"),
            "seconds": st.column_config.NumberColumn("Trained, s", width=75, format="%.0f"),
            "waited": st.column_config.NumberColumn("Waited, s", width=70, format="%.0f"),
            "megabytes": st.column_config.NumberColumn(
                "MB", width=45, format="%.0f", help="Memory, estimated."
            ),
            "watchers": st.column_config.NumberColumn("Tabs", width=45, help="That look at it."),
            "restarts": st.column_config.NumberColumn(
                "Anew", width=50, help="How often it began anew, its process having died."
            ),
            "stored": st.column_config.CheckboxColumn("Kept", width=45, help="In the store."),
            "address": st.column_config.TextColumn(
                "Address", width=110, help="The network that asked for it; on hosted copies."
            ),
        },
        alt="Experiments that train, wait or have ended",
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        going = {job["id"]: label(job) for job in jobs if job["state"] not in OVER}
        chosen = st.selectbox(
            "Stop one",
            list(going),
            index=None,
            format_func=lambda job_id: going.get(job_id, "ended"),
            placeholder="Choose an experiment" if going else "None trains or waits",
            disabled=not going,
            key="owner_chosen",
            width=420,
        )
        st.button(
            "Stop it",
            icon=":material/stop:",
            on_click=lambda: service.stop(st.session_state.owner_chosen),
            disabled=chosen not in going,
            key="owner_stop",
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        addresses = Counter(job["address"] for job in jobs if job["state"] not in OVER)
        del addresses[""]
        address = st.selectbox(
            "Stop all of one address",
            [address for address, _ in addresses.most_common()],
            index=None,
            format_func=lambda address: f"{address}: {addresses[address]}",
            placeholder="Choose an address" if addresses else "No address has any",
            disabled=not addresses,
            key="owner_address",
            width=420,
        )
        st.button(
            "Stop them",
            icon=":material/stop:",
            on_click=lambda: service.stop_address(st.session_state.owner_address),
            disabled=address not in addresses,
            key="owner_stop_address",
        )


def figures(jobs: list[dict[str, object]]) -> None:
    """Sessions, queue and memory in one glance."""
    service = training_service()
    n_queued = sum(job["state"] == "queued" for job in jobs)
    free, total = free_and_total_memory()
    with st.container(horizontal=True):
        figure("Open tabs", n_sessions())
        figure("Training", service.n_active, f"of {server_settings().max_active:,}")
        figure("Queued", n_queued, f"of {server_settings().max_waiting:,}")
        figure("Server, MB", megabytes_of())
        figure(
            "Training process, MB",
            megabytes_of(service.process_id),
            f"process {service.process_id}, began anew {service.n_restarts} times",
        )
        figure("Free, MB", free, f"of {total:,.0f} on this machine or in this container")
        size = store_megabytes()
        kept = f"of {server_settings().store_megabytes:,}"
        figure("Store, MB", None if isinstance(size, str) else size, kept)
    if isinstance(size, str):
        st.warning(f"The store does not answer: {size}.", icon=":material/database_off:")
    for note in store_notes():
        st.warning(f"The store began anew. {plain(note)}", icon=":material/database_off:")


def figure(name: str, value: float | None, note: str | None = None) -> None:
    """One number, or a dash if nobody can tell."""
    digits = 1 if isinstance(value, float) and value < 10 else 0
    st.metric(
        name,
        "–" if value is None else f"{value:,.{digits}f}",
        help=note,
        border=True,
        width="stretch",
    )


def label(job: dict[str, object]) -> str:
    """A job in one line."""
    return f"{job['state']}: {job['task']}, {job['runs']} runs, {job['hash']}"


if not has_page():  # Streamlit may find the file by itself, see attnkit/ui/routing.py
    st.switch_page("pages/lab.py")
st.session_state.page = "owner"
with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("Owner", anchor=False, width="content")
    if is_signed_in():
        st.button("Sign out", icon=":material/logout:", on_click=sign_out, key="owner_sign_out")
if not is_signed_in():
    door()
    st.stop()
now()
st.subheader("Versions", anchor=False)
st.markdown(", ".join(f"{name} {version}" for name, version in versions().items()))
st.subheader("Settings", anchor=False)
shown = server_settings().shown()
st.dataframe(
    pd.DataFrame(
        {
            "variable": [PREFIX + name.upper() for name in shown],
            "value": [f"{value}".lower().removesuffix(".0") for value in shown.values()],
        }
    ),
    hide_index=True,
    width=520,
    height="content",
    column_config={"variable": "Variable", "value": "Value"},
)
