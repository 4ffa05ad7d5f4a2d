"""A trained model on a sentence: what is shown is what its library computes, and hostile input."""

import re
import sys
from io import BytesIO, TextIOWrapper

import numpy as np
import pytest
import torch
import transformers as T
from family_models import built, save_tokenizer
from made_atlas import made_reading

from attnkit.command.main import run
from attnkit.figures.sentence import describe_head, explain, sentence_film, strongest_heads
from attnkit.realmodels import SentenceReader, Unreadable, read_sentence
from attnkit.realmodels.sentence import MOST_TOKENS, SentenceReading, checked_sentence

RUN = "bert deberta-v2 t5 gpt2 gemma2 qwen3 bloom deepseek_v3 falcon mpt".split()
"""Scores that are disentangled, biased by distance, capped, normed, rotated or latent."""

SENTENCE = "the the word1 word2 the word3 <b> word4 word5 the"


def saved(name, folder):
    """Save a small random model of a family with a tokenizer, and return its folder."""
    built(name, folder)
    save_tokenizer(folder)
    return str(folder)


def patterns(source, ids, **given):
    """The attention of every layer, as the library returns it."""
    network = T.AutoModel.from_pretrained(source, dtype="float32", attn_implementation="eager")
    network = network.get_encoder() if network.config.is_encoder_decoder else network
    given["attention_mask"] = given.get("attention_mask", torch.ones_like(ids))
    with torch.inference_mode():
        return network(ids, output_attentions=True, use_cache=False, **given).attentions


@pytest.mark.parametrize("name", RUN)
def test_the_softmax_of_the_shown_scores_is_the_attention_of_the_library(name, tmp_path):
    """In every layer and head; and so is the shown pattern."""
    source = saved(name, tmp_path)
    reading = read_sentence(source, SENTENCE)
    ids = torch.tensor([T.AutoTokenizer.from_pretrained(source)(SENTENCE).input_ids])
    expected = np.stack([pattern[0].numpy() for pattern in patterns(source, ids)])
    masked = np.where(reading.hidden[:, None], -np.inf, reading.scores)
    np.testing.assert_allclose(torch.tensor(masked).softmax(-1), expected, atol=1e-5)
    np.testing.assert_allclose(reading.pattern, expected, atol=1e-5)
    np.testing.assert_allclose(reading.symmetric + reading.antisymmetric, reading.scores, atol=1e-5)
    if reading.causal and name in ("gpt2", "qwen3"):
        full = torch.zeros(1, 1, ids.shape[1], ids.shape[1])  # the first layer, without any mask
        unmasked = patterns(source, ids, attention_mask=full)[0][0]
        np.testing.assert_allclose(torch.tensor(reading.scores[0]).softmax(-1), unmasked, atol=1e-5)


