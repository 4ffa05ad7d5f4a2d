"""The visitor's own data in the Lab: how they come in, and what is said of them.

Data are pasted, typed into a table or, on one's own copy, uploaded. A draft of them stays in the
visitor's session until they are used, so that nothing that was typed is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.direction import expectation, outcome
from attnkit.experiment import Experiment
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.server import server_settings
from attnkit.tasks import OWN_TASKS, OwnData, Table
from attnkit.tasks.language import FEWEST_CHARACTERS, Text
from attnkit.tasks.own_data import own_notes, wrong_data
from attnkit.tasks.own_files import (
    DECODED,
    ENCODINGS,
    ROLES,
    SEPARATORS,
    TABLES,
    TEXT,
    Choices,
    ColumnsUnclear,
    OpenTable,
    Reading,
    ending_for,
    ending_of,
    open_table,
    read_data,
)
from attnkit.ui.lab.lab import Lab, labels_of, setting_key, use_data
from attnkit.ui.markdown import plain
from attnkit.ui.server.turns import fragment
from attnkit.ui.widgets import bound

_CAPITALS = """Argentina, Buenos Aires; Austria, Vienna; Brazil, Brasília; Canada, Ottawa;
Chile, Santiago; China, Beijing; Cuba, Havana; Egypt, Cairo; Ethiopia, Addis Ababa;
France, Paris; Greece, Athens; Iceland, Reykjavík; India, New Delhi; Indonesia, Jakarta;
Iran, Tehran; Japan, Tokyo; Kenya, Nairobi; Mexico, Mexico City; Morocco, Rabat;
Norway, Oslo; Peru, Lima; Poland, Warsaw; Senegal, Dakar; Turkey, Ankara"""

_REPORTS = """Ada Cem, Ben Cem, Cem Ida, Dov Ida, Eva Dov, Fay Dov, Gil Eva, Hal Eva, Ida Zoe,
Jo Cem, Kai Jo, Lea Jo, Max Kai, Nia Kai, Oli Lea, Pia Lea, Quin Max, Rio Nia, Sol Oli, Tom Pia,
Uma Quin, Vic Rio, Wim Sol, Xia Tom"""


EXAMPLES = {
    mark("Countries and capitals"): "\n".join(
        pair.strip().replace(", ", "\t") for pair in _CAPITALS.split(";")
    ),
    mark("Who reports to whom"): "\n".join(
        pair.strip().replace(" ", "\treports to\t") for pair in _REPORTS.split(",")
    ),
}
"""Tables by their titles, with tabs between the cells."""

PASTE, TYPE, UPLOAD = mark("Paste"), mark("Type into a table"), mark("Upload a file")

RECOGNISED = ""
"""Kind of data that are looked at to find out their kind."""

KINDS = {
    RECOGNISED: mark("Found out from the data"),
    "pairs": mark("Pairs: key, value"),
    "relations": mark("Relations: who, relation, whom"),
    "text": mark("A text"),
}
"""What data can be, with labels: the names of the tasks on them."""


@dataclass
class Draft:
    """Data that the visitor brings, before they are used.

    Attributes:
        text: What was pasted or typed.
        file: Ending and content of the file that was uploaded.
        base: Table that the editor began with, and how often it has begun.
        is_open: Whether the visitor is asked for data.
        requested: The draft that is to be used, this one or that of an example; see
            `use_requested_data`.
        problem: Reason why they were not used; shown once.
    """

    way: str = PASTE
    text: str = ""
    file: tuple[str, bytes] = ("", b"")
    choices: Choices = field(default_factory=Choices)
    base: tuple[pd.DataFrame | None, int] = (None, 0)
    is_open: bool = False
    requested: Draft | None = None
    problem: str = ""

    @property
    def source(self) -> tuple[str, bytes]:
        """Ending of a file that would hold the data, and its content."""
        if self.way == UPLOAD:
            return self.file
        ending = ending_for(self.text)
        if ending == TEXT and (self.choices.kind or len(self.text) < FEWEST_CHARACTERS):
            ending = ".csv"  # so that a message says what is wrong with a table
        return ending, self.text.encode("utf-8", "replace")

    @property
    def is_text(self) -> bool:
        """Whether the data are read as a text, which has no cells."""
        kind = self.choices.kind
        return kind == Text.name or (not kind and self.source[0] == TEXT)

    def opened(self) -> OpenTable | None:
        """Return the table with the names of its columns; None if it is none."""
        ending, content = self.source
        if self.is_text or len(content) > server_settings().max_data_bytes:
            return None
        try:
            return open_table(content, ending, self.choices)
        except BadDocument:
            return None

    def read(self, opened: OpenTable | None = None) -> Reading:
        """Return the data as they are read.

        Args:
            opened: What `opened` has returned, if it was called.

        Raises:
            BadDocument: If they are neither a table nor a text, or if columns must be chosen.
            InvalidExperiment: If they cannot be used, or not on this copy.
        """
        ending, content = self.source
        most = server_settings().max_data_bytes
        if len(content) > most:
            got = tr("{n:,} bytes", n=len(content))
            raise wrong_data(got, mark("at most {most:,} bytes on this copy", most=most))
        if not content.strip():
            raise wrong_data("", mark("a table or a text"))
        choices = self.choices
        if self.is_text:  # what was chosen for a table is not meant
            choices = Choices(kind=choices.kind, encoding=choices.encoding)
        return read_data(content, ending, choices, opened)


def _draft_of_session() -> Draft:
    draft: Draft = st.session_state.setdefault("own_data_draft", Draft())
    return draft


def table_of(draft: Draft) -> pd.DataFrame:
    """Return the table that the editor begins with: what was pasted, if it is a table."""
    opened = draft.opened()
    cells = pd.DataFrame() if opened is None else opened.cells.iloc[:, :20]
    rows = cells.to_numpy().tolist()
    n = max([3 if draft.choices.kind == "relations" else 2, *map(len, rows)])
    heading = ROLES.get(n, [tr("column {number}", number=i + 1) for i in range(n)])
    # In a row that a table does not have yet, the browser loses the letters that are typed first.
    filled = [[*row, *[""] * (n - len(row))] for row in [*rows, *[[]] * 24]]
    return pd.DataFrame(filled, columns=list(heading), dtype="string")


def text_of_table(table: pd.DataFrame) -> str:
    """Return a table as text, with tabs between its cells and without empty rows."""
    cells = table.fillna("").map(lambda cell: " ".join(str(cell).split()))
    filled = cells[(cells != "").any(axis=1)]
    text: str = filled.to_csv(sep="\t", header=False, index=False, lineterminator="\n")
    return text


def in_words(error: BadDocument | InvalidExperiment) -> str:
    """Return a message about data that cannot be used."""
    if isinstance(error, ColumnsUnclear):
        return tr("Choose columns first: {reason}.", reason=str(error))
    if isinstance(error, BadDocument):
        return tr("Your data cannot be used: {reason}.", reason=str(error))
    labels = {name: text for task in OWN_TASKS for name, text in labels_of(task).items()}
    labels |= {"data": mark("Your data")}
    return " ".join(problem.on_screen(labels) for problem in error.problems)


_PRIVATE = mark(
    "Your data are in this session only: they are neither stored nor logged, nobody else sees "
    "them unless you share a link that holds them, and they are gone when you reload the page."
)


def ask_for_data() -> None:
    """Ask the visitor for data on the next drawing of the Lab."""
    _draft_of_session().is_open = True


def use_requested_data(lab: Lab) -> None:
    """Set up the data whose button was pressed; call it before the widgets of settings are drawn.

    If they are refused, the visitor is asked again, with the reason.
    """
    draft = _draft_of_session()
    requested, draft.requested = draft.requested, None
    if requested is None:
        return
    try:
        reading = requested.read()
        use_data(lab, reading.task, reading.data)
    except (BadDocument, InvalidExperiment) as error:
        draft.problem = in_words(error)
    else:
        draft.is_open = False


def own_data_area(lab: Lab, experiment: Experiment | None) -> None:
    """Draw what is said of the visitor's own data, and the fields that bring others."""
    draft, task = _draft_of_session(), lab.experiment.task
    is_own = isinstance(task, OwnData)
    asks = draft.is_open or bool(lab.awaited)
    if not is_own and not asks:
        return
    with st.container(border=True, key="own_data"):
        if lab.awaited:
            st.info(
                tr(
                    "The link is for data that it does not hold, or that cannot be used. Add data "
                    "here: all other settings of the link are kept."
                )
            )
        if asks:
            fragment(partial(_fields, lab, draft))()
        elif isinstance(task, OwnData):
            _about(lab, draft, task, experiment)


