"""Standard blocks, schedule, clipping and stock of examples against plain PyTorch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import full_size
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.variants import Variant

CPU = torch.device("cpu")


class Block(nn.Module):
    """A pre-norm encoder layer as torch users write it; tied roles are one `nn.Linear`."""

    def __init__(self, size, sharing):
        super().__init__()
        inner = size.n_heads * size.d_head
        self.size, self.sharing = size, sharing
        self.ln1, self.ln2 = nn.LayerNorm(size.d_model), nn.LayerNorm(size.d_model)
        self.roles = nn.ModuleDict(
            {role: nn.Linear(size.d_model, inner) for role in "QKV" if sharing.owner(role) == role}
        )
        self.out = nn.Linear(inner, size.d_model)
        self.up, self.down = (
            nn.Linear(size.d_model, size.d_mlp),
            nn.Linear(size.d_mlp, size.d_model),
        )

    def forward(self, x):
        """The residual stream after it."""
        normed = self.ln1(x)
        q, k, v = (
            self.roles[self.sharing.owner(role)](normed)
            .unflatten(-1, (self.size.n_heads, self.size.d_head))
            .transpose(1, 2)
            for role in "QKV"
        )
        mask = None
        if self.size.causal:
            mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(z.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Encoder(nn.Module):
    """One-hot tokens through a linear map, learned positions, blocks, a final norm, read-out."""

    def __init__(self, experiment, sharing):
        super().__init__()
        size, task = experiment.size, experiment.task
        self.d_vocab = task.d_vocab
        self.first = nn.Linear(task.d_vocab, size.d_model)
        self.positions = nn.Parameter(torch.zeros(task.n_ctx, size.d_model))
        self.blocks = nn.ModuleList(Block(size, sharing) for _ in range(size.n_layers))
        has_norm = size.blocks == "final_norm"
        self.final = nn.LayerNorm(size.d_model) if has_norm else nn.Identity()
        self.last = nn.Linear(size.d_model, task.n_classes)

    def forward(self, tokens):
        """Logits at every position."""
        one_hot = F.one_hot(tokens[..., 0], self.d_vocab).to(self.positions.dtype)
        x = self.first(one_hot) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.last(self.final(x))

    def named(self):
        """Our names → the parameters, transposed where ours are."""
        yield "W_E", self.first.weight, True
        yield "b_E", self.first.bias, False
        yield "W_pos", self.positions, False
        for layer, block in enumerate(self.blocks):
            linears = {**block.roles, "O": block.out, "in": block.up, "out": block.down}
            for name, linear in linears.items():
                yield f"{layer}.W_{name}", linear.weight, True
                yield f"{layer}.b_{name}", linear.bias, False
            for name in ("ln1", "ln2"):
                yield f"{layer}.{name}.w", getattr(block, name).weight, False
                yield f"{layer}.{name}.b", getattr(block, name).bias, False
        if isinstance(self.final, nn.LayerNorm):
            yield "ln_final.w", self.final.weight, False
            yield "ln_final.b", self.final.bias, False
        yield "W_U", self.last.weight, True
        yield "b_U", self.last.bias, False


SMALL = {
    "task": "reverse", "length": 5, "d_model": 32, "n_heads": 2, "d_head": 7, "d_mlp": 48,
    "n_seeds": 2, "batch_size": 32, "n_train": 80, "steps": 7, "n_eval": 16, "evaluate_every": 7,
    "clip": 0.5, "warm_up": 0.3,
}  # fmt: skip


def small(**settings):
    """A short REVERSE."""
    return Experiment(**{**SMALL, **settings})


def trained_by_torch(experiment, sharing, seed, numbers):
    """The parameters after training with torch's own optimiser, clipping and schedule."""
    training = experiment.training
    model = Encoder(experiment, sharing).double()
    with torch.no_grad():
        for name, parameter, turned in model.named():
            found = numbers.pop(name).double()
            parameter.copy_(found.T if turned else found)
    assert not numbers
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    n_rising = round(training.warm_up * training.steps)

    def share(step):
        if step < n_rising:
            return (step + 1) / n_rising
        return 0.5 + 0.5 * math.cos(math.pi * (step - n_rising) / (training.steps - n_rising))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    data = TrainingData(experiment, [seed], CPU)
    for _ in range(training.steps):
        tokens, labels = data.next()
        loss = F.cross_entropy(model(tokens[0]).flatten(0, 1), labels[0].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimiser.step()
        schedule.step()
    return {n: (p.T if turned else p).detach() for n, p, turned in model.named()}


@pytest.mark.parametrize(("blocks", "causal"), [("standard", True), ("final_norm", False)])
def test_training_is_that_of_plain_torch(blocks, causal):
    """Every parameter of every sharing after a whole schedule, rounds of the stock included."""
    experiment = small(blocks=blocks, causal=causal)
    cohort = Cohort(experiment, [0, 1], CPU)
    first = Cohort(experiment, [0, 1], CPU)
    cohort.advance(experiment.training.steps)
    for run in range(cohort.model.n_runs):
        variant, seed = cohort.model.variants[run // 2], run % 2
        begun = {k: v.clone() for k, v in first.model.run_parameters(run).items()}
        expected = trained_by_torch(experiment, Variant(variant).sharing, seed, begun)
        found = cohort.model.run_parameters(run)
        assert found.keys() == expected.keys()
        for name, numbers in found.items():
            torch.testing.assert_close(
                numbers.double(), expected[name], atol=2e-4, rtol=2e-3, msg=f"{variant} {name}"
            )


def test_a_stock_is_gone_through_once_per_round():
    """Every round holds each example once; the last batch is what is left."""
    data = TrainingData(small(), [0, 1], CPU)
    rounds = [[data.next()[0] for _ in range(3)] for _ in range(2)]
    assert [len(batch[0]) for batch in rounds[0]] == [32, 32, 16]
    first, second = (
        sorted(map(tuple, torch.cat(batches, 1)[0, :, :, 0].tolist())) for batches in rounds
    )
    assert first == second
    assert not torch.equal(rounds[0][0], rounds[1][0])


def check_spread(own, names):
    """Every parameter is uniform up to one over the root of what is read."""
    for name, n_read in names.items():
        bound = n_read**-0.5
        assert 0.7 * bound < own[name].abs().max() <= bound, name
        assert own[name].std() == pytest.approx(bound / 3**0.5, rel=0.35), name


def test_initial_numbers_are_those_of_torch():
    """Positions are drawn from N(0, 1); LayerNorm is plain."""
    experiment = full_size("reverse").replace(n_seeds=1, sharing=["QKV"])
    own = Cohort(experiment, [0], CPU).model.run_parameters(0)
    check_spread(own, {"W_E": 10, "b_E": 10} | dict.fromkeys(["0.W_Q", "0.W_O", "0.b_in"], 64))
    check_spread(own, {"0.b_Q": 64, "0.W_in": 64, "1.W_out": 256, "1.b_out": 256, "b_U": 64})
    assert own["W_pos"].std() == pytest.approx(1, rel=0.1)
    for name, value in (("0.ln1.w", 1), ("1.ln2.b", 0), ("ln_final.w", 1), ("ln_final.b", 0)):
        assert own[name].unique().tolist() == [value]


def test_one_side_and_two_begin_alike():
    """Biases of heads as their matrices; of what reads an MLP, by the MLP's width."""
    experiment = Experiment(
        task="dictionary", blocks="standard", d_head=16, d_mlp=64, sharing=["QKV kv_rank=m/4"]
    )
    own = Cohort(experiment, [0], CPU).model.run_parameters(0)
    names = {"0.W_C": 32, "0.b_C": 32, "1.W_K": 8, "1.b_V": 8, "2.W_O": 16, "2.b_O": 16}
    for name, n_read in {**names, "2.W_out": 64, "2.b_out": 64}.items():
        assert 0.7 * n_read**-0.5 < own[name].abs().max() <= n_read**-0.5, name


@pytest.mark.parametrize("width", [0, 16])
def test_an_mlp_of_one_s_own_begins_as_the_experiment_s(width):
    """Its last bias is spread by its own width, whatever that of the others is; so it trains."""
    given = {"blocks": "standard", "n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 100}
    own = Experiment(sharing=["QKV", "QKV d_mlp=48"], d_mlp=width, **given)
    plain = Experiment(sharing=["QKV"], d_mlp=48, **given)
    cohorts = [Cohort(experiment, [0], CPU) for experiment in (own, plain)]
    for n_steps in (0, 3):
        for cohort in cohorts:
            cohort.advance(n_steps)
        found, expected = cohorts[0].parameters()[1], cohorts[1].parameters()[0]
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == expected[name].tobytes() for name in found)


@pytest.mark.parametrize("text", ["QKV start=Q=K", "QKV start=K=V", "QKV kv_rank=3 start=K=V"])
def test_what_starts_equal_starts_with_equal_biases(text):
    """Equal copies at first; afterwards both are free."""
    cohort = Cohort(small(sharing=[text], n_seeds=1, clip=0), [0], CPU)
    first, second = text[-3], text[-1]
    for n_steps in (0, 1):
        cohort.advance(n_steps)
        (own,) = cohort.parameters()
        for letter in "Wb":
            pair = (own[f"0.{letter}_{role}"] for role in (first, second))
            assert np.array_equal(*pair) == (n_steps == 0)


@pytest.mark.parametrize("text", ["QKV tie=K=V", "QKV tie=Q=K=V tie_by=keep_V", "Q=K tie=Q=K=V"])
def test_biases_are_tied_with_their_matrices(text):
    """The average of the roles' biases, or the one that is kept."""
    experiment = small(sharing=[text], n_seeds=1, steps=10, evaluate_every=5, n_train=0)
    cohort = Cohort(experiment, [0], CPU)
    cohort.advance(4)
    untied = Cohort(small(**{**experiment.settings(), "sharing": [text.split()[0]]}), [0], CPU)
    untied.advance(5)
    cohort.advance(1)
    (old,), (new,) = untied.parameters(), cohort.parameters()
    tied, before = Variant(text).stages[-1].sharing, Variant(text).sharing
    for layer in (0, 1):
        for letter in "Wb":
            names = {f"{layer}.{letter}_{role}" for role in "QKV"}
            owned = {f"{layer}.{letter}_{members[0]}" for members in tied.classes}
            assert names & new.keys() == owned
            for members in tied.classes:
                kept = "V" if "keep_V" in text and "V" in members else ""
                roles = dict.fromkeys(before.owner(role) for role in kept or members)
                sources = [old[f"{layer}.{letter}_{role}"] for role in roles]
                found = new[f"{layer}.{letter}_{members[0]}"]
                np.testing.assert_allclose(found, sum(sources) / len(sources), rtol=1e-6, atol=1e-7)
