"""Parts of a running server: live training, the store of results, limits, logs and settings."""
