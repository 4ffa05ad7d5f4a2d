"""The sentences that views of films conclude with: each is said of some film, and holds there."""

import re
from itertools import product

import numpy as np
import pytest

from attnkit.analysis.inspection import lookup, similarity, symmetry
from attnkit.analysis.inspection.lookup import lookup_sentences
from attnkit.analysis.inspection.similarity import alikeness_sentences, head_table
from attnkit.analysis.inspection.symmetry import direction_sentences, table_columns
from attnkit.foundation.words import first_true


@pytest.fixture
def unsaid(monkeypatch):
    """The sentences of the tables of all views that have not been said."""
    modules = (lookup, similarity, symmetry)
    tables = [v for one in modules for v in vars(one).values() if isinstance(v, dict)]
    left = {text for table in tables for text, holds in table.items() if callable(holds)}

    def counted(rows, numbers):
        left.discard(next((text for text, holds in rows.items() if holds(numbers)), ""))
        return first_true(rows, numbers)

    for module in modules:
        monkeypatch.setattr(module, "first_true", counted)
    return left


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


APART, ALIKE, NEAR = (1.36, 0.5), (1.36, 1.36), (1.36, 1.3627)
STATES = [
    (False, 0.4, 0.8, 0.1, 0.98, APART),  # tells the directions apart
    (False, 0.3, 0.1, 0.1, 0.2, APART),
    (True, 0, 0.4, 0.4, 0.5, ALIKE),  # loses the direction
    (True, 0, 0.4, 0.4, 0.52, ALIKE),
    (True, 0, 0.4, 0.4, 0.995, ALIKE),
    (True, 0, 0.5, 0.2, 0.8, ALIKE),
    (False, 1e-3, 0.4, 0.38, 0.5, NEAR),
    (False, 0.99e-5, 0.4, 0.4, 0.6, ALIKE),
    (False, 1.01e-5, 0.4, 0.4, 0.6, NEAR),
    (False, *[np.nan] * 4, ALIKE),  # diverged
]
NAMES = "((?:[A-C](?:, | and )?)+)"


def test_sentences_on_direction_hold_of_every_variant_that_they_name(unsaid):
    """Scores that are called the same are the same; every percentage is of a named variant."""
    drawn = [*product(STATES, repeat=1), *product(STATES, repeat=2)]
    drawn += [(*pair, third) for pair in product(STATES[:3], repeat=2) for third in STATES[:7]]
    for states, step in product(drawn, (0, 600)):
        variants = [(name, *state) for name, state in zip("ABC", states, strict=False)]
        text, rows, breakers = direction(*variants, step=step)
        known = {one[0]: one for one in variants if np.isfinite(one[2])}
        holds = {
            f"{NAMES} scores? Zoe→Eli and Eli→Zoe the same": lambda one: one[2] < 1e-5,
            f"{NAMES} (?:does|do) not tell": lambda one: one[1] and one[5] < 0.7,
            f"{NAMES} tells? the two": lambda one: one[3] > 2 * one[4],
            f"{NAMES} scores? Zoe→Eli and Eli→Zoe differently": lambda one: one[2] > 0.1,
        }
        for pattern, claim in holds.items():
            for names in re.findall(pattern, text):
                assert all(claim(known[name]) for name in re.findall("[A-C]", names)), text
        shown = {f"{min(one[5], 0.99):.0%}" for one in known.values()}
        assert {f"{number}%" for number in re.findall(r"(\d+)(?:%| to)", text)} <= shown, text
        assert not re.search("%" if step == 0 else "before training", text)
        assert ("diverged" in text) == (not known)
        for row, (_, _, error, *_, (_, back)), breaker in zip(
            rows, variants, breakers, strict=True
        ):
            if not np.isnan(error):
                sign, second = row["score Eli→Zoe"].split()
                assert (sign == "=") == (error < 1e-5)
                assert float(second) == pytest.approx(back, abs=1e-3)
                assert ("Nothing breaks" in breaker, "25%" in breaker) == (sign == "=", sign != "=")
    text, rows, _ = direction(("A", *STATES[0]), square=False)
    assert (re.search("%|same", text), "accuracy" in rows[0]) == (None, True)
    twins = direction(("B", *STATES[2]), labels=["Eli", "Eli"], positions=[0, 9])[0]
    assert "Eli (token 1)→Eli (token 10) and Eli (token 10)→Eli (token 1)" in twins
    text, rows, _ = direction(("B", *STATES[2]), pair=None)
    assert ("→" in text, rows[0]["both directions"]) == (False, "= the same")
    assert not unsaid & {*symmetry._CONCLUSIONS, *symmetry._BESIDE}


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


