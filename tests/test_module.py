"""Attention of one's own: modules written from the exported file, trained beside QKV."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_modules import Gated, Linear, OneHead, Talking, Window
from torch import nn

import attnkit as ak
from attnkit.__main__ import main
from attnkit.analysis.export import module_code
from attnkit.experiment import InvalidExperiment, from_text
from attnkit.experiment.links import read_link
from attnkit.foundation.process import environment_with_package
from attnkit.training import Training
from attnkit.variants import InvalidVariant

SMALL = {"task": "directed", "n_seeds": 2, "steps": 20, "evaluate_every": 10, "n_eval": 64}
LINE = "return x + self.W_O(z)"


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


class Broken(OneHead):
    """One that fails in the way that its class says."""

    way = ""

    def __init__(self, d_model, d_head):
        super().__init__(d_model, d_head)
        if self.way == "no parameters":
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                delattr(self, name)

    def forward(self, x):
        """Return the residual stream after the layer, and perhaps its maps."""
        if self.way == "raises":
            raise IndexError("one too many")
        if self.way == "wrong shape":
            return self.W_Q(x)
        if self.way == "gradient":
            return x + self.W_O(self.W_V(x)) + (0 * self.W_Q(x)).sum(-1, keepdim=True).sqrt()
        if self.way == "in place":
            x += self.W_O(self.W_V(x))
            return x
        if self.way == "in place, saved":
            pattern = (self.W_Q(x) @ self.W_K(x).mT).softmax(-1)
            pattern *= 2
            return x + self.W_O(pattern @ self.W_V(x))
        return self.W_O(self.W_Q(x)) / 0 - self.W_O(self.W_Q(x)) / 0


WAYS = {
    "wrong shape": r"its forward returns shape \(2, \d+, \d+\), allowed the shape of x, \(2, ",
    "nan": r"its forward returns nan at \[0, 0, 0\]",
    "raises": r"its forward fails for x of shape .* \(IndexError: one too many, in line \d+\)",
    "gradient": r"its backward pass fails at what line \d+ computes \(the gradient of W_Q.weight "
    r"has nan, allowed finite numbers\)",
    "in place": r"its forward changes x in place, allowed a new tensor: x = x \+ z",
    "in place, saved": r"its backward pass fails at what line \d+ computes \(it is changed in ",
    "no parameters": "it has no parameters, allowed a module that can be trained",
}


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
    with_maps = exported(tmp_path, line="return x + self.W_O(z), scores, masked.softmax(-1)")
    without = exported(tmp_path, name="other.py")
    maps, none = (ak.variant(f"{path}:Layer") for path in (with_maps, without))
    result = ak.train(ak.Experiment(sharing=["QKV", maps, none], **SMALL), "cpu", False)
    order = [variant for variant, _ in result.experiment.runs]
    ours, mapped, empty = (order.index(v) for v in ("QKV", maps, none))
    probe, history = result.snapshot.probe, result.snapshot.history
    np.testing.assert_allclose(probe.pattern[mapped], probe.pattern[ours], atol=2e-3)
    assert np.isnan(probe.pattern[empty]).all()
    for name in ("mass_on_target", "score_symmetry"):
        assert np.isfinite(history[name][:, mapped]).all()
        assert np.isnan(history[name][:, empty]).all()
    assert np.isnan(history["symmetry_error"][:, empty]).all()
    assert np.isnan(history["weight_symmetry"][:, [mapped, empty]]).all()
    reason = result.experiment.wiring(none).module.missing
    assert "Layer does not return its scores and pattern" in reason
    assert result.experiment.wiring(maps).module.missing == ""
    assert "Layer" in result._repr_html_()
    assert reason.removesuffix(".") in json.dumps(result._repr_html_())


def test_modules_train_beside_ours_in_batches_and_one_by_one():
    """Four modules learn; a module that `vmap` cannot run has the same numbers, seed by seed."""

    class Stubborn(Window):
        def forward(self, x):
            if float(x.detach().sum()) > 1e9:  # a branch that depends on numbers
                return x
            return super().forward(x)

    modules = [ak.variant(one) for one in (Linear, Window, Gated, Talking, Stubborn)]
    experiment = ak.Experiment(sharing=["QKV", *modules], n_heads=2, **SMALL)
    assert [experiment.wiring(v).module.batched for v in modules] == [True] * 4 + [False]
    result = ak.train(experiment, "cpu", False)
    for variant in modules:
        found = losses(result, variant)
        assert (found[-1] < found[0]).all()
    window, stubborn = losses(result, modules[1]), losses(result, modules[4])
    np.testing.assert_allclose(window, stubborn, 1e-4)
    table = result.table.set_index("sharing")
    assert set(table.loc[modules[0], "kv_cache_floats_per_token"]) == {2 * experiment.size.d_head}
    assert table.loc[modules[3], "kv_cache_floats_per_token"].isna().all()
    assert experiment.costs(modules[1]).parameters < experiment.costs(modules[2]).parameters
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_module_is_told_before_training(way):
    """The message names the class, its file and what is wrong."""
    broken = ak.variant(type("Broken", (Broken,), {"way": way, "__module__": __name__}))
    expected = rf"but Broken in test_module\.py(, line \d+)?: {WAYS[way]}"
    with pytest.raises(InvalidExperiment, match=expected):
        ak.Experiment(sharing=["QKV", broken], **SMALL)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["scores", "pattern"]), st.lists(st.integers(1, 4), max_size=5))
def test_scores_and_patterns_of_any_other_shape_are_told(name, shape):
    """Only maps of the layer's positions are taken."""

    class Maps(OneHead):
        def forward(self, x):
            wrong = torch.zeros(shape)
            of = {"scores": None, "pattern": None} | {name: wrong}
            return x + self.W_O(self.W_V(x)), of["scores"], of["pattern"]

    with pytest.raises(InvalidExperiment, match=f"its {name} are shape .*, allowed .b, h, i, j. ="):
        ak.Experiment(sharing=[ak.variant(Maps)], **SMALL)


