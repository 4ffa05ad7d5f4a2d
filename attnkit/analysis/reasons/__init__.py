"""Reasons why a variant fails, in one sentence with the numbers of its run.

Every kind of failure is recognised by conditions on the metrics of this run. If none of them holds,
there is no sentence. The sentences say what happened, not what is impossible: such claims need
longer training and more seeds, see `attnkit.claims`.

This package imports no torch and no Streamlit.
"""

from attnkit.analysis.reasons.choice import headline, reason
from attnkit.analysis.reasons.run import Reason, marked_pair, told_query

__all__ = ["Reason", "headline", "marked_pair", "reason", "told_query"]
