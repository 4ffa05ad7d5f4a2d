"""The server's one training service."""

from __future__ import annotations

import streamlit as st

from attnkit.live.service import TrainingService
from attnkit.store import ResultStore
from attnkit.ui.storage import result_store


@st.cache_resource(show_spinner=False, on_release=TrainingService.close)
def training_service() -> TrainingService:
    """Started with the first page, so that its process is warm."""
    store = result_store()
    return TrainingService(store=store if isinstance(store, ResultStore) else None)
