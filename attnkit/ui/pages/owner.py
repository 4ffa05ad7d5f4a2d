"""The owner's page: training jobs, memory, versions and settings of this copy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pandas as pd
import streamlit as st
from streamlit import runtime

from attnkit.foundation.machine import free_and_total_memory, megabytes_of
from attnkit.foundation.settings import PREFIX
from attnkit.service.logs import versions
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import (
    SIGNED_IN,
    has_page,
    is_signed_in,
    result_store,
    shut_seconds,
    sign_in,
    store_megabytes,
    training_service,
)
from attnkit.ui.server.turns import fragment


def draw() -> None:
    """Draw the page; a visitor who has not signed in sees the form that asks for the secret."""
    require_route()
    if not has_page():  # Streamlit may find the file by itself, see attnkit/ui/routing.py
        st.switch_page("pages/lab.py")
    st.session_state.page = "owner"
    with st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
    ):
        st.title("Owner", anchor=False, width="content")
        if is_signed_in():
            st.button(
                "Sign out",
                icon=":material/logout:",
                on_click=st.session_state.pop,
                args=(SIGNED_IN, None),
                key="owner_sign_out",
            )
    if not is_signed_in():
        _sign_in_form()
        return
    fragment(_live_area, run_every=2)()
    st.subheader("Versions", anchor=False)
    st.markdown(", ".join(f"{name} {version}" for name, version in versions().items()))
    st.subheader("Settings", anchor=False)
    settings = server_settings().shown()
    st.dataframe(
        pd.DataFrame(
            {
                "variable": [PREFIX + name.upper() for name in settings],
                "value": [f"{value}".lower().removesuffix(".0") for value in settings.values()],
            }
        ),
        hide_index=True,
        width=520,
        height="content",
        column_config={"variable": "Variable", "value": "Value"},
    )


def _sign_in_form() -> None:

    def try_secret() -> None:
        st.session_state.owner_was_wrong = not sign_in(st.session_state.owner_secret)

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
    messages = ["That is not the secret."] if st.session_state.pop("owner_was_wrong", False) else []
    if seconds := shut_seconds():
        messages.append(f"Your network can try again in {math.ceil(seconds)} s.")
    if messages:
        st.error(" ".join(messages), width=420)


def _live_area() -> None:
    if not is_signed_in():
        st.rerun()
    jobs = training_service().overview()
    _show_metrics(jobs)
    st.subheader("Experiments", anchor=False)
    st.dataframe(
        pd.DataFrame(jobs).drop(columns="id", errors="ignore"),
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
            "watchers": st.column_config.NumberColumn("Tabs", width=45, help="Tabs that show it."),
            "restarts": st.column_config.NumberColumn(
                "Anew", width=50, help="How often training began anew because its process had died."
            ),
            "stored": st.column_config.CheckboxColumn("Kept", width=45, help="In the store."),
            "address": st.column_config.TextColumn(
                "Address", width=110, help="Network that requested it; on hosted copies only."
            ),
        },
        alt="Experiments that train, wait or have ended",
    )
    ended = ("finished", "stopped", "failed")
    service, moving = training_service(), [job for job in jobs if job["state"] not in ended]
    active = {
        str(job["id"]): f"{job['state']}: {job['task']}, {job['runs']} runs, {job['hash']}"
        for job in moving
    }
    _stop_area(
        "Stop one",
        active,
        "Choose an experiment" if active else "None trains or waits",
        "Stop it",
        service.stop,
        "owner_chosen",
    )
    counts = Counter(str(job["address"]) for job in moving if job["address"])
    addresses = {address: f"{address}: {n}" for address, n in counts.most_common()}
    _stop_area(
        "Stop all of one address",
        addresses,
        "Choose an address" if addresses else "No address has any",
        "Stop them",
        service.stop_address,
        "owner_address",
    )


def _stop_area(
    label: str,
    options: dict[str, str],
    placeholder: str,
    button: str,
    stop: Callable[[str], None],
    key: str,
) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            label,
            list(options),
            index=None,
            format_func=lambda name: options.get(name, "ended"),
            placeholder=placeholder,
            disabled=not options,
            key=key,
            width=420,
        )
        st.button(
            button,
            icon=":material/stop:",
            on_click=lambda: stop(st.session_state[key]) if is_signed_in() else None,
            disabled=chosen not in options,
            key=f"{key}_stop",
        )


def _show_metrics(jobs: list[dict[str, object]]) -> None:
    service = training_service()
    process, n_queued = service.supervisor.process.id, sum(job["state"] == "queued" for job in jobs)
    free, total = free_and_total_memory()
    with st.container(horizontal=True):
        tabs = "active_sessions"  # as Streamlit calls them
        stats = runtime.get_instance().stats_mgr.get_stats([tabs])[tabs]
        counts = [int(stat.to_metric_str().rpartition(" ")[2]) for stat in stats]
        _show_metric("Open tabs", sum(counts))
        _show_metric("Training", service.n_active, f"of {server_settings().max_active:,}")
        _show_metric("Queued", n_queued, f"of {server_settings().max_waiting:,}")
        _show_metric("Server, MB", megabytes_of())
        _show_metric(
            "Training process, MB",
            megabytes_of(process),
            f"process {process}, began anew {service.supervisor.n_restarts} times",
        )
        _show_metric("Free, MB", free, f"of {total:,.0f} on this machine or in this container")
        size = store_megabytes()
        limit = f"of {server_settings().store_megabytes:,}"
        _show_metric("Store, MB", None if isinstance(size, str) else size, limit)
    if isinstance(size, str):
        st.warning(f"The store does not answer: {size}.", icon=":material/database_off:")
    store = result_store()
    for note in store.notes if isinstance(store, ResultStore) else ():
        st.warning(f"The store began anew. {plain(note)}", icon=":material/database_off:")


def _show_metric(name: str, value: float | None, note: str | None = None) -> None:
    digits = 1 if isinstance(value, float) and value < 10 else 0
    st.metric(
        name,
        "–" if value is None else f"{value:,.{digits}f}",
        help=note,
        border=True,
        width="stretch",
    )
