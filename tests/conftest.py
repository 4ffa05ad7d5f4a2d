"""What all tests share: how Hypothesis searches, and no test that leaves torch changed."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("attnkit", deadline=None, print_blob=True)
settings.load_profile("attnkit")


@pytest.fixture
def threads():
    """Set the number of torch's threads for one test: `threads(1)`."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def one_thread(threads):
    """Small products are not worth two threads, which wait for each other on busy cores."""
    threads(1)
