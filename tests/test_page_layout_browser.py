"""Layout in a real Chromium: windows, pages and states drawn from a seed."""

import pytest
from layout_search import draw_visits, search, told
from searching import times

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_no_window_has_a_fault_of_layout(visitors, address, seed, tmp_path):
    """Pages, links, states and windows drawn from a seed show nothing that no reader would accept.

    It takes half a minute, because it opens several pages in each of several windows.
    """
    visits = draw_visits(seed, times(15), 3)
    found = search(visitors.arrive, visitors.leave, address, visits, tmp_path)
    faults = [told(*finding) for finding in found if finding[-1]]
    assert faults == [], f"--seed {seed}, pictures in {tmp_path}"