def _about(lab: Lab, draft: Draft, task: OwnData, experiment: Experiment | None) -> None:
    if isinstance(task, Table):
        title = tr("Your own table of {n:,} rows", n=task.data.count("\n") + 1)
    else:
        title = tr("Your own text of {n:,} characters", n=len(task.data))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{title}**", width="content")
        if "task" not in lab.hidden:
            st.button(
                tr("Change the data"),
                icon=":material/edit:",
                type="tertiary",
                on_click=ask_for_data,
                key="change_own_data",
            )
    said = own_notes(task)
    if experiment is not None and not lab.quiet:  # whoever is to guess is told nothing
        said = said + expectation(experiment)
        said = said + ([] if lab.finished is None else outcome(lab.finished))
    if server_settings().is_private(lab.experiment):
        said = [*said, tr(_PRIVATE)]
    st.markdown(plain(" ".join(said)))
    if isinstance(task, Table) and {"learn", "settings"}.isdisjoint(lab.hidden):
        ways = {"in_context": tr("In context"), "by_heart": tr("By heart")}
        shows = [
            tr(
                "The answers stand in each example, with names mixed anew: shows what queries and "
                "keys can match."
            ),
            tr(
                "Each example is only a question about any row: shows how many rows the weights "
                "can hold."
            ),
        ]
        st.radio(
            tr("How it is learnt"),
            list(ways),
            format_func=ways.__getitem__,
            captions=shows,
            horizontal=True,
            key=setting_key("learn"),
        )


