"""Files, processes, the machine and plugin modules: access to the operating system and Python."""
