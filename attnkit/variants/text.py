"""Variants: their text form, which consists of a sharing and options.

```
K=V kv_heads=1            keys are values, one head of them
Q=K unit_key self_mask    as in Reformer
QKV V=I d_head=m/h        values are the token itself
```

A `Variant` is its canonical text, so that it can be a key of a table, a value in JSON and a part
of a link. The text is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Self

from attnkit.foundation.display import Displayed
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import message_of
from attnkit.foundation.spelling import nearest_name
from attnkit.variants.options import IDENTITY, OPTIONS, Option, Parts
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ARE_THE_TOKEN, ROLES, SHARE_ONE_MATRIX, Role, Sharing
from attnkit.variants.wiring import Sizes, Wiring, build_wiring

if TYPE_CHECKING:
    from attnkit.variants.size import Size


@dataclass(frozen=True)
class Named:
    """A variant with a name, as an entry of the catalogue.

    Attributes:
        name: Short name, typed and displayed.
        variant: The variant.
        explanation: What it does and why, in plain sentences; the first one stands in tables. A
            text from `mark`.
        source: Citation; begins with "reported" if only an abstract was read.
        family: Heading under which it is listed.
        aliases: Other names that papers and libraries give it.
        origin: Name of the module that registered it.
    """

    name: str
    variant: Variant
    explanation: str
    source: str
    family: str = "Own"
    aliases: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    @property
    def brief(self) -> str:
        """The first sentence of the explanation; without one, what the text form means."""
        first = re.split(r"(?<=[.?!]) ", self.explanation or self.variant.meaning, maxsplit=1)[0]
        return first.removesuffix(".")


CATALOGUE: dict[str, Named] = {}
"""Every entry by its name in lower case, ordered by family, then by registration."""


def find(name: str) -> Named | None:
    """Return the entry with this name or alias; None if there is none, or if several have it.

    Case, hyphens and underscores do not matter.
    """
    key = key_of(name)
    if key in CATALOGUE:
        return CATALOGUE[key]
    named = [
        one for one in CATALOGUE.values() if _bare(key) in map(_bare, (one.name, *one.aliases))
    ]
    return named[0] if len(named) == 1 else None


@cache
def _bare(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def most_words() -> int:
    """Return the number of words of the longest name, or alias, in the catalogue."""
    names = (name for one in CATALOGUE.values() for name in (one.name, *one.aliases))
    return max((len(name.split()) for name in names), default=0)


def key_of(name: str) -> str:
    """Return the key of a name in the catalogue."""
    return normalised(name).lower()


def normalised(text: str) -> str:
    """Return a text with single spaces and no spaces around `=` and `≠`."""
    return re.sub(r"\s*(≠|!?=)\s*", r"\1", " ".join(text.split()))


LONGEST = 200
"""Maximum length of a text form, in characters."""

MOST = 100
"""Maximum number of variants of one experiment."""


class InvalidVariant(ValueError):
    """A text that is no variant; the message is the reason, in the reader's language.

    Attributes:
        text: The text.
        reason: The reason, a text from `mark`.
    """

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason
        super().__init__(reason)

    def __str__(self) -> str:
        return tr(self.reason)

    def __reduce__(self) -> tuple[type[InvalidVariant], tuple[str, str]]:
        return type(self), (self.text, self.reason)


class Variant(Displayed, str):
    """A variant of attention, as its canonical text.

    A variant is read from a text form or from a name of the catalogue; case and spaces do not
    matter. A text that is no variant raises `InvalidVariant`, which says which word is wrong and
    why.

    Attributes:
        value: Canonical text as a plain str.
        parts: Sharing, identities and options.
        sharing: Partition of the roles into classes of tied roles.
        identity: Tied roles that are the token itself; empty if all roles have a matrix.
        options: Options in the order in which they are applied.
        given: Options by name.
    """

    value: str
    parts: Parts
    sharing: Sharing
    identity: tuple[Role, ...]
    options: tuple[Option, ...]
    given: Mapping[str, Option]

    def __new__(cls, text: str) -> Self:
        """Read a text; return a variant unchanged.

        Raises:
            InvalidVariant: If the text is no variant.
        """
        if isinstance(text, cls):
            return text
        try:
            parts = _read(normalised(str(text)))
        except ValueError as error:
            raise InvalidVariant(str(text), message_of(error)) from None
        except Exception as error:  # from an option of a plugin
            raise InvalidVariant(str(text), _failure(error)) from None
        variant = super().__new__(cls, parts.text)
        variant.value, variant.parts, variant.given = parts.text, parts, parts.given
        variant.sharing, variant.identity = parts.sharing, parts.identity
        variant.options = parts.options
        return variant

    @property
    def is_partition(self) -> bool:
        """Whether the variant is one of the five sharings, without options or identities."""
        return not self.identity and not self.options

    @property
    def meaning(self) -> str:
        """Description of the variant in plain sentences, in the reader's language."""
        if self.is_partition:
            return self.sharing.meaning
        sentences = []
        for members in self.sharing.classes:
            if members == self.identity:
                sentences.append(ARE_THE_TOKEN[members])
            elif len(members) > 1:
                sentences.append(SHARE_ONE_MATRIX[members])
        return " ".join(map(tr, [*sentences, *(option.help for option in self.options)]))

    @property
    def least_layers(self) -> int:
        """Smallest number of layers with which all options have an effect."""
        return max((option.least_layers for option in self.options), default=1)

    @property
    def stages(self) -> tuple[Variant, ...]:
        """Variants as which it is trained in turn: itself, or untied and then tied.

        Raises:
            ValueError: If the tied stage is no variant.
        """
        stages = self.parts.stages
        return (self,) if len(stages) == 1 else tuple(Variant(stage.text) for stage in stages)

    def replacing(self, option: Option) -> Variant:
        """Return the variant with this option instead of its option of the same name, if any."""
        return Variant(self.parts.replacing(option).text)

    def without(self, *names: str) -> Variant:
        """Return the variant without the options of these names."""
        return Variant(self.parts.without(*names).text)

    def wire(self, size: Size, n_ctx: int, *, two_sided: bool = False) -> Wiring:
        """Return the wiring of the variant, of its last stage, at the sizes of an experiment.

        Args:
            two_sided: Whether the model has an encoder and a decoder.

        Raises:
            ValueError: If a stage of the variant does not go with the sizes; the message says why.
        """
        if "module" in self.given:  # a class keeps its own layers, and can be replaced
            return wire_parts(self.parts, size, n_ctx, two_sided=two_sided)
        return _wire(self, size, n_ctx, two_sided)

    def __deepcopy__(self, _: object) -> Variant:
        return self

    def __reduce__(self) -> tuple[type[Variant], tuple[str]]:
        return Variant, (self.value,)


