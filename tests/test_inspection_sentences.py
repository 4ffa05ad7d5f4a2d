"""The sentences that views of films conclude with, in every situation that a film can be in."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.analysis.inspection.lookup_words import lookup_sentences
from attnkit.analysis.inspection.similarity_words import alikeness_sentences, head_table
from attnkit.analysis.inspection.symmetry_words import direction_sentences, table_columns

# Asymmetry: variants as (name, must, error, right, mirrored, accuracy, scores there and back)


def direction(*variants, step=600, **header):
    """Return the sentences about one frame, and the table as {heading: text} of each variant."""
    known = {"square": True, "pair": [0, 1], "labels": ["Zoe", "Eli"], "positions": [0, 1]}
    known |= {"request": {"layer": 0, "head": 0}, "n_masses": 2, "steps": [step], **header}
    known["variants"] = [{"name": name, "n_heads": 1} for name, *_ in variants]
    framed = {"accuracy": [[one[5] for one in variants]]}
    for p, (_, must, error, right, mirrored, _, (there, back)) in enumerate(variants):
        own = {"must": must, "error": [[error, error]], "a": [[error**2 / 4]], "positional": [0.25]}
        own |= {"mass": [right, mirrored], "scores": [[[9, there], [back, 9]]]}
        framed |= {f"{p}.{name}": [value] for name, value in own.items()}
    told = direction_sentences(known, {name: np.array(value) for name, value in framed.items()})
    rows = [dict(zip(table_columns(known), row, strict=True)) for row in told["meaning"][0]]
    return told["conclusion"][0], rows, told["breakers"][0]


def test_sentences_on_direction_name_what_holds_for_each_variant():
    """Scores that are called the same are the same; every percentage is of a named variant."""
    apart, alike, near = (1.36, 0.5), (1.36, 1.36), (1.36, 1.3627)
    tells, torn = ("A", False, 0.4, 0.8, 0.1, 0.98, apart), ("E", False, 0.3, 0.1, 0.1, 0.2, apart)
    tied, close = ("B", True, 0, 0.4, 0.4, 0.5, alike), ("C", False, 1e-3, 0.4, 0.38, 0.5, near)
    known = "Zoe→Eli and Eli→Zoe"
    for variants, told in (
        ([tells], f"^A scores {known} differently, .* 98%"),
        ([tells, torn], f"^Both variants score {known} differently"),
        ([tied], f"^B scores {known} the same and does not tell .* 50% [^.]*right[.]$"),
        ([tied, (*tied[:5], 0.52, alike)], "^B and B score .* do not tell .* 50 to 52%"),
        ([tied, tells, torn], "^B scores .* not tell .*: 50% .* A does: 98%"),
        ([tied, torn], f"^B scores {known} the same .*: 50% [^.]*right[.]$"),
        ([close], f"^C scores {known} nearly the same, .* 50%"),
        ([(*close[:2], 0.21, *close[3:])], f"^C scores {known} differently"),
        ([close, tells], "^No variant .* exactly the same: 50 to 98%"),
        ([("D", False, 0.99e-5, *tied[3:])], f"^D scores {known} the same .*nothing forces"),
        ([("D", False, 1.01e-5, *tied[3:])], f"^D scores {known} nearly the same"),
    ):
        text, rows, breakers = direction(*variants)
        assert re.search(told, text), text
        for row, one, breaker in zip(rows, variants, breakers, strict=True):
            _, _, error, *_, (_, back) = one
            sign, second = row["score Eli→Zoe"].split()
            assert (sign == "=") == (error < 1e-5)
            assert float(second) == pytest.approx(back, abs=1e-3)
            assert breaker.startswith("Nothing breaks" if sign == "=" else "Farthest apart: ")
            assert ("25%" in breaker) == (sign != "=")  # the share that all examples have


def test_nothing_is_said_of_what_is_right_before_training_or_without_a_direction():
    """The same holds for trainings that diverged; twins are told apart in words."""
    scored = (1.36, 1.36)
    both = [("A", False, 0.4, 0.12, 0.13, 0.03, scored), ("B", True, 0, 0.4, 0.4, 0.04, scored)]
    for some in (both, both[:1], both[1:]):
        assert "%" not in direction(*some, step=0)[0]
    text, rows, _ = direction(*both, square=False)
    assert not re.search("%|same", text)
    assert (len(rows[0]), "accuracy" in rows[0]) == (3, True)
    text, _, (apart,) = direction(("QKV", False, *[np.nan] * 4, scored))
    assert "diverged" in text
    assert "diverged" in apart
    lost = ("Q=K", True, 0, 0.47, 0.46, 0.5, scored)
    text = direction(lost, labels=["Eli", "Eli"], positions=[0, 9])[0]
    assert "Eli (token 1)→Eli (token 10) and Eli (token 10)→Eli (token 1)" in text
    text, rows, _ = direction(lost, pair=None)
    assert "→" not in text
    assert rows[0]["both directions"] == "= the same"


# Similarity: per frame, (CKA of weights, CKA of activations) of each variant's three pairs

LESS, AS, MORE, ONE, UNDEFINED = (0.1, 0.2), (0.3, 0.5), (0.5, 0.9), (1, 1), (0.3, np.nan)


def alikeness(*frames):
    """Return the sentences about frames at steps 0, 600, …, the cells, and the table of heads."""
    header = {
        "steps": [600 * frame for frame in range(len(frames))],
        "variants": [{"name": str(p), "n_heads": 1} for p in range(len(frames[0]))],
        "pairs": ["QK", "QV", "KV"],
        "measures": ["cos_weights", "cka_weights", "cka_activations"],
        "notes": [{"has_head": True}] * len(frames[0]),
    }
    limits = np.array([[0, -0.1, 0.1], [0.3, 0.2, 0.4], [0.5, 0.4, 0.6]])
    framed, tables = {}, {}
    for p in range(len(frames[0])):
        alike = [[(float(w == 1), w, a) for w, a in frame[p]] for frame in frames]
        framed[f"{p}.alike"] = np.array(alike, float)
        framed[f"{p}.random"] = np.broadcast_to(limits, (len(frames), 3, 3, 3))
        tables[f"{p}.table"] = framed[f"{p}.alike"][-1:][:, None]
        tables[f"{p}.table_random"] = limits[None, None].repeat(3, 1)
    told = alikeness_sentences(header, framed)
    return told["conclusion"][-1], told["alike"][-1], head_table(header, tables)


def test_what_vectors_have_in_common_is_told_beside_random_matrices():
    """Training is said to change only what it has changed; most pairs are told from all."""
    for frames, told, untold in (
        ([[AS] * 6], ["Before training", "as alike as random"], ["training makes", "of 6"]),
        ([[AS] * 6, [MORE] * 6], ["training makes", "more alike than random"], ["mostly"]),
        ([[LESS] * 6, [LESS] * 6], ["less alike than random"], ["training makes", "Before"]),
        ([[AS] * 6, [MORE] * 4 + [AS] * 2], ["mostly more alike", "(4 of 6 pairs)"], ["less"]),
        ([[MORE, AS, LESS] * 2], ["f 6 pairs", " 2 are less alike than random"], ["mostly"]),
        ([[ONE] * 6], ["one matrix"], ["random"]),
        ([[AS, AS, AS, ONE, UNDEFINED, ONE]], ["as alike as random"], ["one matrix", "of 3"]),
    ):
        text, _, _ = alikeness(*([pairs[:3], pairs[3:]] for pairs in frames))
        assert all(one in text for one in told), text
        assert not any(one in text for one in untold), text
    _, cells, (table, _) = alikeness([[ONE, UNDEFINED, (1, 0.7)]])  # why there is no number
    assert cells == [["same matrix", "no token has both", "0.70 ▲"]]
    assert table[0][0][0][3:] == ["0.00 =", "0.30 =", "–", "1.00", "1.00", "0.70 ▲"]


# Attention: variants as (name, weights, class of the answer); the right entry is 1, its answer 4


def lookup(*variants, step=600, **header):
    """Return the conclusion about one frame, and what it finds in each variant."""
    titles = ["Zoe, 9", "Eli, 14", "Ada, 31"]
    layer = {"title": "Layer 1", "columns": ["Zoe", "Eli", "Ada"], "column_titles": titles}
    known = {"layer": 0, "row": 0, "target": 1, "reverse": 2, "right": 4, "head": 0, "seed": 3}
    known |= {"query_index": 0, "texts": {"3": "31", "4": "14"}, "askable": [{"label": "Zoe: Eli"}]}
    known |= {"layers": [layer, {"title": "Layer 2"}], "is_asked": True, "steps": [step], **header}
    others = {"n_heads": 1, "refusal": "", "lacking": "It has 1 head only."}
    known["variants"] = [{"name": name, **others} for name, *_ in variants]
    framed = {}
    for p, (_, weights, answer) in enumerate(variants):
        own = {"mass": [[[0.2, 0.1]], [[0.6, np.nan]]]}
        if weights is not None:
            own["weights"] = weights
            if known["is_asked"]:
                own |= {"logits": [0, 0], "answers": [answer], "top": np.log(0.75), "total": 0}
        framed |= {f"{p}.{name}": np.array([value]) for name, value in own.items()}
    told = lookup_sentences(known, framed)
    assert {*told["heads"][0]} == {"60% in Layer 2"}
    return told["conclusion"][0], told["finding"][0]


CUTS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
WEIGHTS = CUTS.map(lambda cuts: [cuts[0], cuts[1] - cuts[0], 1 - cuts[1]])
WEIGHTS |= st.sampled_from([[0, 0.98, 0.02], [0.1, 0.44, 0.46]])


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([3, 4])), min_size=1, max_size=6), st.booleans())
@briefly(300)
def test_each_variant_is_said_to_answer_as_it_does(drawn, is_known):
    """An answer is right or wrong, whatever the other variants answer."""
    variants = [(letter, *one) for letter, one in zip("ABCDEF", drawn, strict=False)]
    text, _ = lookup(*variants, **({} if is_known else {"target": -1, "reverse": -1}))
    names, told = "((?:[A-F](?:, | and )?)+)", {}
    for clause in text[text.index("): ") + 3 : -1].split("; "):
        whole = re.findall(f"^{names} (?:attend|divide).* answers? (right|wrong)$", clause)
        for who, verdict in whole or re.findall(f"{names} answers? (right|wrong)", clause):
            letters = re.findall("[A-F]", who)
            assert not told.keys() & letters, text
            told |= dict.fromkeys(letters, verdict)
    right = {letter: answer == 4 for letter, _, answer in variants}
    assert all((verdict == "right") == right[letter] for letter, verdict in told.items()), text
    assert re.search(r"\d variants", text) or len(told) == len(variants)
    for count, verdict in re.findall(r"(\d) variants answer (right|wrong)", text):
        assert sum(one == (verdict == "right") for one in right.values()) >= int(count)


def test_answers_are_told_beside_the_attention():
    """A "but" stands where they do not follow; the finding says who holds a wrong answer."""
    for weights, answer, told in (
        ([0.2, 0.8, 0], 3, r"right entry \(80%\) but answers wrong"),
        ([0.9, 0.1, 0], 4, r"other entries \(10% .*\) but answers right"),
        ([0.4, 0.35, 0.25], 3, r"divides its attention \(35% .*\) and answers wrong"),
    ):
        assert re.search(told, lookup(("QKV", weights, answer))[0])
    _, findings = lookup(("QKV", [0.2, 0.8, 0], 3))
    numbers = ["80%", "0%", "31 ✗", "75%", "31", "Ada", "0%"]
    assert re.findall(r"\d+%|31 ✗|31|Ada", findings[0]) == numbers
    without = {"target": -1, "reverse": -1, "right": -1}
    first, second = [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]
    for asked, told in ({}, "(70%) and answers 31."), ({"is_asked": False}, "(70%)."):
        assert lookup(("QKV", first, 3), **asked, **without)[0].endswith(f"Zoe, 9 {told}")
    quoted = [("QKV", first, 3), ("Q=K", first, 4), ("K=V", second, 3), ("Q=V", second, 4)]
    assert lookup(*quoted, **without)[0].endswith("answer differently.")
    assert lookup(("QKV", None, 0))[0].startswith("No variant")
    text, findings = lookup(("QKV", [0, 1, 0], 4), ("Q=K", None, 0), step=0)
    assert re.match(r"Before training, .*“Zoe: Eli” \(seed 3, Layer 1\): ", text)
    assert "Q=K" not in text
    assert findings[1] == "It has 1 head only."
