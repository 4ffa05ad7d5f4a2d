"""Attention of one's own: modules written from the exported file, here and on a server."""

import itertools
import json
import random
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from idle import idle_service, open_page, show, visit
from own_modules import (
    AtFirstCall,
    Fused,
    Gated,
    Hashed,
    Lazy,
    Linear,
    OfItsLength,
    OneHead,
    Plain,
)
from torch import nn
from visiting import press
from waiting import wait_until

import attnkit as ak
from attnkit.__main__ import main
from attnkit.analysis.export import command_line, experiment_code, module_code
from attnkit.analysis.inspection.views import OF_MODULES, VIEWS
from attnkit.experiment import InvalidExperiment, from_text
from attnkit.experiment.links import read_link
from attnkit.service import modules
from attnkit.service.modules import OwnModules, answer_to
from attnkit.service.protocol import GiveModule
from attnkit.training import Training
from attnkit.ui.lab import composer
from attnkit.ui.lab.composer import _CLASS, _FILE, _SECTION
from attnkit.ui.server.service import training_service
from attnkit.variants import InvalidVariant
from attnkit.variants.module import classes_in
from attnkit.variants.wiring import ModuleFacts

SMALL = {"task": "directed", "n_seeds": 2, "steps": 20, "evaluate_every": 10, "n_eval": 64}
LINE = "return x + self.W_O(z)"
MAPS = f"{LINE}, scores, masked.softmax(-1)"


def exported(tmp_path, sharing="QKV", *, line=LINE, name="mine.py", **others):
    """Return the path of an exported file, in which one line is another."""
    experiment = ak.Experiment(sharing=[sharing], **{**SMALL, **others})
    code = module_code(experiment, sharing)
    assert LINE in code or line == LINE
    path = tmp_path / name
    path.write_text(code.replace(LINE, line), encoding="utf-8")
    return path


def losses(result, variant):
    """Return the losses of a variant at every evaluation, (evaluations, seeds)."""
    rows = [run for run, (named, _) in enumerate(result.experiment.runs) if named == variant]
    return result.snapshot.history["loss"][:, rows]


@pytest.mark.parametrize("sizes", [{}, {"d_mlp": 24, "n_heads": 2, "n_layers": 2, "causal": True}])
def test_an_exported_file_comes_back_as_what_it_was(sizes, tmp_path):
    """The imported QKV and Q=K have the losses of ours, and the numbers of their weights."""
    columns = {s: ak.variant(f"{exported(tmp_path, s, name=f'{s}.py', **sizes)}:Layer")
               for s in ("QKV", "Q=K")}  # fmt: skip
    sharing = [*columns, *columns.values()]
    result = ak.train(ak.Experiment(sharing=sharing, **{**SMALL, **sizes}), "cpu", False)
    for ours, theirs in columns.items():
        np.testing.assert_allclose(losses(result, theirs), losses(result, ours), 2e-4, 1e-5)
        costs = [result.experiment.costs(v) for v in (ours, theirs)]
        assert costs[0].parameters == costs[1].parameters
        assert costs[1].kv_cache is None


def test_one_changed_line_brings_maps_and_asymmetry(tmp_path):
    """It returns scores and pattern, which are those of QKV; without them the reason stands."""

    class Masked(OneHead):  # whose asymmetry would be that of the mask
        def forward(self, x):
            q, k, v = self.projected(x)
            scores = self.scores(q, k)
            return x + self.W_O(scores.softmax(-1) @ v), scores, scores.softmax(-1)

    class Paired(Masked):  # as nn.MultiheadAttention returns its maps
        def forward(self, x):
            added, _, pattern = super().forward(x)
            return added, pattern

    paths = exported(tmp_path, line=MAPS), exported(tmp_path, name="other.py")
    own = [*(ak.variant(f"{path}:Layer") for path in paths), *map(ak.variant, (Masked, Paired))]
    result = ak.train(ak.Experiment(sharing=["QKV", *own], **SMALL), "cpu", False)
    pattern, history = result.snapshot.probe.pattern[::2], result.snapshot.history  # of one seed
    np.testing.assert_allclose(pattern[1], pattern[0], atol=2e-3)
    assert np.isnan(pattern[2]).all()
    for name, known in {
        "mass_on_target": [True, True, False, True, True],
        "score_symmetry": [True, True, False, False, False],
        "weight_symmetry": [True, False, False, False, False],
    }.items():
        assert (np.isfinite(history[name][:, ::2]) == known).all(), name
    has, lacks, masked, paired = (result.experiment.wiring(one).module.missing for one in own)
    assert (has, "a mask" in masked, "scores and pattern" in lacks) == ("", True, True)
    assert "does not return its scores, so" in paired
    mixed = ModuleFacts("Mixed", "", returned=[(True, True), (False, True)], masked=True)
    assert "does not return" not in mixed.missing
    assert lacks.removesuffix(".") in json.dumps(result._repr_html_())
    line = MAPS.replace("masked", "scores")
    unmasked = exported(tmp_path, line=line, name="unmasked.py", self_mask=False)
    own += [ak.variant(Plain), ak.variant(OfItsLength), ak.variant(f"{unmasked}:Layer")]
    apart = ak.Experiment(sharing=own, **SMALL)
    told = ["may attend to themselves" in apart.wiring(one).module.missing for one in own]
    assert (apart.size.self_mask, told) == (True, [False] * 4 + [True] * 3)


