"""The address bar: a page's choices as a link, and whether somebody has changed the link.

A page declares each choice that its link carries as a `LinkField`: its name, what is allowed, and
its default. Choices are read and written by this declaration, and wrong ones are reported with
their name, their value and what is allowed.

One visit to a page is one entry in the browser's history; `assets/history.js` lets a choice within
the page change this entry. The address leaves out choices that are the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnkit.foundation.language import ENGLISH, LANGUAGES, tr

QUIET = "quiet"
"""Field of a link that opens pages in the quiet mode (`quiet=1`), and key of the mode in the
session's state."""

CLASS = "class"
"""Field of a link with the code of a class, and key of the code in the session's state."""

LANGUAGE = "lang"
"""Field of a link with the language of the pages, and key of the language in the session's state.
Without the field it is the language that the browser asks for."""

LATE_SECONDS = 30.0
"""Seconds in which an address that was overwritten counts as late, not as a new link, as long as
the browser has not sent the address that was written last."""

MOST_CHARACTERS = 60
"""Characters of a faulty link that a message repeats."""

T = TypeVar("T")


@dataclass(frozen=True)
class LinkField(Generic[T]):
    """One choice that a link carries.

    Attributes:
        name: Name of the field in a link.
        default: Value if the link does not have the field; a link leaves it out.
        allowed: Values by their text in a link, or a function that reads a text and returns None
            for one that is not allowed.
        in_words: What is allowed, for messages; the texts of `allowed` if it is empty.
        is_shown: Whether the page shows the choice now; a link leaves it out otherwise.
    """

    name: str
    default: T
    allowed: Mapping[str, T] | Callable[[str], T | None]
    in_words: str = ""
    is_shown: bool = True

    def read(self, params: Mapping[str, str], problems: list[str], absent: T | None = None) -> T:
        """Return the value in a link; the default, with a problem, if it is not allowed.

        Args:
            absent: Value if the link does not have the field, or it is wrong; the default if this
                value is None, or is not allowed.
        """
        default = self.default if absent is None else absent
        if isinstance(self.allowed, Mapping) and default not in self.allowed.values():
            default = self.default
        text = params.get(self.name)
        value = default if text is None else self.value_of(text)
        if text is not None and value is None:
            problems.append(self.problem_with(text))
        return default if value is None else value

    def value_of(self, text: str) -> T | None:
        """Return the value of a text; None if it is not allowed."""
        return self.allowed.get(text) if isinstance(self.allowed, Mapping) else self.allowed(text)

    def problem_with(self, text: str) -> str:
        """Return the message about a text that is not allowed."""
        allowed = self.in_words
        if isinstance(self.allowed, Mapping):
            allowed = allowed or ", ".join(self.allowed)
        return tr(
            "The link has {name}={value!r}. Allowed: {allowed}.",
            name=self.name,
            value=shortened(text),
            allowed=tr(allowed),
        )

    def write(self, value: T) -> dict[str, str]:
        """Return the field of a link; none if the value is the default or is not shown."""
        if value == self.default or not self.is_shown:
            return {}
        if isinstance(self.allowed, Mapping):
            return {self.name: next(t for t, other in self.allowed.items() if other == value)}
        return {self.name: str(value)}


@dataclass(frozen=True)
class LinkList(LinkField[T]):
    """Several values that a link carries with commas between them; `default` is not used."""

    def read_all(self, params: Mapping[str, str], problems: list[str]) -> list[T]:
        """Return the allowed values in a link, each once; the others are one problem."""
        texts = dict.fromkeys(text.strip() for text in params.get(self.name, "").split(","))
        values = {text: self.value_of(text) for text in texts if text}
        wrong = [text for text, value in values.items() if value is None]
        if wrong:
            problems.append(self.problem_with(",".join(wrong)))
        return [value for value in values.values() if value is not None]

    def write_all(self, values: Sequence[T]) -> dict[str, str]:
        """Return the field of a link; none if there are no values."""
        return {self.name: ",".join(map(str, values))} if values else {}


def by_text(names: Iterable[T]) -> dict[str, T]:
    """Return values by their text, for fields whose values are written as they are."""
    return {str(name): name for name in names}