def _fields(lab: Lab, draft: Draft) -> None:
    limits = server_settings()
    ways = [PASTE, TYPE] if limits.hosted else [PASTE, TYPE, UPLOAD]
    asked = tr(
        "**Your own data**: pairs (key, value), relations (who, relation, whom), or a text. "
        "At most {rows:,} rows and {kilobytes:,} kB.",
        rows=limits.max_rows,
        kilobytes=limits.max_data_bytes // 1000,
    )
    st.markdown(f"{asked} {tr(_PRIVATE)}" if limits.hosted else asked)
    with st.container(horizontal=True, key="own_data_examples"):
        for number, title in enumerate(EXAMPLES):
            label = tr("Example: {title}", title=tr(title))
            if st.button(label, key=f"own_example_{number}", type="tertiary"):
                # It can be changed, too, but what the visitor has brought stays.
                is_own = draft.way == UPLOAD or draft.text not in EXAMPLES.values()
                if not (is_own and draft.source[1].strip()):
                    draft.way, draft.text, draft.choices = PASTE, EXAMPLES[title], Choices()
                _request(draft, Draft(text=EXAMPLES[title]))
    st.segmented_control(
        tr("How they come"),
        ways,
        format_func=tr,
        **bound(draft, "way", "own_way", partial(_turn, draft), required=True),
    )
    {PASTE: _paste, TYPE: _type, UPLOAD: _upload}[draft.way](draft)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            tr("What they are"),
            list(KINDS),
            format_func=lambda kind: tr(KINDS[kind]),
            width=290,
            **bound(draft.choices, "kind", "own_kind", partial(_choose, draft, "kind")),
        )
        opened = draft.opened()
        _columns(draft, opened)
    refused = st.container()  # above the rows, because what is below them may be out of sight
    problem = _reading(draft, opened)
    with st.container(horizontal=True):
        # No callback, so that what was typed last has come before the data are read.
        if st.button(tr("Use these data"), type="primary", key="use_own_data"):
            _request(draft, draft)
        if st.button(tr("Cancel"), key="cancel_own_data"):
            draft.is_open = False
            lab.awaited = {}
            st.rerun()
    if message := draft.problem or problem:
        refused.error(plain(message), icon=":material/error:")
    draft.problem = ""


def _request(draft: Draft, requested: Draft) -> None:
    draft.requested = requested
    st.rerun()