def test_modules_train_beside_ours_in_batches_and_one_by_one():
    """Modules learn; one that `vmap` cannot run has the same numbers, seed by seed."""

    class Stubborn(Linear):
        def forward(self, x):
            if float(x.detach().sum()) > 1e9:  # a branch that depends on numbers
                return x
            return super().forward(x)

    linear, gated, stubborn = modules = [ak.variant(one) for one in (Linear, Gated, Stubborn)]
    experiment = ak.Experiment(sharing=["QKV", *modules], n_heads=2, **SMALL)
    assert [experiment.wiring(v).module.batched for v in modules] == [True, True, False]
    result = ak.train(experiment, "cpu", False)
    for variant in modules:
        found = losses(result, variant)
        assert (found[-1] < found[0]).all()
    np.testing.assert_allclose(losses(result, linear), losses(result, stubborn), 1e-4)
    cache = result.table.set_index("sharing").loc[linear, "kv_cache_floats_per_token"]
    assert set(cache) == {2 * experiment.size.d_head}
    assert experiment.costs(linear).parameters < experiment.costs(gated).parameters
    json.dumps(result.to_dict(), allow_nan=False)
    start = Training(ak.Experiment(sharing=["QKV", gated], **SMALL)).result().parameters
    for ours, own in zip(start[:2], start[2:], strict=True):
        assert (ours["0.W_Q"] == own["0.W_Q.weight"].T).all()
        assert (own["0.gate"] == 0).all()
    assert (start[2]["0.W_V.weight"] != start[3]["0.W_V.weight"]).any()


def changed(forward=Plain.forward, base=Plain, **attributes):
    """Return a class with another forward, and with attributes that its constructor makes."""

    class Changed(base):
        def __init__(self, d_model, d_head):
            super().__init__(*((d_model, d_head) if base is Plain else ()))
            for name, make in attributes.items():
                setattr(self, name, make())

    Changed.forward = forward
    return Changed


