"""The text form of variants: read, written, refused; and the catalogue of named ones."""

import copy
import pickle
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import NEEDS_ONE_SIDE
from searching import briefly

from attnkit.experiment.experiment import Experiment, InvalidExperiment
from attnkit.foundation.plugins import import_plugins
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
from attnkit.variants.catalogue import FAMILIES, search
from attnkit.variants.options import CountOption, NumberOption, WidthOption
from attnkit.variants.sharing import Sharing

WIDTHS = st.builds(
    "{}{}".format,
    st.sampled_from(["m", "d", "2m", "3d", "17d", "256m"]),
    st.sampled_from(["", "", "/h", "/1", "/2", "/3", "/17", "/256"]),
) | st.integers(1, 999).map(str)


def words_of(kind):
    """Words of an option as people may type them, from its samples and its whole range."""
    values = st.sampled_from(kind.samples)
    if issubclass(kind, CountOption):
        values |= st.integers(kind.low, kind.high).map(str)
    if issubclass(kind, NumberOption):
        values |= st.floats(kind.low, kind.high).map(repr)
    if issubclass(kind, WidthOption):
        values |= WIDTHS
    return values.map(lambda value: kind.name if value is None else f"{kind.name}={value}")


HEADS = [
    [sharing.value, *("=".join([*roles, "I"]) for roles in identity)]
    for sharing in Sharing
    for identity in ([], *([roles] for roles in sharing.classes))
]
WORDS = st.one_of([words_of(kind) for kind in OPTIONS.values() if kind.samples])
TEXTS = st.tuples(
    st.sampled_from(HEADS),
    st.lists(WORDS, max_size=5, unique_by=lambda word: word.partition("=")[0]),
).map(lambda parts: [*parts[0], *parts[1]])
"""Words of texts: a sharing, perhaps a class that is the token, up to five options."""


def refusal(call, *args, **kwargs):
    """Return the error of a call that is refused, None if it is not; let other errors pass."""
    try:
        call(*args, **kwargs)
    except (InvalidVariant, InvalidExperiment) as error:
        return error
    return None


def test_a_text_has_one_written_form():
    """A text reads as the same variant in any order, case and spacing, or never."""
    n_read = 0

    @given(TEXTS, st.randoms(use_true_random=False))
    @briefly(120)
    def check(words, chance):
        nonlocal n_read
        error = refusal(Variant, text := " ".join(words))
        chance.shuffle(words)
        letters = "  ".join(words)
        typed = "".join(chance.choice([letter.upper(), letter.lower()]) for letter in letters)
        typed = f" {typed}\t"
        if error is not None:
            assert str(error)
            assert refusal(Variant, typed) is not None
            return
        n_read += 1
        variant = Variant(text)
        for again in (Variant(variant.value), Variant(typed)):
            assert again == variant
            assert again.value == variant.value == str(variant)
            parts = (variant.sharing, variant.identity, variant.options)
            assert (again.sharing, again.identity, again.options) == parts

    check()
    assert n_read > 18  # a fifth of what is drawn


ANY_TEXT = st.text() | st.lists(st.text("QKVIO=mdh/_ 019.-e", max_size=9) | WORDS).map(" ".join)


@given(ANY_TEXT | st.none() | st.integers() | st.lists(ANY_TEXT | st.integers() | st.none()))
@briefly(100)
def test_anything_is_a_list_of_variants_or_is_refused(value):
    """No other error is raised, and what is read fits an experiment or is refused with a reason."""
    error = refusal(read_variants, value)
    if error is None:
        assert all(type(variant) is Variant for variant in read_variants(value))
        error = refusal(Experiment, sharing=value)
    assert error is None or str(error)


CANONICAL = """
    V=K=Q → Q=K=V
    QKV I=V → QKV V=I
    QKV V=I K=I → K=V=I
    K=V=I Q=I → Q=K=V=I
    o=i q=k=v=i D_HEAD=M/H → Q=K=V=I O=I d_head=m/h
    SELF_MASK=yes UNIT_KEY K=Q → Q=K unit_key self_mask
    kv_heads=01 QKV n_heads=4 → QKV n_heads=4 kv_heads=1
    QKV kv_rank=2m/8 → QKV kv_rank=m/4
    QKV d_k=2d/2 d_v=d/1 → QKV d_k=d d_v=d
    QKV temperature=4.0 → QKV temperature=4
    tie_by=KEEP_v tie=k=v QKV → QKV tie=K=V tie_by=keep_V
    reformer → Q=K unit_key self_mask
      k=v +  MQA → K=V n_heads=4 kv_heads=1
    MLA kv_rank=4 → QKV kv_rank=4
    mqa positions=rope → QKV n_heads=4 kv_heads=1 positions=rope
"""
"""As typed, with names of the catalogue among it, and as it is written, worked out by hand."""


