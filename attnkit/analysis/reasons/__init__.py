"""Why a variant fails, in one sentence with the run's own numbers.

Every kind of failure is recognised by conditions on what was measured in this run. Where none of
them holds, there is no sentence. The sentences say what happened, not what can never happen: that
is for the claims, which train longer and with more seeds.

No torch and no Streamlit here.
"""

from attnkit.analysis.reasons.choice import headline, reason
from attnkit.analysis.reasons.run import Reason, marked_pair

__all__ = ["Reason", "headline", "marked_pair", "reason"]
