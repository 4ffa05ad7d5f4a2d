"""What projections make of text: CKA of activations, and which models are run."""

import numpy as np
import pytest

from attnkit.realmodels import Projections, Unreadable
from attnkit.realmodels.activations import activation_cka, with_activations
from attnkit.realmodels.toys import toy_table
from attnkit.similarity import linear_cka, projected_bands

H, G, M, D, T = 6, 3, 31, 5, 83


@pytest.fixture
def layer():
    """Gaussian matrices with biases, grouped."""
    generator = np.random.default_rng(5)
    q, k, v = (generator.standard_normal((n, M, D)) for n in (H, G, G))
    b_q, b_k = generator.standard_normal((H, D)), generator.standard_normal((G, D))
    return Projections(q, k, v, b_q, b_k)


def test_each_head_is_compared_with_its_own_keys_and_values(layer):
    """Query head 4 with key head 2, by the definition."""
    rows = np.random.default_rng(6).standard_normal((T, M))
    found = activation_cka(layer, rows)
    q, k, v = rows @ layer.W_Q[4] + layer.b_Q[4], rows @ layer.W_K[2], rows @ layer.W_V[2]
    assert found["act_cka_qk"][4] == pytest.approx(linear_cka(q, k))
    assert found["act_cka_qv"][4] == pytest.approx(linear_cka(q, v))
    assert found["act_cka_kv"][4] == pytest.approx(linear_cka(k, v))


def test_chance_is_that_of_the_same_inputs(layer):
    """Inputs that vary in one direction make random projections alike, too."""
    rows = np.random.default_rng(6).standard_normal((T, M))
    narrow = rows * np.where(np.arange(M) == 0, 30.0, 1.0)
    wide, alike = (activation_cka(layer, of)["act_cka_qk_random"] for of in (rows, narrow))
    assert (alike > wide + 0.3).all()
    assert alike[0] == pytest.approx(projected_bands(narrow, narrow, D, D)[1].mean)


@pytest.mark.parametrize("source", ["nosuchmodel", "json"])
def test_what_cannot_be_run_is_told(source):
    """In one line."""
    with pytest.raises(Unreadable, match=source):
        with_activations(toy_table(), source)


def test_weights_without_a_program_are_not_run(tmp_path):
    """CTranslate2 files hold no configuration that transformers knows."""
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(Unreadable):
        with_activations(toy_table(), str(tmp_path))