def test_what_is_typed_has_this_written_form():
    """Each line is one text as typed and as written."""
    for line in CANONICAL.strip("\n").split("\n"):
        typed, _, written = line.partition(" → ")
        assert Variant(typed).value == written, typed


IMPOSSIBLE = """
    unknown ← QKW
    did you mean n_heads? ← QKV n_haeds=2 | QKV n_head=4
    did you mean K=V + MQA? ← K=V+MQA
    did you mean Reformer? ← Reformr
    allowed: QKV, Q=K ←
    two classes: write Q=K=V ← Q=K K=V
    once ← Q=Q
    write Q=K=I ← Q=K K=I
    keyless occurs twice ← QKV keyless keyless
    the bare word ← QKV keyless=3
    a whole number from 1 to 8 ← QKV n_heads | QKV n_heads=0
    a width ← QKV d_head=m/0 | QKV d_head=-3
    a number from 0.01 to 100 ← QKV temperature=0 | QKV temperature=nan
    one of none, learned, rope ← QKV positions=sines
    a number from 1e-05 to 1 ← QKV learning_rate=inf
    a whole number from 2 to 4 ← QKV kv_every=1
    one of Q=K, K=V ← QKV tie=QKV
    kv_from: got 'top', allowed bottom_middle ← QKV kv_from=top
    set n_heads ← Q=K n_heads=4 kv_heads=2 | Q=V n_heads=4 kv_heads=2
    set d_head ← K=V d_k=3 | Q=V d_v=3 | Q=K=V d_k=3 | QKV d_k=3 tie=K=V
    keys are made from values ← K=V keyless | Q=K keyless | QKV K=I keyless | QKV keyless tie=K=V
    queries come from the token ← Q=K kv_rank=3
    would not be narrow ← QKV V=I kv_rank=3
    how keys are computed ← QKV kv_rank=3 keyless | QKV kv_rank=3 k_rank=3
    how keys are computed ← QKV kv_residual=2 kv_rank=3 | K=V shared_half kv_residual=2
    a matrix of their own ← K=V k_rank=3
    must have a matrix ← QKV K=I k_rank=3
    keys must be queries ← QKV signed | K=V skew=2
    does not go with unit_key ← Q=K signed unit_key
    both set the length of keys ← Q=K unit_key qk_norm
    would mix the symmetric and the skew part ← Q=K skew=2 qk_norm
    with K=V and rotated values, values are the keys ← K=V scaled rotate_values
    allowed `only`, or no value ← QKV rotate_values=back
    queries are computed in every layer ← Q=K kv_from=bottom_middle | Q=K kv_every=2
    both choose layers for keys and values ← QKV kv_from=bottom_middle kv_every=2
    queries must not be tied ← Q=K kv_residual=2
    keys and values must have matrices ← QKV K=I kv_residual=2
    several matrices each ← QKV kv_residual=2 tie=K=V
    keys must be tied to values only, K=V ← QKV shared_half
    RoPE rotates the shared half ← K=V shared_half rope_width=2
    two keys per head ← QKV sum diff | QKV sum keyless
    one value ← K=V diff
    both maps would be one ← QKV Q=I sum
    its gains are factors already ← Q=K scaled qk_norm
    QKV ties nothing ← QKV Q=K
    untie nothing ← K=V tie=Q=K
    tie more ← Q=K=V tie=Q=K=V | Q=K start=Q=K
    has no matrix ← QKV V=I tie=K=V d_head=m/h | QKV Q=I start=Q=K
    tie_by needs tie ← QKV tie_by=keep_K
    tie_at needs tie ← QKV tie_at=0.5
    one of average, keep_Q ← QKV tie=Q=K tie_by=keep_O
    not tied there ← QKV tie=Q=K tie_by=keep_V
"""
"""A part of the reason, and texts that are refused for it."""


def test_an_impossible_text_is_refused_with_a_reason():
    """The reason speaks of what is wrong, and Experiment says it as well."""
    for line in IMPOSSIBLE.strip("\n").split("\n"):
        reason, _, texts = line.strip().partition(" ←")
        for text in texts.split("|"):
            assert reason in str(refusal(Variant, text)), text
            error = refusal(Experiment, sharing=[text])
            assert [problem.field for problem in error.problems] == ["sharing"]
            assert reason in str(error), text


