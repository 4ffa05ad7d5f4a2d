"""The command line: what it prints, writes and stores."""

import contextlib
import io
import json
import re
import sys

import numpy as np
import pytest

import attnkit as ak
from attnkit import examples
from attnkit.__main__ import main
from attnkit.examples import default_of
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.tasks import FAMILIES, TASKS
from attnkit.training.results import Result
from attnkit.variants import CATALOGUE, OPTIONS
from attnkit.variants.sharing import Sharing

RUN_KEYS = """sharing seed accuracy loss steps_to_threshold parameters kv_cache_floats_per_token
    score_symmetry weight_symmetry mass_on_target mass_on_reverse""".split()
"""What design.md promises of every run in `train --json`."""

SETTINGS = {
    "n_entries": 5,
    "n_names": 11,
    "n_values": 7,
    "d_head": 3,
    "evaluate_every": 5,
    "batch_size": 16,
    "n_eval": 16,
}

SMALL = ["train", "--sharing", "QKV,Q=K=V", "--seeds", "2", "--steps", "12"]
SMALL += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture
def run(capsys):
    """Run the command line: `run(*arguments)` gives its exit code, output and errors."""

    def run_with(*arguments):
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse's way
            code = end.code
        return code, *capsys.readouterr()

    return run_with


def same_numbers(document, other):
    """Two JSON documents agree in all that does not depend on the clock."""
    timed = {"seconds", "model_steps_per_second"}
    return {k: v for k, v in document.items() if k not in timed} == {
        k: v for k, v in other.items() if k not in timed
    }


# train


def test_train_reports_a_table_and_its_costs(run):
    """One line per sharing, then one that says what was run."""
    code, output, _ = run(*SMALL)
    lines = output.splitlines()
    assert code == 0
    assert lines[0].split()[:2] == ["sharing", "accuracy"]
    assert [line.split()[0] for line in lines[1:-1]] == ["QKV", "Q=K=V"]
    assert lines[-1].startswith("directed: 4 runs, step 12 of 12, chance 0.357;")
    assert "interrupted" not in output


def test_json_has_every_promised_key(run, tmp_path):
    """The public interface: the experiment, its cost, and one object per run."""
    path = tmp_path / "numbers.json"
    code, output, _ = run(*SMALL, "--json", str(path))
    document = json.loads(path.read_text())
    assert code == 0
    assert "QKV" in output
    assert {"experiment", "seconds", "model_steps_per_second", "runs"} <= document.keys()
    assert document["seconds"] > 0
    assert document["model_steps_per_second"] > 0
    assert document["experiment"]["steps"] == 12
    assert document["experiment"]["sharing"] == ["QKV", "Q=K=V"]
    assert len(document["runs"]) == 4
    for own in document["runs"]:
        assert set(RUN_KEYS) <= own.keys()
    ids = [(own["sharing"], own["seed"]) for own in document["runs"]]
    assert ids == [("QKV", 0), ("QKV", 1), ("Q=K=V", 0), ("Q=K=V", 1)]


def test_json_has_numbers_where_they_are_defined(run):
    """On a directed relation everything but the threshold is, after few steps."""
    _, output, _ = run(*SMALL, "--json", "-")
    for own in json.loads(output)["runs"]:
        assert own["steps_to_threshold"] is None
        assert all(own[name] is not None for name in RUN_KEYS if name != "steps_to_threshold")
        assert isinstance(own["parameters"], int)
        assert isinstance(own["kv_cache_floats_per_token"], int)


