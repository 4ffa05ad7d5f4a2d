"""Attention of one's own on a server: loaded from a file, trained, watched, and never elsewhere."""

from pathlib import Path

import pytest
from idle import idle_service, open_page, show, visit
from waiting import PATIENCE

import attnkit as ak
from attnkit.analysis.export import command_line, experiment_code, module_code
from attnkit.service import modules
from attnkit.service.protocol import GiveModule
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.ui.lab import own_attention
from attnkit.ui.lab.own_attention import _CLASS, _FILE, _SECTION
from attnkit.ui.server.service import training_service
from attnkit.variants.module_code import classes_in

pytestmark = pytest.mark.server

SMALL = {"task": "directed", "n_seeds": 2, "steps": 20, "evaluate_every": 10, "n_eval": 64}
LINE = "return x + self.W_O(z)"
MAPS = f"{LINE}, scores, masked.softmax(-1)"


def written(folder, line=MAPS, name="mine.py"):
    """Write the exported file with another last line of its layer, and return its path."""
    code = module_code(ak.Experiment(sharing=["QKV"], **SMALL), "QKV")
    path = folder / name
    path.write_text(code.replace(LINE, line), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with a store; its processes are shared by the tests of this file."""
    folder = tmp_path_factory.mktemp("store")
    one = TrainingService(store=ResultStore(folder))
    yield one
    one.close()


def finished(service, experiment):
    """Train an experiment and return its job."""
    job = service.job(service.submit(experiment))
    while not job.over:
        job = service.wait(job.id, job.version, PATIENCE)
    assert job.state == "finished", job.error
    return job


def test_a_loaded_class_trains_like_the_variant_it_was_written_from(service, tmp_path):
    """Also after its process died; maps and costs are there, nothing is stored, code is text."""
    path = written(tmp_path)
    mine = service.load_module(str(path), "Layer")
    experiment = ak.Experiment(sharing=["QKV", mine], **SMALL)
    assert service.changed_module(mine) is None
    ours, own = (experiment.costs(variant) for variant in ("QKV", mine))
    assert ours.parameters == own.parameters
    first = finished(service, experiment)
    assert not first.stored
    assert "your own code has computed it" in first.unstored
    losses = first.snapshot.history["loss"][-1]
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-3)
    before = service.n_restarts
    service._supervisor.process.kill()
    again = finished(service, experiment.replace(first_seed=5))
    assert service.n_restarts > before
    assert again.snapshot.probe.pattern.shape == first.snapshot.probe.pattern.shape
    assert f"--attention {path.name}:Layer" in command_line(experiment)
    assert f'ak.variant("{path.name}:Layer")' in experiment_code(experiment)
    path.write_text(path.read_text() + "\n# changed\n")
    assert service.changed_module(mine) == (str(path), "Layer")
    assert service.load_module(str(path), "Layer") != mine


BROKEN = {
    "def forward(self": (1, "SyntaxError"),
    "import torch\n1 / 0": (2, "ZeroDivisionError"),
    "import os\nos._exit(3)": (None, "ends its process"),
    "print('{}', input())": (1, "EOFError"),
    "x = 1": (None, "no subclass of torch.nn.Module"),
}


def test_code_that_fails_is_told_with_its_line_and_nothing_else_fails(service, tmp_path):
    """It may print, read, leave or never end; the next file is loaded all the same."""
    path = tmp_path / "broken.py"
    for code, (line, reason) in BROKEN.items():
        path.write_text(code)
        with pytest.raises(ValueError, match=reason) as error:
            service.load_module(str(path), "Layer")
        assert "broken.py" in str(error.value)
        assert line is None or f"line {line}" in str(error.value)
        assert "Traceback" not in str(error.value)
    fitting = written(tmp_path, "return x + self.W_O(z) + missing")
    wrong = service.load_module(str(fitting), "Layer")
    with pytest.raises(ak.InvalidExperiment, match=r"mine.py.*NameError.*in line \d+"):
        ak.Experiment(sharing=[wrong], **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modules, "ANSWER_SECONDS", 1.0)
        path.write_text("while True: pass")
        with pytest.raises(ValueError, match=r"broken.py: it takes more than 1 seconds"):
            service.load_module(str(path), "Layer")
    assert service.load_module(str(written(tmp_path)), "Layer")


def test_the_lab_adds_a_class_and_loads_it_again_when_its_file_changes(tmp_path, monkeypatch):
    """Files are listed and read, not executed, until the button is pressed."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path)
    (tmp_path / "other.py").write_text("raise SystemExit")
    with idle_service(tmp_path / "store") as processes:
        lab = visit(task="directed", sharing="QKV")
        lab.session_state["add_variant"] = lab.session_state[_SECTION] = True
        show(lab)  # from another machine
        assert any("in a browser on the machine where" in one.value for one in lab.caption)
        monkeypatch.setattr(own_attention, "is_on_this_machine", lambda: True)
        show(lab)
        assert lab.selectbox(_FILE).options == ["mine.py"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(own_attention, "read_code", lambda name: pytest.fail(f"read {name}"))
            show(lab)  # a file that has not changed is not read again
        lab.selectbox(_FILE).select("mine.py")
        show(lab)
        assert lab.selectbox(_CLASS).options == ["Layer", "Transformer"]
        assert not any(isinstance(command, GiveModule) for command in processes[0].commands)
        lab.button("own_attention_load").click()
        show(lab)
        (given,) = (c for c in processes[0].commands if isinstance(c, GiveModule))
        assert (given.file, given.wanted, given.code) == ("mine.py", "Layer", path.read_bytes())
        first = lab.session_state["set_sharing"]
        assert [name.partition(".")[0] for name in first] == ["QKV", "QKV module=Layer"]
        path.write_text(path.read_text().replace(MAPS, "return 2 * self.W_O(z)"))
        show(lab)
        assert any("has changed since Layer was loaded" in one.value for one in lab.info)
        lab.button("own_attention_0").click()
        show(lab)
        second = lab.session_state["set_sharing"]
        assert len(second) == 2
        assert second[1] != first[1]
        assert not any("has changed" in one.value for one in lab.info)


def test_no_code_arrives_at_a_hosted_copy(tmp_path, monkeypatch):
    """No chooser is drawn, no call is taken, and a link that names a class keeps its settings."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, "raise SystemExit")
    link = {"task": "directed", "sharing": "QKV,QKV module=Layer.0123abcd", "steps": "300"}
    monkeypatch.setattr(own_attention, "is_on_this_machine", lambda: True)
    with idle_service(tmp_path / "store", hosted="true") as processes:
        lab = visit(**link)
        lab.session_state["add_variant"] = lab.session_state[_SECTION] = True
        lab.session_state[_FILE], lab.session_state[_CLASS] = str(path), "Layer"
        lab.session_state["own_attention_load"] = True
        show(lab)
        assert all(_FILE not in str(one.key) for one in lab.selectbox)
        assert lab.session_state["set_sharing"] == ["QKV"]
        assert lab.session_state["set_steps"] == 300
        with pytest.raises(ValueError, match="takes no code"):
            training_service().load_module(str(path), "Layer")
        assert not any(isinstance(command, GiveModule) for command in processes[0].commands)
        first = open_page("lab", **link)
        (warning,) = (one.value for one in first.warning if "not fully understood" in one.value)
        assert "does not hold" in warning


def test_classes_are_found_without_executing_them():
    """Layers come before models, subclasses count, and other classes do not."""
    code = b"""
raise SystemExit
class Model(nn.Module):
    def forward(self, tokens): ...
class Layer(nn.Module):
    def forward(self, x): ...
class Mine(Layer): ...
class Settings: ...
"""
    assert classes_in(code, "mine.py") == ["Layer", "Mine", "Model"]
    with pytest.raises(ValueError, match=r"mine.py, line 2: "):
        classes_in(b"x = 1\ndef f(:", str(Path("folder") / "mine.py"))
