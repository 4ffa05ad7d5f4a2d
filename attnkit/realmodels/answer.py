"""What the atlas says to the question of thread 004, in numbers of its table."""

from __future__ import annotations

import math

import pandas as pd

from attnkit.realmodels.base import Kind

QUESTION = "How similar are the three matrices of an attention head in practice …?"

SOURCE = "Hans-Peter Stricker, Stack Exchange"

_CLEAR = 2.0
"""Standard errors by which a mean differs from chance before words say so."""


def answer_004(table: pd.DataFrame) -> tuple[str, str, str]:
    """Three sentences, from the rows of heads as they stand in the models (nothing folded)."""
    rows = as_they_stand(table)
    heads, layers = rows[rows["head"].notna()], rows[rows["head"].isna()]
    own = heads[heads["kind"] != Kind.CROSS]
    groups = own.groupby(["model", "kind"], sort=False)
    means = groups["cos_qk"].mean()
    n_models = own["model"].nunique()
    first = (
        f"Related, but far from equal: over {len(own)} self-attention heads of {n_models} models "
        f"the cosine of W_Q and W_K is {_signed(means.min())} to {_signed(means.max())} on average "
        f"(single heads {_signed(own['cos_qk'].min())} to {_signed(own['cos_qk'].max())}, chance "
        "0.00)."
    )
    once = own.drop_duplicates(["model", "kind", "layer", "kv_head"])
    sizes = pd.concat([_size(own, "qv"), _size(once, "kv")])
    overlaps = {
        pair: (of.groupby(["model", "kind"])[f"overlap_{pair}"].mean())
        / of.groupby(["model", "kind"])[f"overlap_{pair}_random"].mean()
        for pair, of in {"qk": own, "qv": own, "kv": once}.items()
    }
    times = {pair: f"{of.min():.1f} to {of.max():.1f}" for pair, of in overlaps.items()}
    second = (
        f"W_V's cosine with either is close to 0 (mean size {_range(sizes['size'], 3)}; random "
        f"matrices {_range(sizes['chance'], 3)}), but that number depends on an arbitrary choice "
        "of basis; by the directions they read, W_Q and W_K overlap "
        f"{times['qk']} times as much as random matrices, W_Q and W_V {times['qv']} times, W_K and "
        f"W_V {times['kv']} times."
    )
    medians = {
        kind: of.groupby("model")["symmetry"].median() for kind, of in layers.groupby("kind")
    }
    found = [
        f"{_range(medians[kind])} {words}" for kind, words in _LOOKING.items() if kind in medians
    ]
    third = (
        "W_Q W_Kᵀ of a whole layer (symmetry 0 when random, 1 when symmetric) has a median of "
        f"{', '.join(found)}."
    )
    return first, second, third


def caveats(table: pd.DataFrame) -> tuple[str, ...]:
    """What is not comparable, or not what it seems; in sentences."""
    return (
        "Three models are not a sample: they differ in size, data, age and training at once.",
        "W_V's basis has nothing to do with W_Q's: a turn of it, undone in W_O, leaves the model "
        "as it is and changes every cosine with W_V. Overlap, CKA and the best rotation do not see "
        "it.",
        "Gains of the norm before attention can be folded into the matrices; a post-norm model has "
        f"none.{_folding(table)} Chance is then that of random matrices with the same gains.",
        "With rotary positions (SmolLM2) W_Q W_Kᵀ is what tokens at distance 0 see. At other "
        "distances its symmetry exchanges what two tokens are, but not their places, so it is no "
        "longer that of the scores.",
        "SmolLM2's three query heads of a group share one W_K and one W_V: counted per query head, "
        "the same numbers count three times.",
        "SmolLM2 was read from 4-bit weights: that moves cosines by up to 0.004, symmetry by up to "
        "0.009, directionality by up to 0.13.",
        "Cross-attention reads two different streams, so nothing asks W_Q W_Kᵀ to be symmetric: a "
        "control, not a finding.",
        "Alike weights are not alike activations: text varies in few directions, and even random "
        "projections of it look alike. Trained ones may be more alike than those, or less.",
    )


