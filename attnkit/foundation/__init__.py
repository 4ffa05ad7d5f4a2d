"""Files, settings and their errors, processes, the machine, and plugins, for all packages."""
