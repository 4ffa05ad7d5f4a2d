"""What projections make of text: CKA of activations, and which models are run."""

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as T
from family_models import save_tokenizer, settings

from attnkit.analysis.similarity import linear_cka, projected_bands
from attnkit.realmodels import Projections, Unreadable, running
from attnkit.realmodels.activations import activation_cka, with_activations

H, G, M, D, N_TOKENS = 6, 3, 31, 5, 83


@pytest.fixture
def layer():
    """Gaussian matrices, grouped."""
    generator = np.random.default_rng(5)
    return Projections(*(generator.standard_normal((n, M, D)) for n in (H, G, G)))


N_WORDS, N_LAYERS, N_HEADS, D_MODEL = 61, 3, 2, 14


def save(folder, kind, config, n_words=N_WORDS):
    """A small model with a tokenizer of n words, most of them never met."""
    torch.manual_seed(5)
    kind(config).save_pretrained(folder)
    save_tokenizer(folder, n_words)
    return str(folder)


def sizes(**more):
    """Return settings of a configuration of BERT's relatives."""
    text = f"vocab_size={N_WORDS} hidden_size={D_MODEL} num_hidden_layers={N_LAYERS} "
    return settings(f"{text} num_attention_heads={N_HEADS} intermediate_size=17") | more


def gpt2():
    """Return a configuration of a decoder with 37 positions."""
    text = f"vocab_size={N_WORDS} n_positions=37 n_embd={D_MODEL} n_layer={N_LAYERS} "
    return T.GPT2Config(**settings(f"{text} n_head={N_HEADS}"))


def heads(kind):
    """As much of a table of measures as is asked for: a row per head."""
    places = [(kind, layer, head) for layer in range(N_LAYERS) for head in range(N_HEADS)]
    return pd.DataFrame(places, columns=["kind", "layer", "head"])


def refusal(source):
    """Why a model is not run; one line."""
    with pytest.raises(Unreadable) as caught:
        with_activations(heads("encoder"), source)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_each_head_is_compared_with_its_own_keys_and_values(layer):
    """Query head 4 with key head 2, by the definition; reused keys are of earlier inputs."""
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


def test_chance_is_that_of_the_same_inputs(layer):
    """Inputs that vary in one direction make random projections alike, too."""
    rows = np.random.default_rng(6).standard_normal((N_TOKENS, M))
    narrow = rows * np.where(np.arange(M) == 0, 30.0, 1.0)
    wide, alike = (activation_cka(layer, of)["act_cka_qk_random"] for of in (rows, narrow))
    assert (alike > wide + 0.3).all()
    assert alike[0] == pytest.approx(projected_bands(narrow, narrow, D, D)[1].mean)


GEMMA_4 = settings(
    f"num_kv_shared_layers=0 attention_k_eq_v=True num_key_value_heads={N_HEADS} head_dim=4 "
    f"global_head_dim=6 hidden_size_per_layer_input=4 vocab_size_per_layer_input={N_WORDS}"
) | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}
LATENT = settings(
    "q_lora_rank=5 kv_lora_rank=4 qk_nope_head_dim=6 qk_rope_head_dim=2 v_head_dim=5 "
    f"num_key_value_heads={N_HEADS} first_k_dense_replace={N_LAYERS}"
)


def test_models_are_run_on_text(tmp_path):
    """Models of few positions read shorter pieces; where keys are values, V has no comparison.

    The inputs of latent attention are found, also where queries come from a latent vector.
    """
    for kind, config, of in (
        (T.BertModel, T.BertConfig(**sizes(max_position_embeddings=64)), "encoder"),
        (T.GPT2Model, gpt2(), "causal"),
        (T.Gemma4TextModel, T.Gemma4TextConfig(**sizes(**GEMMA_4)), "causal"),
        (T.DeepseekV3Model, T.DeepseekV3Config(**sizes(**LATENT)), "causal"),
    ):
        found = with_activations(heads(of), save(tmp_path / kind.__name__, kind, config))
        assert found["act_cka_qk"].between(0, 1).all()
        assert found["act_cka_qk"].nunique() > N_HEADS
        compared = found.groupby("layer")["act_cka_kv"].count().tolist()
        assert compared == [N_HEADS, *[0 if "Gemma" in kind.__name__ else N_HEADS] * 2]


def test_no_program_of_a_model_is_run(tmp_path, monkeypatch):
    """Neither from a network, nor one that lies beside its weights, nor a pickle.

    No pickle is opened even where the safetensors have a name that the library does not know.
    """
    source, given = save(tmp_path, T.GPT2Model, gpt2()), []

    class Library:
        def from_pretrained(self, _, **options):
            given.append(options)
            return torch.nn.Identity()

        AutoTokenizer = AutoModel = property(lambda self: self)

    running.load(Library(), source)
    assert all(one["local_files_only"] and not one["trust_remote_code"] for one in given)
    assert given[1]["use_safetensors"]
    assert given[1]["dtype"] == "float32"
    (tmp_path / "model.safetensors").rename(tmp_path / "odd.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit'\ntR.")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    assert "transformers cannot load it" in refusal(source)


def test_why_a_model_is_not_run_is_told(tmp_path):
    """Layers read once but run often, another tokenizer, too little text, and no finite inputs.

    Sources that are none, and CTranslate2's files, whose configuration nobody knows.
    """
    (tmp_path / "model.bin").write_bytes(b"")
    for source in ("nosuchmodel", "json", str(tmp_path)):
        assert refusal(source)
    albert = T.AlbertConfig(**sizes(embedding_size=11, num_hidden_groups=1))
    source = save(tmp_path / "albert", T.AlbertModel, albert)
    assert "has 1 attention layers, but 3 ran" in refusal(source)
    for fields, n_words, says in (
        ({}, N_WORDS + 10, "IndexError"),
        ({"max_position_embeddings": 1}, N_WORDS, "windows of 1"),
        ({"layer_norm_eps": float("nan")}, N_WORDS, "not finite"),
    ):
        config = T.BertConfig(**sizes(**fields))
        assert says in refusal(save(tmp_path / "bert", T.BertModel, config, n_words))
