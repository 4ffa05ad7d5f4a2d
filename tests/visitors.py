"""Pages of one visitor after the other, in tabs of Chromium that are used again."""

from browsing import LONG

OUTSIDE = -10
"""Pixels at which the mouse points at nothing."""


class Visitors:
    """New visitors of the servers on this machine, who share the tabs of one context.

    A tab of its own would have a process of its own, which compiles all of Streamlit's JavaScript
    again: one to three seconds of every visit.
    """

    def __init__(self, browser):
        self._context = browser.new_context()
        self._context.set_default_timeout(LONG)
        self._free = []

    def arrive(self, width=1440, height=1000, stored=None):
        """Open an empty page in such a window for a visitor who is new; others lose what they have.

        `stored` has the values in the local storage: `{address: {name: value}}`.
        """
        origins = [
            {"origin": origin, "localStorage": [{"name": n, "value": v} for n, v in values.items()]}
            for origin, values in (stored or {}).items()
        ]
        self._context.set_storage_state({"cookies": [], "origins": origins})
        page = self._free.pop() if self._free else self._context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="light")
        page.bring_to_front()  # Chromium draws a tab behind another one once a second only
        return page

    def leave(self, page):
        """End a visit; the next visitor finds an empty page."""
        page.goto("about:blank")
        page.mouse.move(OUTSIDE, OUTSIDE)
        self._free.append(page)

    def close(self):
        """Close all pages."""
        self._context.close()