def test_what_vectors_have_in_common_is_told_beside_random_matrices(unsaid):
    """Training is said to change only what it has changed; most pairs are told from all."""
    kinds = {LESS: "less alike than", AS: "as alike as", MORE: "more alike than"}
    for before, pairs in product(product(kinds, repeat=1), product([*kinds, ONE], repeat=3)):
        compared = [pair for pair in pairs if pair is not ONE]
        most = max(kinds, key=compared.count)
        n, n_most = len(compared), compared.count(most)
        for frames in ([[pairs]], [[before * 3], [pairs]]):
            text, _, _ = alikeness(*frames)
            assert ("Before training" in text) == (len(frames) == 1 and n > 0)
            assert ("one matrix" in text) == (not n)
            clear = n and 3 * n_most >= 2 * n
            assert not clear or f"{kinds[most]} random" in text
            assert ("mostly" in text, f"({n_most} of {n} pairs)" in text) == (
                clear and n_most < n,
            ) * 2
            moved = clear and len(frames) == 2 and most not in (AS, before[0])
            assert ("training makes" in text) == bool(moved), text
    assert alikeness([[UNDEFINED] * 3])[0].startswith("Nothing can be compared")
    assert not unsaid & {*similarity._CONCLUSIONS}
    _, cells, (table, _) = alikeness([[ONE, UNDEFINED, (1, 0.7)]])  # why there is no number
    assert cells == [["same matrix", "no token has both", "0.70 ▲"]]
    assert table[0][0][0][3:] == ["0.00 =", "0.30 =", "–", "1.00", "1.00", "0.70 ▲"]


# Attention: variants as (name, weights, class of the answer); the right entry is 1, its answer 4


def looked_up(*variants, step=600, **header):
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


def test_each_variant_is_said_to_answer_as_it_does(unsaid):
    """An answer is right or wrong, whatever the other variants answer; a "but" is a surprise."""
    weights = [[0, 0.98, 0.02], [0.1, 0.44, 0.46], [0.9, 0.1, 0], [0.6, 0.3, 0.1]]
    drawn = [*product(product(weights, (3, 4)), repeat=3), *product(product(weights, (3, 4)))]
    for ones, known in product(drawn, ({}, {"target": -1, "reverse": -1})):
        variants = [(letter, *one) for letter, one in zip("ABC", ones, strict=False)]
        text, _ = looked_up(*variants, **known)
        told = {}
        for clause in text[text.index("): ") + 3 : -1].split("; "):
            whole = re.findall(f"^{NAMES} (?:attend|divide).* answers? (right|wrong)$", clause)
            for who, verdict in whole or re.findall(f"{NAMES} answers? (right|wrong)", clause):
                letters = re.findall("[A-C]", who)
                assert not told.keys() & letters, text
                told |= dict.fromkeys(letters, verdict)
        assert told == {name: "right" if answer == 4 else "wrong" for name, _, answer in variants}
    for one, answer, told in (
        ([0.2, 0.8, 0], 3, r"right entry \(80%\) but answers wrong"),
        ([0.9, 0.1, 0], 4, r"other entries \(10% .*\) but answers right"),
        ([0.4, 0.35, 0.25], 3, r"divides its attention \(35% .*\) and answers wrong"),
    ):
        assert re.search(told, looked_up(("QKV", one, answer))[0])
    without = {"target": -1, "reverse": -1, "right": -1}
    first, second = [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]
    for asked, told in ({}, "(70%) and answers 31."), ({"is_asked": False}, "(70%)."):
        assert looked_up(("QKV", first, 3), **asked, **without)[0].endswith(f"Zoe, 9 {told}")
    quoted = [("QKV", first, 3), ("Q=K", first, 4), ("K=V", second, 3), ("Q=V", second, 4)]
    assert looked_up(*quoted, **without)[0].endswith("answer differently.")
    assert not unsaid & {*lookup._ATTEND, *lookup._ANSWER}


def test_a_finding_says_who_holds_a_wrong_answer_and_which_variant_lacks_the_head():
    """A conclusion leaves out variants that lack the head."""
    _, findings = looked_up(("QKV", [0.2, 0.8, 0], 3))
    numbers = ["80%", "0%", "31 ✗", "75%", "31", "Ada", "0%"]
    assert re.findall(r"\d+%|31 ✗|31|Ada", findings[0]) == numbers
    assert looked_up(("QKV", None, 0))[0].startswith("No variant")
    text, findings = looked_up(("QKV", [0, 1, 0], 4), ("Q=K", None, 0), step=0)
    assert re.match(r"Before training, .*“Zoe: Eli” \(seed 3, Layer 1\): ", text)
    assert "Q=K" not in text
    assert findings[1] == "It has 1 head only."
