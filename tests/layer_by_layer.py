"""Reads a model layer by layer, in a process of its own, and says what memory that took.

Arguments: what to open, and how many layers to read; of "all" it also measures the heads. It
prints the largest layer in single precision (`layer`) and by how much the greatest memory of the
process grew (`peak`), both in megabytes, and how many `layers` were read.
"""

import json
import sys
from itertools import islice

import numpy as np
from peak import peak_megabytes

from attnkit.realmodels.atlas import measure_model
from attnkit.realmodels.sources import open_model


def _size(read):
    arrays = (value for value in vars(read).values() if isinstance(value, np.ndarray))
    return sum(array.nbytes for array in arrays) / 2**20


def main(source, most):
    """Read that many layers, one at a time."""
    model = open_model(source)
    before, largest, n = peak_megabytes(), 0.0, 0
    for layer in islice(model.layers, None if most == "all" else int(most)):
        largest = max(largest, _size(layer.read()))
        n += 1
    if most == "all":
        measure_model(model)
    sys.stdout.write(json.dumps({"layer": largest, "peak": peak_megabytes() - before, "layers": n}))


if __name__ == "__main__":
    main(*sys.argv[1:])
