"""Every variant's formula, written out once more in plain PyTorch and double precision.

`Reference` shares with the library nothing but the names of parameters. It reads a text form by
itself and follows the papers, in lean and standard blocks, with one side or two. Index letters as
in `attnkit.model.reference`; rows are (b, h, i, d).
"""

import contextlib
import math
import re

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.model.reference import Layer
from attnkit.tasks import TASKS
from attnkit.training.data import stack
from attnkit.variants import CATALOGUE, Variant

CPU = torch.device("cpu")
TINY = {"n_names": 11, "n_values": 13, "n_entries": 5, "batch_size": 16, "n_eval": 16, "n_seeds": 2}
SHAPES = {
    "one head": {"d_head": 6, "self_mask": True},
    "three heads": {
        "d_model": 48, "n_heads": 3, "d_head": 14, "n_layers": 2, "d_mlp": 37, "causal": True,
        "self_mask": False,
    },
    "answers at the end": {
        "task": "phonebook", "d_model": 16, "n_heads": 2, "d_head": 22, "n_layers": 3, "d_mlp": 7,
        "causal": True, "self_mask": True, "positions": "none",
    },
}  # fmt: skip
ONE_SIDE = {
    "final norm": {
        "blocks": "final_norm", "d_model": 32, "n_heads": 2, "d_head": 6, "n_layers": 2,
        "d_mlp": 11, "positions": "learned", "self_mask": True,
    },
    "sparse": {
        "task": "mqar", "n_tokens": 22, "n_pairs": 3, "length": 14, "d_model": 16, "n_heads": 2,
        "d_head": 6, "n_layers": 2, "d_mlp": 7,
    },
    "fixed embedding": {
        "task": "neighbours", "n_asking": 2, "n_families": 3, "n_values": 7, "d_model": 16,
        "n_heads": 2, "d_head": 6, "self_mask": True,
    },
}  # fmt: skip
DICTIONARY = {"task": "dictionary", "n_words": 5, "n_vocab": 11, "n_heads": 2, "d_head": 6}
TWO_SIDES = {
    "lean": {**DICTIONARY, "d_model": 16, "n_layers": 1, "self_mask": True},
    "standard": {
        **DICTIONARY, "d_model": 16, "n_layers": 2, "d_mlp": 11, "blocks": "standard",
        "self_mask": False,
    },
    "final norm, self-mask": {
        **DICTIONARY, "d_model": 32, "n_layers": 1, "blocks": "final_norm", "self_mask": True,
        "order": "reversed",
    },
    "sparse": {
        "task": "translation", "max_length": 8, "d_model": 16, "n_heads": 2, "d_head": 6,
        "n_layers": 1, "d_mlp": 7,
    },
}  # fmt: skip
KNOWN = {
    "QKV", "Q", "K", "V", "O", "n_heads", "d_head", "d_k", "d_v", "kv_heads", "d_mlp", "kv_rank",
    "k_rank", "keyless", "scaled", "signed", "qk_norm", "unit_key", "temperature", "self_mask",
    "positions", "sum", "diff", "shared_layers", "kv_every", "start", "learning_rate", "skew",
    "exclusive", "v_norm", "rope_width", "rotate_values", "kv_residual", "shared_half", "kv_from",
    "valueless", "query_mlp", "fixed_values", "shaped",
    "tie", "tie_by", "tie_at",
}  # fmt: skip
NAMED = [named.variant for named in CATALOGUE.values()]
DOZEN = [
    *map(Variant, ("QKV", "Q=K=V signed positions=alibi", "QKV kv_rank=3 scaled positions=rope")),
    Variant("K=V n_heads=4 kv_heads=2 positions=rope rope_width=2 rotate_values"),
    Variant("QKV n_heads=4 kv_heads=2 keyless"),
    Variant("QKV k_rank=7 unit_key temperature=0.5"),
    Variant("QKV d_k=d/2 d_v=2d diff positions=relative self_mask=no"),
    Variant("Q=K sum skew=2 d_head=m/h positions=learned_plus"),
    Variant("K=V=I O=I d_head=m/h positions=key_bias"),
    Variant("K=V kv_rank=3 kv_every=2 positions=plus"),
    Variant("QKV d_mlp=11 shared_layers positions=learned"),
    Variant("K=V d_head=8 shared_half qk_norm exclusive"),
    Variant("QKV kv_residual=2 qk_norm v_norm"),
    Variant("QKV kv_from=bottom_middle self_mask"),
    Variant("QKV tie=Q=V tie_by=keep_V tie_at=0.6 start=K=V learning_rate=0.01"),
]
"""One of every mechanism: every word of a text form is among them."""
VARIANTS = list(dict.fromkeys([*NAMED, *DOZEN]))
for named in CATALOGUE.values():  # words that were added since
    if named.variant.given.keys() - {word for variant in DOZEN for word in variant.given}:
        DOZEN.append(named.variant)