def test_json_is_null_where_a_number_is_undefined(run):
    """A phone book has no reversed entry; NaN would be no JSON."""
    arguments = ["--task", "phonebook", "--steps", "2", "--seeds", "1", "--json", "-"]
    _, output, _ = run("train", *arguments)
    document = json.loads(output, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
    assert [own["mass_on_reverse"] for own in document["runs"]] == [None] * 5


def test_json_to_the_screen_prints_nothing_else(run):
    """`-` can be piped into another program."""
    code, output, _ = run(*SMALL, "--json", "-")
    assert code == 0
    assert output.startswith("{")
    assert output.endswith("}\n")
    assert json.loads(output)["status"] == "finished"


def test_out_saves_a_result_that_can_be_loaded(run, tmp_path):
    """With its weights, and equal to what Python gives."""
    folder = tmp_path / "result"
    code, _, _ = run(*SMALL, "--out", str(folder))
    loaded = Result.load(folder)
    trained = ak.train(loaded.experiment)
    assert code == 0
    assert loaded.snapshot.status == "finished"
    assert loaded.experiment.n_runs == 4
    for own, other in zip(loaded.parameters, trained.parameters, strict=True):
        assert own.keys() == other.keys()
        assert all(np.array_equal(own[name], other[name]) for name in own)


def test_json_and_out_may_be_given_together(run, tmp_path):
    """Both hold the same numbers."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    code, _, _ = run(*SMALL, "--json", str(path), "--out", str(folder))
    assert code == 0
    assert json.loads(path.read_text()) == json.loads((folder / "result.json").read_text())


def test_flags_a_link_and_python_are_one_experiment(run):
    """Equal hashes and equal numbers, however it is set up."""
    experiment = ak.Experiment(
        task="mutual", sharing=["QKV", "K=V"], n_seeds=2, first_seed=3, steps=11, d_head=5
    )
    flags = "--task mutual --sharing QKV,K=V --seeds 2 --first-seed 3 --steps 11 --set d_head=5"
    documents = [
        json.loads(run("train", *arguments, "--json", "-")[1])
        for arguments in (
            flags.split(),
            ["--link", experiment.to_text()],
            ["--link", f"?{experiment.to_text()}"],
        )
    ]
    python = json.loads(json.dumps(ak.train(experiment).to_dict()))
    assert python["hash"] == experiment.hash
    for document in documents:
        assert same_numbers(document, python)


def test_flags_win_over_set_and_set_over_the_link(run):
    """The more a setting was typed by hand, the more it counts."""
    arguments = ["--link", "v=1&steps=3&n_seeds=2&d_head=5", "--set", "n_seeds=1", "--set"]
    arguments += ["steps=4", "--steps", "5", "--json", "-"]
    experiment = json.loads(run("train", *arguments)[1])["experiment"]
    assert (experiment["d_head"], experiment["n_seeds"], experiment["steps"]) == (5, 1, 5)


def test_set_takes_every_kind_of_setting(run):
    """Whole numbers, numbers, switches and choices, spaces or not."""
    arguments = ["--seeds", "1", "--steps", "2", "--sharing", "qkv", "--json", "-"]
    for text in ("learning_rate=0.01", "causal=true", "positions = learned", "d_mlp=8"):
        arguments += ["--set", text]
    experiment = json.loads(run("train", *arguments)[1])["experiment"]
    assert experiment["learning_rate"] == 0.01
    assert experiment["causal"] is True
    assert experiment["positions"] == "learned"
    assert experiment["d_mlp"] == 8
    assert experiment["sharing"] == ["QKV"]


def test_progress_is_plain_lines_when_errors_are_no_terminal(run):
    """A log shows how far training is, at most every tenth; no bar."""
    _, _, errors = run(*SMALL, "--steps", "400")
    lines = errors.splitlines()
    steps = [int(re.fullmatch(r"step (\d+) of 400", line)[1]) for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400
    assert 2 <= len(lines) <= 10


def test_progress_is_a_bar_on_a_terminal(run, monkeypatch):
    """One line that is written over."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(*SMALL)[0] == 0
    assert "\r" in terminal.getvalue()
    assert "step 12 of 12" not in terminal.getvalue()


# tasks


def as_typed(value):
    """A setting as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_tasks_lists_every_task_under_its_family(run):
    """A table for people: title, question, source, chance; each heading once."""
    code, output, _ = run("tasks")
    lines = output.splitlines()
    assert code == 0
    headings = [line for line in lines if line in FAMILIES]
    assert headings == [family for family in FAMILIES if family in headings]
    for name, task in TASKS.items():
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"{name} "))
        assert f"{task.title}. {task.question}" in lines[at]
        assert f"From: {task.source}. chance {task().chance:.3f}" in lines[at + 1]
        assert [line for line in lines[:at] if line in FAMILIES][-1] == task.family


def test_tasks_lists_dials_and_in_one_line_what_else_is_set(run):
    """Defaults, bounds and choices; sizes and training as `--set` takes them."""
    _, output, _ = run("tasks")
    for name, task in TASKS.items():
        own = output.split(f"\n{name} ")[1].split("\n\n")[0].splitlines()
        if task.preset:
            quick = own.pop().removeprefix("    quick preset: ")
            assert dict(pair.split("=") for pair in quick.split()).keys() == task.preset.keys()
        dials = [line.split()[:2] for line in own[2:-1]]
        assert dials == [[dial, as_typed(value)] for dial, value in task().model_dump().items()]
        assert own[-1].startswith("    with ")
        assert dict(pair.split("=") for pair in own[-1].split()[1:]).keys() == task.overrides.keys()
    assert "(a whole number from 4 to 16)" in output
    assert "(next or masked)" in output


def test_tasks_made_of_a_text_tell_its_hash(run):
    """So that numbers of two machines can be compared."""
    _, output, _ = run("tasks")
    for name in ("language", "translation"):
        assert f"hash of the text {TASKS[name]().fingerprint}" in output


def test_the_quick_preset_is_set_up_by_name(run):
    """What is given besides wins."""
    arguments = ("train", "--task", "sort", "--preset", "--seeds", "1", "--steps", "2")
    code, output, _ = run(*arguments, "--json", "-", "--sharing", "QKV")
    told = json.loads(output)["experiment"]
    assert code == 0
    assert {**told, "steps": 500}.items() >= TASKS["sort"].preset.items()
    assert told["steps"] == 2


def test_tasks_of_one_name_lists_all_its_settings(run):
    """Those of others are not in the way."""
    code, output, _ = run("tasks", "phonebook")
    lines = output.splitlines()
    assert code == 0
    assert lines[0].startswith("phonebook ")
    shown = {line.split()[0]: line.split()[1] for line in lines[2:]}
    for name, value in ak.Experiment(task="phonebook").settings().items():
        if name not in ("task", "sharing"):
            assert shown[name] == as_typed(value)
    assert "a whole number from 1 to 64" in output


def test_tasks_as_json_lists_what_train_accepts(run):
    """Every default can be given to `--set`; dials stand apart."""
    code, output, _ = run("tasks", "--json")
    listing = json.loads(output)
    assert code == 0
    assert listing.keys() == TASKS.keys()
    for name, entry in listing.items():
        task = TASKS[name]()
        for key in ("title", "question", "family", "source", "chance", "loss_to_beat"):
            assert entry[key] == getattr(task, key)
        assert entry["dials"] == task.model_dump()
        chosen = {**entry["dials"], **entry["settings"]}
        assert len(chosen) == len(entry["dials"]) + len(entry["settings"])
        assert ak.Experiment(task=name, **chosen) == ak.Experiment(task=name)


def test_tasks_as_json_of_one_name(run):
    """The same entry, alone."""
    listing = json.loads(run("tasks", "--json")[1])
    assert json.loads(run("tasks", "phonebook", "--json")[1]) == {"phonebook": listing["phonebook"]}


# variants


def test_variants_lists_the_catalogue(run):
    """Name, text form, parameters, cache, source and what was measured, one line each."""
    code, output, _ = run("variants")
    assert code == 0
    assert len(CATALOGUE) >= 25
    for named in CATALOGUE.values():
        (line,) = (x for x in output.splitlines() if x.startswith(f"{named.name:22} "))
        costs = default_of(named.variant).costs(named.variant)
        for part in (named.variant, str(costs.parameters), str(costs.kv_cache), named.source):
            assert part in line
        assert re.search(r"[01]\.\d{3} \[|not measured", line)
    assert "reach 0.98" in output


def test_variants_lists_every_word(run):
    """What a text form can be made of, and the values."""
    _, output, _ = run("variants")
    for name, option in OPTIONS.items():
        assert any(line.split()[0] == name for line in output.splitlines() if line.strip())
        assert option.help in output


def test_variants_as_json_can_be_trained(run):
    """Every text form is an experiment's."""
    code, output, _ = run("variants", "--json")
    listing = json.loads(output)
    assert code == 0
    assert len(listing) == len(CATALOGUE)
    for entry in listing:
        assert ak.Experiment(sharing=[entry["variant"]]).sharing == (entry["variant"],)
        assert entry["accuracy"] is None or 0 < entry["accuracy"] <= 1
    assert {entry["engine"] for entry in listing} == {"kernel", "torch"}


def test_train_takes_text_forms_and_names(run):
    """Composed variants beside plain ones, in table and JSON by their text forms."""
    chosen = "QKV, reformer,K=V  kv_heads=1"
    code, output, _ = run(*SMALL, "--sharing", chosen, "--json", "-")
    assert code == 0
    sharings = [row["sharing"] for row in json.loads(output)["runs"]]
    assert sharings == ["QKV"] * 2 + ["Q=K unit_key self_mask"] * 2 + ["K=V kv_heads=1"] * 2


OWN = """
from attnkit.variants import Option, register, register_option

@register_option
class Doubled(Option):
    name = "doubled"
    help = "Queries are twice as long."
    linear = True

    def adjust(self, role, rows, weights, at, wiring):
        return 2 * rows if role == "Q" else rows

register("Mine", "Q=K doubled", "Why not?", "me")
"""


def test_variants_of_ones_own_appear(run, tmp_path, monkeypatch):
    """A module named in the environment: in the table, and trained by its name."""
    (tmp_path / "my_variants.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setenv("ATTNKIT_MODULES", "my_variants")
    monkeypatch.syspath_prepend(tmp_path)
    known = [(registry, dict(registry)) for registry in (CATALOGUE, OPTIONS)]
    try:
        for arguments in (["variants"], [*SMALL, "--sharing", "mine"]):
            code, output, errors = run(*arguments)
            assert code == 0, errors
            assert "Q=K doubled" in output
    finally:
        sys.modules.pop("my_variants", None)
        for registry, before in known:
            registry.clear()
            registry.update(before)


def test_a_module_that_cannot_be_imported_is_bad_input(run, monkeypatch):
    """One line that names the environment variable and the module."""
    monkeypatch.setenv("ATTNKIT_MODULES", "nowhere_to_be_found")
    code, _, errors = run("tasks")
    assert code == 2
    assert "ATTNKIT_MODULES: 'nowhere_to_be_found' cannot be imported" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["tasks", "--help"]])
