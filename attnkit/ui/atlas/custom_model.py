"""Section of the Atlas that measures a visitor's own model, named or uploaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import streamlit as st

from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.revisions import trainings
from attnkit.service.server import server_settings
from attnkit.ui.atlas.choice import AtlasChoice
from attnkit.ui.atlas.model_measurement import (
    ENDINGS,
    MOST_MEGABYTES,
    ModelMeasurement,
    keep_upload,
    under_free_names,
    upload_problem,
)
from attnkit.ui.markdown import plain
from attnkit.ui.server.turns import fragment

TICK_SECONDS = 0.5
"""Seconds between two updates while a model is measured."""

LONGEST_SOURCE = 4000
"""Characters of a path, at most; operating systems allow fewer."""

RUNNING, OUTCOME = "model_measurement", "own_measured"
"""Keys of the measurement that runs, and of the message about the last one."""

LINK_SHOWS = (
    "The link of this page shows this model to everybody you send it to, for as long as the server "
    "keeps it: at most until it is started again."
)
ONLY_HERE = "This model is too large to keep: it is gone when the page is loaded again."
"""Notes on who sees a measured model, if the server keeps it and if not."""


def custom_model(choice: AtlasChoice, shipped: Iterable[str] = ()) -> None:
    """Draw the section; it is drawn again by itself while a model is measured."""
    if server_settings().hosted:
        off_here("measure a model", "python -m attnkit models PATH --out atlas.parquet")
        return
    running: ModelMeasurement | None = st.session_state.get(RUNNING)
    moving = running is not None and running.moving
    fragment(_area, run_every=TICK_SECONDS if moving else None)(choice, frozenset(shipped))


def off_here(action: str, command: str) -> None:
    """Draw why a hosted copy reads no models, and the command that does the same."""
    st.markdown(
        "Off on this copy, which many people share: it would read files of the server. A copy of "
        f"your own can {action} of yours."
    )
    with st.expander(f"For programmers: {action} from a terminal"):
        st.code(command, language="bash")


def _area(choice: AtlasChoice, shipped: frozenset[str]) -> None:
    running: ModelMeasurement | None = st.session_state.get(RUNNING)
    if running is not None and not running.moving:
        _finish(running, choice, shipped)
        st.rerun()
    st.markdown("Measure a model and compare it with those above: only its weights are read.")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Model",
            placeholder="sentence-transformers/all-MiniLM-L6-v2",
            help="A name on the Hugging Face hub, an installed package, or a folder or file on the "
            "machine that runs this page. `owner/name@step1000,step4000` are revisions of a model, "
            "and a folder of checkpoints stands for all of them. It reads safetensors with "
            "`config.json`, GGUF, CTranslate2’s `model.bin`, and Marian’s `.bin` and `.npz`. "
            "Pickles (`pytorch_model.bin`, `.pt`) are never opened.",
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
    limit = min(MOST_MEGABYTES, st.get_option("server.maxUploadSize"))
    st.file_uploader(
        f"Or upload a `.gguf`, `.bin` or `.npz`, or a `.safetensors` and `config.json`: "
        f"{limit} MB at most",
        type=list(ENDINGS),
        accept_multiple_files=True,
        max_upload_size=limit,
        key="own_files",
    )
    st.checkbox(
        "Also with gains folded and at other distances, which takes longer",
        value=True,
        key="own_every",
    )


def _status(running: ModelMeasurement | None) -> None:
    """Draw the progress of the measurement, or the message about the last one."""
    if running is not None:
        n_done, n_layers = running.layers
        progress = f"Layer {n_done} of {n_layers}" if n_layers else "Reading"
        share = n_done / n_layers if n_layers else 0.0
        st.progress(share, text=f"{progress}: {plain(running.name)}")
        return
    if OUTCOME in st.session_state:
        kind, message = st.session_state[OUTCOME]
        {"good": st.success, "bad": st.error, "stopped": st.info}[kind](plain(message))


def _begin() -> None:
    """Begin to measure the model that was named or uploaded."""
    files, source = st.session_state.own_files or [], st.session_state.own_source.strip()
    every_setting = bool(st.session_state.own_every)
    folder, name = None, source
    if not source and not files:
        st.session_state[OUTCOME] = ("bad", "Name a model or upload one.")
    elif not source and upload_problem(file.name for file in files):
        st.session_state[OUTCOME] = ("bad", upload_problem(file.name for file in files))
    else:
        if not source:
            name = next(file.name for file in files if not file.name.endswith(".json"))
            folder, source = keep_upload(files, name.rpartition(".")[0])
        try:
            st.session_state[RUNNING] = ModelMeasurement(
                source, name=name, every_setting=every_setting, folder=folder
            )
        except OSError as error:
            st.session_state[OUTCOME] = ("bad", f"It could not be started: {error.strerror}.")
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    st.rerun()


def _finish(running: ModelMeasurement, choice: AtlasChoice, shipped: frozenset[str]) -> None:
    """Add the models of a finished measurement to the visitor's, or note why there are none."""
    del st.session_state[RUNNING]
    if running.stopped:
        st.session_state[OUTCOME] = ("stopped", "Stopped.")
        running.close()
        return
    try:
        atlas = running.atlas()
        notes = running.notes_on(atlas.table["model"].unique())
    except (OSError, Unreadable) as error:
        st.session_state[OUTCOME] = ("bad", running.problem_of(error))
        return
    finally:
        running.close()
    if running.uploaded:
        taken = () if choice.measured is None else choice.measured.table["model"].unique()
        atlas = under_free_names(atlas, shipped.union(taken))
    choice.add_measured(atlas)
    names = ", ".join(atlas.table["model"].unique())
    n_settings = len(atlas.table[["folded", "offset"]].drop_duplicates())
    n_heads = int(atlas.table["head"].notna().sum() // max(1, n_settings))
    places, they = "One head and Two models", "It is"
    if trainings(atlas.table["model"]):
        places, they = "One head, Two models and Over training", "They are"
    st.session_state[OUTCOME] = (
        "good",
        f"Measured: {names}, {n_heads} heads. {they} in all figures; look under {places}. "
        f"{LINK_SHOWS if choice.mine else ONLY_HERE}"
        + (f" Notes: {' '.join(notes)}" if notes else ""),
    )
