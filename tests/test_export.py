"""What is taken away: modules compute what was trained with nothing but torch; code is code."""

import ast
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import every_task
from reference import (
    CPU,
    DOZEN,
    ONE_SIDE,
    SHAPES,
    TWO_SIDES,
    Reference,
    possible,
    settings_of,
    shake,
    sized,
)
from safetensors.torch import load

from attnkit.__main__ import main
from attnkit.analysis.export import (
    command_line,
    experiment_code,
    export_files,
    module_code,
    module_weights,
)
from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.data import stack
from attnkit.training.results import Result
from attnkit.variants import CATALOGUE, OPTIONS, Option
from attnkit.variants.rules import Code

ROOT = Path(__file__).parent.parent
ALL_SHAPES = [*SHAPES.values(), ONE_SIDE["final norm"], ONE_SIDE["sparse"]]
ALL_SHAPES += [TWO_SIDES["lean"], TWO_SIDES["standard"]]


def dozen(shape):
    """One variant of every mechanism that goes with a shape."""
    return sized(possible(DOZEN, **settings_of(shape)), shape)


def answered(model):
    """Return a batch of 7 examples, and by variant the parameters and logits of the first run."""
    drawn = [model.task.draw(7, generator_for(s, "taken"), held_out=False) for s in model.seeds]
    batch, n_seeds = stack(drawn, len(drawn), CPU).tokens, len(model.seeds)
    logits = model.logits(batch)
    found = {}
    for place, variant in enumerate(model.variants):
        own = model.run_parameters(place * n_seeds)
        arrays = {name: value.numpy() for name, value in own.items()}
        found[variant] = (arrays, logits[place * n_seeds])
    return batch[0], found


def check(experiment, model):
    """Modules answer as the model did, and in double precision as the formula does."""
    tokens, found = answered(model)
    for variant, (own, logits) in found.items():
        weights = module_weights(experiment, variant, own)
        assert weights == module_weights(experiment, variant, own)  # the same bytes
        module = module_of(module_code(experiment, variant), weights)
        assert module(tokens).dtype == torch.float32
        assert off(module(tokens), logits) <= 1e-5
        check_exactly(module, experiment, variant, own, tokens)


def check_exactly(module, experiment, variant, own, tokens):
    """The module computes the formula of what the variant becomes."""
    exact = {name: torch.from_numpy(value).double() for name, value in own.items()}
    expected = Reference(experiment, variant.stages[-1]).logits(exact, tokens)
    assert off(module.double()(tokens), expected) <= 1e-10


def module_of(source, weights):
    """The module of a file of code and one of weights."""
    names = {}
    exec(source, names)
    module = names["Transformer"]().requires_grad_(False)
    module.load_state_dict(load(weights))
    return module


def off(found, expected):
    """The largest difference, as a share of the largest number."""
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_modules_answer_as_the_models(shape):
    """One of every mechanism, before training; those to be tied later are tied already."""
    experiment = dozen(shape)
    tied = [variant for variant in experiment.sharing if len(variant.stages) > 1]
    model = Model(experiment, [1, 0], CPU, tied=tied)
    shake(model)
    check(experiment, model)


@every_task
def test_a_module_answers_as_the_model_on_every_task(task):
    """At the task's own sizes; whatever a token has, an answer is, or is embedded in."""
    experiment = Experiment(task=task, sharing=["Q=K=V", "MLA"], n_seeds=1, n_train=0)
    check(experiment, Model(experiment, [0], CPU))


