"""Costs of variants, against real tensors and counted products, and variants of equal cost."""

import math
import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_links import draw_value, draw_variant
from reference import DOZEN, possible
from searching import briefly, times
from torch.utils.flop_counter import FlopCounterMode

from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE, Adjusted, count_costs, equalise
from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, InvalidVariant, Variant
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size
from attnkit.variants.width import WIDEST, Width

CPU = torch.device("cpu")


def final_model(experiment):
    """What the experiment's one variant is in the end, with two seeds."""
    return Model(experiment, [0, 1], CPU, tied=experiment.sharing)


SIZES = [
    {"n_layers": 3, "d_head": 8},
    {"d_mlp": 17, "blocks": "final_norm", "positions": "learned", "d_model": 48, "n_heads": 2},
    {"task": "dictionary", "n_layers": 2, "d_mlp": 17, "blocks": "standard"},
    {"task": "dictionary", "n_layers": 2},
]
OUTSIDE = re.compile(r"(W|b)_(E|U|pos)|\d\.(W|b)_(in|out)|(\d\.ln[12]|ln_final)\.(w|b)")


@pytest.mark.parametrize("sizes", SIZES)
def test_parameters_are_those_of_the_real_tensors(sizes):
    """In all, and those of attention alone; with one side and two, with biases and without."""
    variants = possible([*(named.variant for named in CATALOGUE.values()), *DOZEN], **sizes)
    for variant in variants:
        experiment = Experiment(sharing=[variant], **sizes)
        own = final_model(experiment).run_parameters(1)
        found = {name: value.numel() for name, value in own.items()}
        costs = experiment.costs(variant)
        attention = sum(n for name, n in found.items() if not OUTSIDE.fullmatch(name))
        assert (costs.parameters, costs.attention) == (sum(found.values()), attention), variant


def test_parameters_do_not_depend_on_the_company():
    """Nobody has norms or biases because somebody else has an MLP."""
    for d_mlp in (0, 17):
        sharing = ["K=V", "QKV d_mlp=7", "QKV d_mlp=0", "Q=K d_mlp=5"]
        experiment = Experiment(blocks="standard", sharing=sharing, d_mlp=d_mlp)
        model = final_model(experiment)
        for place, variant in enumerate(model.variants):
            own = model.run_parameters(2 * place)
            counted = sum(value.numel() for value in own.values())
            assert counted == experiment.costs(variant).parameters


