"""The catalogue of variants: what each is, who uses it, what it costs and what it reached."""

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

require_route()
CARD = 292  # pixels: three in a row beside the sidebar, two on a narrow screen

BASELINE = Variant("QKV")


def recorded() -> RecordedVariants | None:
    """What the catalogue reached when it was last measured, if it was."""
    try:
        return load_variants()
    except (OSError, ValueError, TypeError):
        return None


def compared(variant: Variant) -> Experiment:
    """An experiment of the variant beside plain attention; with two layers if it needs them.

    Raises:
        InvalidExperiment: if it does not go with the task's sizes.
    """
    columns = [BASELINE, variant]
    if "n_heads" in variant.given:  # what its costs are to be compared with
        columns.insert(1, Variant(f"QKV {variant.given['n_heads']}"))
    return default_of(variant).replace(sharing=columns)


def measured(variant: Variant, known: RecordedVariants | None) -> str:
    """The recorded accuracy in words; empty if there is none."""
    found = known.accuracy.get(variant.value) if known is not None else None
    if known is None or found is None:
        return ""
    limits = percent_interval(found.low, found.high)
    verdict = "" if found.reached else f", below {percent(known.threshold)}"
    interval = f" [{limits}]" if " to " in limits else ""
    return f"Accuracy {percent(found.mean)}{interval}{verdict}."


def anchor(family: str) -> str:
    """What a link to a family's heading ends with."""
    return family.lower().replace(" ", "-")


def entry(named: Named, known: RecordedVariants | None) -> None:
    """One card."""
    variant = Variant(named.variant)
    with st.container(border=True, width=CARD, height="stretch"):
        try:
            experiment = default_of(variant)
            link = compared(variant)
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
            f"{costs_line(experiment, variant)}. {measured(variant, known)}  \n"
            f"Source: {named.source or 'none given'}"
        )
        st.page_link(
            "pages/lab.py",
            label="Open in the Lab" if variant == BASELINE else "Compare with QKV in the Lab",
            icon=":material/science:",
            query_params=with_hidden(link.to_params()),
        )


st.session_state.page = "variants"
st.title("Variants", anchor=False)
known = recorded()
st.markdown(
    f"{len(CATALOGUE)} named ways to make queries, keys and values, and a text form to compose "
    "more. A text form is a sharing (`QKV`, `Q=K`, `K=V`, `Q=V`, `Q=K=V`), then roles that are "
    "the token itself (`V=I`), then words, in any order: `K=V n_heads=4 kv_heads=1` has four "
    "heads of queries and one vector per token that is key and value at once. Links, JSON and the "
    "command line hold text forms, and take names as well."
)
for problem in import_plugins():
    st.error(plain(f"{problem}."), icon=":material/error:")
with st.expander("All words"):
    rows = "\n".join(
        f"| `{name}` | {option.help} | {(option.allowed or 'the bare word').replace('|', '/')} |"
        for name, option in OPTIONS.items()
    )
    st.markdown(f"| word | what it does | value |\n|---|---|---|\n{rows}")
with st.expander("One of your own"):
    st.markdown(
        "Any composition can be written in the Lab under “Add a variant”. To give it a name, put "
        "this in a module of yours:"
    )
    st.code(
        "from attnkit.variants import register\n\n"
        'register("My name", "Q=K temperature=2", "why", "source")',
        language="python",
        wrap_lines=True,
    )
    st.markdown(
        f"and name the module in the environment variable `{PLUGINS}`: the command line, the "
        "Lab and this page then list it. A new word is a subclass of `Option`, with "
        "`register_option`."
    )
task = Experiment(task=TASK)
note = (
    f"Costs at the default sizes of the task {TASKS[TASK].title}: {task.size.n_heads} head of "
    f"width {task.size.d_head}, model width {task.size.d_model}, {task.size.n_layers} layer, "
    "or two where layers share."
)
if known is not None:
    note += (
        f" Accuracy on {TASKS[known.task].title} at its defaults: mean of {known.n_seeds} seeds "
        f"after {known.steps} steps [95% interval]; most solve it, so it tells what fails, not "
        "what is best."
    )
st.caption(note)
st.caption(f"In the diagrams: {LEGEND}")
families = dict.fromkeys(named.family for named in CATALOGUE.values())
st.markdown(" · ".join(f"[{name}](#{anchor(name)})" for name in families))
for family, members in groupby(CATALOGUE.values(), key=lambda named: named.family):
    st.subheader(family, anchor=anchor(family))
    with st.container(horizontal=True):
        for named in members:
            entry(named, known)
