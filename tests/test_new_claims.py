"""Claims that nobody had tested: their order, and the caches of what they compare."""

from dataclasses import replace

from small_claims import made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse
from attnkit.evidence import new_claims
from attnkit.evidence.new_claims import OPEN, TRUE, WRONG, cache_in_words, new_records
from attnkit.evidence.record import load_shipped, verdicts_of

RECALL = {"task": "mqar", "d_model": 16, "d_head": 6, "n_layers": 3, "positions": "rope"}


def compared(*variants, **settings):
    """Return a claim that compares variants with QKV."""
    arms = tuple(arm(variant, **{**RECALL, **settings}) for variant in ("QKV", *variants))
    return small_claim(arms=arms, statements=tuple(no_worse(one, "QKV") for one in variants))


def test_failed_predictions_come_first(monkeypatch):
    """Undecided ones come last, expected or not; what is not new or was not run is left out."""
    known = small_claim(n_seeds=6)
    made = {
        "old": known,
        "open": replace(known, is_new=True),
        "expected": replace(known, is_new=True, expected="undecided"),
        "right": replace(known, is_new=True),
        "wrong": replace(known, is_new=True, expected="did not hold"),
        "unrun": replace(known, is_new=True),
    }
    claims = {name: replace(claim, id=name) for name, claim in made.items()}
    monkeypatch.setattr(new_claims, "CLAIMS", claims)
    records = {name: made_up(claims[name]) for name in claims if name != "unrun"}
    undecided = dict.fromkeys(("open", "expected"), "undecided")
    verdicts = dict.fromkeys(records, "held") | undecided
    found = new_records(records, verdicts)
    names = {outcome: [one.claim.id for one in ones] for outcome, ones in found.items()}
    expected = [(WRONG, ["wrong"]), (TRUE, ["right"]), (OPEN, ["open", "expected"])]
    assert list(names.items()) == expected


def test_sizes_of_caches_are_told_as_far_as_they_differ():
    """Three layers keep keys and values of six numbers each.

    K=V before rotation keeps both vectors, or one from which it rotates the key again.
    """
    assert cache_in_words(compared("Q=V", positions="none")) == "KV cache: 36 numbers per token."
    assert cache_in_words(compared("K=V", "K=V rotate_values")) == (
        "KV cache, numbers per token: QKV: 36; K=V: 36, or 18 if computed again at every step; "
        "K=V rotate_values: 18."
    )


def test_every_shipped_record_of_a_new_claim_is_listed_once():
    """The list holds wrong, right and undecided predictions."""
    records = load_shipped()
    found = new_records(records, verdicts_of(records.values()))
    listed = sorted(one.claim.id for ones in found.values() for one in ones)
    assert listed == sorted(name for name in records if CLAIMS[name].is_new)
