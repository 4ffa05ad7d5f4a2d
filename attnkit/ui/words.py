"""Terms with their meanings: a table in the Lab and the Guide, and hints on every page."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import streamlit as st

from attnkit.foundation.language import mark, tr
from attnkit.foundation.tables import markdown_table
from attnkit.variants import OPTIONS

OPEN = "words"
"""Key of the Lab's popover; its value tells whether it is open."""


class Word(NamedTuple):
    """Meaning of a term of the pages, and its spellings on pages that show it when pointed at.

    Spellings are in lower or upper case, with "; " between them; another language may have more or
    fewer. None stands for the term itself.
    """

    meaning: str
    forms: str | None = None


ROLES = mark(
    "Each token makes a query (Q: what it looks for), a key (K: what it is found by) and a value "
    "(V: what it passes on)."
)
"""Meaning of Q, K and V in one sentence."""

WORDS = {
    mark("Q, K, V, W"): Word(
        mark(
            "Each token makes a query (Q: what it looks for), a key (K: what it is found by) and a "
            "value (V: what it passes on). They are the token's vector times matrices W. Sharing "
            "means that two of them, or all three, use the same matrix."
        ),
        mark("queries; query; keys; value matrix; W_Q; W_K; W_V"),
    ),
    "QKV, Q=K, K=V, Q=V, Q=K=V": Word(
        mark(
            "The five ways to share: QKV has three matrices, Q=K one for queries and keys, K=V one "
            "for keys and values, Q=V one for queries and values, Q=K=V one for all three."
        ),
        "Q=K=V; Q=K; K=V; Q=V; QKV",
    ),
    "V=I, K=I": Word(
        mark(
            "There is no matrix for this role: the value, or the key, is the token's vector itself."
        ),
        "V=I; K=I; Q=I",
    ),
    mark("token"): Word(
        mark("One unit of the sequence that a model reads: a name, a number, a letter."), ""
    ),
    mark("score"): Word(
        mark(
            "Query of one token times key of another one, before softmax: the higher, the more the "
            "first attends to the second. Pia→Tia is the score of Pia's query and Tia's key."
        ),
        mark("scores; score"),
    ),
    mark("attention"): Word(
        mark(
            "The softmax of a token's scores: shares that add up to 100%. The token receives the "
            "values of the others in these shares."
        ),
        mark("attention; attends to; attend to"),
    ),
    mark("accuracy"): Word(
        mark(
            "Share of right answers on held-out examples: no model ever trains on them. A table of "
            "your own that is learnt by heart is asked about all its rows."
        ),
        mark("accuracy; accuracies; held-out examples"),
    ),
    mark("on training examples"): Word(
        mark(
            "Accuracy on the examples that the model trains on, where a task has a fixed number of "
            "them: the difference shows how much is learnt by heart."
        )
    ),
    mark("loss"): Word(
        mark(
            "Mean of −ln of the probability given to the right answer (cross-entropy, counted in "
            "nats, because the logarithm is the natural one). Lower is better."
        ),
        mark("loss; nats; cross-entropy"),
    ),
    mark("solved"): Word(
        mark(
            "Every seed has answered at least 99% right in three evaluations in a row. So a "
            "variant that shows 99% may be unsolved: one evaluation in between was lower, or one "
            "seed."
        ),
        mark("solved; solves; solve"),
    ),
    mark("95% interval"): Word(
        mark(
            "Where the mean over many more seeds probably lies (Student's t). It says nothing "
            "about other tasks. There is none where all seeds have the same value."
        ),
        mark("95% interval; interval"),
    ),
    mark("seed"): Word(
        mark(
            "One repetition of the training. The seed decides the initial numbers and the data; "
            "they are the same for every variant."
        ),
        mark("seeds; seed"),
    ),
    # Translators: one step of training
    mark("step"): Word(
        mark("One change of all matrices, after the model has answered one batch of examples."),
        mark("training steps; training step"),
    ),
    mark("learning rate"): Word(
        mark(
            "How far a training step changes the matrices. It is tuned for each variant before "
            "variants are compared in a claim."
        ),
        mark("learning rates; learning rate"),
    ),
    mark("chance"): Word(
        mark("Accuracy of a simple guess, such as the number of some entry picked at random.")
    ),
    mark("untrained"): Word(mark("Accuracy at step 0."), ""),
    mark("guess between two entries"): Word(
        mark(
            "½ + 1/(2·numbers): the accuracy of a guess between the right entry and its mirror, "
            "which symmetric scores rate alike. With one head 16 wide, one layer, no MLP "
            "and the self-mask, models with such scores came near it with 8 entries and 32 names; "
            "in a head 4 wide they stayed below it. It is no limit: with 16 entries Q=K had 0.52 "
            "to 0.63, and 0.53 to 0.65 after 8 times the steps."
        )
    ),
    mark("blocks"): Word(
        mark(
            "How a layer is built around attention: minimal (RMSNorm without gain, no biases) or "
            "standard (LayerNorm with gain and bias, biases everywhere). A final norm is one more "
            "LayerNorm, after the last layer."
        ),
        "",
    ),
    mark("self-mask"): Word(
        mark("A token does not attend to itself unless it sees no other (−1e5 on its score).")
    ),
    mark("asymmetry"): Word(
        mark(
            "a = (1 − s)/2, with s = (‖S_s‖² − ‖S_a‖²)/‖S‖² of the scores S before mask and "
            "softmax: 0 if all pairs have the same score in both directions, about ½ if the two "
            "scores of a pair are unrelated and zero on average, 1 if they are opposite. Untrained "
            "models with separate Q and K have 0.4 to 0.5 already, so judge direction by the "
            "attention."
        ),
        mark("asymmetry; asymmetric"),
    ),
    mark("symmetric"): Word(
        mark("Each pair of tokens has the same score in both directions."),
        mark("symmetric; symmetry"),
    ),
    mark("right entry"): Word(
        mark("The entry that holds the answer."), mark("right entry; right entries")
    ),
    mark("softmax"): Word(mark("Turns scores into shares that add up to 100%.")),
    mark("logit"): Word(
        mark("Score of a possible answer before it becomes a probability."), mark("logits; logit")
    ),
    mark("attention on the right token"): Word(
        mark("Mean attention on the token that holds the answer."), ""
    ),
    mark("mirrored entry"): Word(
        mark(
            "The entry of the opposite direction: when the question is whom Ada reports to, it is "
            "the person who reports to Ada. A model that does not tell the two directions apart "
            "attends to both about equally."
        ),
        mark("mirrored entry; mirrored one; mirrored; entry that points back"),
    ),
    mark("head"): Word(
        mark(
            "One attention with queries, keys and values of its own. A layer can have several "
            "heads; their outputs are added up."
        ),
        mark("heads; head"),
    ),
    mark("head width"): Word(
        mark("Numbers in one query, key or value of a head."), mark("head width; numbers wide")
    ),
    mark("layer"): Word(
        mark("One round of attention. A second layer can look up what the first one found."),
        mark("layers; layer"),
    ),
    mark("encoder, decoder"): Word(
        mark(
            "The encoder reads a whole sequence; the decoder writes another one token by token, "
            "and sees only what it has written so far."
        ),
        mark("encoder; decoder"),
    ),
    mark("cross-attention"): Word(
        mark(
            "Queries come from tokens of the decoder, keys from tokens of the encoder. They are "
            "different tokens, so scores have no symmetry."
        )
    ),
    mark("cosine"): Word(
        mark(
            "Similarity of two lists of numbers: 1 if one is a positive multiple of the other, 0 "
            "if they are unrelated, −1 if they are opposite."
        ),
        mark("cosines; cosine"),
    ),
    mark("CKA"): Word(
        mark(
            "Centred kernel alignment: 1 if two sets of vectors have the same geometry up to a "
            "rotation and a scale, 0 if they have nothing in common."
        )
    ),
    mark("random matrices"): Word(
        mark(
            "Matrices of the same shape with random numbers, on the same inputs: what similarity "
            "looks like where nothing was learnt."
        ),
        mark("random matrices; random ones"),
    ),
    mark("accuracy by group"): Word(
        mark("Accuracy of answers in groups, such as by their distance in tokens."), ""
    ),
    # Translators: name of a column, what is left over
    mark("rest"): Word(
        mark("In attention maps: the attention on all tokens that have no column."), ""
    ),
    mark("numbers kept per token (KV cache)"): Word(
        mark(
            "Numbers that a decoder stores for every earlier token: its keys and values, only once "
            "if they are the same; or the narrow vector they are made of."
        ),
        mark("numbers kept per token; KV cache"),
    ),
    mark("multiply-adds per token"): Word(
        mark(
            "Multiplications in the matrix products for one token in the whole model, in a "
            "sequence as long as the task's."
        ),
        mark("multiply-adds"),
    ),
    mark("make costs equal"): Word(
        mark(
            "Head widths, then MLP widths, are changed until every variant costs as much as the "
            "most expensive one, within 2% where whole numbers allow it."
        ),
        "",
    ),
    mark("model-steps per second"): Word(
        mark("Training steps of single models per second, over all models.")
    ),
    mark("points"): Word(mark("Percentage points of accuracy."), mark("percentage points")),
    mark("mutual relation"): Word(
        mark(
            "A relation that holds both ways, like marriage. One with a direction does not, like "
            "reporting to somebody."
        ),
        mark("mutual relation; relation with a direction"),
    ),
    mark("frozen embedding"): Word(mark("Vectors of the tokens that are not trained further.")),
    mark("output matrix"): Word(
        mark("W_O, which is applied to what attention has collected."), mark("output matrix; W_O")
    ),
    mark("MQA"): Word(mark("Multi-query attention: all heads share one head of keys and values.")),
    mark("GQA"): Word(
        mark(
            "Grouped-query attention: several heads of queries share one head of keys and values."
        ),
        mark("GQA; grouped queries"),
    ),
    mark("MLA"): Word(
        mark(
            "Multi-head latent attention: keys and values are made of one narrow vector, which is "
            "all that a decoder stores."
        ),
        mark("MLA; latent attention"),
    ),
    mark("text form"): Word(mark("A variant written in words, such as K=V n_heads=4.")),
    mark("diverged"): Word(mark("Training broke down: a number became infinite.")),
    mark("MHA"): Word(
        mark("Multi-head attention: every head has queries, keys and values of its own."),
        mark("MHA; multi-head attention"),
    ),
    mark("low-rank residual"): Word(
        mark(
            "Where heads share their keys and values, a small correction that each head adds: its "
            "matrix is a product of two narrow ones, so there is little to store."
        ),
        mark("low-rank residuals; low-rank residual"),
    ),
    mark("standard deviation"): Word(mark("How far seeds typically lie from their mean.")),
    mark("ALiBi"): Word(mark("A score falls with the distance of the two tokens.")),
    mark("tying"): Word(
        mark("Letting several roles use one matrix from now on."), mark("tying; tied; tie")
    ),
    mark("overlap"): Word(mark("Share of the directions that two matrices both read.")),
    mark("principal angle"): Word(
        mark("Angle between the closest directions of two subspaces."),
        mark("principal angles; principal angle"),
    ),
    mark("subspace"): Word(
        mark("All directions that a few vectors span."), mark("subspaces; subspace")
    ),
    mark("rank"): Word(
        mark("Number of independent directions that a matrix uses; low: few."),
        mark("effective rank; low rank; low-rank; rank"),
    ),
    mark("norm"): Word(
        mark("Scales a token’s vector to a fixed length before a layer uses it."),
        mark("RMSNorm; LayerNorm; norm gains"),
    ),
    mark("induction"): Word(
        mark(
            "A task: a token that has come before comes again, and the answer is the token that "
            "followed it the last time."
        )
    ),
    mark("recall"): Word(
        mark(
            "A task in which a value is found by its key, like a number in a phone book. MQAR is "
            "such a task with many questions (multi-query associative recall)."
        ),
        mark("recall; MQAR"),
    ),
    mark("warm-up, schedule"): Word(
        mark(
            "How the learning rate changes: it rises from 0 during the warm-up, then the schedule "
            "keeps or lowers it."
        ),
        mark("warm-up; schedule"),
    ),
    mark("singular value, eigenvalue"): Word(
        mark("Factor by which a matrix stretches one of its main directions."),
        mark("singular values; singular value; eigenvalues; eigenvalue"),
    ),
    mark("antisymmetric part"): Word(
        mark("Part of a matrix that changes its sign when the matrix is transposed."),
        mark("antisymmetric part; skew part; skew"),
    ),
    mark("rotary positions"): Word(
        mark(
            "Positions that rotate queries and keys, so that a score depends on how far apart two "
            "tokens are."
        ),
        mark("rotary positions; RoPE"),
    ),
    mark("causal"): Word(
        mark("A token attends to earlier tokens only."), mark("causal; backwards only")
    ),
    mark("distillation"): Word(mark("Training on the outputs of another model.")),
    mark("MLP"): Word(
        mark("A small network of two matrices that works on each token by itself, after attention.")
    ),
    mark("held, did not hold, undecided"): Word(
        mark(
            "Verdicts on a statement, by a rule fixed before the runs: the seeds show it, they "
            "show the opposite, or they are too few to tell."
        ),
        mark("did not hold; undecided"),
    ),
}
"""Terms in the order in which a reader meets them."""


def glossary(terms: Collection[str] = WORDS, key: str = "all") -> None:
    """Draw the table of terms, in the order of `WORDS`; on a phone, meanings stand below terms."""
    rows = ((tr(term), tr(word.meaning)) for term, word in WORDS.items() if term in terms)
    with st.container(key=f"words_{key}"):
        st.markdown(markdown_table((tr("word"), tr("what it means here")), rows))


def hints() -> list[list[str]]:
    """Return pairs of spellings, as in `Word`, and their meaning.

    They are the spellings of the terms, and the names of options with an underscore, such as
    kv_rank: no ordinary sentence has such a word.
    """
    shown = [(term if word.forms is None else word.forms, word) for term, word in WORDS.items()]
    pairs = [[tr(forms), tr(word.meaning)] for forms, word in shown if forms]
    return pairs + [[name, tr(option.help)] for name, option in OPTIONS.items() if "_" in name]
