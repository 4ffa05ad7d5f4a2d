"""Layout in a real Chromium: windows, pages and states drawn from a seed."""

import pytest
from layout_search import draw_visits, search, told

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_no_window_has_a_fault_of_layout(visitors, address, seed, long):
    """Pages, links, states and windows drawn from a seed show nothing that no reader would accept.

    It takes half a minute, because it opens several pages in each of several windows.
    """
    visits = draw_visits(seed, *((500, 4) if long else (16, 3)))
    found = search(visitors.arrive, visitors.leave, address, visits)
    assert [told(*finding) for finding in found if finding[-1]] == [], f"--seed {seed}"