def test_a_broken_module_is_told_before_training():
    """The message names the class, its file and what is wrong."""

    def added(own, x):
        return x + own.W_O(own.W_V(x))

    def root_of_zero(own, x):  # whose gradient is infinite
        return added(own, x) + (0 * own.W_Q(x)).sum(-1, keepdim=True).sqrt()

    def of_heads(own, x):
        return x + sum(head.W_O(head.projected(x)[2]) for head in own.heads)

    def heads():
        return [OneHead(32, 16) for _ in range(2)]

    phase = partial(nn.Parameter, torch.ones(16, dtype=torch.complex64))
    gain, attention = partial(torch.ones, 32, requires_grad=True), nn.MultiheadAttention
    for module, reason in (
        (changed(lambda own, x: x, nn.Module), "no parameters, allowed"),
        (changed(lambda own, x: own.W_Q(x)), r"shape \(2, \d+, \d+\), allowed .* \(2, "),
        (changed(lambda own, x: added(own, x) / 0 * 0), r"nan at \[0, 0, 0\]"),
        (changed(lambda own, x: [][1]), r"IndexError: .*, in line \d+"),
        (changed(lambda own, x: sys.exit(3)), r"SystemExit: 3, in line \d+"),
        (changed(root_of_zero), r"backward .*gradient of W_Q.weight has nan"),
        (changed(lambda own, x: x.add_(added(own, x))), "x in place, allowed .*x = x [+] z"),
        (changed(lambda own, x: own.W_O(own.W_Q(x).exp().mul_(2))), "backward .*a new tensor"),
        (changed(lambda own, x: (added(own, x), torch.zeros(3), None)), "scores .* 1 head"),
        (changed(lambda own, x: (added(own, x), own.W_Q(x) @ own.W_K(x).mT / 0 * 0, None)),
         "nan in its scores"),
        (changed(lambda own, x: (added(own, x), None, torch.zeros(2, 1, 5, 4))),
         "pattern are shape .*, allowed .b, h, i, j."),
        (changed(of_heads, heads=heads), r"tensor of shape \(.*nn.ModuleList"),
        (changed(lambda own, x: added(own, x * own.gain), gain=gain), r"\(32,\) .* nn.Parameter"),
        (changed(lambda own, x: x + own.attention(x, x, x)[0],
                 attention=partial(attention, 32, 2, bias=False)),  # expects positions first
         "other examples of the batch, .* batch_first=True"),
        (changed(phase=phase), "phase holds complex numbers"),
        (changed(lambda own, x: added(own, x) * own.kept, kept=partial(torch.randn, 1)),
         "draws numbers that are no parameters"),
        (changed(lambda own, x: added(own, x).double()), "float64 numbers, allowed those of x"),
        (changed(lambda own, x: (added(own, x), None, own.scores(x, x).softmax(-2))),
         "sum to one over the queries"),
        (changed(lambda own, x: added(own, x) * next(own.calls), calls=itertools.count),
         "other numbers for the same input"),
        (changed(later=lambda: (token for token in [])), "cannot pickle 'generator' object"),
        (changed(large=lambda: nn.Buffer(torch.randint(2**40, (3,)))),
         "large has numbers above 16,777,216, the most allowed"),
        (changed(long=lambda: nn.Buffer(torch.ones(random.randrange(2**20)))),
         "long has another shape for every seed"),
        (type("Changed", (Plain,), {"__signature__": 3}), "constructor cannot be read"),
    ):  # fmt: skip
        with pytest.raises(InvalidExperiment, match=rf"Changed in test_module\.py.*: .*{reason}"):
            ak.Experiment(sharing=["QKV", ak.variant(module)], **SMALL)

    class Later(OneHead):  # which looks at later tokens, whatever the setting
        def forward(self, x):
            q, k, v = self.projected(x)
            return x + self.W_O(self.scores(q, k).softmax(-1) @ v)

    later = ak.variant(Later)
    assert ak.Experiment(sharing=[later], **SMALL)
    with pytest.raises(InvalidExperiment, match=r"position \d+ of \d+"):  # where it is cheating
        ak.Experiment(task="induction", sharing=[later])


def test_what_a_module_really_computes_is_counted(seed):
    """Fused attention counts as the same in steps; what is made at the first call is trained."""
    costs, idle = {}, changed(idle=partial(nn.Linear, 32, 16, bias=False))

    def summed(own, x):  # a buffer that every call changes is not drawn
        own.sum += own.W_O.weight.detach().sum()
        return Plain.forward(own, x)

    summing = changed(summed, sum=lambda: nn.Buffer(torch.zeros(1)))
    dropping = changed(lambda own, x: Plain.forward(own, own.drop(x)), drop=nn.Dropout)
    for module in (Plain, Fused, Lazy, AtFirstCall, summing, dropping, idle):
        variant = ak.variant(module)
        experiment = ak.Experiment(sharing=["QKV", variant], first_seed=seed % 1000, **SMALL)
        costs[module] = experiment.costs(variant)
        result = ak.train(experiment, "cpu", False)
        found = losses(result, variant)
        assert (found[-1] < found[0]).all(), module.__name__
        assert len({*found[0]}) == 2, module.__name__  # every seed has its own numbers
        layers = experiment.wiring(variant).module
        assert ("as in evaluation" in layers.missing) == (module is dropping)
        assert ("no gradient for idle.weight" in layers.missing, layers.drawn) == (
            module is idle,
            [],
        )
    assert len({cost.multiply_adds for cost in costs.values()}) == 1
    assert costs[Plain].parameters == costs[Lazy].parameters < costs[idle].parameters
    longer = {**SMALL, "task": "mqar", "positions": "rope", "longer_test": 2}
    n_ctx = ak.Experiment(**longer | {"longer_test": 1}).task.n_ctx
    places = partial(torch.zeros, n_ctx, 32)
    of_length = changed(lambda own, x: Plain.forward(own, x + own.places), places=places)
    for module, reason in (
        (OfItsLength, "has parameters for the trained"),
        (of_length, "examples Changed"),
    ):
        with pytest.raises(InvalidExperiment, match=f"longer_test: got 2, allowed 1: .*{reason}"):
            ak.Experiment(sharing=[ak.variant(module)], **longer)