def _columns(draft: Draft, opened: OpenTable | None) -> None:
    choices = draft.choices

    def bind(name: str, value: Any, key: str = "") -> dict[str, Any]:
        take = partial(_choose, draft, name)
        return bound({name: value}, name, f"own_{name}{key}", take)

    if opened is not None and draft.way != TYPE:  # a typed table says what it is
        names = list(opened.cells.columns)
        if len(names) > 2:
            st.multiselect(
                tr("Columns"),
                names,
                max_selections=3,
                placeholder=tr("Choose two (key, value) or three (who, relation, whom)"),
                width=420,
                **bind(
                    "columns", [n for n in choices.columns if n in names], f"_{hash((*names,))}"
                ),
            )
        if opened.heading is not None:
            st.checkbox(tr("The first row names the columns"), **bind("heading", opened.heading))
    if opened is not None:
        leaves_out = choices.leave_out_empty
        n_empty = opened.n_empty(choices.columns)
        if leaves_out or n_empty:
            label = tr_n(
                "Leave out {n:,} row with empty cells",
                "Leave out {n:,} rows with empty cells",
                n_empty,
            )
            st.checkbox(label, **bind("leave_out_empty", leaves_out))
    if draft.way == UPLOAD and draft.file[0] in DECODED:
        for name, label, known in (
            ("separator", tr("Cells are separated by"), SEPARATORS),
            ("encoding", tr("Encoding"), ENCODINGS),
        ):
            if name == "separator" and draft.is_text:
                continue
            titles = {value: tr(title) for value, title in {"": KINDS[""], **known}.items()}
            st.selectbox(
                label,
                list(titles),
                format_func=titles.__getitem__,
                width=240,
                **bind(name, getattr(choices, name)),
            )


def _choose(draft: Draft, name: str, value: Any) -> None:
    """Say how data are read; a table to type into has a column for every part of them."""
    if name == "columns":
        value = tuple(value)
    draft.choices = replace(draft.choices, **{name: value})
    if name == "kind":
        draft.base = (None, draft.base[1] + 1)


def _turn(draft: Draft, way: str) -> None:
    """Choose another way by which data come; the table begins with what was pasted."""
    if UPLOAD in (draft.way, way):  # other data
        draft.choices = Choices(kind=draft.choices.kind)
    draft.way, draft.base = way, (None, draft.base[1] + 1)


def _take(draft: Draft, **values: Any) -> None:
    """Set the data of a draft; how other data were to be read is forgotten, but not their kind."""
    draft.choices = Choices(kind=draft.choices.kind)
    vars(draft).update(values)


def _paste(draft: Draft) -> None:
    most = server_settings().max_data_bytes  # `assets/lab.js` reads it from the key
    st.container(key=f"own_bytes_{most}").text_area(
        tr("Paste here, for example from a spreadsheet"),
        height=150,
        max_chars=2 * most,  # a text that is a little too long has a message and is not cut
        placeholder=tr("France\tParis\nItaly\tRome\n…"),
        help=tr(
            "A row on each line, with tabs, semicolons or commas between its cells, or as JSON; "
            "or a text of at least {n:,} characters.",
            n=FEWEST_CHARACTERS,
        ),
        **bound(draft, "text", "own_text", lambda text: _take(draft, text=text)),
    )


def _type(draft: Draft) -> None:
    base, version = draft.base
    if base is None or f"own_table_{version}" not in st.session_state:  # the page was left
        base, version = table_of(draft), version + 1
        draft.base = base, version
    key = f"own_table_{version}"
    edited = st.data_editor(
        base,
        num_rows="dynamic",
        hide_index=True,
        height=300,
        column_config={name: st.column_config.TextColumn(tr(name)) for name in base.columns},
        key=key,
    )
    if any((st.session_state.get(key) or {}).values()):  # rows that were changed, added or deleted
        kept = draft.choices  # the table has no heading
        draft.choices = Choices(kept.kind, heading=False, leave_out_empty=kept.leave_out_empty)
        draft.text = text_of_table(edited)


def _upload(draft: Draft) -> None:
    endings = [*TABLES, TEXT]
    most = -(-server_settings().max_data_bytes // 10**6)
    file = st.file_uploader(
        tr("A file: {endings}", endings=", ".join(endings)),
        type=endings,
        max_upload_size=most,
        key="own_file",
    )
    if file is not None:
        taken = (ending_of(file.name), file.getvalue())
        if taken != draft.file:
            _take(draft, file=taken)


def _reading(draft: Draft, opened: OpenTable | None) -> str:
    if not draft.source[1].strip():
        return ""
    message, roles = "", dict[str, str]()
    try:
        reading = draft.read(opened)
    except ColumnsUnclear as error:
        st.info(plain(in_words(error)), icon=":material/view_column:")
    except (BadDocument, InvalidExperiment) as error:
        message = in_words(error)
    else:
        roles = reading.roles
        st.caption(plain(" ".join((reading.in_words(), *reading.guesses.values()))))
    if opened is not None and draft.way != TYPE:
        rows = opened.cells.head(5).astype(str).reset_index(drop=True)
        titles = [f"{roles[name]}: {name}" if name in roles else name for name in rows.columns]
        st.table(rows.map(plain).set_axis([plain(title) for title in titles], axis=1))
    return message
