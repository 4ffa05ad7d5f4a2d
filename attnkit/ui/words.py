"""Glossary of the words in the Lab, shown there and in the Guide."""

from __future__ import annotations

import streamlit as st

OPEN = "words"
"""Key of the Lab's popover; its value tells whether it is open."""

WORDS = {
    "Q, K, V, W": "Each token's vector is multiplied with matrices W to make its query Q (what it "
    "looks for), its key K (what it is found by) and its value V (what it hands over). Sharing "
    "means that two of them, or all three, use the same matrix.",
    "score": "Query of one token times key of another one, before softmax: the higher, the more "
    "the first attends to the second. Pia→Tia is the score of Pia's query and Tia's key. If Q and "
    "K use the same matrix, both directions have the same score.",
    "accuracy": "Share of right answers on held-out examples: no model ever trains on them.",
    "on training examples": "Accuracy on the examples that the model trains on, where a task has a "
    "fixed number of them: the difference shows how much is learnt by heart.",
    "loss": "Mean of −ln of the probability given to the right answer (cross-entropy, counted in "
    "nats, because the logarithm is the natural one). Lower is better.",
    "solved": "Every seed has answered at least 99% right in three evaluations in a row. So a "
    "variant that shows 99% may be unsolved: one evaluation in between was lower, or one seed.",
    "95% interval": "Where the mean over many more seeds probably lies (Student's t). It says "
    "nothing about other tasks. There is none where all seeds have the same value.",
    "seed": "Decides the initial numbers and the data; the same for every variant.",
    "chance": "Accuracy of a simple guess, such as the number of some entry picked at random.",
    "untrained": "Accuracy at step 0.",
    "guess between two entries": "½ + 1/(2·numbers): the accuracy of a guess between the right "
    "entry and its mirror, which symmetric scores rate alike. With one head, one layer, no MLP and "
    "the self-mask, Q=K and Q=K=V came near it with 8 entries of 32 names. It is no limit: with "
    "16 entries, or 9 names, we saw up to two thirds.",
    "blocks": "How a layer is built around attention: minimal (RMSNorm without gain, no biases) or "
    "standard (LayerNorm with gain and bias, biases everywhere). A final norm is one more "
    "LayerNorm, after the last layer.",
    "self-mask": "A token does not attend to itself unless it sees no other (−1e5 on its score).",
    "asymmetry": "a = (1 − s)/2, with s = (‖S_s‖² − ‖S_a‖²)/‖S‖² of the scores S before mask and "
    "softmax: 0 if all pairs have the same score in both directions, about ½ if the two scores of "
    "a pair are unrelated, 1 if they are opposite. Untrained models with separate Q and K have "
    "about ½ already, so judge direction by the attention curves.",
    "attention on the right token": "Mean attention weight on the token that holds the answer.",
    "mirrored entry": "The entry of the opposite direction: when the question is whom Ada reports "
    "to, it is the person who reports to Ada. A model that cannot tell the two directions apart "
    "attends to both.",
    "encoder, decoder": "The encoder reads a whole sequence; the decoder writes another one token "
    "by token, and sees only what it has written so far.",
    "cross-attention": "Queries come from tokens of the decoder, keys from tokens of the encoder. "
    "They are different tokens, so scores have no symmetry.",
    "layer": "One round of attention. A second layer can look up what the first one found.",
    "accuracy by group": "Accuracy of answers in groups, such as by their distance in tokens.",
    "rest": "In attention maps: the weight on all tokens that have no column.",
    "numbers kept per token (KV cache)": "Numbers that a decoder stores for every earlier token: "
    "its keys and values, only once if they are the same; or the narrow vector they are made of.",
    "multiply-adds per token": "Multiplications in the matrix products for one token in the whole "
    "model, in a sequence as long as the task's.",
    "make costs equal": "Head widths, then MLP widths, are changed until every variant costs as "
    "much as the most expensive one, within 2% where whole numbers allow it.",
    "model-steps per second": "Optimiser steps of single models per second, over all models.",
}
"""Meaning by word, in the order in which a reader meets the words."""


def glossary() -> None:
    """Draw the table of all words."""
    rows = "\n".join(f"| {word} | {meaning} |" for word, meaning in WORDS.items())
    st.markdown(f"| word | what it means here |\n|---|---|\n{rows}")
