"""A program: peaks of memory of drawn experiments, each trained in a fork of this process.

`python tests/peaks.py 30 SEED` draws experiments and prints estimate and peak of each. The process
has imported and warmed up everything, so that a peak is what the experiment itself adds.
"""

import json
import random
import re
import sys
from multiprocessing import get_context
from pathlib import Path

import torch
from random_experiments import COMPOSED

from attnkit.experiment import Experiment
from attnkit.foundation.process import give_memory_back, prepare_for_training
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.answers import Archive, Weights  # noqa: F401
from attnkit.service.protocol import Update, encode
from attnkit.tasks import TASKS
from attnkit.training import training as training_module
from attnkit.training.data import draw_probe
from attnkit.training.engine import ready_engine
from attnkit.training.loops import Recorder
from attnkit.training.memory import peak_megabytes
from attnkit.training.training import Training
from attnkit.variants import CATALOGUE
from attnkit.variants.sharing import Sharing

ANY = [*Sharing, *(named.variant for named in CATALOGUE.values()), *COMPOSED]

SIZES = {"d_model": [16, 32, 64, 128], "n_heads": [1, 2, 4], "n_layers": [1, 2, 3]}
SIZES |= {"batch_size": [16, 64, 256], "n_eval": [16, 256, 1024], "d_mlp": [0, 64]}
SIZES |= {"blocks": ["lean", "standard"], "equal": ["", "parameters", "kv_cache"]}

MOST_MEGABYTES, MOST_WORK = 300, 2e9
"""Largest estimate, and largest number of multiply-adds, of what is measured."""


def draw(generator):
    """Draw an experiment of one to forty seeds, three steps and at least 20 MB."""
    while True:
        task, n_variants = generator.choice(list(TASKS)), generator.randint(1, 6)
        given = {name: generator.choice(values) for name, values in SIZES.items()}
        given = {name: value for name, value in given.items() if generator.random() < 0.5}
        if TASKS[task]().earlier is not None:
            given["earlier_steps"] = 1
        given |= {"task": task, "sharing": generator.sample(ANY, n_variants)}
        given |= {"n_seeds": generator.choice([1, 3, 10, 40]), "steps": 3, "evaluate_every": 1}
        try:
            experiment = Experiment(**given)
        except InvalidExperiment:  # settings that do not go together
            continue
        training = experiment.training
        n_tokens = (9 * training.batch_size + 4 * training.n_eval) * experiment.task.n_ctx
        per_token = sum(experiment.costs(variant).multiply_adds for variant in experiment.sharing)
        is_quick = experiment.n_seeds * n_tokens * per_token < MOST_WORK
        if is_quick and 20 < peak_megabytes(experiment) < MOST_MEGABYTES:
            return experiment


def warm_up(engines):
    """Prepare this process as the training process prepares itself, and end all its threads."""
    prepare_for_training()
    torch.set_num_threads(1)
    for engine in engines:
        ready_engine(torch.device("cpu"), engine)
        for settings in ({}, {"task": "dictionary"}, {"blocks": "standard", "d_mlp": 16}):
            train(Experiment(n_seeds=1, batch_size=16, n_eval=16, steps=2, **settings), engine)
    for task in TASKS:  # some read a text once
        draw_probe(Experiment(task=task, sharing=["QKV"]).task)
    training_module._pool().shutdown()
    training_module._pool.cache_clear()
    give_memory_back()


def train(experiment, engine):
    """Train with a film, as the worker does, and return what it keeps."""
    training = Training(experiment, engine=engine)
    recorder = Recorder(training)
    encode(Update("job", "running", 0, "", training.snapshot().to_bytes(), b""))
    while not training.finished:
        training.advance(recorder.n_steps_left or 1)
        recorder.record_frame()
    kept = Weights.of(training), recorder.film
    encode(Update("job", "finished", 0, "", *training.result().to_blobs()))
    return kept


def measure(drawn):
    """Return estimate and peak, the largest resident memory above that before, of a training."""
    experiment, engine = drawn
    Path("/proc/self/clear_refs").write_text("5")  # the peak of resident memory begins anew
    before = status()
    train(experiment, engine)
    # Pages of files (libraries) count in the peak, too, and are no memory of the experiment.
    now = status()
    peak = now["VmHWM"] - before["VmRSS"] - (now["RssFile"] - before["RssFile"])
    estimate = peak_megabytes(experiment, engine)
    return {"text": experiment.to_text(), "engine": engine, "estimate": estimate, "peak": peak}


def status():
    """Return what the system counts of this process, in MiB."""
    text = Path("/proc/self/status").read_text()
    return {name: int(kb) / 1024 for name, kb in re.findall(r"(\w+):\s+(\d+) kB", text)}


if __name__ == "__main__":
    n_experiments, seed = map(int, sys.argv[1:])
    engines, generator = ("kernel", "torch"), random.Random(seed)
    warm_up(engines)
    drawn = [(draw(generator), engines[index % 2]) for index in range(n_experiments)]
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # a fork for each of them
        for measured in pool.imap(measure, drawn, chunksize=1):
            sys.stdout.write(f"{json.dumps(measured)}\n")
