"""What notebooks show: cards of values without a server, and their figures.

`attnkit.foundation.display` leads here, so that types of other rooms show themselves.
"""
