"""Answering token by token gives the same logits, from a cache as large as the accounting says."""

import pytest
import torch
from kinds import tiny
from reference import DOZEN
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.decode import Decoder
from attnkit.model.model import Model

CPU = torch.device("cpu")
SIZES = {"n_entries": 5, "n_names": 11, "n_values": 7, "n_layers": 3, "causal": True}
MORE = """
    K=V n_heads=4 kv_heads=2 positions=rope kv_every=2
    QKV V=I d_head=m/h kv_every=3 self_mask
    K=V kv_rank=5 n_heads=4 kv_heads=2 positions=rope rotate_values=only kv_every=2
    QKV kv_every=2 exclusive
""".strip().split("\n")
BY_HAND = {
    "QKV": (16, 16),
    "K=V": (8, 8),
    "K=V positions=rope": (8, 16),
    "K=V before rotation (Gemma 4)": (8, 16),
    "K=V after rotation (DeepSeek V4)": (8, 8),
    "K=V kv_heads=1 positions=rope": (4, 8),
    "K=V unit_key": (8, 16),
    "QKV kv_rank=3": (3, 16),
    "QKV keyless": (8, 16),
    "QKV kv_heads=1 valueless": (4, 8),
    "QKV kv_residual=3": (2 * (4 + 2 * 3), 16),
    "K=V kv_heads=1 shared_half": (4 + 2, 2 * 4),
}
"""Floats per token of two heads of four numbers in one layer: as they are computed, and ready."""


@pytest.mark.parametrize("variant", [*DOZEN, *map(str.strip, MORE), *BY_HAND])
def test_decoding_gives_the_logits_of_the_whole_sequence(variant):
    """Every position of one example, from a cache of as many floats per token as was counted."""
    for given in ({"blocks": "lean"}, {"blocks": "standard", "d_mlp": 7, "positions": "learned"}):
        given = {**SIZES, "n_seeds": 2, "d_head": 4, **given}
        given |= {"n_layers": 1, "n_heads": 2} if variant in BY_HAND else {}
        experiment = Experiment(task="directed", sharing=[variant], **given)
        model, generator = Model(experiment, experiment.seeds, CPU), torch.Generator()
        for run in range(model.n_runs):  # no bias or factor begins with nothing
            for value in model.run_parameters(run).values():
                value += 0.1 * torch.randn(value.shape, generator=generator)
        tokens = torch.stack([model.task.make_examples(1, generator).tokens for _ in model.seeds])
        costs = experiment.costs(experiment.sharing[0].stages[0])
        counted = costs.kv_cache, costs.ready_cache
        assert counted == BY_HAND.get(variant, counted)
        for ready, n_floats in zip((False, True), counted, strict=True):
            decoder = Decoder(model, 1, ready=ready)
            found = torch.stack([decoder.read(token) for token in tokens[1, 0]])
            assert_close(found, model.logits(tokens)[1, 0], atol=1e-5, rtol=1e-4)
            cached = [rows.numel() for cache in decoder.cache for rows in cache.values()]
            assert (decoder.n_tokens, sum(cached)) == (5, 5 * n_floats)


def test_a_model_that_sees_later_tokens_cannot_be_decoded():
    """Nor one of two sides; the error names the setting, or what a decoder reads."""
    for experiment, told in (
        (Experiment(n_seeds=1), "causal: got False, allowed True"),
        (tiny("dictionary", sharing="QKV", causal=True), "one sequence"),
    ):
        with pytest.raises(ValueError, match=told):
            Decoder(Model(experiment, experiment.seeds, CPU), 0)
