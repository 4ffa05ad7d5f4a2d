"""What is taken away: modules compute what was trained with nothing but torch; code is code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import KINDS
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
from attnkit.variants import CATALOGUE

ROOT = Path(__file__).parent.parent
ALL_SHAPES = [*SHAPES.values(), ONE_SIDE["final norm"], ONE_SIDE["sparse"]]
ALL_SHAPES += [TWO_SIDES["lean"], TWO_SIDES["standard"]]


def dozen(shape):
    """One variant of every mechanism that goes with a shape."""
    return sized(possible(DOZEN, **settings_of(shape)), shape)


def module_of(source, weights=None):
    """The module of a file of code, and perhaps one of weights."""
    names = {}
    exec(source, names)
    module = names["Transformer"]()
    if weights is not None:
        module.requires_grad_(False).load_state_dict(load(weights))
    return module


def off(found, expected):
    """The largest difference, as a share of the largest number."""
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


def check_exactly(module, experiment, variant, own, tokens):
    """In double precision, the module computes the formula of what the variant becomes."""
    exact = {name: torch.from_numpy(value).double() for name, value in own.items()}
    expected = Reference(experiment, variant.stages[-1]).logits(exact, tokens)
    assert off(module.double()(tokens), expected) <= 1e-10


@pytest.mark.parametrize("given", [*ALL_SHAPES, *({"task": task} for task in KINDS)])
def test_modules_answer_as_the_models(given):
    """One of every mechanism at any shape, before training, and two at every task's own sizes."""
    if given.keys() == {"task"}:
        experiment = Experiment(**given, sharing=["Q=K=V", "MLA"], n_seeds=2, n_train=0)
    else:
        experiment = dozen(given)
    tied = [variant for variant in experiment.sharing if len(variant.stages) > 1]
    model = Model(experiment, [1, 0], CPU, tied=tied)  # what is tied later is tied already
    shake(model)
    drawn = [model.task.draw(7, generator_for(s, "taken"), held_out=False) for s in model.seeds]
    tokens = stack(drawn, len(drawn), CPU).tokens
    logits = model.logits(tokens)
    for place, variant in enumerate(model.variants):
        own = {name: value.numpy() for name, value in model.run_parameters(2 * place).items()}
        weights = module_weights(experiment, variant, own)
        assert weights == module_weights(experiment, variant, own)  # the same bytes
        module = module_of(module_code(experiment, variant), weights)
        assert module(tokens[0]).dtype == torch.float32
        assert off(module(tokens[0]), logits[2 * place]) <= 1e-5
        check_exactly(module, experiment, variant, own, tokens[0])


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
        assert {*re.findall(r"(?m)^ *(?:import|from) (\w+)", text)} <= {"torch", "math"}
        (tmp_path / f"module_{place}.py").write_text(text, encoding="utf-8")
    config = ["--quiet", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check", "--ignore", "D1"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *config]
        ended = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    text = module_code(Experiment(task="phonebook"), "Q=K=V")
    assert "q = k = v = self.W_Q(rows)" in text
    assert not re.search(r"W_K|W_V|unflatten|eye|triu|W_pos|if |gelu", text)


def test_what_is_shared_or_starts_equal_does_so_in_the_module():
    """Shared layers stay one when it is trained on; matrices that start equal are two."""
    layer = module_of(module_code(Experiment(sharing=["QKV start=Q=K"]), "QKV start=Q=K")).layers[0]
    assert torch.equal(layer.W_Q.weight, layer.W_K.weight)
    assert layer.W_Q.weight is not layer.W_K.weight
    shared = module_of(module_code(sized(["ALBERT"], SHAPES["three heads"]), "ALBERT"))
    first, second = shared.layers
    assert first.W_Q is second.W_Q
    assert first.W_in is not second.W_in
    experiment = Experiment(sharing=["QKV tie=Q=K"], n_seeds=1)  # its module is what it becomes
    own = dict(Model(experiment, [0], CPU).run_parameters(0))
    del own["0.W_Q"]
    with pytest.raises(ValueError, match=r"0\.W_Q is missing"):
        module_weights(experiment, "QKV tie=Q=K", own)


def test_a_result_is_taken_away_as_files(tmp_path, capsys):
    """Every run's module and weights, and a program that trains it again; from the command line."""
    sharing = ["Q=K", "QKV tie=K=V tie_by=keep_K"]
    sizes = {**SHAPES["one head"], "n_seeds": 1, "steps": 4, "evaluate_every": 1}
    result = train(sized(sharing, sizes), "cpu")
    result.save(tmp_path / "saved")
    assert main(["code", str(tmp_path / "saved"), "--out", str(tmp_path / "out")]) == 0
    paths = map(Path, capsys.readouterr().out.splitlines())
    written = {p.relative_to(tmp_path / "out").as_posix(): p.read_bytes() for p in paths}
    assert written == export_files(Result.load(tmp_path / "saved"))
    assert len(written) == 1 + 2 * len(sharing)
    assert "experiment.py" in written
    experiment = result.experiment
    tokens = experiment.task.draw(7, generator_for(0, "taken"), held_out=False).tokens
    for (variant, _), own in zip(experiment.runs, result.parameters, strict=True):
        folder = variant.value.replace(" ", "_")
        weights = written[f"{folder}/seed_0/weights.safetensors"]
        module = module_of(written[f"{folder}/module.py"], weights)
        check_exactly(module, experiment, variant, own, tokens)


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

    def train_none(one, *_):
        trained.append(one)
        if trained[1:]:
            raise KeyboardInterrupt
        return SimpleNamespace(table=table)

    monkeypatch.setattr("attnkit.training.loops.train", train_none)
    monkeypatch.setattr("attnkit.command.train.train_with_progress", train_none)
    code, words = experiment_code(experiment), shlex.split(command_line(experiment))
    exec(code, {"print": printed.append})
    assert all(f"{accuracy:.6f}" in printed[0] for accuracy in table["accuracy"])
    assert max(map(len, code.splitlines())) <= 100
    assert words[:3] == ["python", "-m", "attnkit"]
    assert given or (len(words) == 6 and 'ak.Experiment(task="directed")\n' in code)  # is short
    assert main(words[3:]) == 130
    assert trained == [experiment, experiment]
