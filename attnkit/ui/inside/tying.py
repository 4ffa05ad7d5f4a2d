"""Mixtures of W_K and W_V in a trained model, and the map that repairs W_K, on the page Surgery."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.tying import ALPHAS, TyingResult
from attnkit.figures.tying import (
    mixture_label,
    mixture_text,
    plot_mixtures,
    repairs_table,
    tying_csv,
    tying_results,
)
from attnkit.service.jobs import Job
from attnkit.ui import components
from attnkit.ui.inside.inspected_run import InspectedRun, choose, remembered, result_of
from attnkit.ui.markdown import plain
from attnkit.ui.watched_job import moves
from attnkit.ui.widgets import download
from attnkit.variants.catalogue import title_of

_NO_ANSWER = "tying_no_answer"
"""Key in the session of the last text that came instead of a result, and its run and step."""


def mixtures_area(subject: InspectedRun) -> None:
    """Draw the accuracy of all mixtures of W_K and W_V, with a slider, and of the map.

    The training process computes them once, when the run has ended; moving the slider only moves
    the mark.
    """
    film = subject.ask_for_film()
    if moves(film):
        st.info("The mixtures appear when the training has ended.")
        return
    answer = _measured(subject, film)
    forget = partial(st.session_state.pop, _NO_ANSWER, None)
    inspected = result_of(subject, answer, "tying", forget)
    if inspected is None:
        return
    results, refusals = tying_results(inspected)
    if results:
        show_tying(_pick(results), subject.experiment.task.name, results)
    else:
        st.markdown("None of these models can be tied in this way.")
    for refusal in refusals:
        st.caption(plain(f"{refusal}."))


def _measured(subject: InspectedRun, film: Job | None) -> bytes | str | None:
    """Return what the training process measures; see `InspectedRun.inspect_all_seeds`.

    If it answers with a text, the text stays for this run and step, because every other drawing of
    the page would begin the same long computation once more.
    """
    run = subject.lab.job
    key = [(job.id, job.step) if job is not None else None for job in (run, film)]
    known_key, text = st.session_state.get(_NO_ANSWER, (None, ""))
    if known_key == key:
        return str(text)
    answer = subject.inspect_all_seeds(Inspection("tying"))
    if isinstance(answer, str):
        st.session_state[_NO_ANSWER] = (key, answer)
    return answer


def show_tying(result: TyingResult, name: str, results: list[TyingResult]) -> None:
    """Draw one variant's mixtures and map, with what they show in words."""
    with st.container(key="tying_finding"):
        st.markdown(f"**{plain(result.mixture_finding)}**")
    if result.has_diverged:
        return
    curve, repairs = st.columns([3, 2], gap="medium")
    with curve:
        alpha = st.select_slider(
            "α, the share of W_K in the mixture α W_K + (1 − α) W_V",
            ALPHAS,
            format_func=mixture_label,
            **remembered("alpha", ALPHAS, 0.5, "tying_alpha"),
        )
        chosen = mixture_text(result, alpha)
        components.picture(
            plot_mixtures(result, alpha),
            key="mixtures",
            alt=f"Accuracy over α. {result.mixture_finding} {chosen}",
        )
        with st.container(key="tying_chosen"):
            st.markdown(plain(chosen))
    with repairs:
        components.markup(repairs_table(result), key="repairs_table")
        with st.container(key="repair_finding"):
            st.markdown(plain(result.repair_finding))
    st.caption(plain(_method(result)))
    file = f"attnkit-{name}-surgery-mixtures.csv"
    download("Accuracies as CSV", lambda: tying_csv(results), file, key="tying_csv")


def _pick(results: list[TyingResult]) -> TyingResult:
    """Let the visitor choose one of the variants, if there are several."""
    if len(results) == 1:
        return results[0]
    variants = [result.variant for result in results]
    chosen = choose("Trained model", variants, "tying_variant", title_of)
    return results[variants.index(chosen)]


def _method(result: TyingResult) -> str:
    """Return how the accuracies were measured."""
    first, *others = result.seeds
    examples = f"{result.n_examples} held-out examples"
    runs = f"Seed {first}, {examples}"
    if others:
        runs = f"Mean of {1 + len(others)} seeds, with 95% intervals, {examples} each"
    best = "; best: not shown to be more than one point below the highest mean" * bool(others)
    return (
        f"{runs}, after step {result.step}{best}. The fitted map is the least-squares map from the "
        "keys to the values of training examples, for each head by itself. It becomes part of W_O, "
        "so it costs no parameters and no cache. CKA of keys and values: "
        f"{result.mean_cka:.2f}."
    )
