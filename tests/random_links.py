"""Links drawn from a seed: settings at extremes, variants of all words, and anything wrong."""

from attnkit.experiment.experiment import settings
from attnkit.experiment.links import GROUPS
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS
from attnkit.variants.sharing import Sharing

NAMES = sorted({name for task in TASKS for name in settings(task)} | {"task", "sharing", "v"})
EQUAL = ("parameters", "multiply_adds", "kv_cache")
WIDTHS = ("1", "2", "7", "64", "m", "d", "m/h", "m/2", "m/4", "d/2", "d/5", "2d", "3m", "999d/998")
HEAVY = {"n_heads": "8", "d_mlp": "2048", "d_model": "512", "d_head": "64", "batch_size": "512"}
HEAVY |= {"n_layers": "4", "n_seeds": "40", "n_train": "200000"}


def draw_link(rng):
    """Return the fields of a link; most are valid by themselves, but not together."""
    task = rng.choice(list(TASKS))
    fields = {"task": task} if rng.random() < 0.9 else {}
    known = settings(task)
    for name in rng.sample(list(known), rng.choice([0, 2, 5, len(known)])):
        fields[name] = draw_value(rng, known[name])
    if rng.random() < 0.3:
        fields |= rng.sample(list(HEAVY.items()), rng.randint(1, len(HEAVY)))
    if rng.random() < 0.7:
        fields["equal"] = rng.choice(EQUAL)
    if rng.random() < 0.9:
        count = rng.choice([1, 5, 12, 12, 40])
        fields["sharing"] = ",".join(draw_variant(rng) for _ in range(count))
    for _ in range(rng.choice([0, 0, 1, 3])):
        fields[rng.choice(NAMES)] = draw_text(rng, rng.choice([2, 20, 200]))
    kind = rng.choice(["none", "none", "names", "hide", "values", "run"])
    if kind == "names":
        fields |= {draw_name(rng): draw_text(rng, 9) for _ in range(rng.choice([3, 100]))}
    elif kind == "hide":
        words = [*GROUPS, *NAMES, *(draw_name(rng) for _ in range(60))]
        fields["hide"] = ",".join(rng.choices(words, k=rng.choice([3, 900])))[:4000]
    elif kind == "values":
        fields |= {name: draw_text(rng, 200) for name in NAMES}
    elif kind == "run":
        fields["run"] = rng.choice(["f" * 16, draw_text(rng, 200)])
    return fields


def draw_value(rng, setting):
    """Return a text that a setting allows, an end of its range or another value."""
    if setting.kind is bool:
        return rng.choice(["true", "false"])
    if setting.choices:
        return rng.choice(setting.choices)
    low, high, step = setting.low, setting.high, setting.multiple_of or 1
    if setting.kind is int:
        between = rng.randint(int(low) // step, int(high) // step) * step
        return str(rng.choice([low, high, high, between, setting.default]))
    return str(rng.choice([low, high, rng.uniform(low, high)]))


def draw_variant(rng):
    """Return a text form: a catalogue entry or a sharing, with words; some are misspelt."""
    start = rng.choice([entry.variant.value for entry in CATALOGUE.values()])
    if rng.random() < 0.6:
        start = rng.choice([*Sharing, "QKV V=I", "Q=K=V=I O=I d_head=m/h", *CATALOGUE])
    words = [start]
    for _ in range(rng.choice([0, 1, 1, 2, 4, 40])):
        name = rng.choice(list(OPTIONS))
        sample = rng.choice([*OPTIONS[name].samples, rng.choice(WIDTHS)])
        words.append(name if sample is None else f"{name}={sample}")
    text = " ".join(words)
    return misspelt(rng, text) if rng.random() < 0.1 else text


def draw_name(rng):
    """Return the name of a field with a mistake or with more letters, or any text."""
    name = misspelt(rng, rng.choice(NAMES))
    return rng.choice([name, f"{name}{rng.randrange(1000)}", name * 3, draw_text(rng, 60)])


def misspelt(rng, text):
    """Return a text with one character left out, doubled or replaced."""
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(["", text[at] * 2, "_", "x"]) + text[at + 1 :]


def draw_text(rng, length):
    """Return a text of a kind that somebody would try, of at most this many characters."""
    digit, letter = rng.choice("0123456789"), rng.choice("adehknsu_ é\u202e\x00|<[{")
    names = " ".join(rng.choices([*OPTIONS, *NAMES], k=40))
    return rng.choice([digit * length, letter * length, names, "".join(names.split()), ""])[:length]
