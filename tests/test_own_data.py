"""Data of one's own: no held-out row is trained on, and an experiment carries its data."""

import json
import pickle
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from own_tables import TABLES, TEXTS
from searching import briefly

import attnkit as ak
from attnkit import sweeps
from attnkit.__main__ import main
from attnkit.analysis import expectation, outcome
from attnkit.analysis.export import export_files
from attnkit.analysis.inspection.request import View
from attnkit.experiment.experiment import from_params
from attnkit.foundation.names import as_typed
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, OWN_TASKS
from attnkit.tasks.own_relations import NOBODY

LEARN = ("in_context", "by_heart")
NAMES = ("Ada", "Bĕn", "עדה", "李", "👩‍🚀", "=1+1", "<b>x</b>", "$x$", "*a*", "Mia", "Jo", "Ned")


def seeded(seed):
    """Return a generator with a seed."""
    return generator_for(seed, "training data")


def pairs_in(task, tokens):
    """Return the pairs of all entries of books, as typed."""
    keys, values = task.rows.words(0), task.rows.words(1)
    entries = tokens[:, : task.n_entries].reshape(-1, 2).tolist()
    return {(keys[k], values[v - len(keys)]) for k, v in entries}


def relations_in(task, tokens):
    """Return the relations of all entries of books, as typed."""
    texts = (label.query for book in tokens.numpy() for label in task.label(book))
    return {text for text in texts if not text.endswith(f" {NOBODY}")}


@st.composite
def tables(draw, n_columns):
    """Draw tables of few names, so that many rows compete for them."""
    count = draw(st.integers(6, len(NAMES)))
    name = st.sampled_from(NAMES[:count])
    cells = [name, name] if n_columns == 2 else [name, st.sampled_from(("boss", "friend")), name]
    row = st.tuples(*cells).filter(lambda row: row[0] != row[-1])
    rows = draw(st.lists(row, min_size=8, max_size=40, unique=True))
    assume(len({row[0] for row in rows}) >= 4)
    return rows


@briefly(30)
@given(rows=tables(2), seed=st.integers(0, 99))
def test_no_held_out_pair_is_in_training(rows, seed):
    """Books for training lack it, those for evaluation ask for nothing else, and it is real."""
    assume(len({value for _, value in rows}) >= 2)
    task = ak.Table(rows, n_entries=4)
    held_out = {row for row, out in zip(task.rows.cells, task.rows.held_out, strict=True) if out}
    assert 1 <= len(held_out) < len(rows)
    trained = task.draw(200, seeded(seed), held_out=False)
    assert not pairs_in(task, trained.tokens) & held_out
    tested = task.draw(50, seeded(seed), held_out=True)
    assert pairs_in(task, tested.tokens) <= set(task.rows.cells)
    asked = tested.target[tested.target != NOTHING]
    books = (tested.target != NOTHING).nonzero()[:, 0]
    assert pairs_in_rows(task, tested.tokens[books, asked]) <= held_out
    assert (tested.labels != NOTHING).any(1).all()


def pairs_in_rows(task, entries):
    """Return the pairs of single entries, as typed."""
    keys, values = task.rows.words(0), task.rows.words(1)
    return {(keys[k], values[v - len(keys)]) for k, v in entries.tolist()}


@briefly(30)
@given(rows=tables(3), seed=st.integers(0, 99))
def test_no_held_out_relation_is_in_training(rows, seed):
    """Nor is it in a book of mixed names; the right entry is the one that is named."""
    task = ak.Table(rows, n_entries=4)
    cells = [" ".join(row) for row in task.rows.cells]
    held_out = {text for text, out in zip(cells, task.rows.held_out, strict=True) if out}
    trained, tested = (task.draw(100, seeded(seed), held_out=out) for out in (False, True))
    assert not relations_in(task, trained.tokens) & held_out
    assert relations_in(task, tested.tokens) <= set(cells)
    for tokens, labels, target in zip(tested.tokens, tested.labels, tested.target, strict=True):
        books = task.label(tokens.numpy())
        assert (labels != NOTHING).any()
        for place, (label, at) in enumerate(zip(labels.tolist(), target.tolist(), strict=True)):
            assert (label == NOTHING) == (at == NOTHING)
            if at != NOTHING:
                assert books[place].query in held_out
                assert books[at].query.startswith(f"{books[place].query.split(' ')[-1]} ")
                assert books[at].full.endswith(f", {task.answer_text(label)}")


