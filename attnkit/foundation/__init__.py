"""What all rooms may use: files, settings and their errors, processes, the machine, plugins."""