def test_help_is_printed(run, arguments):
    """It says what can be given."""
    code, output, errors = run(*arguments)
    assert code == 0
    assert "usage: python -m attnkit" in output
    assert errors == ""


def test_help_of_train_names_tasks_and_sharings(run):
    """So that nobody needs another page."""
    _, output, _ = run("train", "--help")
    for name in [*TASKS, *(sharing.value for sharing in Sharing)]:
        assert name in output


# store


def test_a_stored_experiment_is_not_trained_again(run, tmp_path):
    """The second answer is the first, to the bit, and says so; targets are written as ever."""
    where = str(tmp_path / "data")
    code, output, errors = run(*SMALL, "--store", where, "--json", "-")
    assert (code, "stored" in errors) == (0, False)
    again = run(*SMALL, "--store", where, "--json", "-", "--out", str(tmp_path / "result"))
    document = json.loads(output)
    told = f"experiment {document['hash']} is stored: nothing is trained\n"
    assert again == (0, output, told)
    assert Result.load(tmp_path / "result").to_dict() == document


def test_a_stored_result_of_another_engine_is_trained_again(run, tmp_path, monkeypatch):
    """Its bits are others; what is trained now takes its place, and the line says so."""
    where = str(tmp_path)
    for engine, then in (("kernel", ""), ("torch", "again"), ("torch", "nothing is trained")):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        code, output, errors = run(*SMALL, "--store", where, "--json", "-")
        assert (code, json.loads(output)["engine"]) == (0, engine)
        assert then in errors
    with contextlib.closing(ResultStore(tmp_path)) as store:
        assert store.snapshot(json.loads(output)["hash"]).engine == "torch"


