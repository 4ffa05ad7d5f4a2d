"""Terms with their meanings: a table in the Lab and the Guide, and hints on every page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import streamlit as st

from attnkit.foundation.tables import markdown_table
from attnkit.variants import OPTIONS

OPEN = "words"
"""Key of the Lab's popover; its value tells whether it is open."""


@dataclass(frozen=True)
class Word:
    """A term of the pages.

    Attributes:
        meaning: What it means here.
        forms: Spellings in the text of pages that show the meaning when they are pointed at; lower
            and upper case are the same.
    """

    meaning: str
    forms: tuple[str, ...] = ()


ROLES = (
    "Each token makes a query (Q: what it looks for), a key (K: what it is found by) and a value "
    "(V: what it passes on)."
)
"""Meaning of Q, K and V in one sentence."""

WORDS = {
    "Q, K, V, W": Word(
        f"{ROLES} They are the token's vector times matrices W. Sharing means that two of them, or "
        "all three, use the same matrix.",
        ("queries", "query", "keys", "value matrix", "W_Q", "W_K", "W_V"),
    ),
    "QKV, Q=K, K=V, Q=V, Q=K=V": Word(
        "The five ways to share: QKV has three matrices, Q=K one for queries and keys, K=V one for "
        "keys and values, Q=V one for queries and values, Q=K=V one for all three.",
        ("Q=K=V", "Q=K", "K=V", "Q=V", "QKV"),
    ),
    "V=I, K=I": Word(
        "There is no matrix for this role: the value, or the key, is the token's vector itself.",
        ("V=I", "K=I", "Q=I"),
    ),
    "token": Word("One unit of the sequence that a model reads: a name, a number, a letter."),
    "score": Word(
        "Query of one token times key of another one, before softmax: the higher, the more the "
        "first attends to the second. Pia→Tia is the score of Pia's query and Tia's key.",
        ("scores", "score"),
    ),
    "attention": Word(
        "The softmax of a token's scores: shares that add up to 100%. The token receives the "
        "values of the others in these shares.",
        ("attention", "attends to", "attend to"),
    ),
    "accuracy": Word(
        "Share of right answers on held-out examples: no model ever trains on them.",
        ("accuracy", "accuracies", "held-out examples"),
    ),
    "on training examples": Word(
        "Accuracy on the examples that the model trains on, where a task has a fixed number of "
        "them: the difference shows how much is learnt by heart.",
        ("on training examples",),
    ),
    "loss": Word(
        "Mean of −ln of the probability given to the right answer (cross-entropy, counted in nats, "
        "because the logarithm is the natural one). Lower is better.",
        ("loss", "nats", "cross-entropy"),
    ),
    "solved": Word(
        "Every seed has answered at least 99% right in three evaluations in a row. So a variant "
        "that shows 99% may be unsolved: one evaluation in between was lower, or one seed.",
        ("solved", "solves", "solve"),
    ),
    "95% interval": Word(
        "Where the mean over many more seeds probably lies (Student's t). It says nothing about "
        "other tasks. There is none where all seeds have the same value.",
        ("95% interval", "interval"),
    ),
    "seed": Word(
        "One repetition of the training. The seed decides the initial numbers and the data; they "
        "are the same for every variant.",
        ("seeds", "seed"),
    ),
    "step": Word(
        "One change of all matrices, after the model has answered one batch of examples.",
        ("training steps", "training step"),
    ),
    "learning rate": Word(
        "How far a training step changes the matrices. It is tuned for each variant before "
        "variants are compared in a claim.",
        ("learning rates", "learning rate"),
    ),
    "chance": Word(
        "Accuracy of a simple guess, such as the number of some entry picked at random.",
        ("chance",),
    ),
    "untrained": Word("Accuracy at step 0."),
    "guess between two entries": Word(
        "½ + 1/(2·numbers): the accuracy of a guess between the right entry and its mirror, which "
        "symmetric scores rate alike. With one head, one layer, no MLP and the self-mask, models "
        "with such scores came near it with 8 entries. It is no limit: with 16 entries Q=K "
        "had 0.6, and 0.61 to 0.65 after 8 times the steps.",
        ("guess between two entries",),
    ),
    "blocks": Word(
        "How a layer is built around attention: minimal (RMSNorm without gain, no biases) or "
        "standard (LayerNorm with gain and bias, biases everywhere). A final norm is one more "
        "LayerNorm, after the last layer."
    ),
    "self-mask": Word(
        "A token does not attend to itself unless it sees no other (−1e5 on its score).",
        ("self-mask",),
    ),
    "asymmetry": Word(
        "a = (1 − s)/2, with s = (‖S_s‖² − ‖S_a‖²)/‖S‖² of the scores S before mask and softmax: "
        "0 if all pairs have the same score in both directions, about ½ if the two scores of a "
        "pair are unrelated, 1 if they are opposite. Untrained models with separate Q and K have "
        "about ½ already, so judge direction by the attention.",
        ("asymmetry", "asymmetric"),
    ),
    "symmetric": Word(
        "Each pair of tokens has the same score in both directions.", ("symmetric", "symmetry")
    ),
    "right entry": Word("The entry that holds the answer.", ("right entry", "right entries")),
    "softmax": Word("Turns scores into shares that add up to 100%.", ("softmax",)),
    "logit": Word(
        "Score of a possible answer before it becomes a probability.", ("logits", "logit")
    ),
    "attention on the right token": Word("Mean attention on the token that holds the answer."),
    "mirrored entry": Word(
        "The entry of the opposite direction: when the question is whom Ada reports to, it is the "
        "person who reports to Ada. A model that does not tell the two directions apart attends "
        "to both.",
        ("mirrored entry", "mirrored one", "mirrored", "entry that points back"),
    ),
    "head": Word(
        "One attention with queries, keys and values of its own. A layer can have several heads; "
        "their outputs are added up.",
        ("heads", "head"),
    ),
    "head width": Word(
        "Numbers in one query, key or value of a head.", ("head width", "numbers wide")
    ),
    "layer": Word(
        "One round of attention. A second layer can look up what the first one found.",
        ("layers", "layer"),
    ),
    "encoder, decoder": Word(
        "The encoder reads a whole sequence; the decoder writes another one token by token, and "
        "sees only what it has written so far.",
        ("encoder", "decoder"),
    ),
    "cross-attention": Word(
        "Queries come from tokens of the decoder, keys from tokens of the encoder. They are "
        "different tokens, so scores have no symmetry.",
        ("cross-attention",),
    ),
    "cosine": Word(
        "Similarity of two lists of numbers: 1 if one is a positive multiple of the other, 0 if "
        "they are unrelated, −1 if they are opposite.",
        ("cosines", "cosine"),
    ),
    "CKA": Word(
        "Centred kernel alignment: 1 if two sets of vectors have the same geometry up to a "
        "rotation and a scale, 0 if they have nothing in common.",
        ("CKA",),
    ),
    "random matrices": Word(
        "Matrices of the same shape with random numbers, on the same inputs: what similarity looks "
        "like where nothing was learnt.",
        ("random matrices", "random ones"),
    ),
    "accuracy by group": Word(
        "Accuracy of answers in groups, such as by their distance in tokens."
    ),
    "rest": Word("In attention maps: the attention on all tokens that have no column."),
    "numbers kept per token (KV cache)": Word(
        "Numbers that a decoder stores for every earlier token: its keys and values, only once if "
        "they are the same; or the narrow vector they are made of.",
        ("numbers kept per token", "KV cache"),
    ),
    "multiply-adds per token": Word(
        "Multiplications in the matrix products for one token in the whole model, in a sequence as "
        "long as the task's.",
        ("multiply-adds",),
    ),
    "make costs equal": Word(
        "Head widths, then MLP widths, are changed until every variant costs as much as the most "
        "expensive one, within 2% where whole numbers allow it."
    ),
    "model-steps per second": Word(
        "Training steps of single models per second, over all models.", ("model-steps per second",)
    ),
    "points": Word("Percentage points of accuracy.", ("percentage points",)),
    "mutual relation": Word(
        "A relation that holds both ways, like marriage. One with a direction does not, like "
        "reporting to somebody.",
        ("mutual relation", "relation with a direction"),
    ),
    "frozen embedding": Word(
        "Vectors of the tokens that are not trained further.", ("frozen embedding",)
    ),
    "output matrix": Word(
        "W_O, which is applied to what attention has collected.", ("output matrix", "W_O")
    ),
    "MQA": Word("Multi-query attention: all heads share one head of keys and values.", ("MQA",)),
    "GQA": Word(
        "Grouped-query attention: several heads of queries share one head of keys and values.",
        ("GQA", "grouped queries"),
    ),
    "MLA": Word(
        "Multi-head latent attention: keys and values are made of one narrow vector, which is all "
        "that a decoder stores.",
        ("MLA", "latent attention"),
    ),
    "text form": Word("A variant written in words, such as K=V n_heads=4.", ("text form",)),
    "diverged": Word("Training broke down: a number became infinite.", ("diverged",)),
    "MHA": Word(
        "Multi-head attention: every head has queries, keys and values of its own.",
        ("MHA", "multi-head attention"),
    ),
    "low-rank residual": Word(
        "Where heads share their keys and values, a small correction that each head adds: its "
        "matrix is a product of two narrow ones, so there is little to store.",
        ("low-rank residuals", "low-rank residual"),
    ),
    "standard deviation": Word(
        "How far seeds typically lie from their mean.", ("standard deviation",)
    ),
    "ALiBi": Word("A score falls with the distance of the two tokens.", ("ALiBi",)),
    "tying": Word("Letting several roles use one matrix from now on.", ("tying", "tied", "tie")),
    "overlap": Word("Share of the directions that two matrices both read.", ("overlap",)),
    "principal angle": Word(
        "Angle between the closest directions of two subspaces.",
        ("principal angles", "principal angle"),
    ),
    "subspace": Word("All directions that a few vectors span.", ("subspaces", "subspace")),
    "rank": Word(
        "Number of independent directions that a matrix uses; low: few.",
        ("effective rank", "low rank", "low-rank", "rank"),
    ),
    "norm": Word(
        "Scales a token’s vector to a fixed length before a layer uses it.",
        ("RMSNorm", "LayerNorm", "norm gains"),
    ),
    "induction": Word(
        "A task: a token that has come before comes again, and the answer is the token that "
        "followed it the last time.",
        ("induction",),
    ),
    "recall": Word(
        "A task in which a value is found by its key, like a number in a phone book. MQAR is such "
        "a task with many questions (multi-query associative recall).",
        ("recall", "MQAR"),
    ),
    "warm-up, schedule": Word(
        "How the learning rate changes: it rises from 0 during the warm-up, then the schedule "
        "keeps or lowers it.",
        ("warm-up", "schedule"),
    ),
    "singular value, eigenvalue": Word(
        "Factor by which a matrix stretches one of its main directions.",
        ("singular values", "singular value", "eigenvalues", "eigenvalue"),
    ),
    "antisymmetric part": Word(
        "Part of a matrix that changes its sign when the matrix is transposed.",
        ("antisymmetric part", "skew part", "skew"),
    ),
    "rotary positions": Word(
        "Positions that rotate queries and keys, so that a score depends on how far apart two "
        "tokens are.",
        ("rotary positions", "RoPE"),
    ),
    "causal": Word("A token attends to earlier tokens only.", ("causal", "backwards only")),
    "distillation": Word("Training on the outputs of another model.", ("distillation",)),
    "MLP": Word(
        "A small network of two matrices that works on each token by itself, after attention.",
        ("MLP",),
    ),
    "held, did not hold, undecided": Word(
        "Verdicts on a statement, by a rule fixed before the runs: the seeds show it, they show "
        "the opposite, or they are too few to tell.",
        ("did not hold", "undecided"),
    ),
}
"""Terms in the order in which a reader meets them."""


def glossary() -> None:
    """Draw the table of all terms."""
    rows = ((term, word.meaning) for term, word in WORDS.items())
    st.markdown(markdown_table(("word", "what it means here"), rows))


@cache
def hints() -> list[list[str]]:
    """Return pairs of a spelling and its meaning, the longest spelling first.

    They are the spellings of the terms, and the names of options with an underscore, such as
    kv_rank: no ordinary sentence has such a word.
    """
    pairs = [[form, word.meaning] for word in WORDS.values() for form in word.forms]
    pairs += [[name, option.help] for name, option in OPTIONS.items() if "_" in name]
    return sorted(pairs, key=lambda pair: -len(pair[0]))
