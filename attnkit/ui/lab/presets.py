"""Experiments worth trying, each with a question to answer before pressing Train."""

from __future__ import annotations

from dataclasses import dataclass

from attnkit.experiment.experiment import SCHEMA, Experiment, full_size


@dataclass(frozen=True)
class Preset:
    """An experiment with a question, opened in the Lab by a link.

    Attributes:
        title: Title of the card.
        guess: Question to answer before training.
        look: Where the result shows the answer.
        experiment: The experiment.
    """

    title: str
    guess: str
    look: str
    experiment: Experiment

    @property
    def params(self) -> dict[str, str]:
        """Query parameters of the link; never empty, so that it also restores the defaults."""
        return self.experiment.to_params() or {"v": str(SCHEMA)}


PRESETS: tuple[Preset, ...] = (
    Preset(
        "Who reports to whom",
        "Ada reports to Cem, but Cem does not report to Ada. Which sharings can learn that?",
        "Compare Q=K with the line of picking one of two, and its two attention curves.",
        Experiment(task="directed"),
    ),
    Preset(
        "Married couples",
        "The same book, but every relation is mutual. Does sharing still cost anything?",
        "The asymmetry of QKV falls towards 0: it learns symmetric scores by itself.",
        Experiment(task="mutual"),
    ),
    Preset(
        "Look a name up",
        "Finding a name needs likeness, not direction. Who is fastest?",
        "Q=K keeps up with QKV; K=V and Q=K=V need more steps.",
        Experiment(task="phonebook"),
    ),
    Preset(
        "A narrow head",
        "With three numbers per head, can one vector be both the address and the content?",
        "K=V and Q=K=V collapse, QKV does not. Then widen the head to 4, 6, 8.",
        Experiment(task="phonebook", d_head=3),
    ),
    Preset(
        "Heads rescue Q=K",
        "Symmetric scores cannot tell direction with one head. What if there are four?",
        "Q=K leaves the half. Takes a minute: wider models, more steps.",
        Experiment(
            task="directed",
            sharing=["QKV", "Q=K", "Q=K=V"],
            n_seeds=2,
            d_model=64,
            n_heads=4,
            steps=3000,
        ),
    ),
    Preset(
        "No self-mask",
        "With Q=K a token scores itself high. What if it may look at itself?",
        "On the directed relation Q=K and Q=K=V lose even the half they had.",
        Experiment(task="directed", self_mask=False),
    ),
    Preset(
        "Rescues for Q=K",
        "Q=K cannot tell direction. Do keys with signed factors help, or Reformer's unit keys?",
        "Neither leaves the half. Signed factors stay symmetric: here symmetry is the trouble, "
        "not that a token scores itself high. Unit keys are hardly asymmetric after 600 steps.",
        Experiment(task="directed", sharing=["QKV", "Q=K", "Indefinite", "Reformer"]),
    ),
    Preset(
        "Tied later",
        "Train three matrices, then tie K and V halfway. Does a trained model survive?",
        "At step 300 accuracy falls to a third or less, then it is learnt again; the average of "
        "both comes back faster than either.",
        Experiment(
            task="phonebook",
            sharing=[
                "QKV",
                "K=V",
                "QKV tie=K=V",
                "QKV tie=K=V tie_by=keep_K",
                "QKV tie=K=V tie_by=keep_V",
            ],
        ),
    ),
    Preset(
        "A smaller cache",
        "Four heads of queries. Do they need four heads of keys and values?",
        "From 64 numbers kept per token (KV cache) to 8, all solve it. Then set the head width to "
        "2: now it costs.",
        Experiment(task="phonebook", sharing=["MHA-4", "GQA", "MQA", "K=V + MQA"]),
    ),
    Preset(
        "What followed last time",
        "A token comes back: what stood after it before? Can one layer of attention find that?",
        "With one layer nobody gets far beyond chance. Set the layers to 2: QKV, K=V and Q=V "
        "solve it, Q=K=V only with the self-mask on.",
        Experiment(task="induction", n_seeds=3, n_layers=1),
    ),
    Preset(
        "A token finds itself",
        "With one matrix for queries and keys a token often finds itself. What if it must not?",
        "After 500 steps Q=K and Q=K=V have not solved it with every seed; with the self-mask they "
        "have.",
        Experiment(
            task="induction",
            sharing=["QKV", "Q=K", "Q=K self_mask", "Q=K=V", "Q=K=V self_mask"],
        ),
    ),
    Preset(
        "Two hops",
        "Ada points to Cem, Cem to Ben: who is two hops on from Ada? Does one layer find out?",
        "See accuracy by hops in “Numbers and downloads”: one hop is solved by all, two hops by "
        "none. Then set the layers to 2: QKV follows both, Q=K only with the self-mask on.",
        Experiment(task="k_hop", n_seeds=2, n_layers=1),
    ),
    Preset(
        "A benchmark of recall",
        "Keys come back later, each with its value long gone. Which sharings recall it?",
        "QKV, K=V and Q=V solve it with both seeds, Q=K and Q=K=V do not, until you switch the "
        "self-mask on. Then try one layer: all stay near a quarter.",
        full_size("mqar").replace(n_seeds=2),
    ),
    Preset(
        "Two neighbours of one name",
        "“network” is near “neural” and “social”. Must queries differ from keys to find both?",
        "QKV, Q=K, K=V and Q=V solve it, Q=K=V not with every seed. With the self-mask on all do.",
        Experiment(task="neighbours", n_seeds=3),
    ),
    Preset(
        "Reverse, as published",
        "A list from back to front, two layers, four heads. Is a matrix less as good here?",
        "QKV, K=V and Q=V solve it in 158 steps, Q=K all but; Q=K=V only with the self-mask on. "
        "Takes a few minutes.",
        full_size("reverse").replace(n_seeds=2),
    ),
    Preset(
        "Encoder and decoder",
        "Queries of the decoder meet keys of the encoder. Does it matter which matrix they share?",
        "All five solve it within 300 steps: in cross-attention, queries and keys come from "
        "different tokens.",
        Experiment(task="dictionary", n_seeds=3),
    ),
)
