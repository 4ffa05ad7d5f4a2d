"""Sizes beside a claim: what its runs were trained with, and what their caches hold."""

from small_claims import small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse
from attnkit.evidence.presentation import cache_in_words, claims_in_words
from attnkit.evidence.record import Records
from attnkit.evidence.words import settings_in_words


def test_a_claim_says_with_which_tasks_and_sizes_it_was_tested():
    """A claim names the tasks and sizes of all arms that it compares."""
    assert settings_in_words(CLAIMS["heads_buy_direction"]) == (
        "Directed relation; Entries 8; Layers 1; Heads 1 or 4; Head width 16; Model width 32; "
        "Steps 1,500."
    )
    assert "MLP width 0 or 128" in settings_in_words(CLAIMS["mlp_buys_direction"])
    assert settings_in_words(CLAIMS["ranking"]).startswith("Language; Window 64; Layers 2;")
    for words in claims_in_words(Records({}), CLAIMS.values()):
        told = words.trained_with
        for one in words.claim.compared_arms:
            assert f"{one.experiment.training.steps:,}" in told
            assert one.experiment.task.title in told


def test_sizes_of_caches_are_told_as_far_as_they_differ():
    """Three layers keep keys and values of six numbers; a key can be rotated again."""
    recall = {"task": "mqar", "d_model": 16, "d_head": 6, "n_layers": 3, "positions": "rope"}

    def told(*variants, against="QKV", **settings):
        arms = tuple(arm(variant, **{**recall, **settings}) for variant in (against, *variants))
        return cache_in_words(
            small_claim(arms=arms, statements=[no_worse(one, against) for one in variants])
        )

    twice = told("Q=K=V", against="K=V")
    assert twice == "KV cache: 36 numbers per token, or 18 if computed again at every step."
    assert told("Q=V", positions="none") == "KV cache: 36 numbers per token."
    assert told("K=V", "K=V rotate_values") == (
        "KV cache, numbers per token: QKV: 36; K=V: 36, or 18 if computed again at every step; "
        "K=V rotate_values: 18."
    )
