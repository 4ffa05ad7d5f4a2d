"""Peaks of memory of drawn experiments, each trained in a process of its own as the server does.

`python tests/peaks.py 300 --seed 7` draws experiments and prints the estimate and the peak of each.
Every experiment trains in a fork of one process that has imported and warmed up everything, so
that the peak is what the experiment itself adds.
"""

import argparse
import copy
import io
import json
import math
import os
import random
import re
import signal
import statistics
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
from attnkit.service.jobs import memory_of
from attnkit.service.server import ServerSettings
from attnkit.tasks import TASKS
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
        error: What failed; empty if nothing did.
    """

    text: str
    engine: str
    estimate: float
    peak: float = math.nan
    data: float = math.nan
    seconds: float = 0.0
    error: str = ""
    phases: str = ""


def draw(generator, most=HOSTED.max_megabytes, least=20):
    """Draw a valid experiment whose estimate is within bounds; widely, in the logarithm."""
    while True:
        experiment = _draw(generator)
        if experiment is None or HOSTED.model_copy(update={"max_megabytes": most}).problems(
            experiment
        ):
            continue
        if least <= memory_of(experiment) <= most:
            return experiment


def _draw(generator):
    """Draw an experiment from the bounds of its settings; None if that fails."""
    task = generator.choice(list(TASKS))
    large = generator.random()
    given = {}
    for name, setting in settings_of(task).items():
        if generator.random() < 0.4 or name == "first_seed":
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
            share = large + (1 - large) * generator.random() if generator.random() < 0.7 else 0.5
            value = round(math.exp(share * math.log(high - low + 1))) - 1 + low
            given[name] = step * value
    given.setdefault("n_seeds", generator.randint(1, 20))
    sharing = generator.sample(ANY, generator.randint(1, 8))
    while given or sharing:
        try:
            return Experiment(task=task, sharing=sharing, **given)
        except InvalidExperiment as error:
            named = {name for p in error.problems for name in (p.field, *p.others)}
            if "n_seeds" in named and given.get("n_seeds", 1) > 1:
                given["n_seeds"] //= 2
                continue
            if "sharing" in named:
                sharing = sharing[:-1]
                if not sharing:
                    return None
                continue
            kept = {name: value for name, value in given.items() if name not in named}
            if kept == given:
                return None
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
    from attnkit.service.protocol import Update, encode
    from attnkit.service.answers import Weights
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
    os.waitpid(child, 0)
    told = json.loads(text) if text else {"error": "no answer"}
    told.setdefault("error", "")
    seconds = time.monotonic() - began
    return Peak(experiment.to_text(), engine, memory_of(experiment), seconds=seconds, **told)


def _status():
    text = Path("/proc/self/status").read_text()
    return {name: int(kb) / 1024 for name, kb in re.findall(r"(\w+):\s+(\d+) kB", text)}


def _reset():
    Path("/proc/self/clear_refs").write_text("5")


def _measured(experiment, engine):
    _reset()
    before = _status()
    phases, most = [], 0.0

    def say(name):
        nonlocal most
        now = _status()
        # Pages of files (libraries) count in the peak, too, and are no memory of the experiment.
        peak = now["VmHWM"] - before["VmRSS"] - (now["RssFile"] - before["RssFile"])
        phases.append(f"{name} {peak:.0f} ({now['RssAnon'] - before['RssAnon']:.0f})")
        most = max(most, peak)

    train(experiment, engine, say)
    after = _status()
    return {"peak": most, "data": after["VmPeak"] - before["VmSize"], "phases": "; ".join(phases)}


def summary(peaks):
    """Return lines of text that say how peaks and estimates compare, for each engine."""
    lines = []
    for engine in sorted({p.engine for p in peaks}):
        of_engine = [p for p in peaks if p.engine == engine and not p.error]
        ratios = sorted(p.peak / p.estimate for p in of_engine)
        at = lambda share: ratios[min(int(share * len(ratios)), len(ratios) - 1)]  # noqa: E731
        lines.append(
            f"{engine}: {len(ratios)} experiments; peak / estimate: least {ratios[0]:.2f}, "
            f"5% {at(0.05):.2f}, median {statistics.median(ratios):.2f}, 95% {at(0.95):.2f}, "
            f"most {ratios[-1]:.2f}"
        )
    return lines


def main():
    """Draw experiments, measure them, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", default="kernel,torch")
    parser.add_argument("--most", type=float, default=HOSTED.max_megabytes)
    parser.add_argument("--least", type=float, default=20)
    parser.add_argument("--out")
    parser.add_argument("--texts")
    args = parser.parse_args()
    engines = args.engines.split(",")
    warm_up(engines)
    generator = random.Random(args.seed)
    texts = Path(args.texts).read_text().splitlines() if args.texts else []
    out = open(args.out, "a") if args.out else io.StringIO()
    peaks = []
    for index in range(len(texts) or args.n):
        experiment = from_text(texts[index]) if texts else draw(generator, args.most, args.least)
        engine = engines[index % len(engines)]
        peak = measure(experiment, engine)
        peaks.append(peak)
        print(json.dumps(asdict(peak)), file=out, flush=True)
        ratio = peak.peak / peak.estimate
        print(
            f"{index:3} {engine:6} {peak.estimate:6.0f} → {peak.peak:6.0f} ({peak.data:6.0f}) "
            f"{ratio:5.2f} {peak.seconds:5.1f} s  {peak.text[:150]} {peak.error[-300:]}",
            flush=True,
        )
    print("\n".join(summary(peaks)))


if __name__ == "__main__":
    main()
