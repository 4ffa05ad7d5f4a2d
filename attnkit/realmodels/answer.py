"""Summary of the atlas in sentences and a table: how similar W_Q, W_K and W_V are."""

from __future__ import annotations

import math

import pandas as pd

from attnkit.foundation.tables import markdown_table, markdown_text
from attnkit.realmodels.atlas import K_IS_V, KV_PLACE, Q_IS_K
from attnkit.realmodels.base import Kind
from attnkit.realmodels.measures import PAIRS
from attnkit.training.summary import fixed

QUESTION = "How similar are the three matrices of an attention head in practice …?"

SOURCE = "Hans-Peter Stricker, Stack Exchange"

_MIN_STANDARD_ERRORS = 2.0
"""Distance from the random level, in standard errors, from which a mean counts as different."""


_FAR = 0.5
"""Share of the way from random to equal matrices below which an overlap is far from equal."""

_COUNTS = ("no", "one", "two", "three", "four", "five", "six")


def conclusion(table: pd.DataFrame) -> str:
    """Return one sentence on how related the matrices are in self-attention, with nothing folded.

    Related means that the directions that two matrices read overlap more than those of random
    matrices, on average over the heads of a model's layers of one kind.
    """
    heads, kv_heads = _self_attention(table)
    if heads.empty:
        return "None of these models has self-attention."
    q_k, q_v, k_v = (_overlaps(heads, kv_heads, pair) for pair in ("qk", "qv", "kv"))
    n_models = heads["model"].nunique()
    count = _COUNTS[n_models] if n_models < len(_COUNTS) else str(n_models)
    models = f"{count} real model{'s' * (n_models > 1)}"
    n_related = int(q_k["related"].sum())
    if (heads["tied"] == Q_IS_K).all():
        keys = "Q and K are tied: one matrix serves as W_Q and as W_K"
    elif n_related == len(q_k):
        far = ", but far from equal" if (q_k["position"] < _FAR).all() else ""
        keys = f"W_Q and W_K are related{far}"
    elif n_related:
        keys = f"W_Q and W_K are related in {n_related} of {len(q_k)} kinds of layers"
    else:
        keys = "W_Q and W_K are as unrelated as random matrices"
    if q_v.empty:
        values = "W_K serves as W_V"
    elif not (q_v["related"].any() or k_v["related"].any()):
        values = "W_V is unrelated to both"
    elif all((other["position"] < q_k["position"]).all() for other in (q_v, k_v)):
        values = "W_V is less related to either of them"
    else:
        values = "in some layers, W_V is related to one of them at least as much"
    return f"In the self-attention of {models}, {keys}; {values}."


def overlap_line(table: pd.DataFrame) -> str:
    """Return the numbers behind `conclusion`: overlaps as multiples of random matrices'."""
    heads, kv_heads = _self_attention(table)
    if heads.empty:
        return ""
    ranges = [
        f"{names} {_range(_overlaps(heads, kv_heads, pair)['ratio'], 1)}"
        for pair, names in PAIRS.items()
    ]
    return (
        "Overlap of the directions that they read, in multiples of that of random matrices: "
        f"{', '.join(ranges)}."
    )


