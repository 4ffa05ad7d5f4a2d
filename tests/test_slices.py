"""Work in slices: it pauses, goes on, fails and is withdrawn."""

import gc
import random
import weakref

import pytest

from attnkit.foundation.slices import SlicedWork, pause


def test_work_is_done_piece_by_piece_and_nothing_is_done_meanwhile(seed):
    """Several pieces of work take slices in a drawn order; without slices, nobody waits."""
    draw, done = random.Random(seed), []

    def work(name, n_pieces):
        for piece in range(n_pieces):
            done.append((name, piece))
            pause()
        return name

    n_pieces = {name: draw.randint(1, 9) for name in "abc"}
    under_way = {name: SlicedWork(lambda n=name: work(n, n_pieces[n])) for name in n_pieces}
    taken = dict.fromkeys(n_pieces, 0)
    while under_way:
        name = draw.choice(list(under_way))
        is_done = under_way[name].advance(0.0)
        taken[name] += 1
        assert is_done == (taken[name] == n_pieces[name] + 1)
        assert len([piece for piece in done if piece[0] == name]) == min(
            taken[name], n_pieces[name]
        )
        if is_done:
            assert under_way.pop(name).result() == name
    assert SlicedWork(lambda: work("d", 5)).advance(3600.0)
    assert work("e", 5) == "e"


@pytest.mark.parametrize("ends", ["with an error", "because it is withdrawn"])
def test_work_that_ends_early_leaves_nothing(ends):
    """Its memory is freed at once, without a collection, and its error is that of the work."""

    class Made:
        pass

    kept = []

    def work():
        made = Made()
        kept.append(weakref.ref(made))
        pause()
        raise ValueError("out of paper")

    gc.disable()
    try:
        sliced = SlicedWork(work)
        assert not sliced.advance(0.0)
        assert kept[0]() is not None
        if ends == "with an error":
            assert sliced.advance(0.0)
            with pytest.raises(ValueError, match="out of paper") as raised:
                sliced.result()
            del raised
        else:
            sliced.withdraw()
        sliced._thread.join()
        assert kept[0]() is None
    finally:
        gc.enable()
