"""Widgets that all pages share: what is made when a download is pressed."""

import threading

from streamlit.testing.v1 import AppTest


def page():
    """Draw a download whose content is a value of the session."""
    import streamlit as st

    from attnkit.ui.widgets import download

    st.session_state["typed"] = "mine"
    download("Take", lambda: st.session_state.get("typed", "nobody's"), "a.csv", key="take")


def test_a_download_is_made_within_its_session(monkeypatch, caplog):
    """Streamlit makes it in a thread without one, where each look at the state is a warning."""
    taken = []
    monkeypatch.setattr(
        "streamlit.download_button", lambda label, data, *_, **__: taken.append(data)
    )
    tab = AppTest.from_function(page, default_timeout=60).run()
    assert not tab.exception
    caplog.clear()
    made = []
    thread = threading.Thread(target=lambda: made.append(taken[0]()))
    thread.start()
    thread.join()
    assert made == ["mine"]
    assert "ScriptRunContext" not in caplog.text
