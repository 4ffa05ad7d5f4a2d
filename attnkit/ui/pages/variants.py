"""The catalogue of variants: a table that can be searched, and one variant at a time in full."""

from __future__ import annotations

import streamlit as st

from attnkit.examples import TASK, RecordedVariants, default_of, load_variants
from attnkit.experiment import Experiment
from attnkit.figures.diagram import LEGEND
from attnkit.foundation.plugins import PLUGINS, import_plugins
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import markdown_table
from attnkit.tasks import TASKS
from attnkit.ui import components
from attnkit.ui.address import open_choice
from attnkit.ui.lab.composer import costs_line, other_names
from attnkit.ui.lab.guess import awaits_first_run
from attnkit.ui.markdown import plain
from attnkit.ui.reference.variant_choice import VariantChoice
from attnkit.ui.reference.variant_table import accuracy_in_words, catalogue_table, conclusion, note
from attnkit.ui.routing import require_route
from attnkit.ui.session import lab_link
from attnkit.ui.widgets import key_of_table, selected_rows, warn_once
from attnkit.variants import CATALOGUE, OPTIONS, Named, Variant
from attnkit.variants.catalogue import search
from attnkit.variants.palette import colors_of
from attnkit.variants.text import LONGEST, key_of

TABLE_HEIGHT = 420
"""Pixels of the table: eleven rows, the others by scrolling."""

BASELINE = Variant("QKV")


def draw() -> None:
    """Draw the table, and the chosen variant beside it."""
    require_route()
    problems = import_plugins()
    choice = open_choice("variants", "opened_variant", VariantChoice)
    recorded = None if awaits_first_run() else load_recorded()
    st.title("Variants", anchor=False)
    with st.container(key="conclusion"):
        st.markdown(plain(conclusion(list(CATALOGUE.values()), recorded)))
    st.caption(plain(note(recorded)))
    for problem in problems:
        st.error(plain(f"{problem}."), icon=":material/error:")
    warn_once(choice.problems)
    left, right = st.columns([5, 3], gap="medium")
    with left:
        show_table(choice, recorded)
        st.caption(costs_note(recorded))
    with right:
        show_card(choice.entry, recorded)
    choice.write_link()
    explain_words()


def load_recorded() -> RecordedVariants | None:
    """Return the accuracies that were recorded for the catalogue; None if they are unreadable."""
    try:
        return load_variants()
    except (OSError, ValueError, TypeError):
        return None


def show_table(choice: VariantChoice, recorded: RecordedVariants | None) -> None:
    """Draw the search and the table of what it finds, in which one variant is chosen."""
    query = st.text_input(
        "Search",
        placeholder="Name, model, paper or idea: multi-query, DeepSeek, narrow",
        icon=":material/search:",
        max_chars=LONGEST,
        key="variants_search",
        live=True,
    )
    entries = search(query) if query.strip() else list(CATALOGUE.values())
    if not entries:
        st.info(
            f"No variant has “{plain(query)}” in its name, family, explanation or source. "
            "Search for another word, or compose a variant in the Lab under “Add a variant”."
        )
        return
    keys = [key_of(entry.name) for entry in entries]
    choice.stay_among(keys)
    key = key_of_table("catalogue", choice.version, keys)
    st.dataframe(
        catalogue_table(entries, recorded),
        hide_index=True,
        height=TABLE_HEIGHT if len(entries) > 10 else "content",
        key=key,
        on_select=lambda: choice.take_row(keys, selected_rows(key, len(keys))),
        selection_mode="single-row-required",
        selection_default={"selection": {"rows": [keys.index(key_of(choice.entry.name))]}},
        column_config={
            "name": st.column_config.TextColumn("Name", width=130),
            "what": st.column_config.TextColumn("What it does", width=225),
            "accuracy": st.column_config.NumberColumn("Accuracy", width=75, format="%d%%"),
            "interval": st.column_config.TextColumn(
                "95% interval", width=95, help="Where the seeds differ."
            ),
            "parameters": st.column_config.NumberColumn("Parameters", width=85, format="localized"),
            "kv_cache": st.column_config.NumberColumn(
                "KV cache", width=75, help="Numbers kept per token."
            ),
            "family": st.column_config.TextColumn("Family", width=120),
            "source": st.column_config.TextColumn("Source", width=200),
        },
        placeholder="–",
        alt="Variants with their accuracies and costs",
    )


def costs_note(recorded: RecordedVariants | None) -> str:
    """Return the conditions of the accuracies, and the sizes at which costs are counted."""
    experiment = Experiment(task=TASK)
    size, title = experiment.size, TASKS[TASK].title
    sizes = (
        f"Costs at the default sizes of “{title}”: {size.n_heads} head of width {size.d_head}, "
        f"model width {size.d_model}, {size.n_layers} layer; two or four layers where layers share."
    )
    if recorded is None:
        return sizes
    return (
        f"Accuracy: mean of {recorded.n_seeds} seeds after {recorded.steps} steps of "
        f"“{TASKS[recorded.task].title}” at one learning rate for all. With "
        f"another rate or more steps, more of them may learn it. {sizes}"
    )


def show_card(named: Named, recorded: RecordedVariants | None) -> None:
    """Draw one variant in full: diagram, text form, explanation, costs, accuracy and source."""
    variant = Variant(named.variant)
    with st.container(border=True, key="card"):
        try:
            experiment = default_of(variant)
            comparison = comparing_experiment(variant)
        except InvalidExperiment as error:
            st.markdown(f"**{named.name}**")
            st.code(variant.value, language=None, wrap_lines=True)
            st.caption(f"Needs other sizes than the defaults: {error}.")
            return
        components.diagram(experiment, variant, colors_of([variant])[0], key="diagram")
        st.markdown(f"**{named.name}** · {named.family}")
        st.code(variant.value, language=None, wrap_lines=True)
        st.markdown(named.explanation or variant.meaning)
        st.markdown(
            "\n".join(
                f"- {line}"
                for line in (
                    f"{costs_line(experiment, variant)}.",
                    accuracy_in_words(named, recorded),
                    other_names(named),
                    f"Source: {named.source or 'none given'}",
                )
                if line
            )
        )
        compare = "Open in the Lab" if variant == BASELINE else "Compare with QKV in the Lab"
        lab_link(compare, comparison.to_params())
        st.caption(f"In the diagram: {LEGEND}")


def comparing_experiment(variant: Variant) -> Experiment:
    """Return an experiment of a variant beside plain attention; two layers if it needs them.

    Raises:
        InvalidExperiment: If the variant does not go with the task's sizes.
    """
    columns = [BASELINE, variant]
    if "n_heads" in variant.given:  # plain attention of as many heads, to compare costs with
        columns.insert(1, Variant(f"QKV {variant.given['n_heads']}"))
    return default_of(variant).replace(sharing=columns)


def explain_words() -> None:
    """Draw what text forms are, the table of their words, and how to register a variant."""
    with st.expander("All words"):
        st.markdown(
            "A text form is a sharing (`QKV`, `Q=K`, `K=V`, `Q=V`, `Q=K=V`), then roles that are "
            "the token itself (`V=I`), then words in any order: `K=V n_heads=4 kv_heads=1` has "
            "four heads of queries and one vector per token that is key and value at once. Links, "
            "JSON and the command line hold text forms, and take names as well."
        )
        rows = (
            (f"`{name}`", option.help, (option.allowed or "the bare word").replace("|", "/"))
            for name, option in OPTIONS.items()
        )
        st.markdown(markdown_table(("word", "what it does", "value"), rows))
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
