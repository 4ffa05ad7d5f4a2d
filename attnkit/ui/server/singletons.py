"""Objects that a server has only once, made at their first use and kept until it ends.

`st.cache_resource` is not the owner of such objects, because one message from any visitor
(`clear_cache`) empties all of Streamlit's caches for everybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Singleton(Generic[T]):
    """Function without arguments that makes an object once and returns it to every caller.

    It can be used as a decorator. Callers in other threads wait until the object is made. If that
    fails, nothing is kept, and the next caller tries again.

    Args:
        make: Makes the object.
        release: Called with the object when it is cleared.
    """

    def __init__(
        self, make: Callable[[], T], release: Callable[[T], object] = lambda _: None
    ) -> None:
        self._make, self._release = make, release
        self._lock, self._objects = threading.Lock(), list[T]()

    def __call__(self) -> T:
        """Return the object, and make it if there is none yet."""
        with self._lock:
            if not self._objects:
                self._objects.append(self._make())
            return self._objects[0]

    def clear(self) -> None:
        """Release the object, so that the next call makes another one. Only tests need it."""
        with self._lock:
            cleared, self._objects = self._objects, []
        for released in cleared:
            self._release(released)