@pytest.mark.parametrize("task", ["translation", "copy"])
def test_a_module_trains_on_tasks_of_other_kinds(task):
    """Sequences with and without an encoder; the module gets what its forward asks for."""

    class Any(OneHead):
        def forward(self, x, y=None, mask=0.0):
            rows = [nn.functional.rms_norm(t, t.shape[-1:]) for t in (x, x if y is None else y)]
            q, k, v = self.W_Q(rows[0]), self.W_K(rows[1]), self.W_V(rows[1])
            later = torch.ones(x.shape[1], x.shape[1]).triu(1) > 0
            scores = q @ k.mT / q.shape[-1] ** 0.5 + mask
            scores = scores.masked_fill(later, -torch.inf) if y is None else scores
            pattern = scores.softmax(-1)
            return x + self.W_O(pattern @ v), None, pattern

    small = {"n_seeds": 1, "steps": 4, "evaluate_every": 4, "n_eval": 32, "batch_size": 32}
    result = ak.train(ak.Experiment(task=task, sharing=[ak.variant(Any)], **small), "cpu", False)
    assert np.isfinite(result.snapshot.history["loss"]).all()
    assert np.isfinite(result.snapshot.probe.pattern[:, :, 0]).all()  # its only head


def test_code_does_not_travel():
    """A text, a link and a JSON file that name a module are refused where it was not given."""
    variant = ak.variant(Linear)
    text = ak.Experiment(sharing=["QKV", variant], **SMALL).to_json()
    assert from_text(text).sharing == ("QKV", variant)
    expected = "--attention FILE.py:CLASS"
    with pytest.raises(InvalidExperiment, match=expected):
        from_text(text.replace(variant.rpartition(".")[2], "00000000"))
    link = read_link({"sharing": "QKV,QKV module=Linear.00000000"}, lambda _: None)
    assert link.experiment.sharing == ("QKV",)
    assert expected in link.problems[0].sentence
    with pytest.raises(InvalidVariant, match="the module decides about kv_heads"):
        ak.Variant(f"{variant} kv_heads=1")


