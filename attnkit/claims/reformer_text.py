"""Shared queries and keys on text, with and without the self-mask."""

from attnkit.claims.base import Claim, arm, no_worse, register_claim, worse

UP_TO = 8
"""The models are read after 4,800 steps, far below the line of letter pairs (bigrams)."""

ARMS = tuple(
    arm(variant, name, task="language", steps=600, up_to=UP_TO, tuned_at=2)
    for variant, name in (
        ("QKV", "QKV"),
        ("K=V", "K=V"),
        ("Q=K", "Q=K"),
        ("Q=K=V", "Q=K=V"),
        ("Q=K unit_key self_mask", "Reformer"),
        ("QKV kv_heads=1", "MQA"),
        ("K=V kv_heads=1", "K=V + MQA"),
        ("QKV self_mask", "QKV, self-mask"),
        ("Q=K self_mask", "Q=K, self-mask"),
    )
)

register_claim(
    Claim(
        id="reformer_text",
        title="Reformer's shared Q=K is no worse than QKV on text",
        question="Does a character model lose anything with Reformer's shared queries and keys?",
        source="Kitaev et al. 2020, arXiv 2001.04451, section 5 (curves on enwik8, no table)",
        says="“A shared query-key space does not perform worse than regular attention.”",
        prediction="It holds: after 600 steps Q=K with the self-mask was ahead of QKV in an audit.",
        expected="held",
        seen="an earlier run",
        seen_note="An earlier record stopped after 250 steps, before models knew more than letter "
        "pairs, and said that it holds. An audit with four seeds and 600 steps said the same.",
        arms=ARMS,
        statements=(no_worse("Reformer", "QKV", 0.03, measure="loss", at=UP_TO),),
        n_seeds=10,
        family="What papers say",
    )
)

register_claim(
    Claim(
        id="self_mask_text",
        title="On text, Q=K falls behind QKV only without the self-mask",
        question="Q=K is worse than QKV on text. Is it the sharing, or that a token finds itself?",
        source="attnkit's own, after Kitaev et al. 2020, arXiv 2001.04451, section 2",
        says="With the self-mask in both, Q=K loses nothing; without it in either, it does.",
        prediction="It holds: in an audit of 600 steps Q=K without the self-mask lost 0.4 nats, "
        "and with it gained 0.08 on QKV without it. QKV with the self-mask was not in the audit; "
        "it should be about as good as without.",
        expected="held",
        seen="an earlier run",
        seen_note="An audit with four seeds and 600 steps had shown three of the four arms.",
        arms=ARMS,
        statements=(
            worse("Q=K", "QKV", 0.03, measure="loss", at=UP_TO),
            no_worse("Q=K, self-mask", "QKV, self-mask", 0.03, measure="loss", at=UP_TO),
        ),
        n_seeds=10,
        family="Our own",
    )
)
