"""Downloads of an inspection page: the page as one file, a variant as a module, the code."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from attnkit.analysis.export import (
    command_line,
    experiment_code,
    folder_of,
    module_code,
    module_weights,
)
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.ui.inside.inspected_run import InspectedRun
from attnkit.ui.standalone import standalone_html
from attnkit.ui.widgets import download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of


def take_away(subject: InspectedRun, inspection: Inspection, component: str, title: str) -> None:
    """Draw the downloads of a page that shows a film; they are made when the expander is opened."""
    expander = st.expander(
        "Downloads", icon=":material/download:", key="take_away", on_change="rerun"
    )
    if expander.open:
        with expander:
            st.markdown(
                "**This page as one file.** It works without a server and without a network: the "
                "slider, Play, numbers where you point. It has the example and the query that are "
                "shown now. Each figure’s **Save** gives SVG, PNG, CSV."
            )
            job = subject.ask_for_film()
            if job is None or not job.over:
                st.caption("The file can be downloaded when the training has ended.")
            else:
                page_as_file(subject, inspection, component, title)
            st.divider()
            _module(subject)
            st.divider()
            st.markdown("**This experiment** in a terminal, and in Python.")
            st.code(command_line(subject.run), language="bash", wrap_lines=True)
            st.code(experiment_code(subject.run), language="python", wrap_lines=True)


def page_as_file(
    subject: InspectedRun,
    inspection: Inspection,
    component: str,
    title: str,
    label: str = "Page as HTML",
    help: str | None = None,
) -> None:
    """Draw the download of a page that shows a film, as one HTML file.

    The file is made when the button is pressed; a seed whose film is gone is then trained again.
    """
    experiment = subject.experiment

    def page() -> str:
        blob = _taken(subject.inspect_when_over(replace(inspection, since=-1)))
        names = ", ".join(title_of(variant) for variant in experiment.sharing)
        task = experiment.task.title
        note = f"{task}, seed {experiment.first_seed}: {names}."
        return standalone_html(title, component, blob, note, command_line(subject.run))

    file = f"attnkit-{experiment.task.name}-{component}.html"
    download(label, page, file, key="page_html", icon="html", help=help)


def _taken(answer: bytes | str | None) -> bytes:
    if not isinstance(answer, bytes):
        raise RuntimeError(answer or "the film is not there any more")
    return answer


def _module(subject: InspectedRun) -> None:
    experiment = subject.experiment
    st.markdown(
        "**A variant as a PyTorch module**: the whole model in one short file that needs nothing "
        "but torch, and its weights of this seed, which `safetensors` reads."
    )
    variants = [variant for variant in experiment.sharing if "module" not in variant.given]
    if not variants:
        return
    variant: Variant = st.selectbox(
        "Variant", variants, format_func=title_of, key="exported_variant", width=260
    )
    code = module_code(experiment, variant)
    with st.container(horizontal=True):
        file = f"attnkit-{experiment.task.name}-{folder_of(variant)}.py"
        download("Module (.py)", code, file, key="module_code", icon="code")
        job = subject.ask_for_film()
        if job is not None and job.state == "finished":
            download(
                "Weights (.safetensors)",
                partial(_weights, subject, variant),
                "weights.safetensors",  # the name that the module loads
                key="module_weights",
                icon="weight",
            )
    st.code(code, language="python", wrap_lines=True)


def _weights(subject: InspectedRun, variant: Variant) -> bytes:
    blob = _taken(subject.inspect(Inspection("weights")))
    prefix = f"{subject.experiment.sharing.index(variant)}/"
    weights: dict[str, np.ndarray] = {
        name.removeprefix(prefix): array
        for name, array in InspectionResult.from_bytes(blob).fixed.items()
        if name.startswith(prefix)
    }
    return module_weights(subject.experiment, variant, weights)
