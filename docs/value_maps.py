"""A program: maps from keys to values that repair trained models after W_K was kept for both.

`python docs/value_maps.py` trains QKV on the phone book with heads of several widths, and prints
which share of the lost accuracy each kind of map brings back. `docs/findings.md` quotes its table.
All maps are taken up by W_O, so they cost no parameters and no cache.

- fitted: least squares. cut: the same, cut to half of its rank (Eckart and Young 1936).
- reduced: the best least-squares map of half the rank (Izenman 1975).
- orthogonal: the nearest orthogonal map (Schönemann 1966). random: a random one (Mezzadri 2007,
  arXiv math-ph/0609050).
- trained: begins with the fitted map and is trained on the loss with all else frozen, by Adam at
  the best of three learning rates, which fall to zero along half a cosine.
"""

import argparse
import math

import numpy as np
import torch

import attnkit as ak
from attnkit.analysis.inspection.replay import model_of
from attnkit.analysis.inspection.surgery import (
    accuracy_of,
    keys_and_values,
    take_up,
    tied_to_key,
)
from attnkit.analysis.tying import linear_map
from attnkit.model.adam import Adam
from attnkit.model.model import Model
from attnkit.model.reference import cross_entropy
from attnkit.training.data import TrainingData, held_out_examples
from attnkit.training.statistics import mean_interval

RATES = (0.01, 0.03, 0.1)
EXAMPLES = 256
"""Number of training examples on which the losses of trained maps are compared."""


def cut(maps, rank):
    """Return the matrices of at most this rank that are nearest to the given ones."""
    left, singular, right = np.linalg.svd(maps, full_matrices=False)
    return (left[..., :rank] * singular[..., None, :rank]) @ right[..., :rank, :]


def reduced_map(keys, values, rank):
    """Return the map M of at most this rank with the smallest ‖K M − V‖."""
    full = linear_map(keys, values)
    fitted = keys @ full
    directions = np.linalg.eigh(np.swapaxes(fitted, -2, -1) @ fitted)[1][..., -rank:]
    return full @ directions @ np.swapaxes(directions, -2, -1)


def orthogonal_map(keys, values):
    """Return the orthogonal matrix M with the smallest ‖K M − V‖."""
    left, _, right = np.linalg.svd(np.swapaxes(keys, -2, -1) @ values)
    return left @ right


def random_maps(shape, generator):
    """Return orthogonal matrices drawn uniformly: QR with a positive diagonal of R."""
    q, r = np.linalg.qr(generator.normal(size=shape))
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


def fitted_maps(model, experiment, step):
    """Return the maps of every kind but the trained one, (s, l, g, d, d)."""
    of_seeds = keys_and_values(model, experiment.sharing[0], experiment, step)
    layers = [np.concatenate(layer, 1) for layer in zip(*of_seeds, strict=True)]
    keys, values = np.stack(layers).astype(np.float64).swapaxes(0, 1)  # (l, s, g, t, d)
    full, rank = linear_map(keys, values), max(1, keys.shape[-1] // 2)
    maps = {
        "fitted": full,
        "cut": cut(full, rank),
        "reduced": reduced_map(keys, values, rank),
        "orthogonal": orthogonal_map(keys, values),
        "random": random_maps(full.shape, np.random.default_rng(list(experiment.seeds))),
    }
    return {kind: one.swapaxes(0, 1) for kind, one in maps.items()}


@torch.enable_grad()
def trained_map(tied, start, data, n_steps):
    """Return the map of one seed that is trained on the loss.

    Args:
        tied: Copies of its tied model, one for each of `RATES`.
        start: The first maps, (l, g, d, d).
        data: Training data of the seed.
        n_steps: Number of steps.
    """
    numbers = torch.from_numpy(start).flatten().repeat(len(RATES))
    gradient, n = torch.zeros_like(numbers), start.size
    rates = [(slice(i * n, (i + 1) * n), rate) for i, rate in enumerate(RATES)]
    optimiser, weights = Adam(numbers, gradient, rates), tied.transformer(tied.variants[0]).weights
    (wiring,) = tied.wirings.values()
    names = [wiring.names(layer)["W_O"] for layer in range(len(tied.layer_specs))]
    kept = {name: weights[name].clone() for name in names}

    def with_maps(maps):
        for name in names:
            weights[name].data.copy_(kept[name])
        return take_up(tied, maps)

    def batch():
        return (t.expand(len(RATES), *t.shape[1:]).contiguous() for t in data.next())

    for step in range(n_steps):
        maps = numbers.view(len(RATES), *start.shape).clone().requires_grad_()
        products = with_maps(maps)
        tied.differentiate(*batch())
        runs = [tied.run_parameters(run, tied.gradient) for run in range(tied.n_runs)]
        of_outputs = [torch.stack([run[name] for run in runs]) for name in names]
        gradient.copy_(torch.autograd.grad(products, maps, of_outputs)[0].flatten())
        optimiser.step((1 + math.cos(math.pi * step / n_steps)) / 2)
    maps = numbers.view(len(RATES), *start.shape)
    with torch.no_grad():
        with_maps(maps)
        losses = torch.zeros(len(RATES), dtype=torch.float64)
        for _ in range(-(-EXAMPLES // data.next()[1].shape[1])):
            tokens, labels = batch()
            losses += cross_entropy(tied.logits(tokens), labels)
    return maps[int(losses.nan_to_num(math.inf).argmin())].numpy()


@torch.no_grad()
def shares(d_head, n_seeds, n_steps, **settings):
    """Return kind of map → share of the lost accuracy that it brings back, for every seed."""
    experiment = ak.Experiment(
        task="phonebook", sharing=["QKV"], d_head=d_head, n_seeds=n_seeds, **settings
    )
    result = ak.train(experiment, progress=False)
    variant, step, task = experiment.sharing[0], result.snapshot.step, experiment.task
    model = model_of(experiment, variant, result.parameters, step, Model)
    held = held_out_examples(experiment, experiment.seeds, model.device, task)
    given = experiment, variant, step, model
    maps = fitted_maps(model, experiment, step)
    maps["trained"] = np.stack(
        [
            trained_map(
                tied_to_key(*given, [own] * len(RATES)),
                start,
                TrainingData(experiment, [seed], model.device, task),
                n_steps,
            )
            for seed, own, start in zip(
                experiment.seeds, result.parameters, maps["fitted"], strict=True
            )
        ]
    )
    before = accuracy_of(model, held.tokens, held.labels)
    kept = accuracy_of(tied_to_key(*given, result.parameters), held.tokens, held.labels)
    found = {}
    for kind, one in maps.items():
        tied = tied_to_key(*given, result.parameters)
        take_up(tied, torch.from_numpy(one))
        repaired = accuracy_of(tied, held.tokens, held.labels)
        found[kind] = (repaired - kept) / (before - kept)
    return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[4, 8, 16, 24, 32])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--map-steps", type=int, default=300)
    options = parser.parse_args()
    for number, width in enumerate(options.widths):
        found = shares(width, options.seeds, options.map_steps, first_seed=60_010)
        if number == 0:
            print("| head |", " | ".join(found), "|")
            print("|--:|" + "--:|" * len(found))
        intervals = [mean_interval(values) for values in found.values()]
        cells = [f"{one.mean:.0%} [{one.low:.0%}, {one.high:.0%}]" for one in intervals]
        print(f"| {width} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
