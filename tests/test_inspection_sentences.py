"""The sentences that views of films conclude with, in every situation that a film can be in."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.analysis.inspection.lookup_words import lookup_sentences
from attnkit.analysis.inspection.similarity_words import alikeness_sentences, head_table
from attnkit.analysis.inspection.symmetry_words import direction_sentences, table_columns
from attnkit.foundation.words import named
from attnkit.training.summary import percent, percents

LETTERS = "ABCDEF"
NAMES = "((?:[A-F](?:, | and )?)+)"


def named_in(text, pattern):
    """The places of the variants that a text names where a pattern fits."""
    found = re.findall(pattern.replace("NAMES", NAMES), text)
    return [LETTERS.index(one) for names in found for one in re.findall(r"[A-F](?=, | |$)", names)]


def test_many_names_are_counted_and_shares_are_a_range():
    """Lists that can be read aloud."""
    names = [["A"], ["A", "B"], ["A", "B", "C"], list("ABCDEF")]
    assert list(map(named, names)) == ["A", "A and B", "A, B and C", "6 variants"]
    shares = [[], [0.5], [0.5, np.nan, 0.48], [1, 0.999]]
    assert list(map(percents, shares)) == ["", "50%", "48 to 50%", "99 to 100%"]


# Asymmetry: variants as (name, must, error, right, mirrored, accuracy, scores there and back)

SCORED = (1.36, 1.36)
LOST = ("Q=K", True, 0, 0.47, 0.46, 0.5, SCORED)


def direction(*variants, step=600, **header):
    """Return the sentences about one frame, and the table as {heading: text} of each variant."""
    known = {"square": True, "pair": [0, 1], "labels": ["Zoe", "Eli"], "positions": [0, 1]}
    known |= {"request": {"layer": 0, "head": 0}, "n_masses": 2, "steps": [step], **header}
    known["variants"] = [{"name": name, "n_heads": 1} for name, *_ in variants]
    framed = {"accuracy": np.array([[one[5] for one in variants]])}
    for p, (_, must, error, right, mirrored, _, (there, back)) in enumerate(variants):
        framed |= {
            f"{p}.must": np.array([must]),
            f"{p}.error": np.array([[[error, error]]]),
            f"{p}.a": np.array([[[error**2 / 4]]]),
            f"{p}.mass": np.array([[right, mirrored]]),
            f"{p}.scores": np.array([[[[9, there], [back, 9]]]]),
            f"{p}.positional": np.array([[0.25]]),
        }
    told = direction_sentences(known, framed)
    rows = [dict(zip(table_columns(known), row, strict=True)) for row in told["meaning"][0]]
    return told["conclusion"][0], rows, told["breakers"][0]


@st.composite
def scored(draw):
    """A variant's numbers, near every limit at which a sentence changes."""
    share = st.floats(0, 1)
    error = draw(st.sampled_from([0, 1e-7, 0.99e-5, 1.01e-5, 1e-3, 0.05, 0.4]))
    right, there = draw(share), draw(st.floats(-2, 2))
    mirrored = draw(st.sampled_from([right, draw(share) * (1 - right), np.nan]))
    accuracy = draw(st.sampled_from([0, 0.004, 0.5, 0.994, 0.996, 0.9996, 1, draw(share)]))
    gap = draw(st.sampled_from([0.0002, 0.0027, 0.004, 1])) if error > 1e-5 else 4e-6
    back = there + gap * draw(st.floats(-0.5, 0.5))
    return error < 1e-6 and draw(st.booleans()), error, right, mirrored, accuracy, (there, back)