def read_variants(value: object) -> tuple[Variant, ...]:
    """Read variants from a list, or from a text with commas between them.

    Returns:
        Different variants, partitions first, in an order that does not depend on that of `value`.

    Raises:
        InvalidVariant: If one cannot be read, if there are none, or if there are too many.
    """
    items: Iterable[object] = [value]
    if isinstance(value, str):
        items = value.split(",")
    elif isinstance(value, Iterable):
        items = value
    texts = []
    for item in items:
        if isinstance(item, type):
            name = item.__name__
            raise InvalidVariant(name, mark("it is a class, allowed ak.variant({name})", name=name))
        texts.append(item if isinstance(item, str) else repr(item))
    if len(texts) > MOST:
        reason = mark("there are {n}, allowed at most {most}", n=len(texts), most=MOST)
        raise InvalidVariant(texts[MOST], reason)
    variants = {Variant(text) for text in texts}
    if not variants:
        reason = mark("there must be at least one, allowed: {words}", words=known_words())
        raise InvalidVariant("", reason)
    return tuple(sorted(variants, key=_rank))


def known_words() -> str:
    """Return the allowed words of a text form, for error messages."""
    sharings = ", ".join(sharing.value for sharing in Sharing)
    return mark(
        "{sharings}, words such as kv_heads=1, or a name of the catalogue such as MQA",
        sharings=sharings,
    )


