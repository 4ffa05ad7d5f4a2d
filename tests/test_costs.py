"""Costs of variants, against real tensors and counted products, and variants of equal cost."""

import contextlib
import math
import random
import re

import pytest
import torch
from random_links import draw_value, draw_variant
from reference import DOZEN, possible
from searching import times
from torch.utils.flop_counter import FlopCounterMode

from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE, Adjusted, count_costs, equalise
from attnkit.experiment.experiment import settings
from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, InvalidVariant, Variant, title_of
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size
from attnkit.variants.width import WIDEST, Width

CPU = torch.device("cpu")


SIZES = [
    {"n_layers": 3, "d_head": 8},
    {"d_mlp": 17, "blocks": "final_norm", "positions": "learned", "d_model": 48, "n_heads": 2},
    {"task": "dictionary", "n_layers": 2, "d_mlp": 17, "blocks": "standard"},
    {"task": "dictionary", "n_layers": 2},
]
OUTSIDE = re.compile(r"(W|b)_(E|U|pos)|\d\.(W|b)_(in|out)|(\d\.ln[12]|ln_final)\.(w|b)")


@pytest.mark.parametrize("sizes", SIZES)
def test_parameters_are_those_of_the_real_tensors(sizes):
    """In all, and of attention alone; whatever others have beside it, for example an MLP."""
    variants = possible([*(named.variant for named in CATALOGUE.values()), *DOZEN], **sizes)
    sharing = [*variants, "QKV d_mlp=7", "Q=K d_mlp=0"]
    experiment = Experiment(sharing=sharing, n_seeds=1, **sizes)
    model = Model(experiment, [0, 1], CPU, tied=experiment.sharing)
    for place, variant in enumerate(model.variants):
        found = {name: value.numel() for name, value in model.run_parameters(2 * place).items()}
        costs = experiment.costs(variant)
        attention = sum(n for name, n in found.items() if not OUTSIDE.fullmatch(name))
        assert (costs.parameters, costs.attention) == (sum(found.values()), attention), variant


@pytest.mark.parametrize("task", ["directed", "dictionary"])
def test_multiply_adds_are_those_that_torch_counts(task):
    """One forward pass of any variant, wide enough that nothing is done twice; the mean token's."""
    sizes = {"task": task, "n_layers": 2, "d_mlp": 32, "d_head": 32, "d_model": 64}
    for variant in possible([*DOZEN, *map(Variant, Sharing)], **sizes):
        experiment = Experiment(sharing=[variant], **sizes)
        model = Model(experiment, [0, 1], CPU, tied=experiment.sharing)
        tokens = torch.zeros(2, 3, model.task.n_ctx, model.task.n_fields, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model.logits(tokens, [] if task == "directed" else None)
        found = counter.get_total_flops() / 2 / tokens[..., 0].numel()
        assert int(found) == experiment.costs(variant).multiply_adds, variant


def test_what_is_changed_to_make_costs_equal_is_told():
    """The dearest variant keeps its sizes, and whoever names a width; then the MLP's is chosen."""
    sharing = ["K=V", "MLA", "QKV kv_rank=5", "QKV"]
    experiment = Experiment(task="phonebook", sharing=sharing, equal="kv_cache")
    changes = ["head width 8 → 16", "rank m/4 → 16", "", ""]
    assert [experiment.adjusted(name).changes for name in sharing] == changes
    assert [experiment.costs(name).kv_cache for name in sharing] == [16, 16, 5, 16]
    model = Model(experiment, [0], CPU, sharing=[v for v in experiment.sharing if "m/4" in v])
    assert model.run_parameters(0)["0.W_C"].shape == (32, 16)
    names = ["QKV", "Q=K=V=I O=I d_head=m/h", "Q=K d_head=8"]
    experiment = Experiment(task="phonebook", sharing=names, equal="parameters")
    adjusted = experiment.adjusted(names[1])
    assert (adjusted.changes, adjusted.difference) == ("", pytest.approx(97 * 32 / 4128 - 1))
    assert "MLP width 64 → 68" in experiment.replace(d_mlp=64).adjusted(names[2]).changes
    assert experiment.unequal_costs.endswith(f"{title_of(names[1])} (−25%).")
    # A variant has its width before and after it is tied.
    experiment = experiment.replace(sharing=[*Sharing, "QKV tie=K=V"])
    for tied in ((), experiment.sharing):
        model = Model(experiment, [0], CPU, tied=tied)
        own = model.run_parameters(model.variants.index("QKV tie=K=V"))
        assert own["0.W_K"].shape == (32, 11)


def fits_of_all_widths(variants, size, task, equal):
    """The sizes and ranks of `equalise`, after trying every width and every rank."""

    def cost(variant, size, rank=None):
        wiring = Adjusted(size, rank, "", 0.0).wire(variant, task)
        return getattr(count_costs(wiring, task), equal)

    target = max(cost(variant, size) for variant in variants)

    def distance(*given):
        try:
            return abs(cost(*given) - target)
        except ValueError:
            return math.inf

    fits = {}
    for variant in variants:
        best, rank = size, None
        for name, widest in (("d_head", 128), ("d_mlp", 512)):
            width, near = getattr(size, name), distance(variant, best) <= TOLERANCE * target
            if not near and name not in variant.given and width:
                sizes = [best.model_copy(update={name: n}) for n in range(1, widest + 1)]
                order = {s: (distance(variant, s), abs(getattr(s, name) - width)) for s in sizes}
                best = min([best, *sizes], key=lambda s: order.get(s) or (distance(variant, s), 0))
        for option in variant.options:
            if getattr(option, "adjustable", False) and option.value.letter:
                if distance(variant, best) > TOLERANCE * target:
                    ranks = [type(option)(Width(n)) for n in range(1, WIDEST + 1)]
                    nearest = min(ranks, key=lambda rank: distance(variant, best, rank))
                    if distance(variant, best, nearest) < distance(variant, best):
                        rank = nearest
                break
        fits[variant] = (best, rank, cost(variant, best, rank) / target - 1)
    return fits


def test_widths_of_equal_costs_are_those_found_by_trying_all(seed):
    """Few widths are tried, and none of the others is nearer, for drawn variants and sizes."""
    rng = random.Random(seed)
    n_changed = 0
    for _ in range(times(8)):
        task = TASKS[rng.choice(["directed", "dictionary", "language"])]()
        known, names = settings(task.name), rng.sample([*Size.model_fields], 5)
        size = Size(**{name: draw_value(rng, known[name]) for name in names})
        drawn = ["QKV", "Q=K=V", f"QKV kv_rank={rng.choice(['m/4', 'd', 'm/2'])}"]
        drawn += [f"K=V d_k=d/{rng.randint(1, 6)} d_v=2d positions=rope", "QKV V=I d_head=m/h"]
        variants = []
        for form in [*drawn, *(draw_variant(rng) for _ in range(4))]:
            with contextlib.suppress(InvalidVariant, ValueError):
                Adjusted(size, None, "", 0.0).wire(Variant(form), task)
                variants.append(Variant(form))
        if not variants:  # as with RoPE in heads of one number
            continue
        if task.n_source:
            size = size.model_copy(update={"n_layers": 3 * size.n_layers})
        for equal in ("parameters", "multiply_adds", "kv_cache"):
            found = equalise(tuple(variants), size, task, equal)
            fits = {variant: (a.size, a.rank, a.difference) for variant, a in found.items()}
            assert fits == fits_of_all_widths(variants, size, task, equal), (size, task, equal)
            n_changed += sum(a.changes != "" for a in found.values())
    assert n_changed
