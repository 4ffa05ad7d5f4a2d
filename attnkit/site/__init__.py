"""The static site: the shipped results as pages that any host serves, and that need no server."""
