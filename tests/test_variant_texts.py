"""The text form of variants: read, written, refused; and the catalogue of named ones."""

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import NEEDS_ONE_SIDE
from searching import briefly

from attnkit.experiment.experiment import Experiment, InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.variants import (
    CATALOGUE,
    OPTIONS,
    InvalidVariant,
    Option,
    Variant,
    names_of,
    read_variants,
    register,
    register_option,
)
from attnkit.variants.catalogue import FAMILIES
from attnkit.variants.options import CountOption, NumberOption, WidthOption
from attnkit.variants.sharing import Sharing

every_entry = pytest.mark.parametrize("named", CATALOGUE.values(), ids=lambda named: named.name)

CLASSES = {
    "QKV": ["Q=I", "K=I", "V=I"],
    "Q=K": ["Q=K=I", "V=I"],
    "K=V": ["Q=I", "K=V=I"],
    "Q=V": ["Q=V=I", "K=I"],
    "Q=K=V": ["Q=K=V=I"],
}
"""The classes of every sharing that can be the token itself."""
WIDTHS = st.builds(
    "{}{}".format,
    st.sampled_from(["m", "d", "2m", "3d", "17d", "256m"]),
    st.sampled_from(["", "", "/h", "/1", "/2", "/3", "/17", "/256"]),
) | st.integers(1, 999).map(str)


def values_of(kind):
    """Values of an option as people may type them, from its samples and its whole range."""
    values = st.sampled_from(kind.samples)
    if issubclass(kind, CountOption):
        values |= st.integers(kind.low, kind.high).map(str)
    if issubclass(kind, NumberOption):
        values |= st.floats(kind.low, kind.high).map(repr)
    if issubclass(kind, WidthOption):
        values |= WIDTHS
    return values.map(lambda value: kind.name if value is None else f"{kind.name}={value}")


HEADS = [[form, *rest] for form in CLASSES for rest in ([], *([own] for own in CLASSES[form]))]
WORDS = st.one_of([values_of(kind) for kind in OPTIONS.values()])
TEXTS = st.tuples(
    st.sampled_from(HEADS),
    st.lists(WORDS, max_size=5, unique_by=lambda word: word.partition("=")[0]),
).map(lambda parts: [*parts[0], *parts[1]])
"""Words of texts: a sharing, perhaps a class that is the token, up to five options."""


def refusal(call, *args, **kwargs):
    """The error of a call that is refused; None if it is not. Any other error is one."""
    try:
        call(*args, **kwargs)
    except (InvalidVariant, InvalidExperiment) as error:
        return error
    return None


def test_a_canonical_text_reads_as_what_was_written():
    """`Variant(str(v)) == v`, with the same parts; much of what is drawn is one."""
    n_read = 0

    @given(TEXTS)
    @briefly(300)
    def check(words):
        nonlocal n_read
        error = refusal(Variant, text := " ".join(words))
        if error is not None:
            assert str(error)
            return
        n_read += 1
        variant = Variant(text)
        again = Variant(variant.value)
        assert again == variant
        assert again.value == variant.value == str(variant)
        parts = (variant.sharing, variant.identity, variant.options)
        assert (again.sharing, again.identity, again.options) == parts

    check()
    assert n_read > 60  # a fifth of what is drawn


@given(TEXTS, st.randoms(use_true_random=False))
@briefly(200)
def test_the_canonical_text_does_not_depend_on_order_case_and_spaces(words, chance):
    """Nor does it whether there is one."""
    text = " ".join(words)
    chance.shuffle(words)
    letters = "  ".join(words)
    typed = "".join(chance.choice([letter.upper(), letter.lower()]) for letter in letters)
    typed = f" {typed}\t"
    if refusal(Variant, text) is None:
        assert Variant(typed).value == Variant(text).value
    else:
        assert refusal(Variant, typed) is not None