@briefly(20)
@given(rows=st.one_of(tables(2), tables(3)), seed=st.integers(0, 99))
def test_no_held_out_row_is_asked_by_heart_in_training(rows, seed):
    """The question and its answer are a row of the right side."""
    assume(len({row[-1] for row in rows}) >= 2)
    task = ak.Table(rows, learn="by_heart")
    for held_out in (False, True):
        drawn = task.draw(100, seeded(seed), held_out=held_out)
        side = {
            r for r, out in zip(task.rows.cells, task.rows.held_out, strict=True) if out == held_out
        }
        questions = {" ".join((*row[:-1], "?")) + row[-1] for row in side}
        for tokens, label in zip(drawn.tokens.numpy(), drawn.labels[:, 0].tolist(), strict=True):
            assert task.label(tokens)[-1].full + task.answer_text(label) in questions


@pytest.mark.parametrize("objective", ["next", "masked"])
def test_no_held_out_window_is_in_the_training_text(objective):
    """No window that is evaluated occurs in training, at any place."""
    task = ak.Text(TEXTS["aliases"](), objective=objective)
    corpus = task.corpus_read
    trained = "".join(
        c if not out else "\0" for c, out in zip(corpus.text, corpus.held_out, strict=True)
    )
    tested = task.draw(50, seeded(1), held_out=True)
    assert 0.02 < corpus.held_out.mean() < 0.4
    for tokens, labels in zip(tested.tokens[:, :, 0], tested.labels, strict=True):
        shown = tokens if objective == "next" else labels.where(labels != NOTHING, tokens)
        window = "".join(corpus.characters[token] for token in shown)
        assert window in corpus.text
        assert window not in trained


@pytest.mark.parametrize("learn", LEARN)
@pytest.mark.parametrize("name", TABLES)
def test_examples_of_real_tables_keep_the_contract(name, learn):
    """Shapes, ranges and texts are as promised; no constant answer beats chance."""
    task = ak.Table(TABLES[name](), learn=learn)
    for held_out in (False, True):
        drawn, again = (task.draw(300, seeded(7), held_out=held_out) for _ in range(2))
        assert torch.equal(drawn.tokens, again.tokens)
        n_answers = task.n_ctx - task.answers_from
        assert drawn.tokens.shape == (300, task.n_ctx, task.n_fields)
        assert drawn.labels.shape == drawn.target.shape == (300, n_answers)
        assert 0 <= drawn.tokens.min() <= drawn.tokens.max() < task.d_vocab
        assert NOTHING <= drawn.labels.min() <= drawn.labels.max() < task.n_classes
        fields = [set(field.unique().tolist()) for field in drawn.tokens.unbind(-1)]
        assert sum(map(len, fields)) == len(set.union(*fields))
        labels = [label for tokens in drawn.tokens[:20].numpy() for label in task.label(tokens)]
        assert all(0 < len(label.short) <= 12 for label in labels)
    asked = drawn.labels[drawn.labels != NOTHING]
    commonest = asked.bincount().max() / len(asked)
    assert commonest <= task.chance + 5 / np.sqrt(len(asked))
    assert task.plateau is None or task.chance < task.plateau < 1


@pytest.mark.parametrize("task", [ak.Table(TABLES["exceptions"]()), ak.Table(TABLES["entities"]())])
def test_an_experiment_carries_short_data(task):
    """In its JSON always, in its link if they are short; also pickled, and its hash is theirs."""
    experiment = ak.Experiment(task=task, sharing="QKV", n_entries=5)
    assert ak.from_text(experiment.to_json()) == experiment
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    assert experiment.replace(steps=50).task == experiment.task
    other = experiment.replace(data="\n".join(task.data.split("\n")[1:]))
    assert other.hash != experiment.hash
    if task.name == "relations":
        assert ak.from_text(experiment.to_text()) == experiment
        assert from_params(experiment.to_params()) == experiment
    else:
        assert len(experiment.to_text()) < 200
        with pytest.raises(ak.InvalidExperiment, match="too long for the link, so add them by"):
            ak.from_text(experiment.to_text())


@briefly(15)
@given(rows=st.one_of(tables(2), tables(3)))
def test_any_names_come_back_from_a_link(rows):
    """Right-to-left names, accents, emoji and signs of other languages are data only."""
    assume(len({row[-1] for row in rows}) >= 2)
    experiment = ak.Experiment(task=ak.Table(rows, n_entries=4), sharing=["QKV"])
    assert ak.from_text(experiment.to_text()) == experiment
    assert experiment.task.rows.cells == tuple(dict.fromkeys(tuple(map(as_typed, r)) for r in rows))


