"""Claims that nobody had tested: their order, and the caches of what they compare."""

from dataclasses import replace

from small_claims import made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse
from attnkit.evidence.new_claims import OUTCOMES, cache_in_words, new_records
from attnkit.evidence.record import load_shipped, verdicts_of

RECALL = {"task": "mqar", "d_model": 16, "d_head": 6, "n_layers": 3, "positions": "rope"}


def compared(*variants, **settings):
    """Return evidence of a claim that compares variants with QKV."""
    arms = tuple(arm(variant, **{**RECALL, **settings}) for variant in ("QKV", *variants))
    statements = tuple(no_worse(variant, "QKV") for variant in variants)
    return made_up(small_claim(arms=arms, statements=statements))


def test_failed_predictions_come_first(monkeypatch):
    """Undecided ones come last; claims that are not new, or have no record, are left out."""
    known = small_claim(n_seeds=6)
    made = {
        "old": known,
        "open": replace(known, is_new=True),
        "right": replace(known, is_new=True),
        "wrong": replace(known, is_new=True, expected="did not hold"),
        "unrun": replace(known, is_new=True),
    }
    for name in list(CLAIMS):
        monkeypatch.delitem(CLAIMS, name)
    for name, claim in made.items():
        monkeypatch.setitem(CLAIMS, name, replace(claim, id=name))
    records = {name: made_up(CLAIMS[name]) for name in made if name != "unrun"}
    verdicts = dict.fromkeys(records, "held") | {"open": "undecided"}
    found = new_records(records, verdicts)
    assert list(found) == list(OUTCOMES)
    names = [[record.claim.id for record in found[outcome]] for outcome in OUTCOMES]
    assert names == [["wrong"], ["right"], ["open"]]


def test_one_size_of_all_caches_is_told_once():
    """Three layers keep keys and values of six numbers each."""
    assert cache_in_words(compared("Q=V", positions="none")) == (
        "KV cache: 36 numbers per token with every variant."
    )


def test_caches_that_can_be_computed_again_have_two_sizes():
    """K=V before rotation keeps both vectors, or one from which it rotates the key again."""
    assert cache_in_words(compared("K=V", "K=V rotate_values")) == (
        "KV cache, numbers per token: 36 (QKV), 36 or, if recomputed at each step, 18 (K=V), "
        "18 (K=V rotate_values)."
    )


def test_the_shipped_record_decides_at_least_six_new_claims():
    """Fewer would not be worth a view of their own."""
    records = load_shipped()
    found = new_records(records, verdicts_of(records.values()))
    assert sum(len(found[outcome]) for outcome in OUTCOMES[:2]) >= 6
