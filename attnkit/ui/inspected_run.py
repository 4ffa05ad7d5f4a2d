"""Shared parts of the pages that look inside models: the run, its film, pickers, downloads.

These pages show one seed of the run that the Lab shows. If the run is not trained yet, they offer
to train it with all its seeds, and the Lab and Runs then show it, too. The film of a trained run
is kept for a short time after training. When it is gone, the one seed is trained again, which gives
the same numbers, and the page says so. While it trains, new frames are sent and added as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.custom_phone_book import is_phone_book, shortened
from attnkit.analysis.export import (
    command_line,
    experiment_code,
    folder_of,
    module_code,
    module_weights,
)
from attnkit.analysis.inspection.request import Inspection, View
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.experiment.links import problems_in_words
from attnkit.foundation.words import listed, verb
from attnkit.service.jobs import Job
from attnkit.service.service import Refused
from attnkit.ui import components
from attnkit.ui.cache import Cache
from attnkit.ui.lab.custom_phone_book import book_fields, read_question
from attnkit.ui.lab.lab import Lab, lab_link, open_lab
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import training_service, training_time
from attnkit.ui.standalone import standalone_html
from attnkit.ui.watched_job import live, moves, show_refusal, status_of
from attnkit.ui.widgets import bound, download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

ATTENTION_TITLE = "What does one lookup do?"
"""Title of the page Attention, and of its copy as one file."""


@dataclass
class InspectedRun:
    """One seed of a run that a page looks into.

    Attributes:
        experiment: Experiment of the one seed.
        run: Experiment of the run, with all its seeds.
        refusal: Reason why the seed cannot be trained here; empty if it can.
    """

    lab: Lab
    experiment: Experiment
    run: Experiment
    row: DeltaGenerator
    refusal: str = ""

    def ask_for_film(self) -> Job | None:
        """Return the job whose film is shown, as it is now; begin one if there is none.

        None is returned, and `refusal` set, if it was refused.
        """
        service, lab = training_service(), self.lab
        try:
            job_id = service.film(self.experiment, lab.job_id, lab.watcher, lab.filmed_id)
        except Refused as error:
            self.refusal = str(error)
            return None
        previous_id, lab.filmed_id = lab.filmed_id, job_id
        if previous_id and previous_id not in lab.watched:
            service.stop_watching(previous_id, lab.watcher)
        return service.job(job_id, lab.watcher)

    def try_again(self) -> None:
        """Train again what has failed: the Lab's run, or the one seed that was to be filmed."""
        job = self.lab.job
        if job is not None and job.state == "failed":
            self.lab.train()
            return
        try:
            training_service().submit(self.experiment, kept=False, watcher=self.lab.watcher)
        except Refused as error:
            self.lab.refusal = str(error)

    def inspect(self, inspection: Inspection, most: int = 0) -> bytes | str | None:
        """Return the result of an inspection as bytes.

        A text says why there is none; None means that the run has no film yet, or has failed.

        Args:
            most: Largest number of times that it is computed during a training; 0 for no limit.
        """
        job = self.ask_for_film()
        if job is None:
            return f"The experiment was not accepted: {self.refusal}"
        return self._inspect(job, inspection, most)

    def inspect_when_over(self, inspection: Inspection) -> bytes | str | None:
        """Return the result of an inspection, after waiting up to 2 minutes for a training."""
        service, deadline = training_service(), time.monotonic() + 120
        job = self.ask_for_film()
        while job is not None and not job.over and (left := deadline - time.monotonic()) > 0:
            job = service.wait(job.id, job.version, left, self.lab.watcher)
        return self.inspect(inspection)

    def inspect_all_seeds(self, inspection: Inspection) -> bytes | str | None:
        """Return the result of an inspection of all seeds of the run, if it still has its film.

        If not, the one seed is inspected, which may be trained again for its film. A text, such as
        that of a busy training process, is returned at once: asking again would double the wait.
        """
        job = self.lab.job
        result = self._inspect(job, inspection) if job is not None and job.over else None
        return self.inspect(inspection) if result is None else result

    def _inspect(self, job: Job, inspection: Inspection, most: int = 0) -> bytes | str | None:
        if not job.begun or job.snapshot is None or job.state == "failed":
            return None
        moment = job.step * most // job.experiment.training.steps if most else job.step
        key = (job.id, job.over, moment, inspection)
        cached = _CACHE.get(key)
        if cached is not None:
            return cached
        result = training_service().inspect(job.id, inspection, watcher=self.lab.watcher)
        if isinstance(result, bytes):
            _CACHE.put(key, result)
        return result