def _self_attention(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the heads of self-attention as they stand, and one row per key and value head."""
    rows = as_they_stand(table)
    heads = rows[rows["head"].notna() & (rows["kind"] != Kind.CROSS)]
    return heads, heads.drop_duplicates(KV_PLACE)


def _overlaps(heads: pd.DataFrame, kv_heads: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Return the mean overlap of a pair of matrices, a row per model and kind of layer.

    Heads without a value are left out, such as those whose W_K serves as W_V.

    Returns:
        `ratio`, to random matrices; `position`, from 0 for random to 1 for equal matrices; and
        `related`, whether it is above that of random matrices by more than chance.
    """
    rows = kv_heads if pair == "kv" else heads
    rows = rows[rows[f"overlap_{pair}"].notna()]
    records = {}
    for group, members in rows.groupby(["model", "kind"], sort=False):
        random = float(members[f"overlap_{pair}_random"].mean())
        above = members[f"overlap_{pair}"] - members[f"overlap_{pair}_random"]
        records[group] = {
            "ratio": float(members[f"overlap_{pair}"].mean()) / random,
            "position": float(above.mean()) / (1 - random) if random < 1 else 0.0,
            "related": _standard_errors(above) >= _MIN_STANDARD_ERRORS,
        }
    columns = ["ratio", "position", "related"]
    return pd.DataFrame.from_dict(records, orient="index", columns=columns)


def _standard_errors(differences: pd.Series[float]) -> float:
    """Return how many standard errors the mean of some differences is above 0."""
    standard_error = float(differences.std() / len(differences) ** 0.5)
    return float(differences.mean()) / standard_error if standard_error > 0 else math.nan


def answer_sentences(table: pd.DataFrame) -> tuple[str, str, str]:
    """Return three sentences on the cosines, the overlaps and the symmetry, with nothing folded."""
    heads, kv_heads = _self_attention(table)
    rows = as_they_stand(table)
    layers = rows[rows["head"].isna()]
    return _cosine_sentence(heads), _overlap_sentence(heads, kv_heads), _symmetry_sentence(layers)


def _cosine_sentence(heads: pd.DataFrame) -> str:
    cosines = heads["cos_qk"]
    means = heads.groupby(["model", "kind"], sort=False)["cos_qk"].mean()
    n_models = heads["model"].nunique()
    return (
        f"W_Q and W_K are related, but far from equal: in {len(heads)} self-attention heads of "
        f"{n_models} model{'s' * (n_models > 1)}, their mean cosine is "
        f"{fixed(means.min(), 2, '+')} to "
        f"{fixed(means.max(), 2, '+')}, depending on the model and the kind of layer (single heads "
        f"{fixed(cosines.min(), 2, '+')} to {fixed(cosines.max(), 2, '+')}, random matrices 0.00)."
    )


def _overlap_sentence(heads: pd.DataFrame, kv_heads: pd.DataFrame) -> str:
    sizes = pd.concat([_sizes(heads, "qv"), _sizes(kv_heads, "kv")])
    ratios = {pair: _range(_overlaps(heads, kv_heads, pair)["ratio"], 1) for pair in PAIRS}
    return (
        "The cosine of W_V with either of them is close to 0 (mean absolute value "
        f"{_range(sizes['size'], 3)}; random matrices {_range(sizes['random'], 3)}), but this "
        "depends on an arbitrary choice of basis. The overlap of the directions that the matrices "
        f"read does not: for W_Q and W_K it is {ratios['qk']} times that of random matrices, for "
        f"W_Q and W_V {ratios['qv']} times, for W_K and W_V {ratios['kv']} times."
    )


def _symmetry_sentence(layers: pd.DataFrame) -> str:
    medians = {
        kind: rows.groupby("model")["symmetry"].median() for kind, rows in layers.groupby("kind")
    }
    ranges = [
        f"{_range(medians[kind])} {where}" for kind, where in _WHERE.items() if kind in medians
    ]
    return (
        "The symmetry of W_Q W_Kᵀ of a whole layer (0 if random, 1 if symmetric) has a median of "
        f"{', '.join(ranges)}."
    )


_WHERE = {
    Kind.ENCODER: "where tokens attend in both directions",
    Kind.CAUSAL: "where they attend backwards only",
    Kind.CROSS: "in cross-attention, where nothing favours symmetry",
}


def caveats(table: pd.DataFrame) -> tuple[str, ...]:
    """Return sentences on what cannot be compared, or is easily misread."""
    return (
        "Three models are too few for general conclusions: they differ in size, data, age and "
        "training at the same time.",
        "The basis of W_V has nothing to do with that of W_Q: a rotation of it that is undone in "
        "W_O does not change the model, but changes every cosine with W_V. Overlap, CKA and "
        "best-rotation cosine stay the same.",
        "Gains of the norm before attention can be folded into the matrices; a post-norm model has "
        f"none.{_folding(table)} The random matrices beside them then have the same gains.",
        "With rotary positions (SmolLM2), W_Q W_Kᵀ gives the scores of tokens at distance 0. At "
        "other distances its symmetry exchanges two tokens, but not their positions, so it is no "
        "longer the symmetry of the scores.",
        "In SmolLM2, three query heads share one W_K and one W_V: counted per query head, the same "
        "matrices count three times.",
        "SmolLM2 was read from 4-bit weights. This changes cosines by up to 0.004, symmetry by up "
        "to 0.009 and directionality by up to 0.13.",
        "Cross-attention reads two different streams, so nothing favours a symmetric W_Q W_Kᵀ: it "
        "is a control, not a finding.",
        "Similar weights are not the same as similar activations: text varies in few directions, "
        "so that even random projections of it are similar. Trained projections may be more or "
        "less similar than those.",
    )


def _folding(table: pd.DataFrame) -> str:
    """Return a sentence on where folding changes the symmetry most; "" if nothing is folded."""
    layers = table[table["head"].isna() & (table["offset"] == 0)]
    before, after = (
        layers[layers["folded"] == folded].groupby(["model", "kind"])["symmetry"].median()
        for folded in (False, True)
    )
    changes = (after - before).abs().dropna().sort_values()
    if changes.empty:
        return ""
    model, kind = changes.index[-1]
    values = f"{fixed(before[model, kind], 2)} to {fixed(after[model, kind], 2)}"
    return f" In the {kind} layers of {model}, this changes the median symmetry from {values}."


def cka_on_text(table: pd.DataFrame) -> str:
    """Return a sentence on the activations of the models that were run; "" if none was."""
    rows = as_they_stand(table)
    heads = rows[rows["act_cka_qk"].notna()]
    phrases = [
        f"{of_model['act_cka_qk'].mean():.2f} in {model}, {_compared_with_random(of_model)} for "
        f"random projections of the same inputs ({of_model['act_cka_qk_random'].mean():.2f})"
        for model, of_model in heads.groupby("model", sort=False)
    ]
    return f"The CKA of queries and keys on text: {'; '.join(phrases)}." if phrases else ""


def _compared_with_random(heads: pd.DataFrame) -> str:
    """Return "higher than", "lower than" or "as high as", for the CKA of a model's activations."""
    differences = heads["act_cka_qk"] - heads["act_cka_qk_random"]
    distance = _standard_errors(differences)
    if abs(distance) < _MIN_STANDARD_ERRORS:
        return "as high as"
    return "higher than" if distance > 0 else "lower than"


def summary(table: pd.DataFrame) -> str:
    """Return a Markdown table with means and ranges per model and kind of layer."""
    head = (
        "model, kind (heads)",
        "cosine Q,K mean [range]",
        "mean size of cosine Q,V; K,V",
        "overlap QK/QV/KV (chance)",
        "symmetry of heads mean [range]",
        "symmetry of layers median [range]",
    )
    lines = []
    for (model, kind, folded, offset), rows in table.groupby(
        ["model", "kind", "folded", "offset"], sort=False
    ):
        heads, layers = rows[rows["head"].notna()], rows[rows["head"].isna()]
        name = f"{markdown_text(str(model))} {kind}" + (" folded" if folded else "")
        name += f" offset {offset}" if offset else ""
        overlaps, chances = (
            [fixed(heads[name.format(pair)].mean(), 3) for pair in PAIRS]
            for name in ("overlap_{}", "overlap_{}_random")
        )
        # They differ if heads of one width have no W_V, so that their overlap with V is missing.
        chances = chances[:1] if len(set(chances)) == 1 else chances
        sizes = (fixed(heads[f"cos_{pair}"].abs().mean(), 3) for pair in ("qv", "kv"))
        name += f" ({len(heads)})" + "".join(
            f", {words} in {share}"
            for tied, words in TIED.items()
            if (share := tied_layers(rows, tied))
        )
        cells = [name, _mean_and_interval(heads["cos_qk"]), "; ".join(sizes)]
        cells += [f"{'/'.join(overlaps)} ({'/'.join(chances)})"]
        cells += [_mean_and_interval(heads["symmetry"])]
        cells += [f"{fixed(layers['symmetry'].median(), 2)} {_interval(layers['symmetry'])}"]
        lines.append(cells)
    return markdown_table(head, lines, "lrrrrr")


TIED = {Q_IS_K: "Q and K tied", K_IS_V: "K and V tied"}
"""Words for the sharings of the column `tied`."""


def tied_layers(rows: pd.DataFrame, tied: str) -> str:
    """Return in how many layers of a model two roles share a matrix, in words; "" if in none.

    Args:
        rows: Rows of the model in the table of an atlas.
        tied: The sharing, a key of `TIED`.
    """
    layers = rows.drop_duplicates(["kind", "layer"])
    n_tied = int((layers["tied"] == tied).sum())
    share = "all" if n_tied == len(layers) else f"{n_tied} of {len(layers)}"
    return f"{share} layers" if n_tied else ""


def _mean_and_interval(values: pd.Series[float]) -> str:
    return f"{fixed(values.mean(), 3)} {_interval(values)}"


def _interval(values: pd.Series[float]) -> str:
    return f"[{fixed(values.min(), 2)}, {fixed(values.max(), 2)}]"


def as_they_stand(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without folded gains, at distance 0."""
    return table[~table["folded"] & (table["offset"] == 0)]


def _sizes(heads: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Return the mean absolute cosine by model and kind, and that of random matrices."""
    groups = heads.groupby(["model", "kind"], sort=False)
    size = groups[f"cos_{pair}"].agg(lambda values: values.abs().mean())
    # The mean absolute value of a normal distribution with mean 0 is its SD times √(2/π).
    random = groups[f"cos_{pair}_random_sd"].mean() * math.sqrt(2 / math.pi)
    return pd.DataFrame({"size": size, "random": random})


def _range(values: pd.Series[float], digits: int = 2) -> str:
    low, high = (fixed(value, digits) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
