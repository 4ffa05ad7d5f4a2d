"""The commands `train`, `tasks`, `variants` and help: what they print and write; interrupts."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from children import child
from same import assert_same

import attnkit as ak
from attnkit.command.process import Interrupts, interrupts
from attnkit.examples import default_of
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.tasks import FAMILIES, OWN_TASKS, TASKS
from attnkit.training import Training, maker
from attnkit.training.maker import Maker
from attnkit.training.results import Result
from attnkit.variants import CATALOGUE, OPTIONS

SETTINGS = {"n_entries": 5, "n_names": 11, "n_values": 7, "d_head": 3}
SETTINGS |= {"evaluate_every": 5, "batch_size": 16, "n_eval": 16}

SMALL = ["train", "--sharing", "QKV,Q=K=V", "--seeds", "2", "--steps", "12"]
SMALL += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]

RUN_KEYS = """sharing seed accuracy loss steps_to_threshold parameters kv_cache_floats_per_token
    score_symmetry weight_symmetry mass_on_target mass_on_reverse""".split()
"""Keys of every run in `train --json`, which are a public interface."""


def test_train_writes_a_table_its_numbers_and_its_weights(run, tmp_path):
    """Files hold the numbers of Python's training under the promised keys, whatever the form."""

    def numbers(document):
        return {**document, "seconds": 0, "model_steps_per_second": 0}

    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    code, output, _ = run(*SMALL, "--json", str(path), "--out", str(folder))
    lines, document = output.splitlines(), json.loads(path.read_text())
    assert code == 0
    assert lines[0].split()[:2] == ["sharing", "accuracy"]
    assert [line.split()[0] for line in lines[1:-2]] == ["QKV", "Q=K=V"]
    assert lines[-2] == "Solved: at least 99% right at 3 evaluations in a row."
    assert lines[-1].startswith("directed: 4 runs, step 12 of 12, chance 0.357;")
    loaded = Result.load(folder)
    experiment = ak.Experiment(sharing=["QKV", "Q=K=V"], n_seeds=2, steps=12, **SETTINGS)
    trained = ak.train(experiment)
    assert loaded.snapshot.status == document["status"] == "finished"
    assert_same(loaded.parameters, trained.parameters)
    assert document == json.loads((folder / "result.json").read_text())
    assert numbers(document) == numbers(json.loads(json.dumps(trained.to_dict())))
    assert document["hash"] == experiment.hash
    assert min(document["seconds"], document["model_steps_per_second"]) > 0
    for row in document["runs"]:
        assert set(RUN_KEYS) <= row.keys()
        assert [name for name in RUN_KEYS if row[name] is None] == ["steps_to_threshold"]
    for link in (experiment.to_text(), f"?{experiment.to_text()}"):
        output = run("train", "--link", link, "--json", "-")[1]
        assert numbers(json.loads(output)) == numbers(document)  # nothing but JSON is printed


