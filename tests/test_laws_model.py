"""Equivalence: tied equals untied with copied weights; untied equals torch's attention."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from random_experiments import ONE_SIDE, TINY, sizes
from searching import briefly
from torch.testing import assert_close
from trained_runs import one_cohort

from attnkit.experiment.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.training.data import stack
from attnkit.variants.sharing import ROLES, Sharing

CPU = torch.device("cpu")


def copy_weights(source, target):
    """Copy the weights of every run into an untied model with the same number of runs."""
    with torch.no_grad():
        for run in range(source.n_runs):
            own, theirs = source.run_parameters(run), target.run_parameters(run)
            owner = source.forms[run // len(source.seeds)].sharing.owner
            for name, value in theirs.items():
                read = name[:-1] + owner(name[-1]) if name[-1] in ROLES else name
                value.copy_(own[read])


def tokens_for(model, n_batch=3):
    """Return the tokens of `n_batch` examples for every seed of a model."""
    generator = torch.Generator().manual_seed(1)
    return torch.stack([model.task.make_examples(n_batch, generator).tokens for _ in model.seeds])


def reference_logits(experiment, sharing, own, tokens):
    """Compute the logits of one run in double precision with torch's own attention."""
    size = experiment.size
    own = {name: value.detach().double() for name, value in own.items()}
    n_ctx = tokens.shape[1]
    mask = torch.zeros(n_ctx, n_ctx, dtype=torch.float64)
    if size.causal:
        mask = mask.masked_fill(torch.ones(n_ctx, n_ctx).triu(1).bool(), -torch.inf)
    if size.self_mask:
        mask = mask - 1e5 * torch.eye(n_ctx)

    def norm(x):
        return F.rms_norm(x, x.shape[-1:], eps=1e-6)

    x = sum(own["W_E"][field] for field in tokens.unbind(-1)) + own.get("W_pos", 0)  # (b, i, m)
    for layer in range(size.n_layers):
        q, k, v = (
            torch.stack((norm(x) @ own[f"{layer}.W_{sharing.owner(role)}"]).chunk(size.n_heads, -1))
            for role in ROLES
        )  # (h, b, i, d)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + torch.cat(list(z), -1) @ own[f"{layer}.W_O"]
        if size.d_mlp:
            x = x + F.gelu(norm(x) @ own[f"{layer}.W_in"]) @ own[f"{layer}.W_out"]
    return norm(x[:, experiment.task.answers_from :]) @ own["W_U"]


def test_a_tied_gradient_is_the_sum_of_its_roles():
    """The gradient of a tied parameter is the sum of those of QKV with equal weights."""
    tied, untied = (
        Model(Experiment(sharing=s, **TINY), [0], CPU) for s in (Sharing.Q_K_V, Sharing.QKV)
    )
    copy_weights(tied, untied)
    examples = stack([tied.task.draw(16, generator_for(0, "test"), held_out=False)], CPU)
    for model in (tied, untied):
        model.differentiate(examples.tokens, examples.labels)
    of_tied, of_untied = (model.run_parameters(0, model.gradient) for model in (tied, untied))
    assert_close(of_tied["0.W_Q"], sum(of_untied[f"0.W_{role}"] for role in ROLES))


@given(sizes(), st.sampled_from(Sharing))
@briefly(12)
def test_a_tied_layer_equals_an_untied_one_with_copied_weights(experiment, sharing):
    """A tied model and an untied one with copied weights have equal logits at any size."""
    training = one_cohort(experiment.replace(sharing=[sharing]))
    training.advance(2)
    tied = training.cohorts[0].model
    untied = Model(experiment.replace(sharing=["QKV"]), [s + 5 for s in tied.seeds], CPU)
    copy_weights(tied, untied)
    tokens = tokens_for(tied)
    assert_close(tied.logits(tokens), untied.logits(tokens), rtol=1e-5, atol=1e-5)


@given(sizes(tasks=ONE_SIDE, blocks="lean"))
@briefly(12)
def test_the_model_equals_torch_attention(experiment):
    """Logits of lean blocks equal those of plain PyTorch, before and after a few steps."""
    training = one_cohort(experiment)
    model, n_seeds = training.cohorts[0].model, experiment.n_seeds
    tokens = tokens_for(model)
    for _ in range(2):
        logits = model.logits(tokens).double()
        for run in range(model.n_runs):
            own, sharing = model.run_parameters(run), model.forms[run // n_seeds].sharing
            expected = reference_logits(experiment, sharing, own, tokens[run % n_seeds])
            assert_close(logits[run], expected, rtol=1e-4, atol=1e-4)
        training.advance(2)


def test_scores_and_patterns_are_those_of_the_heads():
    """Recorded scores and patterns equal those computed head by head for one QKV run."""
    experiment = Experiment(sharing="QKV", n_seeds=1, n_heads=3, d_head=5, causal=True, **TINY)
    model = Model(experiment, experiment.seeds, CPU)
    layers, tokens = list[Layer](), tokens_for(model)
    model.logits(tokens, layers)
    own = model.run_parameters(0)
    x = F.rms_norm(own["W_E"][tokens[0]].sum(2), (32,), eps=1e-6)
    for head in range(3):
        part = slice(5 * head, 5 * head + 5)
        scores = (x @ own["0.W_Q"][:, part]) @ (x @ own["0.W_K"][:, part]).mT / 5**0.5
        assert_close(layers[0].scores[0, :, head], scores)
        masked = scores - 1e5 * torch.eye(8)
        masked = masked.masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
        assert_close(layers[0].pattern[0, :, head], masked.softmax(-1))