def test_another_experiment_is_trained_and_stored_beside_it(run, tmp_path):
    """Whatever differs makes another experiment."""
    for steps in ("12", "13"):
        code, _, errors = run(*SMALL, "--store", str(tmp_path), "--steps", steps)
        assert (code, "stored" in errors) == (0, False)
    with contextlib.closing(ResultStore(tmp_path)) as store:
        assert sorted(entry.steps for entry in store.entries()) == [12, 13]


@pytest.mark.parametrize("variable", ["ATTNKIT_STORE", "XDG_DATA_HOME"])
def test_store_alone_is_where_the_environment_says(run, tmp_path, monkeypatch, variable):
    """Else this user's folder."""
    monkeypatch.delenv("ATTNKIT_STORE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    server_settings.cache_clear()
    code, _, _ = run("train", "--store", *SMALL[1:])
    folder = tmp_path if variable == "ATTNKIT_STORE" else tmp_path / "attnkit"
    assert code == 0
    assert (folder / "results.sqlite").is_file()


def test_without_store_nothing_is_stored(run, tmp_path, monkeypatch):
    """The option asks for it, the environment alone does not."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    assert run(*SMALL)[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("mysql://host/db", "its address is neither a folder nor of"),
        ("postgresql://me:secret@127.0.0.1:1/db", "the database cannot be reached"),
        ("/dev/null", "its folder cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_before_training(run, where, reason):
    """With what is wrong, and without a password."""
    code, output, errors = run(*SMALL, "--store", where)
    assert (code, output) == (2, "")
    assert errors.startswith(f"attnkit: error: --store: {reason}")
    assert errors.count("\n") == 1
    assert "secret" not in errors


def test_a_store_that_fails_after_training_loses_no_numbers(run, tmp_path, monkeypatch):
    """They are printed first."""

    def refuse(*_):
        raise Unavailable("the disk is full")

    monkeypatch.setattr(ResultStore, "put", refuse)
    code, output, errors = run(*SMALL, "--store", str(tmp_path), "--json", "-")
    assert code == 2
    assert json.loads(output)["status"] == "finished"
    assert errors.endswith("attnkit: error: --store: the disk is full\n")


def test_a_file_that_was_moved_aside_is_told(run, tmp_path):
    """It is not lost, and what is trained now is stored."""
    (tmp_path / "results.sqlite").write_text("no database " * 1000)
    code, _, errors = run(*SMALL, "--store", str(tmp_path))
    assert code == 0
    assert "It is called results.sqlite.broken-1 now.\n" in errors


def test_examples_of_named_tasks_are_made_alone(run, tmp_path, monkeypatch):
    """The examples of other tasks and the table of variants stay as they are."""
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    assert run("examples", "dictionary")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["dictionary.safetensors"]
