"""Objects of which a server has one, whatever visitors ask for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import streamlit as st

from attnkit.ui.owner import gate
from attnkit.ui.singletons import Singleton
from attnkit.ui.storage import result_store


def test_many_threads_get_one_object():
    """The pages of the first visitors come at the same moment."""
    together = threading.Barrier(8)
    made = []

    @Singleton
    def make():
        made.append(object())
        return made[-1]

    def call(_):
        together.wait(10)
        return make()

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(call, range(8)))
    assert len(made) == 1
    assert got == made * 8


def test_none_is_kept_like_any_other_object():
    """A function that returns nothing runs once, too."""
    calls = []
    make = Singleton(lambda: calls.append(1))
    assert (make(), make()) == (None, None)
    assert calls == [1]


def test_what_is_cleared_is_released_and_made_anew():
    """Tests end one service before they start another."""
    released = []
    make = Singleton(object, release=released.append)
    first = make()
    make.clear()
    make.clear()
    assert released == [first]
    assert make() is not first


def test_a_failed_attempt_keeps_nothing():
    """The next caller tries again."""
    attempts = []

    @Singleton
    def make():
        attempts.append(1)
        if len(attempts) == 1:
            raise BlockingIOError
        return "made"

    with pytest.raises(BlockingIOError):
        make()
    assert make() == "made"


@pytest.mark.parametrize("single", [gate, result_store])
def test_clearing_the_caches_of_streamlit_clears_no_object_of_ours(single):
    """Any visitor can ask Streamlit to clear its caches."""
    before = single()
    st.cache_resource.clear()
    assert single() is before
    single.clear()
