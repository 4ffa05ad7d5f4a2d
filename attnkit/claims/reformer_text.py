"""Reformer's shared-QK attention on text."""

from attnkit.claims.base import Claim, arm, no_worse, register_claim

ARMS = tuple(
    arm(variant, name, task="language", steps=250)
    for variant, name in (
        ("QKV", "QKV"),
        ("K=V", "K=V"),
        ("Q=K", "Q=K"),
        ("Q=K=V", "Q=K=V"),
        ("Q=K unit_key self_mask", "Reformer"),
        ("QKV kv_heads=1", "MQA"),
        ("K=V kv_heads=1", "K=V + MQA"),
        ("QKV self_mask", "QKV, self-mask"),
    )
)

register_claim(
    Claim(
        id="reformer_text",
        title="Reformer's shared Q=K on text",
        question="Does a character model lose anything with Reformer's shared queries and keys?",
        source="Kitaev et al. 2020, arXiv 2001.04451, section 5 (curves on enwik8, no table)",
        says="“A shared query-key space does not perform worse than regular attention.”",
        prediction="It does not hold at this scale: in a prototype Q=K with the self-mask lost "
        "about 0.05 nats.",
        expected="did not hold",
        reason="The self-mask does much of it: see QKV with the self-mask beside it. Why Reformer "
        "is ahead of that, too, after so few steps is unknown; keys of length 1 may do the rest.",
        seen="an earlier run",
        seen_note="A prototype had Q=K with the self-mask losing a little, later untuned runs "
        "losing nothing; a first pass on other seeds came out the other way, and the "
        "prediction was kept although it no longer looked right.",
        arms=ARMS,
        statements=(no_worse("Reformer", "QKV", 0.03, measure="loss"),),
        n_seeds=10,
        family="What papers say",
    )
)