@given(st.text() | st.lists(st.text("QKVIO=mdh/_ 019.-e", max_size=9) | WORDS).map(" ".join))
@briefly(200)
def test_any_text_is_a_variant_or_is_refused(text):
    """Never another error; and what is read goes with an experiment's sizes, or says why not."""
    error = refusal(Variant, text)
    if error is None:
        error = refusal(Experiment, sharing=[Variant(text)])
    else:
        assert error.text == text
    assert error is None or str(error)


@given(st.none() | st.integers() | st.text() | st.lists(st.text() | st.integers() | st.none()))
def test_any_value_is_a_list_of_variants_or_is_refused(value):
    """What stands in a JSON or a link may be of any type."""
    error = refusal(read_variants, value)
    assert str(error) if error else all(type(v) is Variant for v in read_variants(value))


# As typed, and as it is written
CANONICAL = [
    ("qkv", "QKV"),
    ("v=k", "K=V"),
    ("V=K=Q", "Q=K=V"),
    ("V=I", "QKV V=I"),
    ("QKV I=V", "QKV V=I"),
    ("V=I Q=K", "Q=K V=I"),
    ("QKV V=I K=I", "K=V=I"),  # both are the token, so they are the same
    ("K=V=I Q=I", "Q=K=V=I"),
    ("o=i q=k=v=i D_HEAD=M/H", "Q=K=V=I O=I d_head=m/h"),
    ("SELF_MASK=yes UNIT_KEY K=Q", "Q=K unit_key self_mask"),
    ("QKV self_mask=No", "QKV self_mask=no"),
    ("kv_heads=01 QKV n_heads=4", "QKV n_heads=4 kv_heads=1"),
    ("QKV kv_rank=2m/8", "QKV kv_rank=m/4"),
    ("QKV d_k=2d/2 d_v=d/1", "QKV d_k=d d_v=d"),
    ("QKV temperature=4.0", "QKV temperature=4"),
    ("QKV temperature=.5", "QKV temperature=0.5"),
    ("QKV learning_rate=1e-3", "QKV learning_rate=0.001"),
    ("QKV positions=RoPE", "QKV positions=rope"),
    ("tie_by=KEEP_v tie=k=v QKV", "QKV tie=K=V tie_by=keep_V"),
    ("QKV start=q=k", "QKV start=Q=K"),
    ("reformer", "Q=K unit_key self_mask"),
    ("  k=v +  MQA ", "K=V n_heads=4 kv_heads=1"),
]


@pytest.mark.parametrize(("typed", "written"), CANONICAL)
def test_what_is_typed_has_one_written_form(typed, written):
    """Worked out by hand."""
    assert Variant(typed).value == written