def test_a_sweep_trains_on_data_of_ones_own(tmp_path):
    """The data stand in the base of the specification."""
    task = ak.Table(TABLES["exceptions"]())
    sweep = sweeps.Sweep(
        base={"task": task.name, "data": task.data, "steps": 4, "n_eval": 16},
        axes={"n_entries": [4, 6]},
        sharing=["QKV"],
        n_seeds=1,
    )
    result = sweeps.run_sweep(sweep, out=tmp_path / "sweep")
    assert set(result.runs["n_entries"]) == {4, 6}
    assert sweep.experiment(sweep.point(1), sweep.sharing).task.rows.cells == task.rows.cells
    assert "Your own relations" in sweep.conditions


@pytest.mark.parametrize("table", ["exceptions", "languages"])
def test_every_variant_of_the_catalogue_trains_on_a_table(table):
    """Variants for one side and two heads train, with finite losses."""
    task, fitting = ak.Table(TABLES[table](), n_entries=4), []
    few = {"n_seeds": 1, "steps": 2, "n_eval": 16, "batch_size": 16, "n_heads": 2, "n_layers": 2}
    for named in ak.CATALOGUE.values():
        with suppress(ak.InvalidExperiment):
            fitting += ak.Experiment(task=task, sharing=[named.variant], **few).sharing
    assert len(fitting) > 0.7 * len(ak.CATALOGUE)
    drawn = np.random.default_rng(len(table)).choice(len(fitting), 6, replace=False)
    experiment = ak.Experiment(task=task, sharing=[fitting[i] for i in drawn], **few)
    assert np.isfinite(ak.train(experiment).snapshot.history["loss"]).all()


def test_names_are_kept_as_typed_without_what_nobody_sees():
    """Joiners of emoji stay; overrides of the direction, null characters and breaks go."""
    for name in NAMES:
        assert as_typed(name) == unicodedata.normalize("NFC", name)
    assert as_typed(" a\u202eb\x00\u200bc\r\n d ") == "abc d"
    assert as_typed("A\u200dda") == "Ada"


def test_a_table_is_given_in_any_form():
    """Rows, a dictionary, a data frame and text are the same table."""
    import pandas as pd

    pairs = {f"key {i}": i % 3 for i in range(20)}
    forms = [pairs, list(pairs.items()), pd.DataFrame(pairs.items())]
    first, *others = [ak.Table(form) for form in forms]
    assert all(other == first for other in [*others, ak.Table(first.data)])
    assert {type(first), type(ak.Table(TABLES["exceptions"]()))} < set(OWN_TASKS.values())


def test_direction_is_said_before_training_and_checked_after_it():
    """A cycle is directed and hurts Q=K; marriages are mutual and do not."""
    names = [f"N{i}" for i in range(40)]
    cycle = [(name, "next", names[(i + 1) % 40]) for i, name in enumerate(names)]
    married = [(name, "spouse", names[i ^ 1]) for i, name in enumerate(names)]
    settings = {"sharing": ["QKV", "Q=K"], "n_seeds": 2, "steps": 400}
    directed, mutual = (ak.Experiment(task=ak.Table(t), **settings) for t in (cycle, married))
    assert directed.task.direction.share == 1
    assert mutual.task.direction.share == 0
    assert "Q=K should get at most about" in " ".join(expectation(directed))
    assert "should not hurt" in " ".join(expectation(mutual))
    for experiment in (directed, mutual):
        snapshot = ak.train(experiment).snapshot
        free, tied = snapshot.latest("accuracy").reshape(2, -1)
        (said,) = outcome(snapshot)
        if experiment is directed:  # of 12 seeds the best Q=K had 89%, and every QKV 100%
            assert (tied < free - 0.05).all()
            is_true = tied.mean() <= experiment.task.plateau + 0.05
        else:
            is_true = tied.mean() >= 0.9
        assert said.startswith(("This came true: Q=K ", "The limit held")) == is_true, said
    assert expectation(ak.Experiment(sharing="QKV")) == []
    reverse = [*cycle[:30], *((b, "before", a) for a, _, b in cycle[:10])]
    found = ak.Table(reverse).direction
    assert (found.n_rows, found.n_missing, found.n_different) == (40, 20, 20)


