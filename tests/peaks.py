"""Peaks of memory of drawn experiments, each trained in a process of its own as the server does.

`python tests/peaks.py 300 --seed 7` draws experiments and prints the estimate and the peak of each.
Every experiment trains in a fork of one process that has imported and warmed up everything, so
that the peak is what the experiment itself adds.
"""

import argparse
import copy
import json
import math
import os
import random
import re
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from random_experiments import COMPOSED

from attnkit.experiment import Experiment, from_text
from attnkit.experiment.experiment import settings as settings_of
from attnkit.foundation.process import give_memory_back, prepare_for_training
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.server import ServerSettings
from attnkit.tasks import TASKS
from attnkit.training.memory import peak_megabytes
from attnkit.variants import CATALOGUE
from attnkit.variants.sharing import Sharing

HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})

ANY = [*Sharing, *(named.variant for named in CATALOGUE.values()), *COMPOSED]

MOST_SECONDS = 120
"""Time after which an experiment that is measured is given up."""


@dataclass(frozen=True)
class Peak:
    """Estimated and measured memory of one experiment, in MiB.

    Attributes:
        text: The experiment.
        engine: The engine that trained it.
        estimate: What admission counts.
        peak: Largest resident memory above that before the experiment.
        data: Largest `VmData` above that before; heaps grow in pieces of 64 MB.
        seconds: Time that measuring took.
        phases: Largest memory until the end of each phase.
        error: What failed; empty if nothing did.
    """

    text: str
    engine: str
    estimate: float
    peak: float = math.nan
    data: float = math.nan
    seconds: float = 0.0
    phases: str = ""
    error: str = ""


LEAST_MEGABYTES = 20
"""Smallest estimate that is measured: below it, what every training has is most of the memory."""


MOST_WORK = 2.0
"""Largest work of what is measured of a training, in 10⁹ multiply-adds."""


def _work(experiment):
    """Return the work of the few steps and evaluations that are measured."""
    training, task = experiment.training, experiment.task
    n_tokens = 3 * (3 * training.batch_size + training.n_eval) * task.n_ctx
    per_token = sum(experiment.costs(variant).multiply_adds for variant in experiment.sharing)
    return experiment.n_seeds * n_tokens * per_token / 1e9


def draw(generator, most=HOSTED.max_megabytes):
    """Draw an experiment that a hosted copy allows, from sizes of all magnitudes."""
    wanted = math.exp(generator.uniform(math.log(LEAST_MEGABYTES), math.log(most)))
    limits = HOSTED.model_copy(update={"max_megabytes": most})
    while True:
        experiment = _draw(generator)
        if experiment is None or _work(experiment) > MOST_WORK:
            continue
        ratio = wanted / peak_megabytes(experiment)
        n_seeds = min(max(round(ratio * experiment.n_seeds), 1), 40)
        try:
            experiment = experiment.replace(n_seeds=n_seeds)
        except InvalidExperiment:  # too much memory
            continue
        near = 0.5 * wanted <= peak_megabytes(experiment) <= 2 * wanted
        if near and _work(experiment) <= MOST_WORK and not limits.problems(experiment):
            return experiment