@pytest.mark.parametrize("task", ["directed", "dictionary"])
def test_multiply_adds_are_those_that_torch_counts(task):
    """One forward pass of any variant, wide enough that nothing is done twice.

    With two sides, the mean over all tokens, of which only the decoder's ask twice and are read.
    """
    sizes = {"task": task, "n_layers": 2, "d_mlp": 32, "d_head": 32, "d_model": 64}
    for variant in possible([*DOZEN, *map(Variant, Sharing)], **sizes):
        experiment = Experiment(sharing=[variant], **sizes)
        model = final_model(experiment)
        tokens = torch.zeros(2, 3, model.task.n_ctx, model.task.n_fields, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model.logits(tokens, [] if task == "directed" else None)
        found = counter.get_total_flops() / 2 / tokens[..., 0].numel()
        assert int(found) == experiment.costs(variant).multiply_adds, variant


def test_costs_are_those_worked_out_by_hand():
    """One layer of four heads of five numbers, model width 32; then layers that share, two sides.

    Three layers in pairs keep the keys and values of the first and the last, four those of two.
    """
    for variant, attention, kv_cache in (
        ("QKV", 4 * 32 * 20, 40),
        ("K=V", 3 * 32 * 20, 20),
        ("QKV kv_heads=2", 2 * 32 * 20 + 2 * 32 * 10, 20),
        ("K=V kv_heads=1", 2 * 32 * 20 + 32 * 5, 5),
        ("QKV kv_rank=3", 2 * 32 * 20 + 32 * 3 + 2 * 3 * 20, 3),
        ("QKV keyless", 3 * 32 * 20 + 4 * 5 * 5, 20),
        ("QKV d_k=2 d_v=7", 2 * 32 * 8 + 2 * 32 * 28, 4 * 9),
        ("Q=K", 3 * 32 * 20, 40),
        ("Q=K=V scaled", 2 * 32 * 20 + 3 * 20, 20),
        ("QKV V=I O=I d_head=8", 2 * 32 * 32, 64),
        ("Q=K=V=I O=I d_head=8", 0, 32),
    ):
        costs = Experiment(sharing=[variant], n_heads=4, d_head=5).costs(variant)
        assert (costs.attention, costs.kv_cache) == (attention, kv_cache), variant
    for n_layers, word in ((3, "kv_every=2"), (4, "kv_from=bottom_middle")):
        experiment = Experiment(sharing=[f"QKV {word}"], n_layers=n_layers, n_heads=2, d_head=5)
        assert experiment.costs(f"QKV {word}").kv_cache == 2 * 2 * 2 * 5
    outside, lean = 23 * 32 + 10 * 32 + 32 * 11, 3 * 4 * 32 * 6
    for blocks, d_mlp, inside in (
        ("lean", 0, lean),
        ("lean", 7, lean + 2 * 2 * 32 * 7),
        ("final_norm", 0, lean + 3 * (3 * 6 + 32) + 32 + 11 + 4 * 2 * 32),
    ):
        sizes = {"n_vocab": 11, "n_words": 5, "d_head": 6, "d_mlp": d_mlp, "blocks": blocks}
        costs = Experiment(task="dictionary", **sizes).costs("QKV")
        assert costs.parameters == outside + inside


# Equal costs


@pytest.mark.parametrize(("task", "d_mlp"), [("phonebook", 0), ("dictionary", 128), ("reverse", 0)])
def test_sharings_of_equal_parameters_differ_by_two_percent_at_most(task, d_mlp):
    """At defaults, with and without an MLP, counted on the real tensors."""
    model = Model(Experiment(task=task, d_mlp=d_mlp, equal="parameters"), [0], CPU)
    runs = [model.run_parameters(run).values() for run in range(model.n_runs)]
    counts = [sum(value.numel() for value in own) for own in runs]
    assert max(counts) <= (1 + TOLERANCE) * min(counts)


def test_what_is_changed_to_make_costs_equal_is_told():
    """The dearest variant keeps its sizes; an equal cache widens parts of another width.

    A variant that names its own width keeps it; the MLP's is chosen instead if there is one.
    """
    for equal in ("parameters", "multiply_adds", "kv_cache"):
        experiment = Experiment(task="phonebook", equal=equal)
        assert experiment.adjusted("QKV").size == experiment.size
        assert experiment.adjusted("QKV").changes == ""
        assert "head width 8 → " in experiment.adjusted("Q=K=V").changes
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
    assert adjusted.changes == ""
    assert adjusted.difference == pytest.approx((64 + 1 + 32) * 32 / 4128 - 1)
    assert "MLP width 64 → 68" in experiment.replace(d_mlp=64).adjusted(names[2]).changes


@given(
    st.sets(st.sampled_from([*Sharing, *DOZEN, "Reformer", "MQA"]), min_size=2),
    st.sampled_from(["parameters", "multiply_adds", "kv_cache"]),
    st.sampled_from([0, 48]),
)
@briefly(20)
def test_equal_costs_are_equal_or_say_how_far_they_are_off(variants, equal, d_mlp):
    """The difference told is that of the costs, and nobody is dearer than 2% above the dearest."""
    try:
        experiment = Experiment(sharing=variants, n_heads=4, d_head=8, d_mlp=d_mlp, equal=equal)
    except InvalidExperiment:
        return
    wanted = max(
        getattr(count_costs(v.wire(experiment.size, 8), experiment.task), equal)
        for v in experiment.sharing
    )
    for variant in experiment.sharing:
        told = experiment.adjusted(variant).difference
        assert getattr(experiment.costs(variant), equal) / wanted - 1 == pytest.approx(told)


def test_equal_costs_do_not_depend_on_the_cohort_or_the_stage():
    """A variant has the widths that it has beside all others, also before and after it is tied."""
    experiment = Experiment(
        task="phonebook", sharing=[*Sharing, "QKV tie=K=V"], n_seeds=1, equal="parameters"
    )
    models = [
        Model(experiment, [0], CPU, sharing=[v for v in experiment.sharing if v == "K=V"]),
        Model(experiment, [0], CPU),
        Model(experiment, [0], CPU, tied=experiment.sharing),
    ]
    for model, text in zip(models, ("K=V", "QKV tie=K=V", "QKV tie=K=V"), strict=True):
        run = model.variants.index(text)
        assert model.run_parameters(run)["0.W_K"].shape == (32, 11)


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
    for _ in range(times(12)):
        task = TASKS[rng.choice(["directed", "dictionary", "language"])]()
        known, names = settings(task.name), rng.sample([*Size.model_fields], 5)
        size = Size(**{name: draw_value(rng, known[name]) for name in names})
        drawn = ["QKV", "Q=K=V", f"QKV kv_rank={rng.choice(['m/4', 'd', 'm/2'])}"]
        drawn += [f"K=V d_k=d/{rng.randint(1, 6)} d_v=2d positions=rope", "QKV V=I d_head=m/h"]
        variants = []
        for form in [*drawn, *(draw_variant(rng) for _ in range(4))]:
            try:
                variants.append(Variant(form))
                Adjusted(size, None, "", 0.0).wire(variants[-1], task)
            except InvalidVariant:
                continue
            except ValueError:
                variants.pop()
        if task.n_source:
            size = size.model_copy(update={"n_layers": 3 * size.n_layers})
        for equal in ("parameters", "multiply_adds", "kv_cache"):
            found = equalise(tuple(variants), size, task, equal)
            fits = {variant: (a.size, a.rank, a.difference) for variant, a in found.items()}
            assert fits == fits_of_all_widths(variants, size, task, equal), (size, task, equal)
            n_changed += sum(a.changes != "" for a in found.values())
    assert n_changed