def test_modules_are_short_and_clean_and_import_nothing_but_torch(tmp_path):
    """Under 60 lines of at most 100 characters; all variants, one of every mechanism elsewhere."""
    named = Experiment(sharing=[named.variant for named in CATALOGUE.values()])
    experiments = [named, *map(dozen, ALL_SHAPES)]
    experiments += [Experiment(task=task, sharing=["MLA", "RoPE"]) for task in TASKS]
    texts = {module_code(one, variant) for one in experiments for variant in one.sharing}
    for place, text in enumerate(sorted(texts)):
        lines = text.splitlines()
        assert len(lines) < 60, text
        assert max(map(len, lines)) <= 100, text
        tree = ast.walk(ast.parse(text))
        found = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {getattr(node, "module", None) or node.names[0].name for node in found}
        assert modules <= {"torch", "math"}
        (tmp_path / f"module_{place}.py").write_text(text, encoding="utf-8")
    config = ["--quiet", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check", "--ignore", "D1"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *config]
        ended = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    text = module_code(Experiment(task="phonebook"), "Q=K=V")
    assert "q = k = v = self.W_Q(rows)" in text
    for absent in ("W_K", "W_V", "unflatten", "eye", "triu", "W_pos", "if ", "gelu"):
        assert absent not in text


def test_what_is_shared_or_starts_equal_does_so_in_the_module():
    """Shared layers stay one when it is trained on; matrices that start equal are two."""
    names = {}
    exec(module_code(Experiment(sharing=["QKV start=Q=K"]), "QKV start=Q=K"), names)
    layer = names["Transformer"]().layers[0]
    assert torch.equal(layer.W_Q.weight, layer.W_K.weight)
    assert layer.W_Q.weight is not layer.W_K.weight
    exec(module_code(sized(["ALBERT"], SHAPES["three heads"]), "ALBERT"), names)
    first, second = names["Transformer"]().layers
    assert first.W_Q is second.W_Q
    assert first.W_in is not second.W_in
    experiment = Experiment(sharing=["QKV tie=Q=K"], n_seeds=1)  # its module is what it becomes
    own = dict(Model(experiment, [0], CPU).run_parameters(0))
    del own["0.W_Q"]
    with pytest.raises(ValueError, match=r"parameters: 0\.W_Q is missing"):
        module_weights(experiment, "QKV tie=Q=K", own)


def test_an_option_without_lines_is_told(monkeypatch):
    """Whoever adds a word is told where its lines belong."""

    class Doubled(Option):
        name = "doubled"
        help = "Queries are twice as long."

        def adjust(self, role, rows, positions, layer):
            return 2 * rows if role == "Q" else rows

    monkeypatch.setitem(OPTIONS, "doubled", Doubled)
    experiment = Experiment(sharing=["QKV doubled"])
    with pytest.raises(ValueError, match=r"doubled: .*`adjust`"):
        module_code(experiment, "QKV doubled")
    Doubled.code = lambda *_: Code(adjust={"Q": "2 * q"})
    assert "        q = 2 * q\n" in module_code(experiment, "QKV doubled")


# Results as files


def test_a_result_is_taken_away_as_files(tmp_path, capsys):
    """Every run's module and weights, and a program that trains it again; from the command line."""
    sharing = ["Q=K", "QKV tie=K=V tie_by=keep_K"]
    sizes = {**SHAPES["one head"], "n_seeds": 1, "steps": 4, "evaluate_every": 1}
    experiment = sized(sharing, sizes)
    result = train(experiment, "cpu")
    result.save(tmp_path / "saved")
    assert main(["code", str(tmp_path / "saved"), "--out", str(tmp_path / "out")]) == 0
    paths = map(Path, capsys.readouterr().out.splitlines())
    written = {p.relative_to(tmp_path / "out").as_posix(): p.read_bytes() for p in paths}
    assert written == export_files(Result.load(tmp_path / "saved"))
    folders, weights = ["Q=K", "QKV_tie=K=V_tie_by=keep_K"], "seed_0/weights.safetensors"
    names = {f"{one}/{name}" for one in folders for name in ("module.py", weights)}
    assert set(written) == {"experiment.py", *names}
    tokens = experiment.task.draw(7, generator_for(0, "taken"), held_out=False).tokens
    for folder, (variant, _), own in zip(folders, experiment.runs, result.parameters, strict=True):
        module = module_of(written[f"{folder}/module.py"], written[f"{folder}/{weights}"])
        check_exactly(module, experiment, variant, own, tokens)


# Experiments as code


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"task": "dictionary", "order": "reversed", "clip": 0.5, "n_seeds": 2, "first_seed": 7},
        {"sharing": [named.variant for named in CATALOGUE.values()][:20], "equal": "parameters"},
    ],
)
def test_code_and_command_make_the_experiment(given, monkeypatch):
    """Executed or typed in a shell, they train an equal one; code prints every run's accuracy."""
    experiment, trained, printed = Experiment(**given), [], []
    table = pd.DataFrame({"accuracy": np.random.default_rng(0).random(90)})
    table = table.assign(sharing="QKV", seed=range(90), asymmetry=0.5)
    table = table.assign(**dict.fromkeys("abcdef", 0))

    def train_none(one, _=None):
        trained.append(one)
        return SimpleNamespace(table=table)

    def interrupted(one, _):
        train_none(one)
        raise KeyboardInterrupt

    monkeypatch.setattr("attnkit.training.training.train", train_none)
    monkeypatch.setattr("attnkit.command.train.train_with_progress", interrupted)
    code, words = experiment_code(experiment), shlex.split(command_line(experiment))
    exec(code, {"print": printed.append})
    assert all(f"{accuracy:.6f}" in printed[0] for accuracy in table["accuracy"])
    assert max(map(len, code.splitlines())) <= 100
    assert words[:3] == ["python", "-m", "attnkit"]
    assert given or (len(words) == 6 and 'ak.Experiment(task="directed")\n' in code)  # is short
    assert main(words[3:]) == 130
    assert trained == [experiment, experiment]