# What is refused, and a part of the reason
IMPOSSIBLE = [
    ("", "allowed: QKV, Q=K"),
    ("QKW", "unknown"),
    ("QKV n_haeds=2", "did you mean n_heads?"),
    ("QKV kvheads=2", "did you mean kv_heads?"),
    ("QKV keyles", "did you mean keyless?"),
    ("Q=K K=V", "two classes: write Q=K=V"),
    ("Q=V K=I K=V", "two classes"),
    ("Q=Q", "once"),
    ("Q=K K=I", "write Q=K=I"),
    ("Q=K=V V=I", "write Q=K=V=I"),
    ("QKV keyless keyless", "keyless occurs twice"),
    ("QKV d_k=3 D_K=5", "d_k occurs twice"),
    ("QKV keyless=3", "the bare word"),
    ("QKV n_heads", "a whole number from 1 to 8"),
    ("QKV n_heads=0", "a whole number from 1 to 8"),
    ("QKV n_heads=2.5", "a whole number from 1 to 8"),
    ("QKV d_head=m/0", "a width"),
    ("QKV d_head=-3", "a width"),
    ("QKV d_head=h", "a width"),
    ("QKV temperature=0", "a number from 0.01 to 100"),
    ("QKV temperature=nan", "a number from 0.01 to 100"),
    ("QKV learning_rate=inf", "a number from 1e-05 to 1"),
    ("QKV positions=sines", "one of none, learned, rope"),
    ("QKV O=K", "O: got 'K', allowed I"),
    ("QKV " + "d_mlp=7 " * 30, "at most 200 characters"),
    ("Q=K n_heads=4 kv_heads=2", "set n_heads"),
    ("Q=V n_heads=4 kv_heads=2", "set n_heads"),
    ("K=V d_k=3", "set d_head"),
    ("Q=V d_v=3", "set d_head"),
    ("Q=K=V d_k=3", "set d_head"),
    ("K=V keyless", "keys are made from values"),
    ("Q=K keyless", "keys are made from values"),
    ("QKV K=I keyless", "keys are made from values"),
    ("Q=K kv_rank=3", "queries come from the token"),
    ("QKV V=I kv_rank=3", "would not be narrow"),
    ("QKV kv_rank=3 keyless", "how keys are computed"),
    ("QKV kv_rank=3 k_rank=3", "how keys are computed"),
    ("K=V k_rank=3", "a matrix of their own"),
    ("QKV K=I k_rank=3", "must have a matrix"),
    ("QKV signed", "keys must be queries"),
    ("Q=K signed unit_key", "does not go with unit_key"),
    ("Q=K unit_key qk_norm", "both set the length of keys"),
    ("K=V skew=2", "keys must be queries"),
    ("Q=K skew=2 qk_norm", "would mix the symmetric and the antisymmetric part"),
    ("K=V scaled rotate_values", "with K=V and rotated values, values are the keys"),
    ("Q=K=V v_norm rotate_values", "with Q=K=V and rotated values, values are the keys"),
    ("QKV rotate_values=back", "allowed `only`, or no value"),
    ("Q=K kv_from=bottom_middle", "queries are computed in every layer"),
    ("QKV kv_from=bottom_middle kv_every=2", "both choose layers for keys and values"),
    ("QKV kv_from=top", "kv_from: got 'top', allowed bottom_middle"),
    ("Q=K kv_residual=2", "queries must not be tied"),
    ("QKV K=I kv_residual=2", "they must have matrices"),
    ("QKV kv_residual=2 kv_rank=3", "how keys are computed"),
    ("QKV kv_residual=2 tie=K=V", "several matrices each"),
    ("QKV shared_half", "keys must be tied to values only, K=V"),
    ("K=V shared_half rope_width=2", "RoPE rotates the shared half"),
    ("K=V shared_half kv_residual=2", "how keys are computed"),
    ("QKV sum diff", "two keys per head"),
    ("K=V diff", "one value"),
    ("QKV Q=I sum", "both maps would be one"),
    ("QKV sum keyless", "two keys per head"),
    ("Q=K kv_every=2", "queries are computed in every layer"),
    ("Q=K scaled qk_norm", "its gains are factors already"),
    ("QKV Q=K", "QKV ties nothing"),
    ("QKV kv_every=1", "a whole number from 2 to 4"),
    ("K=V tie=Q=K", "untie nothing"),
    ("Q=K=V tie=Q=K=V", "tie more"),
    ("QKV tie=QKV", "one of Q=K, K=V"),
    ("Q=K start=Q=K", "tie more"),
    ("QKV V=I tie=K=V d_head=m/h", "has no matrix"),
    ("QKV Q=I start=Q=K", "has no matrix"),
    ("QKV tie_by=keep_K", "tie_by needs tie"),
    ("QKV tie_at=0.5", "tie_at needs tie"),
    ("QKV tie=Q=K tie_by=keep_V", "not tied there"),
    ("QKV tie=Q=K tie_by=keep_O", "one of average, keep_Q"),
    ("QKV keyless tie=K=V", "keys are made from values"),  # what it would become
    ("QKV d_k=3 tie=K=V", "set d_head"),
]


@pytest.mark.parametrize(("text", "reason"), IMPOSSIBLE)
def test_an_impossible_text_is_refused_with_a_reason(text, reason):
    """The reason speaks of what is wrong, and Experiment says it as well."""
    with pytest.raises(InvalidVariant, match=re.escape(reason)):
        Variant(text)
    with pytest.raises(InvalidExperiment, match=re.escape(reason)) as caught:
        Experiment(sharing=[text])
    assert [problem.field for problem in caught.value.problems] == ["sharing"]