def test_what_cannot_be_used_is_one_line(tmp_path, capsys):
    """Exit code 2 and a message with the file, the class and the reason; no object, no function."""
    for number, (content, wanted, message) in enumerate(
        (
            (None, "Mine", "cannot be read"),
            ("def f(:", "Mine", "SyntaxError"),
            ("1 / 0", "Mine", "ZeroDivisionError"),
            ("import a_neighbour", "Mine", "must be installed"),
            ("x = 1", "Mine", "no subclass of torch.nn.Module"),
            ("from torch import nn\nclass A(nn.Module): pass", "Mine", "allowed classes of .*: A"),
            ("", "not a name", "allowed FILE.py:CLASS"),
        )
    ):
        path = tmp_path / f"mine_{number}.py"
        if content is not None:
            path.write_text(content, encoding="utf-8")
        assert main(["train", "--task", "directed", "--attention", f"{path}:{wanted}"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert re.search(rf"--attention: got .*{path.name}.*{message}", error), error
    for wrong in (nn.Linear(2, 2), len, int):
        with pytest.raises(ValueError, match=r"attention: got .*, allowed a subclass of torch.nn"):
            ak.variant(wrong)


def test_a_module_that_fails_during_training_is_one_line(tmp_path, capsys):
    """A failure shows and saves what all variants had trained until shortly before, if anything."""
    arguments = ["train", "--task", "directed", "--seeds", "1", "--set", "evaluate_every=20"]
    for n_calls, saved in ((12, False), (100, True)):  # calls after which it fails
        count = "calls = getattr(self, 'calls', 0) + 1; self.calls = calls"
        path = exported(tmp_path, line=f"{count}; calls > {n_calls} and 1 / 0; {LINE}")
        out = tmp_path / f"out {n_calls}"
        assert main([*arguments, "--attention", f"{path}:Layer", "--out", str(out)]) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert re.match("attnkit: error: --attention: Layer in mine.py: .*ZeroDivision", last)
        assert (last.endswith("nothing is saved"), out.exists()) == (not saved, saved)
    result = ak.Result.load(out)
    snapshot, found = result.snapshot, losses(result, "QKV")
    assert last.endswith(f" step {snapshot.step}")
    assert (snapshot.status, 0 < snapshot.step < 600, snapshot.step % 20) == ("stopped", True, 0)
    alone = ak.Experiment(sharing=["QKV"], n_seeds=1, evaluate_every=20)
    expected = losses(ak.train(alone, "cpu", False), "QKV")
    np.testing.assert_array_equal(found, expected[: 1 + snapshot.step // 20])
    path = exported(tmp_path, line=f"print('hello'); {LINE}")  # which is no result
    options = "--task directed --seeds 1 --steps 2 --set evaluate_every=1 --json -".split()
    assert main(["train", *options, "--attention", f"{path}:Layer"]) == 0
    output, errors = capsys.readouterr()
    assert ("runs" in json.loads(output), "hello" in errors) == (True, True)


def test_a_notebook_that_changes_a_class_gives_another_variant():
    """Attributes, properties, base classes, and what its functions use are part of its code."""

    def variant_with(base, own, used="pass"):
        names = {"__name__": "__main__"}
        code = "import torch\nclass Base(torch.nn.Module):\n    {}\nclass A(Base):\n    {}\n"
        code += "    def forward(self, x): return used(x)\ndef used(x): return Used.of(x)\n"
        exec(f"{code}class Used:\n    {{}}\n".format(base, own, used), names)
        return ak.variant(names["A"])

    for part in ("window = {}", "def size(self): return {}", "wide = property(lambda self: {})"):
        three, four = part.format(3), part.format(4)
        assert len({variant_with("pass", one) for one in (three, four, three)}) == 2
        assert len({variant_with(one, "pass") for one in (three, four, three)}) == 2
        assert len({variant_with("pass", "pass", one) for one in (three, four, three)}) == 2


def test_what_a_constructor_draws_belongs_to_its_seed():
    """Buffers stay as drawn and are no parameters; numpy and Python draw by the seed as well."""

    class Drawn(Hashed):
        def __init__(self, d_model, d_head):
            super().__init__(d_model, d_head)
            self.gain = nn.Parameter(torch.tensor(np.random.rand(d_model)).float())  # noqa: NPY002
            self.share = nn.Buffer(torch.tensor(random.random()))
            self.empty = nn.Parameter(torch.zeros(0))

        def forward(self, x):
            return x + self.share * self.gain * (super().forward(x)[0] - x)

    random.seed(1)
    expected = random.random()
    random.seed(1)
    ends = []
    for _ in range(2):
        drawn = ak.variant(type("Drawn", (Drawn,), {"__module__": __name__}))
        experiment = ak.Experiment(sharing=[drawn], n_heads=2, **SMALL)
        result = ak.train(experiment, "cpu", False)
        ends.append(result.snapshot.history["loss"][-1])
    assert random.random() == expected
    np.testing.assert_array_equal(*ends)
    assert len({*ends[0]}) == 2
    module, size = experiment.wiring(drawn).module, experiment.size
    one, other = result.parameters
    (alone,) = ak.train(experiment.replace(first_seed=1, n_seeds=1), "cpu", False).parameters
    assert (one["0.hash"] != other["0.hash"]).any()
    for seed, parameters in ((0, one), (1, other), (1, alone)):
        assert (module.initial(seed, 0)["hash"].numpy() == parameters["0.hash"]).all()
        assert sorted(parameters["0.order"]) == list(range(size.d_head))
    assert module.n_parameters == 4 * size.d_model * size.d_head + size.d_model


def test_nothing_is_pinned_to_the_cpu():
    """On another device (meta: shapes only) all is computed there, and a stray tensor is told."""

    class Pinned(OneHead):
        def forward(self, x):
            return x + self.W_O(self.W_V(x)) + torch.ones(x.shape[1], 1, device="cpu")

    meta = torch.device("meta")
    for attention in (Hashed, Pinned):
        variant = ak.variant(attention)
        experiment = ak.Experiment(sharing=[variant], n_heads=2, **SMALL)
        layers = experiment.wiring(variant).module
        weights = {name: value[None].to(meta) for name, value in layers.initial(0, 0).items()}
        x = torch.empty(1, 3, experiment.task.n_ctx, experiment.size.d_model, device=meta)
        if attention is Pinned:
            with pytest.raises(ValueError, match=r"meta .*line \d+"):
                layers.run(0, weights, x, x, None)
        else:
            assert layers.run(0, weights, x, x, None).x.device == meta


def test_a_film_is_recorded_and_pages_show_what_they_can():
    """Asymmetry has all variants; Attention leaves modules out, and refuses them alone."""
    columns = [ak.variant(one) for one in (Linear, Hashed)]
    experiment = ak.Experiment(sharing=["QKV", *columns], n_heads=2, **SMALL)
    both = ak.record(experiment, progress=False)
    for view in VIEWS:
        shown = ak.inspect(both, ak.Inspection(view)).header["variants"]
        assert len(shown) == (3 if view in OF_MODULES else 1), view
    equal = experiment.replace(sharing=["QKV", "Q=K", columns[0]], equal="parameters")
    adjusted = {name: equal.adjusted(name).size.d_head for name in ("QKV", "Q=K")}
    shown = ak.inspect(ak.record(equal, progress=False), ak.Inspection("attention")).header
    expected = [f"{name} d_head={width}" for name, width in adjusted.items() if width != 16]
    assert {*expected} <= {one["text"] for one in shown["variants"]}
    film = ak.record(ak.Experiment(sharing=[columns[0]], **SMALL), progress=False)
    assert np.isfinite(film.head_symmetry).all()
    with pytest.raises(ValueError, match="film: got Linear"):
        ak.inspect(film, ak.Inspection("attention"))


# On a server: loaded from a file, trained, watched, and never elsewhere


def finished(service, experiment):
    """Train an experiment and return its job."""
    job = wait_until(service, service.submit(experiment), lambda job: job.over)
    assert job.state == "finished", job.error
    return job


@pytest.fixture
def in_this_process(monkeypatch):
    """Execute loaded code here, in place of the process that is there for it."""

    class Here(list):  # the answers that are not read yet
        def __init__(self, _):
            super().__init__()

        send, read = (lambda own, command: own.append(answer_to(command))), list.pop
        kill = end = close = lambda _: None

    monkeypatch.setattr(modules, "ChildProcess", Here)


@pytest.mark.server
def test_a_loaded_class_trains_like_the_variant_it_was_written_from(pages_service, tmp_path):
    """Maps and costs are there, nothing is stored, and code is text."""
    service, path = pages_service, exported(tmp_path, line=MAPS)
    mine = service.load_module(str(path), "Layer")
    experiment = ak.Experiment(sharing=["QKV", mine], **SMALL)
    assert service.changed_module(mine) is None
    job = finished(service, experiment)
    assert (job.stored, bool(job.unstored)) == (False, True)
    ends = job.snapshot.history["loss"][-1]
    assert ends[:2] == pytest.approx(ends[2:], rel=1e-3)
    assert np.isfinite(job.snapshot.probe.pattern).all()
    assert f"--attention {path.name}:Layer" in command_line(experiment)
    assert f'ak.variant("{path.name}:Layer")' in experiment_code(experiment)
    path.write_text(path.read_text() + "\n# changed\n")
    assert service.changed_module(mine) == (str(path), "Layer")
    assert service.load_module(str(path), "Layer") != mine


@pytest.mark.server
@pytest.mark.long(seconds=25)
def test_loaded_classes_outlive_their_processes(service, tmp_path, monkeypatch):
    """Code may leave or never end, and the training process may die; all goes on."""
    mine = service.load_module(str(exported(tmp_path, line=MAPS)), "Layer")
    experiment = ak.Experiment(sharing=["QKV", mine], **SMALL)
    finished(service, experiment)
    service.supervisor.process.kill()
    finished(service, experiment.replace(first_seed=5))
    assert service.supervisor.n_restarts > 0
    path = tmp_path / "broken.py"
    path.write_text("import os\nos._exit(3)")
    with pytest.raises(ValueError, match=r"broken.py: .* ends its process"):
        service.load_module(str(path), "Layer")
    path.write_text("while True: pass")
    monkeypatch.setattr(modules, "ANSWER_SECONDS", 1.0)
    with pytest.raises(ValueError, match=r"broken.py: .* 1 seconds"):
        service.load_module(str(path), "Layer")
    monkeypatch.undo()
    assert service.load_module(str(exported(tmp_path, line=MAPS)), "Layer")


def test_code_that_fails_is_told_and_the_next_file_is_loaded(in_this_process, tmp_path):
    """File and line are told, at its loading and at the sizes of an experiment."""
    own, path = OwnModules(), tmp_path / "broken.py"
    path.write_text("import torch\n1 / 0")
    with pytest.raises(ValueError, match=r"broken\.py.*ZeroDivisionError.*line 2") as error:
        own.load(str(path), "Layer")
    assert "Traceback" not in str(error.value)
    wrong, _ = own.load(str(exported(tmp_path, line="return x + self.W_O(z) + missing")), "Layer")
    with pytest.raises(ak.InvalidExperiment, match=r"mine.py.*NameError.*in line \d+"):
        ak.Experiment(sharing=[wrong], **SMALL)
    assert own.load(str(exported(tmp_path, line=MAPS)), "Layer")
    code = b"raise SystemExit\nclass Model(nn.Module):\n    def forward(self, tokens): ...\n"
    code += b"class Layer(nn.Module):\n    def forward(self, x): ...\nclass Mine(Layer): ...\n"
    assert classes_in(code + b"class No: ...", "mine.py") == ["Layer", "Mine", "Model"]
    for wrong, line in ((b"x = 1\ndef f(:", ", line 2"), (b"\0", ""), (b"# coding: no", "")):
        with pytest.raises(ValueError, match=rf"^mine.py{line}: "):
            classes_in(wrong, str(Path("folder") / "mine.py"))


@pytest.mark.usefixtures("in_this_process")
def test_the_lab_adds_a_class_and_loads_it_again_when_its_file_changes(tmp_path, monkeypatch):
    """Files are listed and read, not executed, until the button is pressed."""
    monkeypatch.chdir(tmp_path)
    path = exported(tmp_path, line=MAPS)
    (tmp_path / "other.py").write_text("raise SystemExit")
    with idle_service(tmp_path / "store") as processes:
        lab = visit(task="directed", sharing="QKV")
        lab.session_state["add_variant"] = lab.session_state[_SECTION] = True
        show(lab)  # from another machine
        assert not any(one.key == _FILE for one in lab.selectbox)
        monkeypatch.setattr(composer, "is_on_this_machine", lambda: True)
        show(lab)
        assert lab.selectbox(_FILE).options == ["mine.py"]
        lab.selectbox(_FILE).select("mine.py")
        show(lab)
        assert lab.selectbox(_CLASS).options == ["Layer", "Transformer"]
        assert not any(isinstance(command, GiveModule) for command in processes[0].commands)
        press(lab, "own_attention_load")
        (given,) = (c for c in processes[0].commands if isinstance(c, GiveModule))
        assert (given.file, given.wanted, given.code) == ("mine.py", "Layer", path.read_bytes())
        first = lab.session_state["set_sharing"]
        assert first[1].startswith("QKV module=Layer.")
        path.write_text(path.read_text().replace(MAPS, "return 2 * self.W_O(z)"))
        show(lab)
        assert any("has changed since" in one.value for one in lab.info)
        press(lab, "own_attention_0")
        second = lab.session_state["set_sharing"]
        assert (len(second), second[1] != first[1]) == (2, True)
        assert not any("has changed" in one.value for one in lab.info)


def test_no_code_arrives_at_a_hosted_copy(tmp_path, monkeypatch):
    """No chooser is drawn, no call is taken, and a link that names a class keeps its settings."""
    monkeypatch.chdir(tmp_path)
    path = exported(tmp_path, line="raise SystemExit")
    link = {"task": "directed", "sharing": "QKV,QKV module=Layer.0123abcd", "steps": "300"}
    monkeypatch.setattr(composer, "is_on_this_machine", lambda: True)
    with idle_service(tmp_path / "store", hosted="true") as processes:
        lab = visit(**link)
        lab.session_state["add_variant"] = lab.session_state[_SECTION] = True
        lab.session_state[_FILE], lab.session_state[_CLASS] = str(path), "Layer"
        lab.session_state["own_attention_load"] = True
        show(lab)
        assert all(_FILE not in str(one.key) for one in lab.selectbox)
        kept = [lab.session_state[name] for name in ("set_sharing", "set_steps")]
        assert kept == [["QKV"], 300]
        with pytest.raises(ValueError, match="takes no code"):
            training_service().load_module(str(path), "Layer")
        assert not any(isinstance(command, GiveModule) for command in processes[0].commands)
        assert any("Layer" in one.value for one in open_page("lab", **link).warning)