@given(st.lists(scored(), min_size=1, max_size=4))
@briefly(300)
def test_sentences_on_direction_hold_for_every_variant_that_they_name(drawn):
    """At any number: what is called the same is, and every percentage is that of a variant."""
    variants = [(letter, *numbers) for letter, numbers in zip(LETTERS, drawn, strict=False)]
    text, rows, apart = direction(*variants)
    errors = [one[2] for one in variants]
    assert all(errors[p] < 1e-5 for p in named_in(text, r"NAMES scores? \S+ and \S+ the same"))
    differ = named_in(text, r"NAMES scores? \S+ and \S+ (?:nearly|differently)")
    assert all(errors[p] > 1e-5 for p in differ), text
    if re.match(r"No variant|Both variants|All \d", text):
        assert min(errors) > 1e-5
    tied = [one[1] and one[2] < 1e-5 for one in variants]
    assert ("nothing forces" in text) == (not any(tied) and min(errors) < 1e-5), text
    if min(errors) > 1e-5:
        near = [error < 0.2 for error in errors]
        how = "nearly" if all(near) else "exactly" if any(near) else "differently"
        assert (how if how == "differently" else f"{how} the same") in text, text
    free = [one for one, is_tied in zip(variants, tied, strict=True) if not is_tied]
    tell = [one[3] + one[4] > 0.3 and one[3] > 2 * one[4] for one in free]
    if any(tied) and "not tell" in text:
        rest = free[0][0] if len(free) == 1 else "The others"
        assert (f"{rest} do" in text) == (all(tell) and bool(tell)), text
    for p in named_in(text, "NAMES (?:does|do) not tell"):
        assert abs(variants[p][3] - variants[p][4]) < 0.05
        assert variants[p][5] < 0.7
    assert all(
        variants[p][3] > 2 * variants[p][4]
        for p in named_in(text, "NAMES (?:do(?:es)?:|tells? the)")
    )
    shown = {f"{share}%" for share in re.findall(r"(\d+)(?=%| to \d)", text)}
    assert shown <= {percent(one[5]) for one in variants}
    for row, (*_, (there, back)), told in zip(rows, variants, apart, strict=True):
        sign, second = row["score Eli→Zoe"].split()
        same = row["score Zoe→Eli"] == second
        assert same if sign == "=" else not same or abs(there - back) < 2e-6
        assert told.startswith("Nothing breaks" if sign == "=" else "Farthest apart: ")
        assert ("25%" in told) == (sign != "=")  # the share that all examples have


def test_nothing_is_said_of_what_is_right_before_training_or_without_a_direction():
    """Nor of trainings that diverged."""
    both = [("A", False, 0.4, 0.12, 0.13, 0.03, SCORED), ("B", True, 0, 0.4, 0.4, 0.04, SCORED)]
    for some in (both, both[:1], both[1:]):
        assert "%" not in direction(*some, step=0)[0]
    text, rows, _ = direction(*both, square=False)
    assert not re.search("%|same", text)
    assert (len(rows[0]), "accuracy" in rows[0]) == (3, True)
    text, _, apart = direction(("QKV", False, *[np.nan] * 4, SCORED))
    assert "diverged" in text
    assert "diverged" in apart[0]


def test_tokens_of_one_name_are_told_apart_and_without_a_pair_no_names_are_given():
    """The table has only the columns that a task has."""
    twins = {"labels": ["Eli", "Eli"], "positions": [0, 9]}
    text = direction(LOST, **twins)[0]
    assert "Eli (token 1)→Eli (token 10) and Eli (token 10)→Eli (token 1)" in text
    text, rows, _ = direction(LOST, pair=None)
    assert "→" not in text
    assert "50%" in text
    assert rows[0]["both directions"] == "= the same"
    entry = "attention on the right entry"
    one_mass = direction(LOST, n_masses=1)[1]
    assert list(one_mass[0]) == ["score Zoe→Eli", "score Eli→Zoe", entry, "accuracy"]


# Similarity: per frame, (CKA of weights, CKA of activations) of each variant's three pairs

LESS, AS, MORE, ONE, UNDEFINED = (0.1, 0.2), (0.3, 0.5), (0.5, 0.9), (1, 1), (0.3, np.nan)
ALIKE = {LESS: "less alike than", AS: "as alike as", MORE: "more alike than"}


def alikeness(*frames):
    """Return the sentences about frames at steps 0, 600, …"""
    header = {
        "steps": [600 * frame for frame in range(len(frames))],
        "variants": [{"name": str(p), "n_heads": 1} for p in range(len(frames[0]))],
        "pairs": ["QK", "QV", "KV"],
        "measures": ["cos_weights", "cka_weights", "cka_activations"],
        "notes": [{"has_head": True}] * len(frames[0]),
    }
    limits = np.array([[0, -0.1, 0.1], [0.3, 0.2, 0.4], [0.5, 0.4, 0.6]])
    framed = {}
    for p in range(len(frames[0])):
        alike = [[(float(w == 1), w, a) for w, a in frame[p]] for frame in frames]
        framed[f"{p}.alike"] = np.array(alike, float)
        framed[f"{p}.random"] = np.broadcast_to(limits, (len(frames), 3, 3, 3))
    told = alikeness_sentences(header, framed)
    tables = {f"{p}.table": framed[f"{p}.alike"][-1:][:, None] for p in range(len(frames[0]))}
    tables |= {f"{p}.table_random": limits[None, None].repeat(3, 1) for p in range(len(frames[0]))}
    return told["conclusion"][-1], told["alike"][-1], head_table(header, tables)


