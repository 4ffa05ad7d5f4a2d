"""The words of the Lab, explained in one place: in the Lab itself and in the Guide."""

from __future__ import annotations

import streamlit as st

OPEN = "words"
"""Key of the Lab's popover: whether it is open."""

WORDS = {
    "Q, K, V, W": "Each token's vector is multiplied with matrices W to make its query Q (what it "
    "looks for), its key K (what it is found by) and its value V (what it hands over). Sharing "
    "means that two of them, or all three, use the same matrix.",
    "score": "Query of one token times key of another one, before softmax: the higher, the more "
    "the first looks at the second. Pia→Tia is the score with which Pia looks at Tia. If Q and K "
    "use the same matrix, both ways have the same score.",
    "accuracy": "Share of right answers on held-out examples: no model ever trains on them.",
    "on training examples": "The same on examples that are trained on, where a task has a fixed "
    "stock of them: what is learnt by heart shows in the difference.",
    "loss": "Mean of −ln of the probability given to the right answer (cross-entropy, counted in "
    "nats, because the logarithm is the natural one). Lower is better.",
    "solved": "Every seed has answered at least 99% right in three evaluations in a row. So a "
    "variant that shows 99% may be unsolved: one evaluation in between was lower, or one seed.",
    "95% interval": "Where the mean over many more seeds probably lies (Student's t). It says "
    "nothing about other tasks. Where all seeds are alike there is nothing to give.",
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
    "self-mask": "A token does not look at itself unless it sees no other (−1e5 on that score).",
    "asymmetry": "a = (1 − s)/2, with s = (‖S_s‖² − ‖S_a‖²)/‖S‖² of the scores S before mask and "
    "softmax: 0 if all pairs score alike both ways, about ½ if the two scores of a pair have "
    "nothing to do with each other, 1 if they are opposite. Untrained models with separate Q and "
    "K have about ½ already, so judge direction by the attention curves.",
    "attention on the right token": "Mean attention weight on the token that holds the answer.",
    "mirrored entry": "The entry that asks for the asker: when Ada asks whom she reports to, it is "
    "whoever reports to Ada. A model that cannot tell the two directions apart looks at both.",
    "encoder, decoder": "The encoder reads a whole sequence; the decoder writes another one token "
    "by token, and sees only what it has written so far.",
    "cross-attention": "Tokens of the decoder ask, tokens of the encoder are looked at. Those who "
    "ask are not those who are looked at, so scores have no symmetry.",
    "layer": "One round of attention. A second layer can ask about what the first one found.",
    "accuracy by group": "Answers of a task in groups, such as how far off the answer stands.",
    "rest": "In attention maps: the weight on all tokens that have no column.",
    "numbers kept per token (KV cache)": "What a decoder must remember of every earlier token: its "
    "keys and values, once if they are the same; or the narrow vector they are made of.",
    "multiply-adds per token": "Multiplications in the matrix products of one token's way through "
    "the model, among as many tokens as the task has.",
    "make costs equal": "Head widths, then MLP widths, are changed until every variant costs as "
    "much as the most expensive one, within 2% where whole numbers allow it.",
    "model-steps per second": "Optimiser steps of single models per second, over all models.",
}
"""Meaning by word, in the order in which they are met."""


def glossary() -> None:
    """Draw the table of all words."""
    rows = "\n".join(f"| {word} | {meaning} |" for word, meaning in WORDS.items())
    st.markdown(f"| word | what it means here |\n|---|---|\n{rows}")