def test_flags_win_over_set_and_set_over_the_link(run):
    """Settings are of every kind, with or without spaces; an undefined number is null."""

    def experiment(*arguments):
        output = run("train", *arguments, "--seeds", "1", "--json", "-")[1]
        document = json.loads(output, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
        return document["experiment"].items(), document["runs"]

    flags = ["--first-seed", "3", "--steps", "5", "--sharing", "qkv, reformer"]
    for text in ("learning_rate=0.01", "causal=true", "positions = learned", "d_mlp=8", "steps=4"):
        flags += ["--set", text]
    link = "v=1&steps=3&n_seeds=2&d_head=5&d_mlp=4&task=phonebook"
    found, runs = experiment("--link", link, *flags)
    assert found >= {"d_head": 5, "n_seeds": 1, "steps": 5, "learning_rate": 0.01}.items()
    assert found >= {"causal": True, "first_seed": 3, "positions": "learned", "d_mlp": 8}.items()
    assert dict(found)["sharing"] == ["QKV", "Q=K unit_key self_mask"]
    assert [row["mass_on_reverse"] for row in runs] == [None] * 2
    full = "--task sort --full-size --set n_train=128 --sharing QKV --steps 2".split()
    assert experiment(*full)[0] >= {**TASKS["sort"].full_size, "steps": 2}.items()


@pytest.mark.server
@pytest.mark.usefixtures("interruptible")
def test_interrupts_during_training_keep_what_is_finished(tmp_path):
    """Further ones do not disturb the saving: numbers and weights are as they were then."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    targets = ["--json", str(path), "--out", str(folder)]
    # The command runs in a process of its own, where coverage handles no signals.
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "attnkit", *SMALL, "--steps", "6000", *targets]
    with child(*command, env=environment, cwd=Path(__file__).parents[1], **pipes) as process:
        assert process.stderr.readline().startswith("step ")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
    *lines, stopped, last = errors.splitlines()
    document = json.loads(path.read_text())
    assert "(interrupted)" in output
    assert f" {document['steps']:,} of 6,000" in stopped
    assert last == "attnkit: interrupted"
    assert all(line.startswith("step ") for line in lines)
    assert (document["status"], 0 < document["steps"] < 6000) == ("stopped", True)
    assert [run["accuracy"] is None for run in document["runs"]] == [False] * 4
    assert Result.load(folder).snapshot.step == document["steps"]


@pytest.mark.usefixtures("interruptible")
def test_a_signal_ends_the_process_before_a_computation_and_is_counted_afterwards(monkeypatch):
    """During one the first raises; five end the process even while it saves."""

    monkeypatch.setattr("os._exit", Mock(side_effect=SystemExit))
    monkeypatch.setattr("os.write", lambda *_: None)
    before, during, after = Interrupts(), Interrupts(), Interrupts()  # none is installed
    with pytest.raises(SystemExit):
        before.received()
    with pytest.raises(KeyboardInterrupt), before:
        pytest.fail("began")
    with pytest.raises(KeyboardInterrupt), during:
        during.received()
    for _ in range(3):  # results are being saved, to a disk that does not answer
        during.received()
    with pytest.raises(SystemExit):
        during.received()
    with after:
        pass
    after.received()
    assert (after.n_signals, during.n_signals) == (1, 5)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_after_the_last_step_costs_no_result(tmp_path, monkeypatch, run):
    """The result is put together, saved and printed before the command ends."""
    put_together = Training.result

    def interrupted_result(training):
        interrupts.received()
        return put_together(training)

    monkeypatch.setattr(Training, "result", interrupted_result)
    monkeypatch.setattr(interrupts, "n_signals", 0)
    path = tmp_path / "numbers.json"
    assert run(*SMALL, "--steps", "2", "--json", str(path))[0] == 130
    assert json.loads(path.read_text())["status"] == "finished"


def test_a_stored_experiment_is_not_trained_again(run, tmp_path, monkeypatch):
    """It gives the same output; what another engine or version trained is trained again."""
    where = str(tmp_path / "data")
    code, output, errors = run(*SMALL, "--store", where, "--json", "-")
    assert (code, "stored" in errors) == (0, False)
    again = run(*SMALL, "--store", where, "--json", "-", "--out", str(tmp_path / "result"))
    document = json.loads(output)
    assert again[:2] == (0, output)
    assert document["hash"] in again[2]
    assert Result.load(tmp_path / "result").to_dict() == document
    code, _, errors = run(*SMALL, "--store", where, "--steps", "13")
    assert (code, "stored" in errors) == (0, False)
    before = Maker(document["engine"], document["processor"], document["versions"])
    for engine, versions in (("torch", before.versions), ("torch", "torch 9.8.7")):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        monkeypatch.setattr(maker, "versions_of", lambda _, new=versions: new)
        now = Maker(engine, before.processor, versions)
        for again in (True, False):
            code, output, errors = run(*SMALL, "--store", where, "--json", "-")
            assert (code, json.loads(output)["versions"]) == (0, versions)
            assert [str(one) in errors for one in (before, now)] == [again, again]
        before = now
    with contextlib.closing(ResultStore(where)) as store:
        assert len(store.entries()) == 2
        assert store.snapshot(document["hash"]).engine == "torch"


def test_a_store_is_where_one_says_and_if_it_fails_no_numbers_are_lost(run, tmp_path, monkeypatch):
    """Before training if it can be found then, without a password; a broken file is moved aside."""
    for variable, folder in (("ATTNKIT_STORE", "one"), ("XDG_DATA_HOME", "two/attnkit")):
        monkeypatch.delenv("ATTNKIT_STORE", raising=False)
        monkeypatch.setenv(variable, str(tmp_path / folder.split("/")[0]))
        server_settings.cache_clear()
        for option in ([], ["--store"]):
            assert run("train", *option, *SMALL[1:])[0] == 0
            assert (tmp_path / folder / "results.sqlite").is_file() == bool(option)
    secret = "postgresql://me:secret@127.0.0.1:1/db"
    code, output, errors = run(*SMALL, "--store", secret)
    assert (code, output, errors.count("\n"), "secret" in errors) == (2, "", 1, False)
    assert errors.startswith("attnkit: error: --store: ")
    (tmp_path / "results.sqlite").write_text("no database " * 1000)
    code, _, errors = run(*SMALL, "--store", str(tmp_path))
    assert (code, "results.sqlite.broken-1" in errors) == (0, True)
    monkeypatch.setattr(ResultStore, "put", Mock(side_effect=Unavailable("the disk is full")))
    code, output, errors = run(*SMALL, "--store", str(tmp_path), "--steps", "13", "--json", "-")
    assert (code, json.loads(output)["status"]) == (2, "finished")
    assert errors.endswith("attnkit: error: --store: the disk is full\n")


def test_tasks_are_listed_under_their_families_with_their_settings(run):
    """As texts, and as JSON of which every entry can be trained; each alone with all settings."""

    def typed(values):
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}

    code, output, _ = run("tasks")
    lines, listing = output.splitlines(), json.loads(run("tasks", "--json")[1])
    assert (code, listing.keys()) == (0, TASKS.keys())
    headings = [line for line in lines if line in FAMILIES]
    assert headings == [family for family in FAMILIES if family in headings]
    for name, task in TASKS.items():
        entry = output.split(f"\n{name} ")[1].split("\n\n")[0]
        for told in (task.title, task.question, task.source, f"chance {task().chance:.3f}"):
            assert told in entry
        for kind, wanted in (("full size:", task.full_size), ("with", task.overrides)):
            (told,) = re.findall(rf"^    {kind} (.*)$", entry, re.MULTILINE) or [""]
            assert re.findall(r"(\S+)=", told) == [*wanted]
        dials = dict(re.findall(r"^    (\w+) +(\S+)", entry, re.MULTILINE))
        assert dials.items() >= typed(task().model_dump()).items()
        found = listing[name]
        for key in ("title", "question", "family", "source", "chance", "loss_to_beat"):
            assert found[key] == getattr(task(), key)
        chosen = {**found["dials"], **found["settings"]}
        assert ak.Experiment(task=name, **chosen) == ak.Experiment(task=name)
    assert TASKS["language"]().fingerprint in output  # so that machines can be compared
    assert output.endswith(f": {', '.join(sorted(OWN_TASKS))}\n")
    output = run("tasks", "phonebook")[1]
    settings = typed(ak.Experiment(task="phonebook").settings())
    shown = dict(line.split()[:2] for line in output.splitlines()[2:])
    assert {*settings.items()} - {*shown.items()} <= {(k, settings[k]) for k in ("task", "sharing")}
    assert "from 1 to 64" in output
    for name, task in OWN_TASKS.items():  # they have no numbers without data
        output = run("tasks", name)[1]
        assert all(f"    {dial} " in output for dial in (*task.model_fields, *task.overrides))
        listed = json.loads(run("tasks", name, "--json")[1])[name]
        assert listed["settings"].keys() >= {*task.model_fields, *task.overrides}


def test_help_and_variants_list_the_catalogue_and_every_word(run):
    """A line has text form, costs, source and accuracy; what is listed as JSON can be trained."""
    code, output, errors = run("train", "--help")
    assert (code, errors, all(name in output for name in TASKS)) == (0, "", True)
    output, variants = run("variants")[1], json.loads(run("variants", "--json")[1])
    for entry, named in zip(variants, CATALOGUE.values(), strict=True):
        (line,) = (x for x in output.splitlines() if x.startswith(f"{named.name:22} "))
        costs = default_of(named.variant).costs(named.variant)
        for part in (named.variant, str(costs.parameters), str(costs.kv_cache), named.source):
            assert part in line
        assert re.search(r"[01]\.\d{3} \[|not measured", line)
        assert ak.Experiment(sharing=[entry["variant"]]).sharing == (entry["variant"],)
        assert entry["accuracy"] is None or 0 < entry["accuracy"] <= 1
    assert {entry["engine"] for entry in variants} == {"kernel", "torch"}
    assert all(f"{name} " in output and one.help in output for name, one in OPTIONS.items())