_CACHE: Cache[bytes] = Cache(10_000, 2**25, len)
"""Inspections that all visitors share."""


def open_inspected_run(page: str, title: str) -> InspectedRun:
    """Draw the head of a page, and return the run and seed that it looks into.

    If the run is not trained, the page ends with an offer to train it.
    """
    lab = open_lab(page)
    job = lab.job
    experiment = lab.experiment if job is None else job.experiment
    st.title(title, anchor=False)
    if lab.problems:  # they stay, so that the Lab shows them, too
        st.warning(f"The link was not fully understood. {plain(problems_in_words(lab.problems))}")
    row = st.container(horizontal=True, vertical_alignment="bottom", key="subject")
    with row:
        names = ", ".join(title_of(variant) for variant in experiment.sharing)
        st.markdown(f"**{plain(experiment.task.title)}**: {plain(names)}")
        lab_link("Change it in the Lab")
        seed = experiment.first_seed
        if experiment.n_seeds > 1:
            seeds = list(experiment.seeds)
            key = f"inspected_seed_{seeds[0]}_{len(seeds)}"
            seed = st.selectbox("Seed", seeds, width=90, **remembered(key, seeds, seed, key))
    lab.write_link()
    if not lab.is_trained:
        _offer_training(lab)
        st.stop()
    _note_on_modules(experiment, page)
    return InspectedRun(lab, experiment.replace(first_seed=seed, n_seeds=1), experiment, row)


def _offer_training(lab: Lab) -> None:
    show_refusal(lab)
    if lab.quiet:
        st.info("Not trained yet. Guess in the Lab what will come out, then train it there.")
        return
    models = "1 model" if lab.experiment.n_runs == 1 else f"{lab.experiment.n_runs} models"
    st.info(
        f"These settings are not trained yet. **Train** trains {models}, which takes "
        f"{training_time(lab.experiment)}. The Lab and Runs show them, too."
    )
    icon = ":material/play_arrow:"
    st.button("Train", type="primary", icon=icon, on_click=lab.train, key="train_here")


def remembered(name: str, options: Sequence[Any], default: Any, key: str = "") -> dict[str, Any]:
    """Return the arguments of a picker whose choice holds on all pages, see `bound`.

    Args:
        default: Choice if none was made, or if it is no option here.
        key: Key of the widget; it is made of the name if empty.
    """
    memory: dict[str, Any] = st.session_state.setdefault("remembered", {})
    if memory.get(name) not in options:
        memory[name] = default
    return bound(memory, name, key or f"inspected_{name}")


def choose(label: str, options: Sequence[str], name: str, text: Callable[[str], str] = str) -> str:
    """Draw a row of buttons for a choice that holds on all pages, and return the choice."""
    # A browser keeps the choice of a widget that has the same key, even if it is no option.
    key = f"{name}_{'_'.join(options)}"
    chosen: str = st.segmented_control(
        label,
        options,
        required=True,
        format_func=text,
        wrap=True,
        **remembered(name, options, options[0], key),
    )
    return chosen if chosen in options else options[0]


def _pick_layer_and_head(subject: InspectedRun) -> tuple[int, int]:
    specs, heads = subject.experiment.layer_specs, range(subject.experiment.n_heads)
    layers, layer, head = range(len(specs)), 0, 0
    if len(layers) > 1:
        layer = subject.row.selectbox(
            "Layer",
            layers,
            format_func=lambda i: specs[i].title.removeprefix("Layer "),
            width=130,
            **remembered("layer", layers, telling_layer(specs)),
        )
    if len(heads) > 1:
        given = remembered("head", heads, 0)
        head = subject.row.selectbox(
            "Head", heads, format_func=lambda i: f"{i + 1}", width=90, **given
        )
    return layer, head


@dataclass
class _Sent:
    """Frames that one drawing of a page has sent so far.

    Attributes:
        step: Training step of the last frame.
        problem: Reason why there are none; frames are then requested at the visitor's press only.
    """

    film: str = ""
    step: int = -1
    blob: bytes = b""
    problem: str = ""


