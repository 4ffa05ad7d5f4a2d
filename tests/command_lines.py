"""A small training on the command line, for tests of its commands."""

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
