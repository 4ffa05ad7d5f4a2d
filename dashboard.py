"""The dashboard: it routes to the pages. Start it with `streamlit run dashboard.py`.

Streamlit imports this file once, to serve its `app`, and runs it as a script for every visit. A
host that runs only the script shows the same pages, but without the guard.
"""

import streamlit as st


def draw() -> None:
    """Draw the page that the address names."""
    from attnkit.ui.address import keep_fields
    from attnkit.ui.lab.classroom import join
    from attnkit.ui.lab.lab import stay
    from attnkit.ui.language import settle_language
    from attnkit.ui.routing import PROJECTOR, page_tools, route
    from attnkit.ui.server.browser_messages import check_widget_values
    from attnkit.ui.server.service import start_and_freeze
    from attnkit.ui.standalone import asset

    join()
    st.set_page_config(
        page_title="attnkit: why do Q, K and V need different matrices?",
        page_icon=asset("icon.svg"),  # the browser would load a Material icon from another host
        layout="wide",
        # A projector shows the page alone; the sidebar opens again at its button.
        initial_sidebar_state="collapsed" if st.session_state.get(PROJECTOR) else 240,
    )
    check_widget_values()
    page = route()
    settle_language(page.url_path or "lab")
    start_and_freeze()
    stay()
    keep_fields()
    page_tools(page)
    page.run()


if __name__ == "__main__":
    from attnkit.ui.server.turns import turn

    with turn():
        draw()
else:
    from attnkit.ui.server.guard import guards
    from attnkit.ui.server.launch import lifespan
    from attnkit.ui.server.turns import trust_only_our_setting

    trust_only_our_setting()
    app = st.App(__file__, lifespan=lifespan, middleware=guards())
