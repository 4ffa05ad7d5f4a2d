"""How directed a table of relations is, which sharings that should hurt, and whether it did."""

from __future__ import annotations

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr, tr_n
from attnkit.foundation.words import listed
from attnkit.tasks.own_relations import Relations
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant

MARGIN = 0.05
"""How far above its expected accuracy a symmetric variant may be."""

LEARNT = 0.9
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
        tr(
            "The table is {share} directed: of its {n:,} relations, {missing:,} have no reverse "
            "and {different:,} have a reverse under another relation only.",
            share=percent(direction.share),
            n=direction.n_rows,
            missing=direction.n_missing,
            different=direction.n_different,
        )
    ]
    hurt, level = [str(variant) for variant in _symmetric(experiment)], task.plateau
    if level is None:
        return [
            *sentences,
            tr(
                "In its examples, symmetric scores can tell nearly every right entry from all "
                "others, so sharing queries and keys should not hurt."
            ),
        ]
    sentences.append(
        tr(
            "For {share} of the questions in its examples, symmetric scores cannot tell the right "
            "entry from another one: an entry that points back at the one that asks, or another "
            "entry about the person who is the answer.",
            share=percent(direction.contested),
        )
    )
    if not hurt:
        sentences.append(tr("No variant here has to have symmetric scores."))
    else:
        sentences.append(
            tr_n(
                "So {variants} should get at most about {limit} right, and variants with a matrix "
                "of their own for queries more. This limit counts only entries that must score "
                "alike; {variants} may confuse others, too.",
                "So {variants} should get at most about {limit} right, and variants with a matrix "
                "of their own for queries more. This limit counts only entries that must score "
                "alike; {variants} may confuse others, too.",
                len(hurt),
                variants=listed(hurt),
                limit=percent(level),
            )
        )
    return sentences


def outcome(snapshot: Snapshot) -> list[str]:
    """Return a sentence, after training, on whether the expectation came true.

    It came true if the symmetric variants have at most the expected accuracy and `MARGIN` while
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
    n, results = len(texts), listed(texts)
    worst, top = (end(accuracy[variant] for variant in symmetric) for end in (min, max))
    learnt = best is not None and accuracy[best] >= LEARNT
    if level is None and worst >= LEARNT:
        text = tr_n(
            "This came true: {results} was right.",
            "This came true: {results} were right.",
            n,
            results=results,
        )
    elif level is None and learnt:
        text = tr_n(
            "This did not come true: {results} was right.",
            "This did not come true: {results} were right.",
            n,
            results=results,
        )
    elif level is not None and top > level + MARGIN:
        text = tr_n(
            "The limit did not hold for all: {results} was right.",
            "The limit did not hold for all: {results} were right.",
            n,
            results=results,
        )
    elif level is not None and learnt and top < level - 2 * MARGIN:
        text = tr(
            "The limit held, and they stayed further below it: {results} were right.",
            results=results,
        )
    elif level is not None and learnt and top <= level + MARGIN:
        text = tr("The limit held: {results} were right.", results=results)
    else:
        text = tr_n(
            "Whether this is true cannot be said yet, because no variant without symmetric scores "
            "has learnt the relation: {results} was right.",
            "Whether this is true cannot be said yet, because no variant without symmetric scores "
            "has learnt the relation: {results} were right.",
            n,
            results=results,
        )
    return [text]


def symmetry_decides(experiment: Experiment) -> bool:
    """Return whether symmetric scores limit what a variant can learn at the sizes of an experiment.

    More layers or heads, an MLP, positions and a causal mask are ways around the limit.
    """
    if experiment.size.causal or experiment.size.positions != "none":
        return False
    return experiment.size.n_layers == experiment.size.n_heads == 1 and not experiment.size.d_mlp


def _symmetric(experiment: Experiment) -> list[Variant]:
    """Return the plain sharings whose scores are symmetric at these sizes."""
    if not symmetry_decides(experiment):
        return []
    return [v for v in experiment.sharing if v.is_partition and v.sharing.symmetric]