def _draw_film(subject: InspectedRun, inspection: Inspection, component: str) -> None:
    if st.session_state.pop("picked_anew", False):  # the pickers above change, too
        st.rerun()
    sent: _Sent = st.session_state[f"sent_{component}"]
    job = subject.ask_for_film()
    if job is not None and job.id != sent.film:
        sent.film, sent.step = job.id, -1
    if job is not None and job.state == "failed":
        _show_failure(subject, job, f"{component}_failed")
    elif status := _status(job, subject):
        st.caption(status)
    if not sent.problem:
        all_frames = job is None or job.over
        result = subject.inspect(replace(inspection, since=-1 if all_frames else sent.step))
        if isinstance(result, str):
            sent.problem = result
        elif result is not None and (steps := InspectionResult.from_bytes(result).header["steps"]):
            sent.step, sent.blob = steps[-1], result

    def resend() -> None:
        """Request all frames at the next tick: the browser lacks some, or there was a problem."""
        st.session_state[f"sent_{component}"] = _Sent()

    if sent.problem:
        _show_problem(sent.problem, component, resend)

    def take_picked() -> None:
        kind = dict[Literal["layer", "head", "query_index", "key_position"], components.Index]
        picked: dict[str, int] | None = components.reported(component, "picked", kind)
        if picked:
            st.session_state.setdefault("remembered", {}).update({"key_position": None, **picked})
            st.session_state["picked_anew"] = True

    if sent.blob:
        components.component(component, *components.FILM)(
            key=component,
            data=sent.blob,
            on_picked_change=take_picked,
            on_resend_change=resend,
        )
    elif moves(job):
        st.skeleton(height=600)


def _status(job: Job | None, subject: InspectedRun) -> str:
    """Return how far the training of the inspected run is.

    The text is empty for a run that has ended: the player says which step and seed it shows.
    """
    if job is None:
        return "Nothing to look into."
    if job.over and job.begun and job.state != "failed":
        return ""
    if moves(job) and job.step and not job.kept and subject.lab.finished:
        seed = subject.experiment.first_seed
        again = f"Seed {seed} is trained once more for these figures, with the same numbers."
        return f"{again} {status_of(job)}"
    growing = " The figures grow while it trains." if moves(job) and job.snapshot else ""
    return f"{status_of(job)}{growing}"


def result_of(
    subject: InspectedRun,
    answer: bytes | str | None,
    name: str,
    ask_again: Callable[..., Any] | None = None,
) -> InspectionResult | None:
    """Return the result of an inspection; None, with a message, if there is none.

    Args:
        name: Name of the inspection, for the keys of buttons.
        ask_again: Called when the visitor asks again after a problem; None if the page asks by
            itself.
    """
    if isinstance(answer, bytes):
        return InspectionResult.from_bytes(answer)
    job = subject.ask_for_film()
    if isinstance(answer, str):
        _show_problem(answer, name, ask_again)
    elif job is not None and job.state == "failed":
        _show_failure(subject, job, name)
    else:
        st.info("There is no trained model yet: numbers appear as soon as training has begun.")
    return None


def _show_problem(problem: str, name: str, ask_again: Callable[..., Any] | None) -> None:
    st.error(plain(f"{problem}."), icon=":material/error:")
    if ask_again is not None:
        key = f"again_{name}"
        st.button("Ask again", icon=":material/refresh:", key=key, on_click=ask_again)


def _show_failure(subject: InspectedRun, job: Job, name: str) -> None:
    st.markdown(status_of(job))
    key, press = f"again_{name}", subject.try_again
    st.button("Train it again", icon=":material/replay:", key=key, on_click=press)
    show_refusal(subject.lab)


def _note_on_modules(experiment: Experiment, page: str) -> None:
    own = [variant for variant in experiment.sharing if "module" in variant.given]
    if not own:
        return
    names = [title_of(variant) for variant in own]
    text = (
        f"{listed(names)} {verb(names, 'is', 'are')} left out, because a PyTorch module has no "
        "queries, keys and values to look at. What it returns is in the Lab and on Asymmetry."
    )
    if page == "asymmetry":
        modules = (experiment.wiring(variant).module for variant in own)
        missing = [module.missing for module in modules if module is not None and module.missing]
        weights = f"Numbers of W_Q and W_K are empty for {listed(names)}: a PyTorch module has no"
        text = " ".join([f"{weights} such matrices that attnkit knows of.", *missing])
    st.caption(plain(text))


def film_page(
    page: str, title: str, view: View, below: Callable[[Lab], None] = lambda lab: None
) -> None:
    """Draw a page of a view; `below` draws between its figures and the downloads."""
    require_route()
    subject = open_inspected_run(page, title)
    layer, head = _pick_layer_and_head(subject)
    example = _pick_example(subject)
    if example is None:
        below(subject.lab)
        return
    query, key = _pressed(subject, example, layer) if view == "attention" else (0, None)
    inspection = replace(
        example, view=view, layer=layer, head=head, query_index=query, key_position=key
    )
    st.session_state[f"sent_{page}"] = _Sent()
    live(lambda: _draw_film(subject, inspection, page), lambda: [subject.ask_for_film()], 0.5)
    below(subject.lab)
    expander = st.expander(
        "Downloads", icon=":material/download:", key="take_away", on_change="rerun"
    )
    if expander.open:  # only then are they made
        with expander:
            _downloads(subject, inspection, page, title)