# What is a variant, but does not go with these sizes, and a part of the reason
UNFIT = [
    ("QKV n_heads=4 kv_heads=3", {}, "kv_heads=3 does not divide n_heads=4"),
    ("QKV kv_heads=2", {"n_heads": 3}, "kv_heads=2 does not divide n_heads=3"),
    ("QKV Q=I", {"n_heads": 3, "d_head": 7}, "3 · 7 is not 32"),
    ("Q=K=I", {"n_heads": 3, "d_head": 7}, "Q=K=I needs n_heads · d_head = d_model"),
    ("QKV V=I d_head=m/h d_v=3", {}, "V=I needs"),
    ("QKV O=I", {"d_head": 7}, "O=I needs n_heads · d_v = d_model"),
    ("QKV O=I d_head=m/h d_v=3", {}, "O=I needs n_heads · d_v = d_model"),
    ("QKV d_head=m/h", {"n_heads": 3}, "32/3 here, which is no whole number"),
    ("QKV d_k=d/2", {"d_head": 7}, "7/2 here, which is no whole number"),
    ("QKV positions=rope", {"d_head": 7}, "an even d_k, not 7"),
    ("QKV d_k=3 positions=rope", {}, "an even d_k, not 3"),
    ("QKV", {"d_head": 7, "positions": "rope"}, "an even d_k, not 7"),
    ("Q=K skew=3", {}, "skew=3 is 3 here, allowed an even number"),
    ("Q=K skew=d d_k=d/2", {}, "skew=d is 16 here, allowed an even number up to d_k, which is 8"),
    ("QKV rotate_values", {}, "rotate_values needs positions=rope; positions are none here"),
    (
        "QKV rope_width=4 positions=learned",
        {},
        "rope_width needs positions=rope; positions",
    ),
    ("QKV rope_width=3", {"positions": "rope"}, "rope_width=3 is 3 here, allowed an even number"),
    ("QKV rope_width=8 d_k=4", {"positions": "rope"}, "even number up to d_k, which is 4"),
    ("QKV rope_width=8 d_v=4 rotate_values", {"positions": "rope"}, "up to d_v, which is 4"),
    ("QKV d_v=3 rotate_values", {"positions": "rope"}, "needs an even d_v, not 3"),
    ("QKV kv_residual=9m", {}, "allowed 1 to 256"),
    ("K=V shared_half", {"d_head": 7}, "needs a d_k divisible by 2, not 7"),
    ("K=V shared_half", {"d_head": 6, "positions": "rope"}, "divisible by 4, not 6"),
    ("QKV exclusive", {"task": "dictionary"}, "no value of its own among those that it sees"),
    ("QKV exclusive d_v=1", {}, "exclusive needs d_v of at least 2"),
    ("QKV d_head=9m", {}, "allowed 1 to 256"),
    ("QKV d_v=5d", {"d_head": 64}, "allowed 1 to 256"),
    ("QKV kv_rank=9m", {}, "allowed 1 to 256"),
    ("QKV n_heads=4 kv_heads=2 sum", {}, "fewer kv_heads than n_heads"),
    ("K=V d_k=3 d_v=5", {}, "tied roles need one shape"),
    ("QKV n_heads=4 kv_heads=1 start=Q=K", {}, "matrices of one shape for Q, K"),
    ("QKV d_k=3 start=K=V", {}, "matrices of one shape for K, V"),
]


@pytest.mark.parametrize(("text", "sizes", "reason"), UNFIT)
def test_a_variant_that_does_not_fit_is_refused_by_the_experiment(text, sizes, reason):
    """It is a variant, so that a link can hold it; the sizes are what it disagrees with."""
    Variant(text)
    with pytest.raises(InvalidExperiment, match=re.escape(reason)) as caught:
        Experiment(sharing=["QKV n_heads=2 d_head=4", text], **sizes)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("sharing", Variant(text).value)


# A variant is its text


