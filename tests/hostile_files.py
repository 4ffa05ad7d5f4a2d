"""Small model files of all formats: intact, with one fault each, or changed at random.

`whole`, `hostile` and `mutated` write them into a folder, and return name and path of each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from hostile_case import Case, write_case
from hostile_ctranslate2 import ctranslate2_cases, model_bin
from hostile_gguf import gguf_cases, gguf_file
from hostile_marian import SIZES, TEXT, marian_cases, small
from hostile_safetensors import BERT, bert_file, bert_tensors, safetensors_cases
from marian_files import INTGEMM8, bin_file, npz_file, transformer


def whole(folder: Path) -> list[Case]:
    """Write one intact file of each format, and an index of several files."""
    tensors = bert_tensors()
    return [
        write_case(folder, "whole-st", "model.safetensors", bert_file(), config__json=BERT),
        write_case(folder, "whole-gguf", "model.gguf", gguf_file()),
        write_case(
            folder, "whole-bin", "model.bin", model_bin(aliases={"other": "decoder/num_heads"})
        ),
        write_case(folder, "whole-marian-bin", "model.bin", bin_file(small(), TEXT)),
        write_case(
            folder,
            "whole-marian-int8",
            "model.int8.bin",
            bin_file(transformer(**SIZES | {"d_model": 48}), TEXT, number=INTGEMM8),
        ),
        write_case(folder, "whole-marian-npz", "model.npz", npz_file(small(), TEXT)),
        write_case(
            folder,
            "whole-index",
            "model.safetensors.index.json",
            json.dumps({"weight_map": dict.fromkeys(tensors, "part.safetensors")}).encode(),
            config__json=BERT,
            part__safetensors=bert_file(),
        ),
    ]


def hostile(folder: Path) -> list[Case]:
    """Write all damaged files, and pipes, links and folders in place of files."""
    cases = [
        *safetensors_cases(folder),
        *gguf_cases(folder),
        *ctranslate2_cases(folder),
        *marian_cases(folder),
    ]
    for name in ("model.safetensors", "model.gguf", "model.bin", "model.npz"):
        home = folder / f"pipe-{name}"
        home.mkdir()
        (home / "config.json").write_text(json.dumps(BERT))
        os.mkfifo(home / name)
        cases.append((f"pipe-{name}", home / name))
        home = folder / f"loop-{name}"
        home.mkdir()
        (home / name).symlink_to(name)
        cases.append((f"loop-{name}", home / name))
        home = folder / f"folder-{name}"
        (home / name).mkdir(parents=True)
        cases.append((f"folder-{name}", home / name))
    return cases


def mutated(folder: Path, n: int) -> list[Case]:
    """Write intact files in which some bytes are changed at random; some may stay readable."""
    rng = np.random.default_rng(11)
    cases = []
    for name, path in whole(folder)[:-1]:
        file = path.read_bytes()
        config = {} if path.suffix != ".safetensors" else {"config__json": BERT}
        for i in range(n):
            changed = bytearray(file)
            reach = len(file) if i % 4 == 0 else min(len(file), 700)
            for place in rng.integers(0, reach, size=rng.integers(1, 5)):
                changed[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
            cases.append(
                write_case(folder, f"mutated-{name}-{i}", path.name, bytes(changed), **config)
            )
    return cases