def shortened(text: str) -> str:
    """Return a text of a faulty link, cut to what a message repeats."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


@dataclass(kw_only=True)
class Linked:
    """Choices of one visitor that the address names.

    Attributes:
        link: The query parameters as last read or written, without those of `kept_fields`. Others
            mean that the browser's history or a link in the page has changed them.
    """

    link: dict[str, str] = field(default_factory=dict)
    _overwritten: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict, repr=False)

    def written(self, fields: Iterable[tuple[str, LinkField[Any]]]) -> dict[str, str]:
        """Return the query parameters of attributes, each given by its name with its field."""
        written = [declared.write(getattr(self, name)) for name, declared in fields]
        return {name: text for one in written for name, text in one.items()}

    def set_link(self, link: dict[str, str]) -> None:
        """Write query parameters into the address bar; those of `kept_fields` are added."""
        present, wanted = st.query_params.to_dict(), {**link, **kept_fields()}
        before = [self.link] if self.link not in ({}, link) else []  # it may be on its way
        if present != wanted:
            before = [without_kept(present), self.link]
            st.query_params.from_dict(wanted)
        if before:
            now = time.monotonic()
            recent = {o: t for o, t in self._overwritten.items() if now - t < LATE_SECONDS}
            self._overwritten = recent | {frozenset(one.items()): now for one in before}
        self.link = link

    def follow(self, params: dict[str, str]) -> None:
        """Take over the choices of a link."""
        raise NotImplementedError

    def must_follow(self, params: dict[str, str], page: str) -> bool:
        """Return whether somebody has changed the address, so that a page must follow it.

        A page to which a link in the navigation leads back without parameters keeps its choices,
        because the navigation does not know them. An entry of the browser's history is followed
        as it is: without parameters it means the defaults. A click that left the browser before
        our changes arrived still carries an address that was overwritten, and is not followed.
        """
        key = frozenset(params.items())
        if params == self.link:
            if key not in self._overwritten:  # the browser has all our changes
                self._overwritten.clear()
            return False
        context = get_script_run_ctx()
        if context is not None and context.is_history_navigation:
            return True
        coming_back = st.session_state.get("page") != page
        age = time.monotonic() - self._overwritten.get(key, float("-inf"))
        is_late = not coming_back and age < LATE_SECONDS
        return not is_late and bool(params or not coming_back)


def browser_address() -> str:
    """Return the address in the browser without its query; empty if there is none that is valid."""
    return _valid(st.context.url or "")


def dashboard_address() -> str:
    """Return the address of the dashboard in the browser, with its base path and without a page.

    It ends with "/", and is empty if there is none that is valid. A visitor who comes from another
    page still has that page's address; `st.context.url` also shortens a base path that ends like
    the name of a page.
    """
    context = get_script_run_ctx()
    info = None if context is None else context.context_info
    if context is None or info is None or not (address := _valid(info.url)):
        return ""
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    before, _, last = path.rpartition("/")
    pages = {page.get("url_pathname") for page in context.pages_manager.get_pages().values()}
    if last in pages and path.strip("/") != str(st.get_option("server.baseUrlPath")).strip("/"):
        path = before
    return f"{parts.scheme}://{parts.netloc}{path}/"


def _valid(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return ""
    return address if is_valid else ""


def is_quiet() -> bool:
    """Return whether this visitor guesses before results are shown."""
    lab = st.session_state.get("lab")
    return bool(st.session_state.get(QUIET) if lab is None else lab.quiet)


def kept_fields() -> dict[str, str]:
    """Return the fields that the addresses of all pages of this session have.

    They are the quiet mode, the class, and the language if it is not the browser's.
    """
    language = st.session_state.get(LANGUAGE, "")
    fields = {
        QUIET: "1" if is_quiet() else "",
        CLASS: st.session_state.get(CLASS, ""),
        LANGUAGE: "" if language == browser_language() else language,
    }
    return {name: value for name, value in fields.items() if value}


def with_language(link: str) -> str:
    """Return a link with a query, with the language of this session if it is not the browser's."""
    code = kept_fields().get(LANGUAGE)
    return f"{link}&{LANGUAGE}={code}" if code else link


def without_kept(params: dict[str, str]) -> dict[str, str]:
    """Return query parameters without those of the quiet mode, of a class and of a language."""
    kept = {(QUIET, "1"), *((name, params.get(name, "")) for name in (CLASS, LANGUAGE))}
    return {name: value for name, value in params.items() if (name, value) not in kept}


def browser_language() -> str:
    """Return the language that the browser asks for, or English if there is no translation."""
    code = (st.context.locale or "").replace("_", "-").partition("-")[0].lower()
    return code if code in LANGUAGES else ENGLISH


def keep_fields() -> None:
    """Begin the quiet mode if the address says so; write `kept_fields` into every address.

    A page that is loaded anew, or opened in another tab, then does not show what was hidden, and
    keeps its language.
    """
    if st.query_params.get(QUIET) == "1" and "lab" not in st.session_state:
        st.session_state[QUIET] = True
    present = st.query_params.get(LANGUAGE, "")
    if present and present != kept_fields().get(LANGUAGE):  # another one was chosen since
        del st.query_params[LANGUAGE]
    for name, value in kept_fields().items():
        if name not in st.query_params:
            st.query_params[name] = value


_Choice = TypeVar("_Choice", bound=Linked)


def open_choice(page: str, key: str, make: Callable[[], _Choice]) -> _Choice:
    """Return this visitor's choices on a page, made from a link that is new or has changed."""
    params = without_kept(st.query_params.to_dict())
    choice: _Choice | None = st.session_state.get(key)
    is_new = choice is None
    if choice is None:
        choice = st.session_state[key] = make()
    if is_new or choice.must_follow(params, page):
        choice.link = params  # what was shown before is not on its way to the browser
        choice.follow(params)
    st.session_state.page = page
    return choice
