"""Measured models that a server keeps, and which uploads can be one."""

from made_atlas import READER, WRITER, made_atlas, made_toys

from attnkit.realmodels.atlas import Atlas
from attnkit.ui.measured_models import MeasuredModels, size_of
from attnkit.ui.model_measurement import under_free_names, upload_problem


def test_an_id_returns_what_was_kept_under_it():
    """Every atlas has an id of its own; any other text returns nothing."""
    kept = MeasuredModels()
    first, second = made_atlas(), Atlas(made_toys())
    keys = [kept.keep(first), kept.keep(second), kept.keep(first)]
    assert len(set(keys)) == 3
    assert all(len(key) >= 20 for key in keys)
    assert kept.get(keys[0]) is first
    assert kept.get(keys[1]) is second
    assert kept.get("") is None
    assert kept.get(keys[0][:-1]) is None


def test_the_least_recently_opened_goes_first():
    """There is a limit to their number."""
    kept = MeasuredModels(most=2)
    first, second = kept.keep(made_atlas()), kept.keep(made_atlas())
    assert kept.get(first) is not None
    third = kept.keep(made_atlas())
    assert [kept.get(key) is None for key in (first, second, third)] == [False, True, False]


def test_their_size_has_a_limit():
    """Older ones go; what is larger than the limit by itself is not kept."""
    size = size_of(made_atlas())
    kept = MeasuredModels(most_bytes=2 * size)
    keys = [kept.keep(made_atlas()) for _ in range(3)]
    assert [kept.get(key) is None for key in keys] == [True, False, False]
    assert MeasuredModels(most_bytes=size - 1).keep(made_atlas()) == ""


def test_a_size_counts_tables_and_pictures():
    """An atlas is as large as both together."""
    atlas = made_atlas()
    pictures = sum(array.nbytes for array in atlas.arrays.values())
    assert size_of(atlas) - size_of(Atlas(atlas.table)) == pictures > 0
    assert size_of(Atlas(atlas.table)) > 0


def test_uploads_replace_no_model():
    """An upload whose name is taken gets a number, and its pictures move with it."""
    found = under_free_names(made_atlas(), [READER, f"{READER} (2)"])
    assert list(found.table["model"].unique()) == [f"{READER} (3)", WRITER]
    moved = found.portrait(f"{READER} (3)", "encoder", 1, 2)
    assert (moved.matrix == made_atlas().portrait(READER, "encoder", 1, 2).matrix).all()
    assert found.portrait(READER, "encoder", 1, 2) is None
    assert len(found.arrays) == len(made_atlas().arrays)


def test_what_can_be_no_model_is_refused_before_it_is_kept():
    """One weight file of a format that is read; safetensors with their configuration."""
    good = ("a.gguf", "a.safetensors config.json", "a.bin", "a.npz")
    bad = ("a.safetensors", "a.gguf b.gguf", "a.bin a.npz", "a.pt")
    assert [names for names in good if upload_problem(names.split())] == []
    assert [names for names in bad if not upload_problem(names.split())] == []