def _rank(variant: Variant) -> tuple[bool, int, str]:
    return not variant.is_partition, list(Sharing).index(variant.sharing), variant.value


def _read(text: str) -> Parts:
    """Read a name, a name with words that change or extend its variant, or a text form."""
    if len(text) > LONGEST:  # checked first, because the search for names takes every word
        raise ValueError(mark("at most {n} characters", n=LONGEST))
    entry = find(text)
    if entry is not None:
        return _parse(entry.variant)
    words = text.split()
    for n_words in range(min(len(words) - 1, most_words()), 0, -1):
        entry = find(" ".join(words[:n_words]))
        if entry is not None and not all(map(_is_known, words[:n_words])):
            added = words[n_words:]
            replaced = {word.partition("=")[0].lower() for word in added}
            base = entry.variant.without(*(name for name in OPTIONS if name.lower() in replaced))
            return _parse(" ".join([base, *added]))
    return _parse(text)


@lru_cache(4096)
def _parse(text: str) -> Parts:
    if len(text) > LONGEST:
        raise ValueError(mark("at most {n} characters", n=LONGEST))
    classes: list[set[str]] = []
    by_name: dict[str, Option] = {}
    for word in re.sub(r"\bq k v\b", "QKV", text, flags=re.IGNORECASE).split():
        roles = _roles(word)
        if roles is not None:
            classes.append(roles)
            continue
        option = _option(word, text)
        if option.name in by_name:
            raise ValueError(mark("{name} occurs twice", name=option.name))
        by_name[option.name] = option
    if set() in classes and any(len(members - {IDENTITY}) > 1 for members in classes):
        raise ValueError(mark("QKV ties nothing: leave out either QKV or the ties"))
    if not classes and not by_name:
        raise ValueError(mark("nothing is named, allowed: {words}", words=known_words()))
    sharing, identity = _partition(classes)
    options = tuple(by_name[name] for name in OPTIONS if name in by_name)
    parts = Parts(sharing, identity, options).checked()
    if len(parts.text) > LONGEST:
        raise ValueError(
            mark(
                "at most {n} characters, and written out it has {n_written}",
                n=LONGEST,
                n_written=len(parts.text),
            )
        )
    return parts


def _roles(word: str) -> set[str] | None:
    """Return the members of a class such as `Q=K` or `V=I`; None if the word is an option."""
    upper = word.upper()
    apart = re.split("-|≠|!=", upper)  # as papers write it: K=V is Q-K=V or Q≠K=V
    if len(apart) > 1 and sorted("=".join(apart).split("=")) == sorted(ROLES):
        upper = next((members for members in apart if "=" in members), "QKV")
    if upper == "QKV":
        return set()
    if re.fullmatch(r"[QKVI](=[QKVI])+", upper) is None:
        return None
    members = upper.split("=")
    if len(set(members)) < len(members):
        raise ValueError(mark("{word}: a role can occur only once", word=repr(word)))
    return set(members)


def _partition(classes: list[set[str]]) -> tuple[Sharing, tuple[Role, ...]]:
    """Return the sharing that has these classes, and its class of roles that are the token."""
    with_identity = {role for members in classes if IDENTITY in members for role in members}
    tied = [members for members in classes if members and IDENTITY not in members]
    tied += [with_identity - {IDENTITY}] if with_identity else []
    for i, members in enumerate(tied):
        for earlier in tied[:i]:
            if members & earlier and not members <= earlier:
                union = "=".join(role for role in ROLES if role in members | earlier)
                raise ValueError(
                    mark("a role is in two classes: write {union} if all are tied", union=union)
                )
    tied_classes = {frozenset(members) for members in tied if len(members) > 1}
    for sharing in Sharing:
        if {frozenset(members) for members in sharing.classes if len(members) > 1} == tied_classes:
            break
    else:
        sharings = ", ".join(Sharing)
        raise ValueError(mark("no sharing has these classes, allowed: {names}", names=sharings))
    identity = tuple(role for role in ROLES if role in with_identity)
    if identity and identity not in sharing.classes:
        tied_roles = "=".join(next(c for c in sharing.classes if identity[0] in c))
        raise ValueError(
            mark(
                "{roles}=I, but {tied} are tied: write {tied}=I",
                roles="=".join(identity),
                tied=tied_roles,
            )
        )
    return sharing, identity


