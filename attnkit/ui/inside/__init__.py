"""Pages that look inside trained models: the inspected run, its films, ties and downloads."""
