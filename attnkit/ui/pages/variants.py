"""The catalogue of variants: what each is, who uses it, what it costs and what it reached."""

from __future__ import annotations

from itertools import groupby

import streamlit as st

from attnkit.examples import TASK, RecordedVariants, default_of, load_variants
from attnkit.experiment import Experiment
from attnkit.figures.diagram import LEGEND
from attnkit.foundation.plugins import PLUGINS, import_plugins
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.training.summary import percent, percent_interval
from attnkit.ui import components
from attnkit.ui.composer import costs_line
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.session import with_hidden
from attnkit.variants import CATALOGUE, OPTIONS, Named, Variant
from attnkit.variants.palette import colors_of

CARD_WIDTH = 292
"""Pixels of a card: three fit in a row beside the sidebar, two on a narrow screen."""

BASELINE = Variant("QKV")


def draw() -> None:
    """Draw the catalogue."""
    require_route()
    st.session_state.page = "variants"
    st.title("Variants", anchor=False)
    recorded = load_recorded()
    st.markdown(
        f"{len(CATALOGUE)} named ways to make queries, keys and values, and a text form to compose "
        "more. A text form is a sharing (`QKV`, `Q=K`, `K=V`, `Q=V`, `Q=K=V`), then roles that are "
        "the token itself (`V=I`), then words, in any order: `K=V n_heads=4 kv_heads=1` has four "
        "heads of queries and one vector per token that is key and value at once. Links, JSON and "
        "the command line hold text forms, and take names as well."
    )
    for problem in import_plugins():
        st.error(plain(f"{problem}."), icon=":material/error:")
    explain_words()
    st.caption(costs_note(recorded))
    st.caption(f"In the diagrams: {LEGEND}")
    families = dict.fromkeys(named.family for named in CATALOGUE.values())
    st.markdown(" · ".join(f"[{family}](#{anchor(family)})" for family in families))
    for family, members in groupby(CATALOGUE.values(), key=lambda named: named.family):
        st.subheader(family, anchor=anchor(family))
        with st.container(horizontal=True):
            for named in members:
                show_card(named, recorded)


def load_recorded() -> RecordedVariants | None:
    """Return the accuracies that were recorded for the catalogue; None if they are unreadable."""
    try:
        return load_variants()
    except (OSError, ValueError, TypeError):
        return None


def explain_words() -> None:
    """Draw the table of all words of a text form, and how to register a variant."""
    with st.expander("All words"):
        rows = "\n".join(
            f"| `{name}` | {option.help} | "
            f"{(option.allowed or 'the bare word').replace('|', '/')} |"
            for name, option in OPTIONS.items()
        )
        st.markdown(f"| word | what it does | value |\n|---|---|---|\n{rows}")
    with st.expander("One of your own"):
        st.markdown(
            "Any composition can be written in the Lab under “Add a variant”. To give it a name, "
            "put this in a module of yours:"
        )
        st.code(
            "from attnkit.variants import register\n\n"
            'register("My name", "Q=K temperature=2", "why", "source")',
            language="python",
            wrap_lines=True,
        )
        st.markdown(
            f"and name the module in the environment variable `{PLUGINS}`: the command line, "
            "the Lab and this page then list it. A new word is a subclass of `Option`, with "
            "`register_option`."
        )


def costs_note(recorded: RecordedVariants | None) -> str:
    """Return the sizes at which costs are counted, and the task on which accuracy was recorded."""
    size = Experiment(task=TASK).size
    note = (
        f"Costs at the default sizes of the task {TASKS[TASK].title}: {size.n_heads} head of "
        f"width {size.d_head}, model width {size.d_model}, {size.n_layers} layer, "
        "or two where layers share."
    )
    if recorded is None:
        return note
    return (
        f"{note} Accuracy on {TASKS[recorded.task].title} at its defaults: mean of "
        f"{recorded.n_seeds} seeds after {recorded.steps} steps [95% interval]; most solve it, so "
        "it tells what fails, not what is best."
    )


def anchor(family: str) -> str:
    """Return the anchor of a family's heading."""
    return family.lower().replace(" ", "-")


def show_card(named: Named, recorded: RecordedVariants | None) -> None:
    """Draw the card of one variant of the catalogue."""
    variant = Variant(named.variant)
    with st.container(border=True, width=CARD_WIDTH, height="stretch"):
        try:
            experiment = default_of(variant)
            comparison = comparing_experiment(variant)
        except InvalidExperiment as error:
            st.markdown(f"**{named.name}**")
            st.code(variant.value, language=None, wrap_lines=True)
            st.caption(f"Needs other sizes than the defaults: {error}.")
            return
        color = colors_of([variant])[0]
        components.diagram(experiment, variant, color, key=f"diagram_{named.name}")
        st.markdown(f"**{named.name}**")
        st.code(variant.value, language=None, wrap_lines=True)
        st.markdown(named.explanation or variant.meaning)
        st.caption(
            f"{costs_line(experiment, variant)}. {accuracy_in_words(variant, recorded)}  \n"
            f"Source: {named.source or 'none given'}"
        )
        st.page_link(
            "pages/lab.py",
            label="Open in the Lab" if variant == BASELINE else "Compare with QKV in the Lab",
            icon=":material/science:",
            query_params=with_hidden(comparison.to_params()),
        )


def comparing_experiment(variant: Variant) -> Experiment:
    """Return an experiment of a variant beside plain attention; two layers if it needs them.

    Raises:
        InvalidExperiment: If the variant does not go with the task's sizes.
    """
    columns = [BASELINE, variant]
    if "n_heads" in variant.given:  # plain attention of as many heads, to compare costs with
        columns.insert(1, Variant(f"QKV {variant.given['n_heads']}"))
    return default_of(variant).replace(sharing=columns)


def accuracy_in_words(variant: Variant, recorded: RecordedVariants | None) -> str:
    """Return the recorded accuracy of a variant in a sentence; empty if there is none."""
    accuracy = None if recorded is None else recorded.accuracy.get(variant.value)
    if recorded is None or accuracy is None:
        return ""
    limits = percent_interval(accuracy.low, accuracy.high)
    verdict = "" if accuracy.reached else f", below {percent(recorded.threshold)}"
    interval = f" [{limits}]" if " to " in limits else ""
    return f"Accuracy {percent(accuracy.mean)}{interval}{verdict}."