def test_a_long_text_is_refused_before_its_words_are_read(monkeypatch):
    """Also one that is long only when it is written out."""
    monkeypatch.setattr("attnkit.variants.text.LONGEST", 18)
    assert "at most 18 characters, and written out it has 21" in str(
        refusal(Variant, "temperature=7.125")
    )
    monkeypatch.undo()
    monkeypatch.setattr("attnkit.variants.text.find", None)  # it would take minutes
    assert "at most 200 characters" in str(refusal(Variant, "mqa " * 50_000))


UNFIT = [
    ("QKV n_heads=4 kv_heads=3", {}, "kv_heads=3 does not divide n_heads=4"),
    ("QKV Q=I", {"n_heads": 3, "d_head": 7}, "3 · 7 is not 32"),
    ("QKV O=I", {"d_head": 7}, "O=I needs n_heads · d_v = d_model"),
    ("QKV d_head=m/h", {"n_heads": 3}, "32/3 here, which is no whole number"),
    ("QKV d_k=d/2", {"d_head": 7}, "7/2 here, which is no whole number"),
    ("QKV", {"d_head": 7, "positions": "rope"}, "an even d_k, not 7"),
    ("Q=K skew=3", {}, "skew=3 is 3 here, allowed an even number"),
    ("Q=K skew=d d_k=d/2", {}, "skew=d is 16 here, allowed an even number up to d_k, which is 8"),
    ("QKV rotate_values", {}, "rotate_values needs positions=rope; positions are none here"),
    ("QKV rope_width=4 positions=learned", {}, "rope_width needs positions=rope; positions"),
    ("QKV rope_width=8 d_k=4", {"positions": "rope"}, "even number up to d_k, which is 4"),
    ("QKV d_v=3 rotate_values", {"positions": "rope"}, "needs an even d_v, not 3"),
    ("K=V shared_half", {"d_head": 7}, "needs a d_k divisible by 2, not 7"),
    ("K=V shared_half", {"d_head": 6, "positions": "rope"}, "divisible by 4, not 6"),
    ("QKV exclusive", {"task": "dictionary"}, "no value of its own among those that it sees"),
    ("QKV exclusive d_v=1", {}, "exclusive needs d_v of at least 2"),
    ("QKV d_head=9m", {}, "allowed 1 to 256"),
    ("QKV n_heads=4 kv_heads=2 sum", {}, "fewer kv_heads than n_heads"),
    ("K=V d_k=3 d_v=5", {}, "tied roles need one shape"),
    ("QKV d_k=3 start=K=V", {}, "matrices of one shape for K, V"),
]
"""A variant, sizes with which it does not go, and a part of the reason."""


def test_a_variant_that_does_not_fit_is_refused_by_the_experiment():
    """It is a variant all the same, so that a link can hold it."""
    for text, sizes, reason in UNFIT:
        value = Variant(text).value
        error = refusal(Experiment, sharing=["QKV n_heads=2 d_head=4", text], **sizes)
        assert reason in str(error), text
        assert [(one.field, one.value) for one in error.problems] == [("sharing", value)]


# A variant is its text


def test_a_partition_is_its_sharing_and_a_copy_of_a_variant_is_one():
    """A partition is a key in the place of its sharing; variants can be sent to processes."""
    for sharing in Sharing:
        variant = Variant(sharing)
        assert ({sharing: 1}[variant], variant.sharing, variant.is_partition) == (1, sharing, True)
    variant = Variant("QKV n_heads=4 kv_heads=1 tie=K=V")
    for again in (copy.deepcopy(variant), pickle.loads(pickle.dumps(variant))):
        assert (type(again), again, again.options) == (Variant, variant, variant.options)


def test_lists_are_read_once_each_and_in_one_order():
    """Partitions come first; doubles and the order given do not matter; what is kept is texts."""
    texts = ["Reformer", "K=V", "q=k self_mask unit_key", "QKV keyless", "QKV"]
    expected = ("QKV", "K=V", "QKV keyless", "Q=K unit_key self_mask")
    for given_as in (texts, texts[::-1], set(texts), ",".join(texts)):
        assert read_variants(given_as) == expected
    assert Experiment(sharing=texts).settings()["sharing"] == list(expected)
    many = [f"QKV temperature={i + 1}" for i in range(101)]
    assert "there are 101, allowed at most 100" in str(refusal(read_variants, many))
    assert len(read_variants(many[:100])) == 100


