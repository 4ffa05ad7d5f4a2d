"""Objects of which a server has one, whatever visitors ask for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import streamlit as st

from attnkit.ui.server.owner import gate
from attnkit.ui.server.singletons import Singleton
from attnkit.ui.server.storage import result_store


def test_many_threads_get_one_object_until_it_is_cleared():
    """None is kept like any other; a failed attempt keeps nothing; what is cleared is released."""
    together, made, released = threading.Barrier(8), [], []

    @Singleton
    def fragile():
        made.append(None)
        if len(made) == 1:
            raise BlockingIOError

    def call(_):
        together.wait(10)
        try:
            return fragile()
        except BlockingIOError:
            return "failed"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(call, range(8)), key=str) == [None] * 7 + ["failed"]
    assert len(made) == 2
    one = Singleton(object, release=released.append)
    first = one()
    assert one() is first
    one.clear()
    one.clear()
    assert released == [first]
    assert one() is not first


@pytest.mark.parametrize("single", [gate, result_store])
def test_clearing_the_caches_of_streamlit_clears_no_object_of_ours(single):
    """Any visitor can ask Streamlit to clear its caches."""
    before = single()
    st.cache_resource.clear()
    assert single() is before
    single.clear()