def most_of(pairs):
    """How two thirds of the pairs with matrices of their own are; None if they differ."""
    known = [pair for pair in pairs if pair in ALIKE]
    return next((pair for pair in ALIKE if 3 * known.count(pair) >= 2 * len(known) > 0), None)


PAIRS = st.lists(st.sampled_from([*ALIKE, LESS, MORE, ONE, UNDEFINED]), min_size=6, max_size=6)


@given(st.lists(PAIRS, min_size=1, max_size=2))
@briefly(300)
def test_what_vectors_have_in_common_is_told_beside_random_matrices(frames):
    """Training is said to change only what it has changed; most pairs are told from all."""
    text, _, _ = alikeness(*([pairs[:3], pairs[3:]] for pairs in frames))
    last, is_trained = frames[-1], len(frames) > 1
    counts, most = {pair: last.count(pair) for pair in ALIKE}, most_of(last)
    n = sum(counts.values())
    if n == 0:
        assert ("one matrix" in text) == (set(last) == {ONE}), text
        return
    told = {pair: words for pair, words in ALIKE.items() if words.split()[0] + " alike" in text}
    assert text.startswith("Before training") == (not is_trained)
    changed = is_trained and most not in (None, AS, most_of(frames[0]))
    assert ("training makes" in text) == changed, text
    if most is None:
        first, *others = (pair for pair in ALIKE if counts[pair])
        assert set(told) == {first, *others}
        are = "are" if counts[first] > 1 else "is"
        assert f"f {n} pairs" in text
        assert f" {counts[first]} {are} {ALIKE[first]} random" in text
        assert all(f"{counts[pair]} {ALIKE[pair].rsplit(' ', 1)[0]}" in text for pair in others)
    else:
        assert set(told) == {most}
        assert f"{ALIKE[most]} random" in text
        assert (f"mostly {ALIKE[most]}" in text) == (counts[most] < n)
        assert (f"({counts[most]} of {n} pairs)" in text) == (counts[most] < n)


def test_cells_say_why_there_is_no_number():
    """Pairs of roles may be one matrix, or missing, or one matrix with different vectors."""
    _, cells, (table, summary) = alikeness([[ONE, UNDEFINED, (1, 0.7)]])
    assert cells == [["same matrix", "no token has both", "0.70 ▲"]]
    assert table == [[[["1.00", "1.00", "1.00", *table[0][0][0][3:]]]]]
    assert table[0][0][0][3:] == ["0.00 =", "0.30 =", "–", "1.00", "1.00", "0.70 ▲"]
    assert re.findall(r"\d+", summary) == [*"000", *"100", *"000"], summary


# Attention: variants as (name, weights, class of the answer); the right entry is 1, its answer 4


def lookup(*variants, step=600, **header):
    """Return the sentences about one frame."""
    layer = {"title": "Layer 1", "columns": ["Zoe", "Eli", "Ada"]}
    layer["column_titles"] = ["Zoe, 9", "Eli, 14", "Ada, 31"]
    known = {"layer": 0, "row": 0, "target": 1, "reverse": 2, "right": 4, "head": 0}
    known |= {"query_index": 0, "texts": {"3": "31", "4": "14"}, "askable": [{"label": "Zoe: Eli"}]}
    known |= {
        "layers": [layer, {"title": "Layer 2"}],
        "seed": 3,
        "is_asked": True,
        "steps": [step],
        **header,
    }
    known["variants"] = [
        {"name": name, "n_heads": 1, "refusal": "", "lacking": "It has 1 head only."}
        for name, *_ in variants
    ]
    framed = {}
    for p, (_, weights, answer) in enumerate(variants):
        if weights is not None:
            framed[f"{p}.weights"] = np.array([weights])
        if weights is not None and known["is_asked"]:
            framed |= {f"{p}.logits": np.zeros((1, 2)), f"{p}.answers": np.array([[answer]])}
            framed |= {f"{p}.top": np.array([np.log(0.75)]), f"{p}.total": np.zeros(1)}
        framed[f"{p}.mass"] = np.array([[[[0.2, 0.1]], [[0.6, np.nan]]]])
    told = lookup_sentences(known, framed)
    assert {*told["heads"][0]} == {"60% in Layer 2"}
    return told["conclusion"][0], told["finding"][0]