def test_a_run_does_not_depend_on_the_seeds_beside_it():
    """One seed alone has the losses of that seed among three, within rounding."""
    gated = ak.variant(Gated)
    many, one = (
        Training(ak.Experiment(sharing=[gated], **{**SMALL, "n_seeds": n, "first_seed": first}))
        for n, first in ((3, 0), (1, 2))
    )
    for training in (many, one):
        training.advance(20)
    many_losses, one_losses = (t.snapshot().history["loss"] for t in (many, one))
    np.testing.assert_allclose(many_losses[:, 2], one_losses[:, 0], 1e-5)


@pytest.mark.parametrize("task", ["translation", "copy", "induction"])
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


def test_parameters_of_fixed_numbers_stay_and_others_are_paired():
    """W_Q starts as in QKV; what the constructor sets to zeros stays, and seeds differ."""
    gated = ak.variant(Gated)
    cohorts = Training(ak.Experiment(sharing=["QKV", gated], **SMALL)).result()
    ours, theirs = (
        [p for p, (v, _) in zip(cohorts.parameters, cohorts.experiment.runs, strict=True) if v == w]
        for w in ("QKV", gated)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert (one["0.W_Q"] == other["0.W_Q.weight"].T).all()
        assert (other["0.gate"] == 0).all()
    assert (theirs[0]["0.W_V.weight"] != theirs[1]["0.W_V.weight"]).any()


def test_code_does_not_travel():
    """A text, a link and a JSON file that name a module are refused where it was not given."""
    variant = ak.variant(Linear)
    text = ak.Experiment(sharing=["QKV", variant], **SMALL).to_json()
    assert from_text(text).sharing == ("QKV", variant)
    digest = variant.rpartition(".")[2]
    unknown = text.replace(digest, "0" * len(digest))
    expected = "--attention FILE.py:CLASS` or with `ak.variant"
    with pytest.raises(InvalidExperiment, match=expected):
        from_text(unknown)
    with pytest.raises(InvalidVariant, match=expected):
        ak.Variant("QKV module=Linear.00000000")
    link = read_link({"sharing": "QKV,QKV module=Linear.00000000"}, lambda _: None)
    assert link.experiment.sharing == ("QKV",)
    assert expected in link.problems[0].sentence
    with pytest.raises(InvalidVariant, match="the module decides about kv_heads"):
        ak.Variant(f"{variant} kv_heads=1")


@pytest.mark.parametrize(
    ("content", "wanted", "message"),
    [
        (None, "Mine", "cannot be read"),
        ("def f(:", "Mine", "cannot be executed .SyntaxError"),
        ("1 / 0", "Mine", "cannot be executed .ZeroDivisionError"),
        ("import a_neighbour", "Mine", "what it imports must be installed"),
        ("x = 1", "Mine", "none, because it has no subclass of torch.nn.Module"),
        ("from torch import nn\nclass A(nn.Module): pass", "Mine", "allowed classes of .*: A"),
        ("", "not a name", "allowed FILE.py:CLASS"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(content, wanted, message, tmp_path, capsys):
    """Exit code 2 and a message with the file, the class and the reason."""
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    arguments = ["train", "--task", "directed", "--attention", f"{path}:{wanted}"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--attention: got" in error
    assert "mine.py" in error
    with pytest.raises(ValueError, match=message):
        ak.variant(f"{path}:{wanted}")


def failing_after(tmp_path, n_calls):
    """Return the path of a module that has passed its trial, and fails at a later call."""
    late = f"calls = getattr(self, 'calls', 0) + 1; self.calls = calls; calls > {n_calls} and 1 / 0"
    return exported(tmp_path, line=f"{late}; {LINE}")


def test_a_module_that_fails_during_training_is_one_line(tmp_path, capsys):
    """A failure shows and saves what all variants had trained until shortly before, if anything."""
    arguments = ["train", "--task", "directed", "--seeds", "1", "--set", "evaluate_every=20"]
    for n_calls, saved in ((12, False), (100, True)):
        path, out = failing_after(tmp_path, n_calls), tmp_path / f"out {n_calls}"
        assert main([*arguments, "--attention", f"{path}:Layer", "--out", str(out)]) == 2
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        last = shown.err.splitlines()[-1]
        failed = "attnkit: error: --attention: Layer in mine.py: its forward fails (ZeroDivision"
        assert last.startswith(failed)
        assert "during the training; " in last
        if not saved:
            assert last.endswith("nothing is saved")
            assert not out.exists()
            continue
        result = ak.Result.load(out)
        step = result.snapshot.step
        assert last.endswith(f"the numbers are those of step {step}")
        assert result.snapshot.status == "stopped"
        assert 0 < step < 600
        assert step % 20 == 0
        assert result.snapshot.eval_steps[-1] == step
        assert f"step {step} of 600" in shown.out


def test_python_hands_over_what_was_trained_before_a_module_failed(tmp_path):
    """With the error; all variants are at the same step."""
    experiment = ak.Experiment(
        sharing=["QKV", ak.variant(f"{failing_after(tmp_path, 150)}:Layer")],
        **{**SMALL, "steps": 600},
    )
    with pytest.raises(ValueError, match="its forward fails") as caught:
        ak.train(experiment, "cpu", False)
    trained = caught.value.trained
    whole = ak.train(ak.Experiment(sharing=["QKV"], **{**SMALL, "steps": 600}), "cpu", False)
    n = len(trained.snapshot.eval_steps)
    assert 1 < n < 61
    np.testing.assert_array_equal(losses(trained, "QKV"), losses(whole, "QKV")[:n])


def test_what_is_no_class_of_a_module_is_refused():
    """An object of a module, a function and a text."""
    for wrong in (nn.Linear(2, 2), len, int):
        with pytest.raises(ValueError, match=r"attention: got .*, allowed a subclass of torch.nn"):
            ak.variant(wrong)


@pytest.mark.server
def test_the_command_trains_a_file_that_code_wrote(tmp_path):
    """Saved, written as code, imported; without the file, the saved result says how to give it."""

    def attnkit(*arguments, rc=0):
        command = [sys.executable, "-m", "attnkit", *map(str, arguments)]
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment_with_package(), cwd=tmp_path
        )
        assert ran.returncode == rc, ran.stderr
        return ran.stdout + ran.stderr

    small = ["--task", "directed", "--seeds", "1", "--steps", "10", "--sharing", "QKV"]
    attnkit("train", *small, "--out", "saved")
    attnkit("code", "saved", "--out", "code")
    file = "code/QKV/module.py:Layer"
    printed = attnkit("train", *small, "--attention", file, "--out", "mine", "--json", "mine.json")
    assert "Layer does not return its scores and pattern" in printed
    runs = json.loads((tmp_path / "mine.json").read_text())["runs"]
    assert abs(runs[0]["loss"] - runs[1]["loss"]) < 1e-3
    assert runs[1]["kv_cache_floats_per_token"] is None
    refused = attnkit("code", "mine", "--out", "again", rc=2)
    assert "a class that was given to this copy" in refused
    assert "--store: got a store" in attnkit("train", "--attention", file, "--store", rc=2)


@pytest.mark.parametrize(
    "part", ["window = {}", "def size(self): return {}", "wide = property(lambda self: {})"]
)
@pytest.mark.parametrize("in_base", [False, True])
def test_a_notebook_that_changes_a_class_gives_another_variant(part, in_base):
    """Also if only an attribute, a property or a base class has changed."""

    def variant_with(number):
        own, base = ("pass", part.format(number)) if in_base else (part.format(number), "pass")
        names = {"__name__": "__main__"}
        code = (
            f"import torch\nclass Base(torch.nn.Module):\n    {base}\nclass A(Base):\n    {own}\n"
        )
        exec(code, names)
        return ak.variant(names["A"])

    assert variant_with(3) == variant_with(3) != variant_with(4)