def test_what_a_head_does_is_measured():
    """One head looks at the previous token, symmetrically, and one at the same word."""
    texts = ["[CLS]", "a", "b", "a", "c"]
    previous = np.eye(5, k=-1) + np.eye(5) * (np.arange(5) == 0)
    same = np.full((5, 5), 0.2)
    same[3] = 0.1, 0.6, 0.1, 0.1, 0.1
    rng = np.random.default_rng(3)
    s = rng.standard_normal((5, 5))
    reading = made_reading(np.stack([previous, same]), np.stack([s + s.T, s - s.T]), texts)
    table = reading.table
    assert table["symmetric"].tolist() == pytest.approx([1, 0])
    level = made_reading(previous[None], (s - s.T + 7)[None], texts).table
    assert level["symmetric"][0] > 0.8
    assert level["symmetric_centred"][0] == pytest.approx(0, abs=1e-6)
    assert table["previous"].tolist() == pytest.approx([1, (0.2 + 0.1 + 0.2) / 3])
    assert table["same"].tolist() == pytest.approx([0, 0.6])
    assert table["previous_even"].tolist() == pytest.approx([0.2, 0.2])
    assert reading.shown_head == (0, 0)
    said = re.findall(r"Layer 0, head 0|\d+%", describe_head(reading))
    assert said == ["Layer 0, head 0", "100%", "20%", "100%", "0%"]
    assert "60%" in describe_head(reading.head(0, 1))
    heads = strongest_heads(reading).set_index("most attention on")
    assert heads.loc["the same word elsewhere", "strongest"] == "layer 0, head 1"
    film = sentence_film(reading.head(0, 1))
    np.testing.assert_allclose(film.framed["0.shares"], [[[0, 1]]], atol=1e-6)
    for wrong in ((1, 0), (0, 2), (-1, 0), (0, True)):
        with pytest.raises(ValueError, match="allowed 0 to"):
            reading.head(*wrong)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A decoder of three layers."""
    return saved("gpt2", tmp_path_factory.mktemp("gpt2"))


def test_hostile_sentences_give_a_message_or_are_read_as_they_are_typed(decoder):
    """Nothing is read as HTML or a formula; long sentences are cut, and the cut is told."""
    for sentence in ("", " \n\t ", "\u202e\u200b\x00", "x" * 100_000):
        with pytest.raises(Unreadable, match=r"sentence: got .{2,40}, allowed"):
            checked_sentence(sentence)
    reader = SentenceReader(decoder)
    with pytest.raises(Unreadable, match="is 1 token, allowed"):
        reader.read("word1")
    odd = "<b>x</b> $x$ \x1b[31m שלום 🎉 `code` | [a](b)"
    texts = [token.text for token in reader.read(odd).tokens]
    assert texts[:3] == ["<", "b", ">"]
    assert {"שלום", "🎉", "$", "`"} <= set(texts)
    assert all(text.isprintable() for text in texts)
    long = reader.read("the " * 90)
    assert long.scores.shape[-1] == MOST_TOKENS == len(long.tokens)
    cut, _ = explain(long)  # and that the model is causal
    assert re.findall(r"\d+", cut) == ["90", "64", "64"]


def test_the_command_writes_figures_tables_and_numbers(decoder, tmp_path, monkeypatch, capsys):
    """One sentence, or a line of standard input after the other; wrong options change nothing."""
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    command = ["sentence", decoder, SENTENCE]
    assert run([*command, "--out", str(page), "--layer", "1", "--head", "2"]) == 0
    assert "Layer 1, head 2 " in capsys.readouterr().out
    assert "<b>" not in page.read_text().partition("<script")[0].partition("<main>")[2]
    lines = TextIOWrapper(BytesIO(f"{SENTENCE}\n\nword1 the word1\n".encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    assert run(["sentence", decoder, "--out", str(tmp_path / "all")]) == 2
    assert "attnkit: error: line 2: sentence: got ''" in capsys.readouterr().err
    reading = SentenceReading.from_bytes((tmp_path / "all" / "3.safetensors").read_bytes())
    assert [token.text for token in reading.tokens] == ["word1", "the", "word1"]
    assert np.array_equal(reading.pattern, read_sentence(decoder, "word1 the word1").pattern)
    for wrong in (f"--out {tmp_path}/x.txt", "--layer 1", "--layer 9 --head 0"):
        assert run([*command, *wrong.split()]) == 2
        assert capsys.readouterr().err.startswith("attnkit: error: --")
    assert run(["sentence", decoder, "", "--out", str(table)]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "page.html"]


def test_models_whose_scores_cannot_be_shown_are_refused(tmp_path):
    """Learned sinks are no scores of tokens, and sound is no sentence."""
    with pytest.raises(Unreadable, match=r"could be recorded; choose a model of another family"):
        read_sentence(saved("gpt_oss", tmp_path / "sinks"), SENTENCE)
    with pytest.raises(Unreadable, match=r"it reads no text; choose a model that reads text"):
        SentenceReader(saved("whisper", tmp_path / "sound"))