def _is_known(word: str) -> bool:
    """Return whether a word belongs to text forms, even if a catalogue entry has this name."""
    name = word.partition("=")[0].lower()
    return name in {"q", "k", "v", "qkv"} or name in {option.lower() for option in OPTIONS}


def _unknown(word: str, name: str, text: str) -> str:
    """Return the error of a word with an unknown option name: what may be meant, or is allowed."""
    meant = nearest_name(name.lower(), OPTIONS)
    if meant is None:
        # No text forms are suggested, which are all spelt alike.
        named = [key for key, entry in CATALOGUE.items() if entry.name != entry.variant.value]
        key = nearest_name(text.lower(), named, similarity=0.7)
        meant = None if key is None else CATALOGUE[key].name
    if meant is not None:
        return mark("{word} is unknown, did you mean {name}?", word=repr(word), name=meant)
    given = {"word": repr(word), "words": known_words()}
    if "," in text:
        return mark("{word} is unknown, allowed: {words}; a comma ends a variant", **given)
    return mark("{word} is unknown, allowed: {words}", **given)


def _option(word: str, text: str) -> Option:
    """Read an option from a word of a text."""
    typed, separator, value = word.partition("=")
    name = next((name for name in OPTIONS if name.lower() == typed.lower()), None)
    if name is None:
        raise ValueError(_unknown(word, typed, text))
    try:
        return OPTIONS[name].read(value if separator else None)
    except ValueError as error:
        given = {"name": name, "value": repr(value), "allowed": message_of(error)}
        # Translators: {allowed} is such as "a whole number from 1 to 8" or "one of yes, no".
        reason = mark("{name}: got {value}, allowed {allowed}", **given)
        if not value:
            # Translators: {allowed} is such as "a whole number from 1 to 8" or "one of yes, no".
            reason = mark("{name}: got nothing, allowed {allowed}", **given)
        raise ValueError(reason) from None


@lru_cache(1024)
def _wire(variant: Variant, size: Size, n_ctx: int, two_sided: bool) -> Wiring:
    return wire_parts(variant.parts, size, n_ctx, two_sided=two_sided)


def wire_parts(parts: Parts, size: Size, n_ctx: int, *, two_sided: bool) -> Wiring:
    """Return the wiring of a variant's parts as `Variant.wire` does, without keeping it."""
    try:
        return [_wire_stage(stage, size, n_ctx, two_sided) for stage in parts.stages][-1]
    except ValueError:
        raise
    except Exception as error:  # from an option of a plugin
        raise ValueError(_failure(error)) from None


def _failure(error: Exception) -> str:
    """Return the reason that is given for an error of a plugin's option."""
    kind = type(error).__name__
    return mark("a word of it fails ({kind}: {error})", kind=kind, error=str(error))


def _wire_stage(parts: Parts, size: Size, n_ctx: int, two_sided: bool) -> Wiring:
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
    options = [option for option in parts.options if option.name != "positions"]
    of_variant = parts.given.get("positions")
    if of_variant is not None:
        sizes.positions = of_variant.value
    positions = POSITIONS[sizes.positions]
    wiring = build_wiring(sizes, parts.sharing, parts.identity, [*options, positions])
    asymmetric = positions.asymmetric or any(
        option.asymmetric or (option.diagonal and positions.rotates) for option in options
    )
    wiring.symmetric = wiring.symmetric and not asymmetric
    return wiring
