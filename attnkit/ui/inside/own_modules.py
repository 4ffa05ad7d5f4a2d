"""What pages that look inside models cannot show of attention of one's own, in a sentence."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.words import listed, verb
from attnkit.ui.markdown import plain
from attnkit.variants.catalogue import title_of


def note_on_modules(experiment: Experiment, page: str) -> None:
    """Draw what a page cannot show of variants that a PyTorch module computes, if there are any."""
    own = [variant for variant in experiment.sharing if "module" in variant.given]
    if not own:
        return
    names = [title_of(variant) for variant in own]
    if page != "asymmetry":
        left_out = f"{plain(listed(names))} {verb(names, 'is', 'are')} left out, because a PyTorch"
        st.caption(
            f"{left_out} module has no queries, keys and values to look at. What it returns is in "
            "the Lab and on Asymmetry."
        )
        return
    modules = (experiment.wiring(variant).module for variant in own)
    missing = [module.missing for module in modules if module is not None and module.missing]
    weights = f"Numbers of W_Q and W_K are empty for {listed(names)}: a PyTorch module has no such"
    st.caption(plain(" ".join([f"{weights} matrices that attnkit knows of.", *missing])))
