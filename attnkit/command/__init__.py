"""The command line: one module per command, and modules that all commands use."""