WITHOUT = {"target": -1, "reverse": -1, "right": -1}
SPLIT = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
WEIGHTS = st.one_of(
    st.sampled_from([[0, 0.98, 0.02], [0.1, 0.44, 0.46]]),
    SPLIT.map(lambda cuts: [cuts[0], cuts[1] - cuts[0], 1 - cuts[1]]),
)


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([3, 4])), min_size=1, max_size=6), st.booleans())
@briefly(300)
def test_each_variant_is_said_to_answer_as_it_does(drawn, is_known):
    """An answer is right or wrong, whatever the other variants answer."""
    variants = [(letter, *one) for letter, one in zip(LETTERS, drawn, strict=False)]
    text, _ = lookup(*variants, **({} if is_known else {"target": -1, "reverse": -1}))
    told = {}
    for clause in text[text.index("): ") + 3 : -1].split("; "):
        whole = re.match(f"^{NAMES} (?:attend|divide).* answers? (right|wrong)$", clause)
        for names, verdict in (
            [whole.groups()] if whole else re.findall(f"{NAMES} answers? (right|wrong)", clause)
        ):
            for letter in re.findall("[A-F]", names):
                assert letter not in told, text
                told[letter] = verdict
    right = {letter: answer == 4 for letter, _, answer in variants}
    assert all((verdict == "right") == right[letter] for letter, verdict in told.items()), text
    assert re.search(r"\d variants", text) or len(told) == len(variants)
    for count, verdict in re.findall(r"(\d) variants answer (right|wrong)", text):
        assert sum(one == (verdict == "right") for one in right.values()) >= int(count)


def test_answers_are_told_beside_the_attention():
    """With "but" where they do not follow; the finding says who holds a wrong answer.

    Answers whose right one is not known are quoted; different ones are not told apart.
    """
    for weights, answer, told in (
        ([0.2, 0.8, 0], 3, r"right entry \(80%\) but answers wrong"),
        ([0.9, 0.1, 0], 4, r"other entries \(10% .*\) but answers right"),
        ([0.4, 0.35, 0.25], 3, r"divides its attention \(35% .*\) and answers wrong"),
    ):
        assert re.search(told, lookup(("QKV", weights, answer))[0])
    _, findings = lookup(("QKV", [0.2, 0.8, 0], 3))
    numbers = ["80%", "0%", "31 ✗", "75%", "31", "Ada", "0%"]
    assert re.findall(r"\d+%|31 ✗|31|Ada", findings[0]) == numbers
    text, _ = lookup(("QKV", [0.7, 0.2, 0.1], 3), **WITHOUT)
    assert re.search(r"QKV .* Zoe, 9 \(70%\) and answers 31[.]$", text)
    text, _ = lookup(("QKV", [0.7, 0.2, 0.1], 3), is_asked=False, **WITHOUT)
    assert text.endswith("Zoe, 9 (70%).")
    first, second = [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]
    quoted = [("QKV", first, 3), ("Q=K", first, 4), ("K=V", second, 3), ("Q=V", second, 4)]
    assert lookup(*quoted, **WITHOUT)[0].endswith("answer differently.")
    assert "differently" not in lookup(*quoted[:3], **WITHOUT)[0]


def test_a_lookup_says_what_it_is_of_and_leaves_out_variants_without_the_head():
    """Question, seed and head; before training, too."""
    assert lookup(("QKV", None, 0))[0].startswith("No variant")
    text, findings = lookup(("QKV", [0, 1, 0], 4), ("Q=K", None, 0), step=0)
    assert re.match(r"Before training, .*“Zoe: Eli” \(seed 3, Layer 1\): ", text)
    assert "Q=K" not in text
    assert findings[1] == "It has 1 head only."