class Reference:
    """The forward pass of one run of a variant.

    By layer, `scores` are (b, h·maps, i, j), before masks, `patterns` (b, h, i, j), after them, and
    `stages` have rows (b, …) by name, from what a layer reads to what it adds.
    """

    def __init__(self, experiment, text):
        size, self.n_ctx = experiment.size, experiment.task.n_ctx
        words = [word.partition("=")[::2] for word in text.split()]
        self.given = given = dict(words)
        without_formula = ", ".join(given.keys() - KNOWN)
        assert not without_formula, f"tests/reference.py has no formula for {without_formula}"
        self.source = {"Q": "Q", "K": "K", "V": "V"}  # whose matrix a role reads; I: the token
        for name, value in words:
            if name in self.source:
                members = {name, *value.split("=")}
                self.source |= dict.fromkeys(members, "I" if "I" in members else name)
        self.n_heads = int(given.get("n_heads", size.n_heads))
        letters = {"m": size.d_model, "d": size.d_head, "": 1}
        letters["d"] = self.width("d_head", size.d_head, letters)
        self.d_k, self.d_v = (self.width(name, letters["d"], letters) for name in ("d_k", "d_v"))
        self.letters = letters
        self.d_mlp = int(given.get("d_mlp", size.d_mlp))
        self.standard, self.final_norm = size.blocks != "lean", size.blocks != "standard"
        self.answers_from = experiment.task.answers_from
        self.positions = given.get("positions", size.positions)
        self.self_mask = given.get("self_mask", "yes" if size.self_mask else "no") != "no"
        source, everyone = range(experiment.task.n_source), range(self.n_ctx)
        rest = everyone[len(source) :]
        if source:  # who asks, who is looked at, whether causally; MLPs follow all but the second
            layers = [(source, source, False, True)] * size.n_layers
            layers += [(rest, rest, True, False), (rest, source, False, True)] * size.n_layers
        else:
            layers = [(everyone, everyone, size.causal, True)] * size.n_layers
        self.layers = layers

    def width(self, name, default, letters):
        """`m/h`, `2d` or `5` as a number."""
        text = str(self.given.get(name, default))
        number, letter, divisor = re.fullmatch(r"(\d*)([md]?)/?(\w*)", text).groups()
        divisor = self.n_heads if divisor == "h" else int(divisor or 1)
        return int(number or 1) * letters[letter] // divisor

    def logits(self, own, tokens):
        """Every layer adds what its heads read out, then its MLP."""
        self.scores, self.patterns, self.stages, kept = [], [], [], []
        x = own["W_E"][tokens].sum(2) + own.get("b_E", 0)  # (b, i, m)
        if self.positions in ("learned", "learned_plus"):
            x = x + own["W_pos"]
        for layer, (asks, looks, causal, has_mlp) in enumerate(self.layers):
            here, home = (
                {n[len(start) :]: value for n, value in own.items() if n.startswith(start)}
                for start in (f"{layer}.", "0." if "shared_layers" in self.given else f"{layer}.")
            )
            w = home | {name: here[name] for name in here if name.startswith("ln")}
            rows = self.norm(x, w, "ln1")
            self.stages.append({"x": x, "rows": rows})
            self.at = (torch.arange(len(side), dtype=torch.float64) for side in (asks, looks))
            self.at_i, self.at_j = self.at  # each side counts by itself
            n_own = len(self.layers) - len(self.layers) // 2  # that many have their own k and v
            if "kv_from" in self.given and layer >= n_own:
                k, v = kept[n_own - 1][0], kept[0][1]
            elif layer % int(self.given.get("kv_every", 1)) == 0:
                k, v = self.keys_and_values(rows[:, list(looks)], w)
            kept.append((k, v))
            mask = torch.zeros(len(asks), len(looks), dtype=torch.float64)
            if causal:
                mask[torch.ones_like(mask).triu(1) == 1] = -math.inf
            if self.self_mask and asks == looks:
                mask -= 1e5 * torch.eye(len(asks))
            added = self.read_out(self.queries(rows[:, list(asks)], w), k, v, w, layer, mask)
            self.stages[-1]["added"] = added
            asking = x[:, list(asks)] + added
            if self.d_mlp and has_mlp:
                hidden = F.gelu(linear(self.norm(asking, w, "ln2"), here, "in"))
                asking = asking + linear(hidden, here, "out")
            sides = [x[:, : asks.start], asking, x[:, asks.stop :]]
            x = torch.cat(sides, 1)
        x = x[:, self.answers_from :]
        return linear(self.norm(x, own, "ln_final") if self.final_norm else x, own, "U")

    def norm(self, x, w, name):
        """LayerNorm in standard blocks, RMSNorm in lean ones."""
        if self.standard:
            return F.layer_norm(x, x.shape[-1:], w[f"{name}.w"], w[f"{name}.b"], eps=1e-5)
        return norm(x)

    def heads(self, x, w, role, width):
        """x W, side by side, cut into heads; or the token itself."""
        made = x if self.source[role] == "I" else linear(x, w, self.source[role])
        return made.unflatten(-1, (-1, width)).transpose(1, 2)

    def queries(self, x, w):
        """q = x W_Q, and what acts on queries."""
        if "query_mlp" in self.given:
            f = F.gelu(linear(x, w, "F")) @ w["W_Q"] + w.get("b_Q", 0)
            centred = f - f.mean(-1, keepdim=True)
            f = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w["g_F"]
            q = (0.5 * (x + f)).unflatten(-1, (-1, self.d_k)).transpose(1, 2)
        else:
            q = self.heads(x, w, "Q", self.d_k)
        if "scaled" in self.given:
            q = q * w["D_Q"]
        if "qk_norm" in self.given:
            q = norm(q) * w["g_Q"]
        return self.turned(q, self.at_i) if self.positions == "rope" else q

    def keys_and_values(self, x, w):
        """k = x W_K, v = x W_V, or what stands in their place, and what acts on them."""
        narrow = linear(x, w, "C") if "kv_rank" in self.given else x
        if "valueless" not in self.given and "kv_residual" not in self.given:
            v = self.heads(narrow, w, "V", self.d_v)
        if "kv_residual" in self.given:
            k, v = (self.with_residual(x, w, self.source[role]) for role in "KV")
        elif "shared_half" in self.given:
            shared = linear(x, w, "R")[:, None].expand(*v.shape[:3], -1)
            k = torch.cat([shared, v[..., : self.d_k // 2]], -1)
        elif "keyless" in self.given:
            k = torch.einsum("bhid,hde->bhie", v, w["W_VK"])
        elif "k_rank" in self.given:
            k = self.heads(linear(x, w, "B"), w, "K", self.d_k)
        else:
            k = self.heads(narrow, w, "K", self.d_k)
        if "valueless" in self.given:
            v = self.heads(k.transpose(1, 2).flatten(2), w, "V", self.d_v)
        if "skew" in self.given:
            k = k @ skew(self.d_k, self.width("skew", 0, self.letters))
        if "scaled" in self.given:
            k, v = k * w["D_K"], v * w["D_V"]
        if "signed" in self.given:
            k = k * w["D"]
        if "qk_norm" in self.given:
            k = norm(k) * w["g_K"]
        if "unit_key" in self.given:
            k = k / k.norm(dim=-1, keepdim=True)
        if "v_norm" in self.given:
            v = norm(v)
        if self.positions == "rope":
            k = self.turned(k, self.at_j)
        if "rotate_values" in self.given:
            v = k if self.source["K"] == self.source["V"] else self.turned(v, self.at_j)
        return k, v

    def with_residual(self, x, w, name):
        """Return what all heads share plus the residual of each, x S + (x A_h) B_h."""
        of_heads = linear(x, w, f"A_{name}").unflatten(-1, (len(w[f"W_B_{name}"]), -1))
        residual = torch.einsum("bihr,hrd->bhid", of_heads, w[f"W_B_{name}"])
        return linear(x, w, f"S_{name}")[:, None] + residual

    def turned(self, rows, at):
        """RoPE: a pair is a complex number, turned by its position times 10000^(−2i/d)."""
        width = self.width("rope_width", rows.shape[-1], self.letters)
        width = width // 2 if "shared_half" in self.given else width
        rows, rest = rows[..., :width], rows[..., width:]
        first, second = rows.chunk(2, -1)
        rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = at[:, None] * rate
        turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag, rest], -1)

    def read_out(self, q, k, v, w, layer, mask):
        """softmax(q kᵀ · scale + bias + mask) v W_O, with two maps per head where there are."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        v = v.repeat_interleave(self.n_heads // v.shape[1], 1)
        scale = 1 if "unit_key" in self.given else self.d_k**-0.5
        scale = 1 / float(self.given["temperature"]) if "temperature" in self.given else scale
        scale = scale * w["w_plus"].sum() if "plus" in self.positions else scale
        products = q @ k.mT
        scores = (products * scale).unflatten(1, (self.n_heads, -1))  # (b, h, maps, i, j)
        scores = scores.sum(2, keepdim=True) if "sum" in self.given else scores
        scores = scores + self.bias(w)
        pattern = (scores + mask).softmax(-1)
        if "diff" in self.given:
            q1, k1, q2, k2 = (w[f"lambda_{name}"] for name in ("q1", "k1", "q2", "k2"))
            initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
            strength = (q1 @ k1).exp() - (q2 @ k2).exp() + initial
            pattern = pattern[:, :, :1] - strength * pattern[:, :, 1:]
        if "shaped" in self.given:
            even = (0 * scores + mask).softmax(-1)
            factors = (w[name][:, None, None, None] for name in ("beta", "gamma"))
            pattern = next(factors) * pattern - next(factors) * even
        z = pattern[:, :, 0] @ v
        if "shaped" in self.given:
            z = z + w["alpha"][:, None, None] * v
        if "diff" in self.given:
            z = z / (z.square().mean(-1, keepdim=True) + 1e-5).sqrt() * (1 - initial)
        if "exclusive" in self.given:
            z = z - (z * v).sum(-1, keepdim=True) / (v * v).sum(-1, keepdim=True) * v
        if self.given.get("rotate_values") == "":
            z = self.turned(z, -self.at_i)
        self.scores.append(scores.flatten(1, 2))
        self.patterns.append(pattern[:, :, 0])
        self.stages[-1] |= {"q": q, "k": k, "v": v, "products": products, "scores": scores}
        self.stages[-1] |= {"masked": scores + mask, "pattern": pattern[:, :, 0], "z": z}
        side_by_side = z.transpose(1, 2).flatten(2)
        return side_by_side if "O" in self.given else linear(side_by_side, w, "O")

    def bias(self, w):
        """What is added to the scores, (h or 1, 1, i, j)."""
        offset = (self.at_i[:, None] - self.at_j).long()
        if self.positions == "alibi":
            steps = torch.arange(1, self.n_heads + 1).double() / self.n_heads
            return -(2 ** (-8 * steps)).view(-1, 1, 1, 1) * offset.abs()
        if self.positions == "relative":
            return w["b_offset"][:, offset + self.n_ctx - 1].unsqueeze(1)
        if self.positions == "key_bias":
            return w["b_key"][:, None, None, : len(self.at_j)]
        if "plus" in self.positions:
            parts = zip((self.at_i, self.at_j), w["w_plus"].chunk(2), strict=True)
            of_rows, of_columns = (waves(at) @ part for at, part in parts)
            return (of_rows[:, None] + of_columns + w["b_plus"])[None, None]
        return torch.zeros(1, 1, 1, 1)


def linear(x, w, name):
    """x W, plus its bias where there is one."""
    return x @ w[f"W_{name}"] + w.get(f"b_{name}", 0)


def skew(n, rank):
    """Return the matrix that exchanges both halves of the last `rank` numbers, one negated."""
    made, half = torch.eye(n, dtype=torch.float64), rank // 2
    made[n - rank :, n - rank :] = 0
    for first in range(n - rank, n - half):
        made[first + half, first], made[first, first + half] = 1, -1
    return made


def norm(x):
    """RMSNorm without gain."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def waves(at):
    """The five features of a position in (X)⁺: sines and cosines by turns, (i, 5)."""
    pairs = [at * 10000 ** (-2 * pair / 5) for pair in (0, 1, 2)]
    both = [wave for angle in pairs for wave in (angle.sin(), angle.cos())]
    return torch.stack(both[:5], -1)


class InspectedExample:
    """Hold what a model says about one batch of examples per seed, by (variant, place of seed)."""

    def __init__(self, model, experiment, n=7, n_labels=None):
        drawn = [model.task.draw(n, generator_for(s, "look"), held_out=False) for s in model.seeds]
        examples, recorded = stack(drawn, len(drawn), CPU), list[Layer]()
        self.model, self.experiment = model, experiment
        self.tokens, self.labels = examples.tokens, examples.labels[..., :n_labels].contiguous()
        self.of_answers = model.logits(self.tokens)
        self.of_all = model.logits(self.tokens, recorded)
        self.layers, n_layers = {}, len(model.layer_specs)
        for run in range(model.n_runs):
            place, seed = divmod(run, len(model.seeds))
            own = recorded[place * n_layers : (place + 1) * n_layers]
            self.layers[run] = [(layer.scores[seed], layer.pattern[seed]) for layer in own]
        model.differentiate(self.tokens, self.labels)
        self.numbers, self.gradient = model.numbers.clone(), model.gradient.clone()

    def run(self, variant, seed=0):
        """The place of a run."""
        return self.model.variants.index(variant) * len(self.model.seeds) + seed

    def own(self, variant, seed=0):
        """Parameters of a run in double precision, ready for autograd."""
        found = self.model.run_parameters(self.run(variant, seed), self.numbers)
        return {name: value.double().requires_grad_() for name, value in found.items()}

    def check(self, variant, near=1e-3):
        """Hold logits, scores, patterns and gradients of all seeds against the formula."""
        for place, seed in enumerate(self.model.seeds):
            run, own = self.run(variant, place), self.own(variant, place)
            reference = Reference(self.experiment, variant)
            expected = reference.logits(own, self.tokens[place])
            for found in (self.of_answers, self.of_all):
                assert_close(found[run].double(), expected, rtol=1e-4, atol=2e-4)
            pairs = zip(self.layers[run], reference.scores, reference.patterns, strict=True)
            for found, *wanted in pairs:
                for numbers, formula in zip(found, wanted, strict=True):
                    assert_close(numbers.double(), formula, rtol=1e-4, atol=1e-4)
            labels = self.labels[place].flatten()
            F.cross_entropy(expected.flatten(0, 1), labels, ignore_index=-1).backward()
            d_model, generator = self.model.size.d_model, generator_for(seed, "fixed embedding")
            fixed = self.model.task.fixed_embedding(d_model, generator)
            if fixed is not None:
                own["W_E"].grad[fixed[0]] = 0
            gradients, wanted_of = self.model.run_parameters(run, self.gradient), {}
            assert gradients.keys() == own.keys()
            for name, value in own.items():
                given = "fixed_values" in variant.given and name.endswith("W_V")
                is_zero = given or value.grad is None
                wanted_of[name] = torch.zeros_like(value) if is_zero else value.grad
            # What cancels, such as the gradient of a bias of keys, is small, not zero.
            largest = max(float(wanted.abs().max()) for wanted in wanted_of.values())
            for name, wanted in wanted_of.items():
                least = near * max(0.01 * largest, float(wanted.abs().max()))
                message = f"{variant} {name}: {{}}".format
                found = gradients[name].double()
                assert_close(found, wanted, rtol=near, atol=least, msg=message)

    def idle(self, variant):
        """Parameters without a gradient, besides those that cancel in the softmax of a row."""
        found = self.model.run_parameters(self.run(variant), self.gradient)
        known = ("b_plus", "b_K", *(["W_V"] if "fixed_values" in variant.given else []))
        return [n for n, v in found.items() if not v.any() and not n.endswith(known)]


def shake(model):
    """Move all parameters of layers but matrices: many start at zero or one and so do nothing."""
    generator = torch.Generator().manual_seed(2)
    for run in range(model.n_runs):
        for name, value in model.run_parameters(run).items():
            if re.match(r"\d+\.(?!W_)", name):
                value += 0.3 * torch.randn(value.shape, generator=generator)


def settings_of(shape):
    """All settings of a shape but the variants."""
    sizes = {**TINY, "steps": 100, "evaluate_every": 50, **shape}
    left_out = {"n_names", "n_values", "n_entries"}
    left_out -= set(TASKS[sizes.get("task", "directed")].model_fields)
    return {name: value for name, value in sizes.items() if name not in left_out}


def sized(variants, shape):
    """An experiment of these variants at one of the shapes."""
    return Experiment(sharing=variants, **settings_of(shape))


def possible(variants, **settings):
    """Return the variants that an experiment allows with these settings."""
    fit = []
    for variant in variants:
        with contextlib.suppress(InvalidExperiment):
            fit += Experiment(sharing=[variant], **settings).sharing
    return fit
