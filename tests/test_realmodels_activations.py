"""What projections make of text: CKA of activations, and which models are run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from family_models import CASES, D_VOCAB, built, opened, save_tokenizer

from attnkit.analysis.similarity import linear_cka, projected_bands
from attnkit.realmodels import Projections, Unreadable, running
from attnkit.realmodels.activations import activation_cka, with_activations

H, G, M, D, N_TOKENS = 6, 3, 31, 5, 83


def saved(folder, name, n_words=D_VOCAB, **more):
    """A small model with a tokenizer of n words, most of them never met, and its heads."""
    case = CASES[name]
    built(replace(case, settings=case.settings | more), folder)
    save_tokenizer(folder, n_words)
    layers = opened(folder)[1]
    places = [(one.kind, one.index, head) for one in layers for head in range(one.n_heads)]
    return str(folder), pd.DataFrame(places, columns=["kind", "layer", "head"]), layers


def refusal(source, heads):
    """Why a model is not run; one line."""
    with pytest.raises(Unreadable) as caught:
        with_activations(heads, source)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_each_head_is_compared_with_its_own_keys_and_values():
    """Query head 4 with key head 2, by the definition; reused keys are of earlier inputs.

    Chance is that of the same inputs: those that vary in one direction make random projections
    alike, too.
    """
    generator = np.random.default_rng(5)
    layer = Projections(*(generator.standard_normal((n, M, D)) for n in (H, G, G)))
    rows, earlier = np.random.default_rng(6).standard_normal((2, N_TOKENS, M))
    for inputs, found in (
        (rows, activation_cka(layer, rows)),
        (earlier, activation_cka(layer, rows, earlier)),
    ):
        q, k, v = rows @ layer.W_Q[4], inputs @ layer.W_K[2], inputs @ layer.W_V[2]
        assert found["act_cka_qk"][4] == pytest.approx(linear_cka(q, k))
        assert found["act_cka_qv"][4] == pytest.approx(linear_cka(q, v))
        assert found["act_cka_kv"][4] == pytest.approx(linear_cka(k, v))
    again = activation_cka(layer, earlier)
    assert found["act_cka_kv_random"] == pytest.approx(again["act_cka_kv_random"])
    narrow = rows * np.where(np.arange(M) == 0, 30.0, 1.0)
    wide, alike = (activation_cka(layer, of)["act_cka_qk_random"] for of in (rows, narrow))
    assert (alike > wide + 0.3).all()
    assert alike[0] == pytest.approx(projected_bands(narrow, narrow, D, D)[1].mean)


@pytest.mark.parametrize("name", ["BertModel", "GPT2Model", "gemma4_text-3", "deepseek_v3-0"])
def test_models_are_run_on_text(tmp_path, name):
    """Models of few positions read shorter pieces; where keys are values, V has no comparison.

    The inputs of latent attention are found, also where queries come from a latent vector.
    """
    source, heads, layers = saved(tmp_path, name)
    found = with_activations(heads, source)
    assert found["act_cka_qk"].between(0, 1).all()
    assert found["act_cka_qk"].nunique() > layers[0].n_heads
    compared = found.groupby("layer")["act_cka_kv"].count().tolist()
    assert compared == [0 if one.read().k_is_v else one.n_heads for one in layers]


def test_no_program_of_a_model_is_run(tmp_path, monkeypatch):
    """Neither from a network, nor one that lies beside its weights, nor a pickle.

    No pickle is opened even where the safetensors have a name that the library does not know.
    """
    given = []

    class Library:
        def from_pretrained(self, _, **options):
            given.append(options)
            return torch.nn.Identity()

        AutoTokenizer = AutoModel = property(lambda self: self)

    source, heads, _ = saved(tmp_path, "GPT2Model")
    running.load(Library(), source)
    assert all(one["local_files_only"] and not one["trust_remote_code"] for one in given)
    assert given[1]["use_safetensors"]
    assert given[1]["dtype"] == "float32"
    (tmp_path / "model.safetensors").rename(tmp_path / "odd.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit'\ntR.")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    assert "cannot load" in refusal(source, heads)


def test_why_a_model_is_not_run_is_told(tmp_path):
    """Layers read once but run often, another tokenizer, too little text, and no finite inputs.

    Sources that are none, and CTranslate2's files, whose configuration nobody knows.
    """
    source, heads, _ = saved(tmp_path / "albert", "AlbertForMaskedLM")
    assert "has 2 attention layers, but 4 ran" in refusal(source, heads)
    (tmp_path / "model.bin").write_bytes(b"")
    for source in ("nosuchmodel", "json", str(tmp_path)):
        assert refusal(source, heads)
    for fields, n_words, says in (
        ({}, D_VOCAB + 10, "IndexError"),
        ({"max_position_embeddings": 1}, D_VOCAB, "windows of 1"),
        ({"layer_norm_eps": float("nan")}, D_VOCAB, "not finite"),
    ):
        source, heads, _ = saved(tmp_path / "bert", "BertModel", n_words, **fields)
        assert says in refusal(source, heads)
