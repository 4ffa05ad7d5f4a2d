"""A variant: one column of a comparison, written as a sharing and options.

```
K=V kv_heads=1            keys are values, one head of them
Q=K unit_key self_mask    as in Reformer
QKV V=I d_head=m/h        values are the token itself
```

A `Variant` is its canonical text, so it is a key in tables, a value in JSON and a part of a link
as it stands; what it says is read once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from attnkit.variants.names import CATALOGUE, find, normalised
from attnkit.variants.options import OPTIONS, TIE_OPTIONS, Option
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ROLES, Role, Sharing
from attnkit.variants.wiring import Sizes, Wiring, lay_out

if TYPE_CHECKING:
    from attnkit.variants.size import Size

IDENTITY = "I"
"""As typed: the role has no matrix, it is the token itself."""

LONGEST = 200
"""Characters of a text form."""

MOST = 100
"""Variants of one experiment."""


class InvalidVariant(ValueError):
    """A text that is no variant; the message is the reason.

    Attributes:
        text: what was given.
    """

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[InvalidVariant], tuple[str, str]]:
        return type(self), (self.text, str(self))


class Variant(str):
    """The canonical text of a variant, and what it means.

    It is made of a text form or of a name of the catalogue; case and spaces do not matter. A text
    that is no variant raises `InvalidVariant`, which says which word is wrong and why.
    """

    _said: _Said

    def __new__(cls, text: str) -> Self:
        """Read a text; return a variant as it is.

        Args:
            text: A text form, or a name of the catalogue.

        Raises:
            InvalidVariant: If the text is no variant.
        """
        if isinstance(text, cls):
            return text
        try:
            said = _read(normalised(str(text)))
        except ValueError as error:
            raise InvalidVariant(str(text), str(error)) from None
        except Exception as error:  # an option of somebody else's
            reason = f"a word of it fails ({type(error).__name__}: {error})"
            raise InvalidVariant(str(text), reason) from None
        variant = super().__new__(cls, said.text)
        variant._said = said
        return variant

    @property
    def value(self) -> str:
        """The text as a plain str."""
        return self._said.text

    @property
    def sharing(self) -> Sharing:
        """Which roles read the same vectors."""
        return self._said.sharing

    @property
    def identity(self) -> tuple[Role, ...]:
        """The tied roles that are the token itself; empty if all have a matrix."""
        return self._said.identity

    @property
    def options(self) -> tuple[Option, ...]:
        """The options, in the order in which they act."""
        return self._said.options

    @property
    def given(self) -> dict[str, Option]:
        """The options by name."""
        return {option.name: option for option in self.options}

    @property
    def is_partition(self) -> bool:
        """Whether it is one of the five sharings and nothing else."""
        return not self.identity and not self.options

    @property
    def meaning(self) -> str:
        """What it is, in plain sentences."""
        if self.is_partition:
            return self.sharing.meaning
        nouns = {"Q": "queries", "K": "keys", "V": "values"}
        parts = []
        for members in self.sharing.classes:
            listed = " and ".join(nouns[role] for role in members).capitalize()
            if members == self.identity:
                parts.append(f"{listed} are the token itself.")
            elif len(members) > 1:
                parts.append(f"{listed} are made by one matrix.")
        return " ".join([*parts, *(option.help for option in self.options)])

    @property
    def least_layers(self) -> int:
        """With fewer layers, some of its words change nothing."""
        return max((option.least_layers for option in self.options), default=1)

    @property
    def stages(self) -> tuple[Variant, ...]:
        """What it is trained as, one after another: one, or untied and then tied.

        Raises:
            ValueError: if what it becomes is no variant.
        """
        if "tie" not in self.given:
            return (self,)
        before = self.without(*TIE_OPTIONS)
        sharing: Sharing = self.given["tie"].value
        kept = tuple(option for option in before.options if option.name != "start")
        return before, Variant(_written(sharing, self.identity, kept))

    def replacing(self, option: Option) -> Variant:
        """The variant with this option in place of its own of that name, if it has one."""
        kept = tuple(option if own.name == option.name else own for own in self.options)
        return Variant(_written(self.sharing, self.identity, kept))

    def without(self, *names: str) -> Variant:
        """The variant with these options left out."""
        kept = tuple(option for option in self.options if option.name not in names)
        return Variant(_written(self.sharing, self.identity, kept))

    def wire(self, size: Size, n_ctx: int, *, two_sided: bool = False) -> Wiring:
        """What its attention computes at the sizes of an experiment.

        Args:
            two_sided: whether its layers are an encoder's and a decoder's.

        Raises:
            ValueError: if it does not go with them; says why.
        """
        try:
            return [_wire(stage, size, n_ctx, two_sided) for stage in self.stages][-1]
        except ValueError:
            raise
        except Exception as error:  # an option of somebody else's
            raise ValueError(f"a word of it fails ({type(error).__name__}: {error})") from None

    def __deepcopy__(self, _: object) -> Variant:
        return self

    def __reduce__(self) -> tuple[type[Variant], tuple[str]]:
        return Variant, (self.value,)


@dataclass(frozen=True)
class _Said:
    """What a text says."""

    sharing: Sharing
    identity: tuple[Role, ...]
    options: tuple[Option, ...]
    text: str


def read_variants(value: object) -> tuple[Variant, ...]:
    """Read a list of variants, or a text with commas between them.

    Returns:
        Each once, partitions first, in one order for every order given.

    Raises:
        InvalidVariant: if one cannot be read, or there is none.
    """
    texts: Iterable[object] = [value]
    if isinstance(value, str):
        texts = value.split(",")
    elif isinstance(value, Iterable):
        texts = value
    given = [text if isinstance(text, str) else repr(text) for text in texts]
    if len(given) > MOST:
        raise InvalidVariant(given[MOST], f"there are {len(given)}, allowed at most {MOST}")
    chosen = {Variant(text) for text in given}
    if not chosen:
        raise InvalidVariant("", f"there must be at least one, allowed: {known_words()}")
    return tuple(sorted(chosen, key=_rank))


def known_words() -> str:
    """What a text form is made of, for messages."""
    sharings = ", ".join(sharing.value for sharing in Sharing)
    return f"{sharings}, words such as kv_heads=1, or a name of the catalogue such as MQA"


def _rank(variant: Variant) -> tuple[bool, int, str]:
    return not variant.is_partition, list(Sharing).index(variant.sharing), variant.value


def _read(text: str) -> _Said:
    if len(text) > LONGEST:  # before anything looks at every word of it
        raise ValueError(f"at most {LONGEST} characters")
    named = find(text)
    if named is not None:
        return _parse(named.variant)
    words = text.split()
    for n_words in range(len(words) - 1, 0, -1):  # a name, then words that change or extend it
        named = find(" ".join(words[:n_words]))
        if named is not None and not all(map(_is_known, words[:n_words])):
            rest = words[n_words:]
            given = {word.partition("=")[0].lower() for word in rest}
            base = named.variant.without(*(name for name in OPTIONS if name.lower() in given))
            return _parse(" ".join([base, *rest]))
    return _parse(text)


@lru_cache(4096)
def _parse(text: str) -> _Said:
    if len(text) > LONGEST:
        raise ValueError(f"at most {LONGEST} characters")
    classes: list[set[str]] = []
    given: dict[str, Option] = {}
    for word in re.sub(r"\bq k v\b", "QKV", text, flags=re.IGNORECASE).split():
        roles = _roles(word)
        if roles is not None:
            classes.append(roles)
            continue
        option = _option(word, text)
        if option.name in given:
            raise ValueError(f"{option.name} stands there twice")
        given[option.name] = option
    if set() in classes and any(len(members - {IDENTITY}) > 1 for members in classes):
        raise ValueError("QKV ties nothing: leave it out, or what is tied")
    if not classes and not given:
        raise ValueError(f"nothing is named, allowed: {known_words()}")
    sharing, identity = _partition(classes)
    every = tuple(given[name] for name in OPTIONS if name in given)
    variant = str.__new__(Variant, "")
    variant._said = _Said(sharing, identity, every, "")
    for option in every:
        option.check(variant)
    options = tuple(option for option in every if option.value != option.implied)
    written = _written(sharing, identity, options)
    if len(written) > LONGEST:
        raise ValueError(f"at most {LONGEST} characters, and written out it has {len(written)}")
    return _Said(sharing, identity, options, written)


def _roles(word: str) -> set[str] | None:
    """The members of a class such as `Q=K` or `V=I`; None if the word is an option."""
    upper = word.upper()
    if upper == "QKV":
        return set()
    if re.fullmatch(r"[QKVI](=[QKVI])+", upper) is None:
        return None
    members = upper.split("=")
    if len(set(members)) < len(members):
        raise ValueError(f"{word!r}: a role can stand there once")
    return set(members)


def _partition(classes: list[set[str]]) -> tuple[Sharing, tuple[Role, ...]]:
    """The sharing and which of its classes is the identity."""
    identity = {role for members in classes if IDENTITY in members for role in members}
    tied = [members for members in classes if members and IDENTITY not in members]
    tied += [identity - {IDENTITY}] if identity else []
    for i, one in enumerate(tied):
        for other in tied[:i]:
            if one & other and not one <= other:
                both = "=".join(role for role in ROLES if role in one | other)
                raise ValueError(f"a role stands in two classes: write {both} if all are tied")
    merged = [m for m in tied if len(m) > 1]
    for sharing in Sharing:
        if {frozenset(c) for c in sharing.classes if len(c) > 1} == {frozenset(m) for m in merged}:
            break
    else:
        raise ValueError(f"no sharing has these classes, allowed: {', '.join(Sharing)}")
    members = tuple(role for role in ROLES if role in identity)
    if members and members not in sharing.classes:
        whole = next(c for c in sharing.classes if members[0] in c)
        raise ValueError(
            f"{'='.join(members)}=I, but {'='.join(whole)} are tied: write {'='.join(whole)}=I"
        )
    return sharing, members


def _is_known(word: str) -> bool:
    """Whether a word stands for itself, whatever is named like it."""
    name = word.partition("=")[0].lower()
    return name in {"q", "k", "v", "qkv"} or name in {option.lower() for option in OPTIONS}


def _hint(name: str, whole: str) -> str:
    """What may have been meant by an unknown word of a text."""
    close = difflib.get_close_matches(name.lower(), list(OPTIONS), n=1)
    if not close:
        names = difflib.get_close_matches(whole.lower(), list(CATALOGUE), n=1, cutoff=0.7)
        close = [CATALOGUE[key].name for key in names]
    if close:
        return f"did you mean {close[0]}?"
    commas = "; a comma ends a variant" if "," in whole else ""
    return f"allowed: {known_words()}{commas}"


def _option(word: str, whole: str) -> Option:
    name, separator, value = word.partition("=")
    known = next((known for known in OPTIONS if known.lower() == name.lower()), None)
    if known is None:
        raise ValueError(f"{word!r} is unknown, {_hint(name, whole)}")
    try:
        return OPTIONS[known].read(value if separator else None)
    except ValueError as error:
        got = repr(value) if value else "nothing"
        raise ValueError(f"{known}: got {got}, allowed {error}") from None


def _written(sharing: Sharing, identity: tuple[Role, ...], options: tuple[Option, ...]) -> str:
    words = [] if len(identity) > 1 else [sharing.value]
    if identity:
        words.append("=".join([*identity, IDENTITY]))
    return " ".join([*words, *map(str, options)])


@lru_cache(1024)
def _wire(variant: Variant, size: Size, n_ctx: int, two_sided: bool) -> Wiring:
    sizes = Sizes(
        d_model=size.d_model,
        n_ctx=n_ctx,
        n_heads=size.n_heads,
        kv_heads=0,
        d_head=size.d_head,
        d_k=0,
        d_v=0,
        d_mlp=size.d_mlp,
        n_layers=size.n_layers,
        positions=size.positions,
        self_mask=size.self_mask,
        causal=size.causal,
        standard=size.blocks != "lean",
        final_norm=size.blocks != "standard",
        two_sided=two_sided,
    )
    options = [option for option in variant.options if option.name != "positions"]
    own = variant.given.get("positions")
    positions = sizes.positions = size.positions if own is None else own.value
    wiring = lay_out(sizes, variant.sharing, variant.identity, [*options, POSITIONS[positions]])
    told = POSITIONS[positions]
    asymmetric = told.asymmetric or any(
        o.asymmetric or (o.diagonal and told.turns) for o in options
    )
    wiring.symmetric = wiring.symmetric and not asymmetric
    return wiring
