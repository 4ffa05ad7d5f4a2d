"""Compiled training kernel: functions that train single runs on a CPU, compiled by numba.

Importing this package sets the cache folder of numba, which reads the setting whenever a function
is defined.
"""

from attnkit.model.kernel.cache import use_cache_folder

use_cache_folder()