# The catalogue


def test_an_entry_says_what_it_is_and_goes_with_every_task():
    """Text and name are its own; where an option needs one side, two are refused with a reason."""
    assert list(dict.fromkeys(named.family for named in CATALOGUE.values())) == list(FAMILIES)
    for named in CATALOGUE.values():
        assert min(len(named.explanation) - 20, len(named.source)) > 10, named.name
        assert names_of(Variant(named.variant)) == [named]
        for typed in (named.variant, f"  {named.name.title()} "):
            assert Variant(typed).value == named.variant, typed
        for task in TASKS:
            error = refusal(Experiment, task=task, sharing=[named.variant])
            one_side = NEEDS_ONE_SIDE & named.variant.given.keys() and TASKS[task]().n_source
            assert (error is not None) == bool(one_side), (named.name, task)
            assert not one_side or "not go with an encoder and a decoder" in str(error)


def test_the_catalogue_is_searched_by_name_alias_and_description():
    """By whole words: "linear" once offered learned positions, which have its letters."""
    for query, found in {
        "multi query": ["MQA", "K=V + MQA"],
        "DeepSeek": ["K=V + MQA", "MLA", "MLA with K=V"],
        "gqa": ["GQA", "K=V + GQA", "MHA-4"],
        "2405.12981": ["CLA", "CLA with K=V"],
        "K=V n_heads=4 kv_heads=1": ["K=V + MQA"],
        "own position scheme": ["Learned positions", "RoPE"],
        "linear": ["ALiBi"],
        "no such thing": [],
        " - ": [],
    }.items():
        names = [named.name for named in search(query)]
        assert (names[: len(found)], bool(names)) == (found, bool(found)), query
    assert "Learned positions" not in [named.name for named in search("linear")]


# Names and options of one's own


def test_a_name_of_one_s_own_is_typed_like_any_other(untouched):
    """It may be registered again, as when a module is reloaded."""
    for _ in range(2):
        named = register("My  Thin = GQA", "n_heads=4 d_k=3 kv_heads=2")
    assert named.variant == "QKV n_heads=4 d_k=3 kv_heads=2"
    assert Experiment(sharing="  MY THIN=  gqa").sharing == (named.variant,)
    assert names_of(named.variant) == [one for one in CATALOGUE.values() if one == named] == [named]


def option(**attributes):
    """A new kind of option."""
    return type("Own", (Option,), {"name": "own_word", "help": "It does something.", **attributes})


def test_names_and_options_that_clash_are_refused(untouched):
    """Nothing is registered: two meanings of one word would change what links say."""
    before = dict(CATALOGUE), dict(OPTIONS)
    for name, text, reason in [
        ("  reFORMER ", "Q=K", "but attnkit.variants.scores has this name"),
        ("q=k n_heads=2", "K=V", "the text form of another variant"),
        ("K=V keyless=", "K=V keyless", "keys are made from values"),
        ("one, two", "K=V", "without commas"),
    ]:
        with pytest.raises(ValueError, match=reason):
            register(name, text)
    for attributes, reason in [
        ({"name": "keyless"}, r"but attnkit\.variants\.low_rank\.KeylessOption has this"),
        ({"name": "no help"}, "name: got .*allowed small letters"),
        ({"help": ""}, "help: own_word has none"),
    ]:
        with pytest.raises(ValueError, match=reason):
            register_option(option(**attributes))
    assert before == (CATALOGUE, OPTIONS)


def test_an_option_that_fails_is_told_as_bad_input(untouched):
    """Whatever it raises; the Lab and the command line show the reason."""
    fail = Mock(side_effect=TypeError("not like this"))
    for hook in ("check", "resize", "rewire"):
        OPTIONS.pop("own_word", None)
        register_option(option(**{hook: fail}))
        error = refusal(Experiment, sharing=["QKV own_word"])
        assert "a word of it fails (TypeError: not like this)" in str(error), hook


def test_a_module_that_prints_and_exits_is_a_problem_in_words(tmp_path, monkeypatch, capsys):
    """Nothing of it reaches standard output, where JSON or frames may be written."""
    (tmp_path / "my_rude_variants.py").write_text("print('hello')\nraise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ATTNKIT_MODULES", "my_rude_variants")
    assert import_plugins() == ["ATTNKIT_MODULES: 'my_rude_variants' cannot be imported (3)"]
    assert capsys.readouterr().out == ""