def _draw(generator):
    """Draw a valid experiment from the bounds of its settings; None if that fails."""
    task = generator.choice(list(TASKS))
    small = generator.choice([0.4, 1.0, 2.0])
    given = {}
    for name, setting in settings_of(task).items():
        if generator.random() < (0.9 if name == "equal" else 0.4) or name == "first_seed":
            continue
        if setting.kind is bool:
            given[name] = generator.random() < 0.5
        elif setting.choices:
            given[name] = generator.choice(setting.choices)
        elif setting.kind is float:
            given[name] = generator.uniform(setting.low, setting.high)
        else:
            step = setting.multiple_of or 1
            low, high = max(int(setting.low) // step, 0), int(setting.high) // step
            value = round(math.exp(generator.random() ** small * math.log(high - low + 1)))
            value += low - 1
            given[name] = step * value
    given.setdefault("n_seeds", generator.randint(1, 20))
    sharing = generator.sample(ANY, generator.randint(1, 8))
    while sharing:
        try:
            return Experiment(task=task, sharing=sharing, **given)
        except InvalidExperiment as error:  # settings that do not go together
            named = {name for p in error.problems for name in (p.field, *p.others)}
            kept = {name: value for name, value in given.items() if name not in named}
            if "n_seeds" in named and given["n_seeds"] > 1:
                given["n_seeds"] //= 2
            elif "sharing" in named:
                sharing.pop()
            elif kept == given:
                return None
            else:
                given = kept
    return None


def warm_up(engines):
    """Prepare this process as the training process prepares itself, and end all its threads."""
    import torch

    from attnkit.service.answers import Archive  # noqa: F401
    from attnkit.training import training
    from attnkit.training.engine import ready_engine

    prepare_for_training()
    torch.set_num_threads(1)
    for engine in engines:
        ready_engine(torch.device("cpu"), engine)
        for settings in ({}, {"task": "dictionary"}, {"blocks": "standard", "d_mlp": 16}):
            train(Experiment(n_seeds=1, batch_size=16, n_eval=16, steps=2, **settings), engine)
    for task in TASKS:  # some read a text once
        from attnkit.training.data import draw_probe

        draw_probe(Experiment(task=task, sharing=["QKV"]).task)
    training._pool().shutdown()
    training._pool.cache_clear()
    give_memory_back()


def train(experiment, engine, say=lambda name: None):
    """Go through a training as the worker does, without most of the arithmetic.

    Steps without evaluation only draw their batches. Frames and evaluations between are copies.
    """
    from attnkit.service.answers import Weights
    from attnkit.service.protocol import Update, encode
    from attnkit.training.recorder import Recorder
    from attnkit.training.training import Training

    training = Training(from_text(experiment.to_json()), engine=engine)
    say("built")
    recorder = Recorder(training)
    encode(Update("job", "running", 0, "", training.snapshot().to_bytes(), b""))
    say("snapshot")
    steps = experiment.training.steps
    special = {experiment.training.earlier_steps, *map(experiment.tie_step, experiment.sharing)}
    for step in sorted({1, *special, steps} - {0}):
        for due in [due for due in recorder._due if due < step]:
            training.step = due
            recorder.record_frame()
        for cohort in training.cohorts:
            n_evaluated = (step - 1) // experiment.training.evaluate_every + 1
            missing = n_evaluated - len(cohort.evaluations)
            cohort.evaluations += [copy.deepcopy(cohort.evaluations[-1]) for _ in range(missing)]
            for _ in range(min(40, step - 1 - training.step)):
                cohort._data.next()
            cohort.step = step - 1
        training.step = step - 1
        training.advance(1)
        recorder.record_frame()
        say(f"step {step}")
    weights, film = Weights.of(training), recorder.film
    snapshot, parameters = training.result().to_blobs()
    encode(Update("job", "finished", 0, "", snapshot, parameters))
    say("result")
    return weights, film


def measure(experiment, engine):
    """Return the peak of an experiment, trained in a fork of this process."""
    began, (ours, theirs) = time.monotonic(), os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        told = {}
        try:
            signal.alarm(MOST_SECONDS)
            told = _measured(experiment, engine)
        except BaseException as error:
            told = {"error": "".join(traceback.format_exception(error))[-2000:]}
        finally:
            os.write(theirs, json.dumps(told).encode())
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    told = json.loads(text) if text else {"error": f"no answer, ended with {ended}"}
    told.setdefault("error", "")
    seconds = time.monotonic() - began
    return Peak(
        experiment.to_text(), engine, peak_megabytes(experiment, engine), seconds=seconds, **told
    )


def _status():
    text = Path("/proc/self/status").read_text()
    return {name: int(kb) / 1024 for name, kb in re.findall(r"(\w+):\s+(\d+) kB", text)}


def _measured(experiment, engine):
    Path("/proc/self/clear_refs").write_text("5")  # the peak of resident memory begins anew
    before, peaks = _status(), {}

    def say(name):
        now = _status()
        # Pages of files (libraries) count in the peak, too, and are no memory of the experiment.
        peaks[name] = now["VmHWM"] - before["VmRSS"] - (now["RssFile"] - before["RssFile"])

    train(experiment, engine, say)
    phases = ", ".join(f"{name} {peak:.0f}" for name, peak in peaks.items())
    data = _status()["VmPeak"] - before["VmSize"]
    return {"peak": max(peaks.values()), "data": data, "phases": phases}


def main():
    """Draw experiments, measure them, and write one line of JSON for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", default="kernel,torch")
    parser.add_argument("--most", type=float, default=HOSTED.max_megabytes)
    given = parser.parse_args()
    engines, generator = given.engines.split(","), random.Random(given.seed)
    warm_up(engines)
    for index in range(given.n):
        peak = measure(draw(generator, given.most), engines[index % len(engines)])
        sys.stdout.write(f"{json.dumps(asdict(peak))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