def _pick_example(subject: InspectedRun) -> Inspection | None:
    """Draw the picker in the subject's row, and return the example as an inspection of attention.

    Held-out examples are sorted by their number of wrong answers, most first. Where the task is a
    phone book, visitors can write their own; None is returned while it has problems.
    """
    task = subject.experiment.task
    descriptions, order = _descriptions(subject)
    key = f"inspected_example_{subject.lab.filmed_id}_{len(order)}"  # a browser keeps old labels
    own_book = remembered("custom_book", (False, True), False)
    is_custom = is_phone_book(task) and bool(st.session_state["inspected_custom_book"])
    example = subject.row.selectbox(
        "Example, most wrong answers first",
        order,
        format_func=descriptions.__getitem__,
        width=320,
        disabled=is_custom,
        **remembered("example", order, 0, key),
    )
    if is_phone_book(task):
        subject.row.toggle("A phone book of your own", **own_book)
    return _custom_book(subject) if is_custom else Inspection("attention", example=example)


def _descriptions(subject: InspectedRun) -> tuple[list[str], list[int]]:
    job = subject.ask_for_film()
    blob = subject.inspect(Inspection("examples")) if job is not None and job.over else None
    if not isinstance(blob, bytes):
        return ["The example of the Lab"], [0]
    header = InspectionResult.from_bytes(blob).header
    descriptions = []
    for index, example in enumerate(header["examples"]):
        n_answers = example["n_asked"] * len(header["variants"])
        wrong = f"{example['n_wrong']} of {n_answers} answers wrong"
        name = "The Lab’s" if index == 0 else index + 1
        descriptions.append(f"{name}: {wrong}. {example['text']}")
    return descriptions, header["order"]


def _custom_book(subject: InspectedRun) -> Inspection | None:
    task = subject.experiment.task
    assert is_phone_book(task)
    text, name, right = book_fields(task, "inspected_")
    asked = read_question(task, text, name)
    if asked is None:
        return None
    book, question, notes = asked
    right.caption(notes)
    return Inspection(
        "attention",
        tokens=tuple(tuple(int(field) for field in token) for token in question.tokens),
        names=tuple(shortened(entry.name) for entry in book.entries),
        numbers=tuple(shortened(question.classes[c]) for c in sorted(question.classes)),
        right=tuple(question.right),
        query_index=question.row,
    )


def _pressed(
    subject: InspectedRun, example: Inspection, layer: int
) -> tuple[int | None, int | None]:
    """Return the query and the key that were pressed in figures of the same example and layer.

    They are the index of the query and the position of the key; None if none was pressed.
    """
    memory = st.session_state.setdefault("remembered", {})
    if memory.get("example of the query") != example:
        memory["example of the query"] = example
        memory.pop("query_index", None)
        memory.pop("key_position", None)
    pressed: int | None = memory.get("query_index", example.query_index)
    key: int | None = memory.get("key_position")
    positions = range(*subject.experiment.layer_specs[layer].key_positions)
    if example.tokens:  # a custom book has a size of its own
        positions = range(len(example.tokens))
    return pressed, key if key in positions else None


def _downloads(subject: InspectedRun, inspection: Inspection, component: str, title: str) -> None:
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
        blob = _blob_of(subject.inspect_when_over(replace(inspection, since=-1)))
        names = ", ".join(title_of(variant) for variant in experiment.sharing)
        task = experiment.task.title
        note = f"{task}, seed {experiment.first_seed}: {names}."
        return standalone_html(title, component, blob, note, command_line(subject.run))

    file = f"attnkit-{experiment.task.name}-{component}.html"
    download(label, page, file, key="page_html", icon="html", help=help)


def _blob_of(answer: bytes | str | None) -> bytes:
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
    blob = _blob_of(subject.inspect(Inspection("weights")))
    prefix = f"{subject.experiment.sharing.index(variant)}/"
    weights: dict[str, np.ndarray] = {
        name.removeprefix(prefix): array
        for name, array in InspectionResult.from_bytes(blob).fixed.items()
        if name.startswith(prefix)
    }
    return module_weights(subject.experiment, variant, weights)
