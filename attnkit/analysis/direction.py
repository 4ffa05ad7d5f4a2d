"""How directed a table of relations is, which sharings that should hurt, and whether it did."""

from __future__ import annotations

from attnkit.experiment import Experiment
from attnkit.foundation.words import listed, verb
from attnkit.tasks.own_relations import Relations
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant

_MARGIN = 0.05
"""How far above its expected accuracy a symmetric variant may be."""

_LEARNT = 0.9
"""Mean accuracy from which a variant counts as having learnt the relation."""


def expectation(experiment: Experiment) -> list[str]:
    """Return sentences, before training, on how directed the table is and whom that will hurt.

    Returns:
        The sentences; none if the task is not on relations of one's own in context.
    """
    task = experiment.task
    if not isinstance(task, Relations) or task.learn != "in_context":
        return []
    direction = task.direction
    sentences = [
        f"The table is {percent(direction.share)} directed: of its {direction.n_rows:,} relations, "
        f"{direction.n_missing:,} have no reverse and {direction.n_different:,} have a reverse "
        "under another relation only."
    ]
    hurt, level = [str(variant) for variant in _symmetric(experiment)], task.plateau
    contested = (
        f"For {percent(direction.contested)} of the questions in its examples, symmetric scores "
        "cannot tell the right entry from another one: an entry that points back at the one that "
        "asks, or another entry about the person who is the answer."
    )
    if level is None:
        sentences.append(
            "In its examples, symmetric scores can tell nearly every right entry from all others, "
            "so sharing queries and keys should not hurt."
        )
    elif not hurt:
        sentences.append(f"{contested} No variant here has to have symmetric scores.")
    else:
        sentences.append(
            f"{contested} So {listed(hurt)} should get at most about {percent(level)} right, and "
            "variants with a matrix of their own for queries more. This limit counts only entries "
            f"that must score alike; {listed(hurt)} may confuse others, too."
        )
    return sentences


def outcome(snapshot: Snapshot) -> list[str]:
    """Return a sentence, after training, on whether the expectation came true.

    It came true if the symmetric variants have at most the expected accuracy and `_MARGIN` while
    another variant has learnt the relation, or if nothing was to hurt them and they have learnt it,
    too.
    """
    experiment = snapshot.experiment
    symmetric = _symmetric(experiment)
    if not expectation(experiment) or not symmetric:
        return []
    means = mean_interval(snapshot.per_sharing(snapshot.latest("accuracy"))).mean
    accuracy = dict(zip(experiment.sharing, map(float, means), strict=True))
    texts = [f"{variant} {percent(accuracy[variant])}" for variant in symmetric]
    others = [variant for variant in experiment.sharing if variant not in symmetric]
    best = max(others, key=lambda variant: accuracy[variant], default=None)
    level = experiment.task.plateau
    if best is not None:
        texts.append(f"{best} {percent(accuracy[best])}")
    shown = f"{listed(texts)} {verb(texts, 'was', 'were')} right"
    worst, top = (end(accuracy[variant] for variant in symmetric) for end in (min, max))
    learnt = best is not None and accuracy[best] >= _LEARNT
    if level is None:
        if worst >= _LEARNT:
            return [f"This came true: {shown}."]
        if learnt:
            return [f"This did not come true: {shown}."]
    elif learnt and top <= level + _MARGIN:
        further = ", and they stayed further below it" if top < level - 2 * _MARGIN else ""
        return [f"The limit held{further}: {shown}."]
    elif top > level + _MARGIN:
        return [f"The limit did not hold for all: {shown}."]
    why = "no variant without symmetric scores has learnt the relation"
    return [f"Whether this is true cannot be said yet, because {why}: {shown}."]


def _symmetric(experiment: Experiment) -> list[Variant]:
    """Return the plain sharings whose scores are symmetric at these sizes."""
    if experiment.size.causal or experiment.size.positions != "none":
        return []
    if not (experiment.size.n_layers == experiment.size.n_heads == 1 and not experiment.size.d_mlp):
        return []
    return [v for v in experiment.sharing if v.is_partition and v.sharing.symmetric]
