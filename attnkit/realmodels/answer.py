"""What the atlas says to the question of thread 004, in numbers of its table."""

from __future__ import annotations

import pandas as pd

from attnkit.realmodels.measures import PAIRS

QUESTION = "How similar are the three matrices of an attention head in practice?"

SOURCE = "thread 004"

CAVEATS = (
    "Three models are not a sample: they differ in size, data, age and training at once.",
    "W_V's basis has nothing to do with W_Q's, so a cosine with W_V is an accident of bases; only "
    "overlap, CKA and the best rotation speak of it.",
    "Gains of the norm before attention can be folded into the matrices. That changes pre-norm "
    "models (Whisper, SmolLM2), and MiniLM not at all: it is post-norm.",
    "With rotary positions (SmolLM2) W_Q W_Kᵀ is what tokens at distance 0 see; at other distances "
    "it is another matrix.",
    "SmolLM2's three query heads of a group share one W_K and one W_V: counted per query head, the "
    "same numbers count three times.",
    "SmolLM2 was read from 4-bit weights: that moves cosines by up to 0.004, symmetry by up to "
    "0.009, directionality by up to 0.13.",
    "Cross-attention reads two different streams, so nothing asks W_Q W_Kᵀ to be symmetric: a "
    "control, not a finding.",
    "Alike weights are not alike activations: inputs that vary in few directions make any two "
    "projections look alike.",
)
"""What is not comparable, or not what it seems."""


def answer_004(table: pd.DataFrame) -> tuple[str, str, str]:
    """Three sentences, from the rows of heads as they stand in the models (nothing folded)."""
    heads = table[table["head"].notna() & ~table["folded"] & (table["offset"] == 0)]
    own = heads[heads["kind"] != "cross"]
    cross = heads[heads["kind"] == "cross"]
    groups = own.groupby(["model", "kind"], sort=False)
    means = groups["cos_qk"].mean()
    flat = pd.concat([heads["cos_qv"], heads["cos_kv"]]).abs().mean()
    factors = {
        pair: (groups[f"overlap_{pair}"].mean() / groups[f"overlap_{pair}_random"].mean())
        for pair in PAIRS
    }
    first = (
        f"Related, but far from equal: over {len(own)} self-attention heads of "
        f"{own['model'].nunique()} models the cosine of W_Q and W_K is {_signed(means.min())} to "
        f"{_signed(means.max())} on average (single heads {_signed(own['cos_qk'].min())} to "
        f"{_signed(own['cos_qk'].max())}, chance 0.00)."
    )
    times = {pair: f"{of.min():.1f} to {of.max():.1f}" for pair, of in factors.items()}
    second = (
        f"W_V's cosine with either is at chance ({flat:.3f} in size), but that hangs on bases; by "
        "the directions they read, all three are more alike than random matrices: "
        f"{times['qk']} times the overlap of chance for W_Q and W_K, {times['qv']} for W_Q and "
        f"W_V, {times['kv']} for W_K and W_V."
    )
    layers = table[table["head"].isna() & ~table["folded"] & (table["offset"] == 0)]
    medians = layers.groupby(["model", "kind"])["symmetry"].median()
    both, one = (
        medians[medians.index.get_level_values("kind") == of] for of in ("encoder", "causal")
    )
    third = (
        "Summed over a layer's heads, W_Q W_Kᵀ is more symmetric where tokens look both "
        f"ways (median {_range(both)} of 1) than where they look back ({_range(one)}), and not at "
        f"all in cross-attention, the control ({cross['symmetry'].mean():.2f})."
    )
    return first, second, third


def on_text(table: pd.DataFrame) -> str:
    """One sentence on activations, of the models that were run; "" if none was."""
    ran = table[table["act_cka_qk"].notna() & ~table["folded"] & (table["offset"] == 0)]
    parts = [
        f"{of['act_cka_qk'].mean():.2f} in {model} (random projections of the same inputs: "
        f"{of['act_cka_qk_random'].mean():.2f})"
        for model, of in ran.groupby("model", sort=False)
    ]
    if not parts:
        return ""
    return f"What queries and keys make of text, as CKA: {', '.join(parts)}."


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _range(values: pd.Series[float]) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