@pytest.mark.parametrize("sharing", Sharing)
def test_a_partition_is_its_sharing(sharing):
    """Equal to it, and a key in its place."""
    variant = Variant(sharing)
    assert variant == sharing == variant.sharing
    assert {sharing: 1}[variant] == 1
    assert variant.is_partition


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_a_copy_of_a_variant_is_one(copied):
    """It can be sent to another process, with what it says."""
    variant = Variant("QKV n_heads=4 kv_heads=1 tie=K=V")
    again = copied(variant)
    assert (type(again), again, again.options) == (Variant, variant, variant.options)


def test_lists_are_read_once_each_and_in_one_order():
    """Partitions first, in their own order; doubles and the order given do not matter."""
    texts = ["Reformer", "K=V", "q=k self_mask unit_key", "QKV keyless", "QKV"]
    expected = ("QKV", "K=V", "QKV keyless", "Q=K unit_key self_mask")
    for given_as in (texts, texts[::-1], set(texts), ",".join(texts)):
        assert read_variants(given_as) == expected


def test_an_experiment_holds_text_forms():
    """Names are a way to type: what is stored, linked and hashed is the text."""
    named, typed = (Experiment(sharing=text) for text in ("MLA,qkv", ["QKV", "QKV kv_rank=m/4"]))
    assert named == typed
    assert named.hash == typed.hash
    assert named.settings()["sharing"] == ["QKV", "QKV kv_rank=m/4"]
    assert "MLA" not in named.to_text() + named.to_json()


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("QKV keyless", ["QKV keyless"]),
        ("QKV tie=K=V tie_by=keep_K tie_at=0.2", ["QKV", "K=V"]),
        ("K=V kv_rank=3 tie=Q=K=V", None),
        ("QKV kv_rank=3 tie=K=V", ["QKV kv_rank=3", "K=V kv_rank=3"]),
        ("QKV start=Q=K tie=Q=K", ["QKV start=Q=K", "Q=K"]),
        ("K=V unit_key learning_rate=0.01 tie=Q=K=V",
         ["K=V unit_key learning_rate=0.01", "Q=K=V unit_key learning_rate=0.01"]),
    ],
)  # fmt: skip
def test_stages_are_what_it_is_trained_as(text, stages):
    """All other options stay; None: what it would become is no variant."""
    if stages is None:
        assert refusal(Variant, text) is not None
    else:
        assert list(Variant(text).stages) == stages


@pytest.mark.parametrize("kind", OPTIONS.values(), ids=lambda kind: kind.name)
def test_every_option_reads_its_own_samples(kind):
    """And explains itself in one sentence."""
    for sample in kind.samples:
        option = kind.read(sample)
        name, _, value = str(option).partition("=")
        assert name == kind.name
        assert kind.read(value or None) == option
    assert re.fullmatch(r"[A-Z].*\.", kind.help)


# The catalogue


def test_the_catalogue_has_what_people_know():
    """At least 25 names, each once, listed by family."""
    names = [named.name for named in CATALOGUE.values()]
    assert len(names) >= 25
    assert len({name.lower() for name in names}) == len(names)
    families = list(dict.fromkeys(named.family for named in CATALOGUE.values()))
    assert families == list(FAMILIES)
    assert {"QKV", "GQA", "MQA", "MLA", "Reformer", "ALBERT", "CLA", "RoPE", "ALiBi"} <= {*names}


@every_entry
def test_an_entry_says_what_it_is_and_where_it_comes_from(named):
    """A paragraph and a citation; its text is canonical, and no other entry has it."""
    assert len(named.explanation) > 30
    assert len(named.source) > 10
    assert Variant(named.variant).value == named.variant
    assert names_of(Variant(named.variant)) == [named]


@every_entry
@pytest.mark.parametrize("typed", [str.upper, str.lower, str.title, "  {} ".format])
def test_a_name_is_typed_in_any_case(named, typed):
    """It reads as its text form."""
    assert Variant(typed(named.name)) == named.variant