def _file(folder, name, rows):
    """Write a table as a file of each kind, and return its path."""
    path = folder / f"table{name}"
    heading = ("key", "value") if len(rows[0]) == 2 else ("who", "relation", "whom")
    if name == ".jsonl":
        lines = [json.dumps(dict(zip(heading, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
    elif name == ".parquet":
        import pandas as pd

        pd.DataFrame(rows, columns=heading).to_parquet(path)
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if name == ".tsv" else ",")
            writer.writerows([heading, *rows])
    return path


@pytest.mark.parametrize("name", TABLES)
def test_real_tables_train_in_python_and_on_the_command_line(name, tmp_path, capsys):
    """Every kind of file is the same table; it is inspected, filmed and exported."""
    rows, few = TABLES[name](), {"n_seeds": 1, "steps": 20, "n_eval": 32}
    task = ak.Table(rows)
    for ending in (".csv", ".tsv", ".jsonl", ".parquet"):
        assert ak.Table.read(_file(tmp_path, ending, rows)) == task
    experiment = ak.Experiment(task=task, sharing=["QKV", "Q=K=V"], **few)
    result = ak.train(experiment)
    assert np.isfinite(result.snapshot.history["loss"]).all()
    film = ak.record(experiment, 0)
    for view in get_args(View):
        assert ak.inspect(film, ak.Inspection(view=view)).header
    result.save(tmp_path / "saved")
    assert type(result).load(tmp_path / "saved").experiment == experiment
    folder = tmp_path / "exported"
    for path, content in export_files(result).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    assert ak.Table.read(folder / "data.tsv") == task
    command = f"train --data {folder / 'data.tsv'} --seeds 1 --steps 20 --set n_eval=32"
    assert (
        main([*command.split(), "--sharing", "QKV,Q=K=V", "--json", str(tmp_path / "n.json")]) == 0
    )
    found = json.loads((tmp_path / "n.json").read_text(encoding="utf-8"))
    assert found["hash"] == experiment.hash
    assert "rows out: no training example has them" in capsys.readouterr().err


@pytest.mark.parametrize("name", TEXTS)
def test_real_texts_train_in_python_and_on_the_command_line(name, tmp_path, capsys):
    """Both ways read the same text from a file, and the loss falls."""
    path = tmp_path / "text.txt"
    path.write_text(TEXTS[name](), encoding="utf-8")
    experiment = ak.Experiment(task=ak.Text.read(path), sharing=["QKV"], n_seeds=1, steps=70)
    losses = ak.train(experiment).snapshot.history["loss"][:, 0]
    assert losses[-1] < losses[0] - 0.5
    command = f"train --data {path} --sharing QKV --seeds 1 --steps 70"
    assert main(command.split()) == 0
    assert experiment.hash in capsys.readouterr().out


def test_the_exported_program_runs(tmp_path, monkeypatch, capsys):
    """It reads the data from the file beside it, and the command does the same."""
    task = ak.Table(TABLES["exceptions"](), learn="by_heart")
    experiment = ak.Experiment(task=task, sharing=["QKV"], n_seeds=1, steps=10, evaluate_every=5)
    files = export_files(ak.train(experiment))
    for name in ("experiment.py", "data.tsv"):
        Path(tmp_path / name).write_bytes(files[name])
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(files["experiment.py"].decode(), names)
    assert names["experiment"] == experiment
    assert "--data data.tsv" in files["experiment.py"].decode().split("\n")[0]
    capsys.readouterr()


def test_an_exported_table_reads_back(tmp_path):
    """Also with quotation marks, and with a row that looks like a heading."""
    rows = [("key", "value"), *((f'"{n}', f'{n % 3} "x"') for n in range(12))]
    experiment = ak.Experiment(task=ak.Table(rows), sharing=["QKV"], n_seeds=1, steps=2)
    path = tmp_path / "data.tsv"
    path.write_bytes(export_files(ak.train(experiment))["data.tsv"])
    assert ak.Table.read(path) == experiment.task


def test_a_table_with_one_answer_is_refused():
    """Nothing of it can be held out."""
    for rows in (
        [(f"n{n}", "Zoe") for n in range(9)],
        [(f"n{n}", "boss", "Zoe") for n in range(9)],
    ):
        with pytest.raises(ak.InvalidExperiment, match="allowed at least 2 different answers"):
            ak.Table(rows)


@given(st.text(st.sampled_from("aZé \u0301\u200c\u200d\u202e👩🚀م"), max_size=8))
def test_a_name_stays_as_it_is_once_it_is_clean(text):
    """Links and saved results clean names again."""
    assert as_typed(as_typed(text)) == as_typed(text)