def _folding(table: pd.DataFrame) -> str:
    """Where folding moves the symmetry of layers most; "" where nothing was folded."""
    layers = table[table["head"].isna() & (table["offset"] == 0)]
    before, after = (
        layers[layers["folded"] == folded].groupby(["model", "kind"])["symmetry"].median()
        for folded in (False, True)
    )
    moved = (after - before).abs().dropna().sort_values()
    if moved.empty:
        return ""
    model, kind = moved.index[-1]
    values = f"{_number(before[model, kind])} to {_number(after[model, kind])}"
    return f" In the {kind} layers of {model} it takes the median symmetry from {values}."


_LOOKING = {
    Kind.ENCODER: "where tokens look both ways",
    Kind.CAUSAL: "where they look back",
    Kind.CROSS: "in cross-attention, where nothing asks for symmetry",
}


def on_text(table: pd.DataFrame) -> str:
    """One sentence on activations, of the models that were run; "" if none was."""
    rows = as_they_stand(table)
    ran = rows[rows["act_cka_qk"].notna()]
    parts = [
        f"{of['act_cka_qk'].mean():.2f} in {model}, {_against_chance(of)} random projections of "
        f"the same inputs ({of['act_cka_qk_random'].mean():.2f})"
        for model, of in ran.groupby("model", sort=False)
    ]
    return f"The CKA of queries and keys on text: {'; '.join(parts)}." if parts else ""


def _against_chance(heads: pd.DataFrame) -> str:
    """In words, whether the heads of a model are alike by more than chance."""
    away = heads["act_cka_qk"] - heads["act_cka_qk_random"]
    errors = float(away.mean() / (away.std() / len(away) ** 0.5))
    if abs(errors) < _CLEAR:
        return "as alike as"
    return "more alike than" if errors > 0 else "less alike than"


def summary(table: pd.DataFrame) -> str:
    """A table per model and kind, as in the project's notes: means, ranges, and chance."""
    lines = [
        "| model, kind (heads) | cosine Q,K mean [range] | mean size of cosine Q,V; K,V "
        "| overlap QK/QV/KV (chance) | symmetry of heads mean [range] "
        "| symmetry of layers median [range] |",
        "|---|---|---|---|---|---|",
    ]
    for (model, kind, folded, offset), rows in table.groupby(
        ["model", "kind", "folded", "offset"], sort=False
    ):
        heads, layers = rows[rows["head"].notna()], rows[rows["head"].isna()]
        named = f"{model} {kind}" + (" folded" if folded else "")
        named += f" offset {offset}" if offset else ""
        overlaps = "/".join(f"{heads[f'overlap_{pair}'].mean():.3f}" for pair in ("qk", "qv", "kv"))
        lines.append(
            f"| {named} ({len(heads)}) | {_mean(heads['cos_qk'])} "
            f"| {heads['cos_qv'].abs().mean():.3f}; {heads['cos_kv'].abs().mean():.3f} "
            f"| {overlaps} ({heads['overlap_qk_random'].mean():.3f}) "
            f"| {_mean(heads['symmetry'])} "
            f"| {_number(layers['symmetry'].median())} {_between(layers['symmetry'])} |"
        )
    return "\n".join(lines)


def _mean(values: pd.Series[float]) -> str:
    return f"{_number(values.mean(), 3)} {_between(values)}"


def _between(values: pd.Series[float]) -> str:
    return f"[{_number(values.min())}, {_number(values.max())}]"


def _number(value: float, digits: int = 2) -> str:
    """With a true minus, but not before a zero."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def as_they_stand(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with nothing folded, at distance 0."""
    return table[~table["folded"] & (table["offset"] == 0)]


def _size(heads: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Mean size of a cosine by model and kind, and that of a normal distribution of chance's SD."""
    groups = heads.groupby(["model", "kind"], sort=False)
    size = groups[f"cos_{pair}"].agg(lambda values: values.abs().mean())
    chance = groups[f"cos_{pair}_random_sd"].mean() * math.sqrt(2 / math.pi)
    return pd.DataFrame({"size": size, "chance": chance})


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _range(values: pd.Series[float], digits: int = 2) -> str:
    low, high = (_number(value, digits) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
