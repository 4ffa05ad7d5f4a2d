"""The catalogue of variants: a table that can be searched, and one variant at a time in full.

The link is `?variant=` with the name of an entry of the catalogue; a text form is understood, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pandas as pd
import streamlit as st

from attnkit.examples import TASK, RecordedAccuracy, RecordedVariants, default_of, load_variants
from attnkit.experiment import Experiment
from attnkit.experiment.costs import Costs
from attnkit.figures.diagram import LEGEND
from attnkit.foundation.plugins import PLUGINS, import_plugins
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import markdown_table
from attnkit.foundation.words import capitalised, listed, verb
from attnkit.sweeps.conclusion import direction_note
from attnkit.tasks import TASKS
from attnkit.training.summary import percent, percent_beside, percent_limits, whole_percent
from attnkit.ui import components
from attnkit.ui.address import Linked, LinkField, open_choice
from attnkit.ui.lab.composer import costs_line, key_of_text, other_names
from attnkit.ui.lab.guess import awaits_first_run
from attnkit.ui.lab.lab import lab_link
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.widgets import key_of_table, selected_rows, warn_once
from attnkit.variants import CATALOGUE, OPTIONS, Named, Variant
from attnkit.variants.catalogue import search
from attnkit.variants.palette import colors_of
from attnkit.variants.text import LONGEST, key_of

BASELINE = Variant("QKV")


def draw() -> None:
    """Draw the table, and the chosen variant beside it."""
    require_route()
    problems = import_plugins()
    choice = open_choice("variants", "opened_variant", VariantChoice)
    recorded = None
    if not awaits_first_run():
        with suppress(OSError, ValueError, TypeError):  # they may be unreadable
            recorded = load_variants()
    st.title("Variants", anchor=False)
    with st.container(key="conclusion"):
        st.markdown(plain(conclusion(list(CATALOGUE.values()), recorded)))
    if recorded is not None:
        reached = {name for name, accuracy in recorded.accuracy.items() if accuracy.reached}
        st.caption(plain(direction_note(recorded.task, reached)))
    else:
        st.caption("")
    for problem in problems:
        st.error(plain(f"{problem}."), icon=":material/error:")
    warn_once(choice.problems)
    left, right = st.columns([5, 3], gap="medium")
    with left:
        _show_table(choice, recorded)
        st.caption(_costs_note(recorded))
    with right:
        _show_card(choice.entry, recorded)
    choice.write_link()
    _explain_words()


def _show_table(choice: VariantChoice, recorded: RecordedVariants | None) -> None:
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
    if key_of(choice.entry.name) not in keys:
        choice.key = keys[0]
    key = key_of_table("catalogue", choice.version, keys)

    def take_row() -> None:
        choice.key = next((keys[row] for row in selected_rows(key, len(keys))), choice.key)

    st.dataframe(
        catalogue_table(entries, recorded),
        hide_index=True,
        height=420 if len(entries) > 10 else "content",
        key=key,
        on_select=take_row,
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


def _costs_note(recorded: RecordedVariants | None) -> str:
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


def _show_card(named: Named, recorded: RecordedVariants | None) -> None:
    variant = Variant(named.variant)
    with st.container(border=True, key="card"):
        try:
            experiment = default_of(variant)
            comparison = _comparing_experiment(variant)
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


def _comparing_experiment(variant: Variant) -> Experiment:
    columns = [BASELINE, variant]
    if "n_heads" in variant.given:  # plain attention of as many heads, to compare costs with
        columns.insert(1, Variant(f"QKV {variant.given['n_heads']}"))
    return default_of(variant).replace(sharing=columns)


def _explain_words() -> None:
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


@dataclass
class VariantChoice(Linked):
    """One visitor's choice of a variant.

    Attributes:
        key: Key of the chosen entry in the catalogue.
        problems: Problems of the link, in sentences.
        version: Version of the table; a new one begins when the link chooses a row.
    """

    key: str = ""
    problems: list[str] = field(default_factory=list)
    version: int = 0

    @property
    def entry(self) -> Named:
        """The chosen entry: the first of the catalogue if none was chosen, or it is gone."""
        return CATALOGUE.get(self.key) or next(iter(CATALOGUE.values()))

    def follow(self, params: dict[str, str]) -> None:
        """Choose the variant of a link; if the catalogue has none of that name, say so."""
        self.link, self.problems = params, []
        self.key = _FIELD.read(params, self.problems)
        self.version += 1

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        is_first = self.entry is next(iter(CATALOGUE.values()))
        self.set_link({} if is_first else {"variant": self.entry.name})


_FIELD = LinkField("variant", "", key_of_text, "a name in the table; the first is shown instead")


def conclusion(entries: Sequence[Named], recorded: RecordedVariants | None) -> str:
    """Return one sentence about the recorded accuracies: how many succeed, and the lowest three."""
    known = [(one, a) for one in entries if (a := _recorded_of(one, recorded)) is not None]
    if recorded is None or not known:
        return f"There are {len(entries)} named ways to make queries, keys and values."
    below = sorted((a.mean, one.name) for one, a in known if not a.reached)
    n_known, n_reached = len(known), len(known) - len(below)
    which = f"All {n_known}" if not below else f"{n_reached} of {n_known}"
    which += "" if n_known == len(entries) else " measured"
    sentence = (
        f"{which} variants reach {percent(recorded.threshold)} accuracy on the task "
        f"“{TASKS[recorded.task].title}”"
    )
    if not below:
        return f"{sentence}."
    lowest = listed(
        f"{name} ({percent_beside(mean, recorded.threshold)})" for mean, name in below[:3]
    )
    if len(below) > 3:
        return f"{sentence}; the lowest are {lowest}."
    return f"{sentence}; {lowest} {verb(below, 'does', 'do')} not."


def catalogue_table(entries: Sequence[Named], recorded: RecordedVariants | None) -> pd.DataFrame:
    """Return a table with one row per entry, in the order given; unknown numbers are missing."""
    rows = []
    for entry in entries:
        costs, accuracy = _costs_of(entry), _recorded_of(entry, recorded)
        rows.append(
            {
                "name": entry.name,
                "what": entry.brief,
                "accuracy": None if accuracy is None else whole_percent(accuracy.mean),
                "interval": _interval_of(accuracy),
                "parameters": None if costs is None else costs.parameters,
                "kv_cache": None if costs is None else costs.kv_cache,
                "family": entry.family,
                "source": short_source(entry.source),
            }
        )
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(("accuracy", "parameters", "kv_cache"), "Int64"))


def _costs_of(entry: Named) -> Costs | None:
    try:
        return default_of(entry.variant).costs(entry.variant)
    except InvalidExperiment:
        return None


def _recorded_of(entry: Named, recorded: RecordedVariants | None) -> RecordedAccuracy | None:
    return None if recorded is None else recorded.accuracy.get(entry.variant.value)


def accuracy_in_words(entry: Named, recorded: RecordedVariants | None) -> str:
    """Return the recorded accuracy of an entry in a sentence; empty if there is none."""
    accuracy = _recorded_of(entry, recorded)
    if recorded is None or accuracy is None:
        return ""
    limits = _interval_of(accuracy)
    interval = f" (95% interval {limits})" if limits else ""
    task = TASKS[recorded.task].title
    mean, verdict = percent(accuracy.mean), ""
    if not accuracy.reached:
        verdict = f", below {percent(recorded.threshold)}"
        mean = percent_beside(accuracy.mean, recorded.threshold)
    return f"Accuracy on the task “{task}”: {mean}{interval}{verdict}."


def _interval_of(accuracy: RecordedAccuracy | None) -> str:
    return "" if accuracy is None else percent_limits(accuracy.low, accuracy.high)


def short_source(source: str) -> str:
    """Return a citation without the numbers of preprints and without notes on how it was read."""
    noise = r", arXiv [\d.]+|^reported: (after )?| \((abstract|there [^)]*)\)"
    return capitalised(re.sub(noise, "", source))