@every_entry
@pytest.mark.parametrize("task", TASKS)
def test_an_entry_goes_with_the_default_sizes_of_every_task(named, task):
    """So that the Lab can offer it; except those that need one side, where there are two.

    Those are refused with a reason.
    """
    error = refusal(Experiment, task=task, sharing=[named.variant])
    needs_one_side = NEEDS_ONE_SIDE & named.variant.given.keys()
    if needs_one_side and TASKS[task]().n_source:
        (problem,) = error.problems
        assert "not go with an encoder and a decoder" in problem.allowed
    else:
        assert error is None


@pytest.fixture
def catalogue():
    """The catalogue to write in; afterwards it is as it was before."""
    before = dict(CATALOGUE)
    yield CATALOGUE
    CATALOGUE.clear()
    CATALOGUE.update(before)


def test_a_name_of_one_s_own_is_typed_like_any_other(catalogue):
    """Registered with the text only; experiments then know it."""
    named = register("My  Thin GQA", "n_heads=4 d_k=3 kv_heads=2")
    assert named.variant == "QKV n_heads=4 d_k=3 kv_heads=2"
    assert Variant("my thin gqa") == named.variant
    assert Experiment(sharing="MY THIN GQA").sharing == (named.variant,)
    assert names_of(named.variant) == [named]
    assert list(catalogue.values())[-1] is named


def test_a_name_can_be_registered_again(catalogue):
    """With the same text, as when a module is reloaded; it is there once."""
    for _ in range(2):
        register("Mine", "Q=K d_k=3", "explained", "a source")
    assert [named.name for named in catalogue.values()].count("Mine") == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("Reformer", "Q=K", "but attnkit.variants.scores has this name"),
        ("  reFORMER ", "Q=K", "but attnkit.variants.scores has this name"),
        ("q=k", "K=V", "but attnkit.variants.partitions has this name"),
        ("q=k n_heads=2", "K=V", "the text form of another variant"),
        ("K=V keyless=", "K=V keyless", "keys are made from values"),
        ("one, two", "K=V", "without commas"),
        ("  ", "K=V", "without commas"),
        ("Mine", "K=V keyles", "did you mean keyless"),
    ],
)
def test_a_name_that_clashes_is_refused(catalogue, name, text, reason):
    """And nothing is registered."""
    before = dict(catalogue)
    with pytest.raises(ValueError, match=reason):
        register(name, text)
    assert catalogue == before


def test_an_option_of_a_known_name_is_refused():
    """Two meanings of one word would change what links say."""
    before = dict(OPTIONS)

    class Other(Option):
        """Not the one that is there."""

        name = "keyless"
        help = "Something else."

    with pytest.raises(ValueError, match=r"but attnkit\.variants\.keyless\.KeylessOption has this"):
        register_option(Other)
    assert before == OPTIONS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MLA kv_rank=4", "QKV kv_rank=4"),
        ("mqa positions=rope", "QKV n_heads=4 kv_heads=1 positions=rope"),
        ("Shared K=V kv_heads=1", "K=V kv_heads=1"),
        ("mha n_heads=2", "QKV n_heads=2"),
        ("one matrix", "Q=K=V"),
    ],
)
def test_a_name_can_be_extended_and_changed(text, expected):
    """Words after a name of the catalogue are added, or stand in place of its own."""
    assert Variant(text) == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [("K=V+MQA", "K=V + MQA"), ("Reformr", "Reformer"), ("QKV n_head=4", "n_heads")],
)
def test_a_misspelt_name_or_word_is_guessed(text, meant):
    """One suggestion, where there is a near one."""
    with pytest.raises(InvalidVariant, match=re.escape(f"did you mean {meant}?")):
        Variant(text)


def test_a_very_long_text_is_refused_before_its_words_are_looked_at(monkeypatch):
    """Anybody may send one, and looking every name of it up takes minutes."""
    monkeypatch.setattr("attnkit.variants.text.find", None)
    with pytest.raises(InvalidVariant, match="at most 200 characters"):
        Variant("mqa " * 50_000)
