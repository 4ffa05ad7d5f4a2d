"""Training of single runs on a CPU by a few functions that numba compiles.

Importing the package names the folder in which numba keeps what it compiles: numba reads that name
at the moment in which a function is defined.
"""

from attnkit.model.kernel.cache import use_cache_folder

use_cache_folder()
