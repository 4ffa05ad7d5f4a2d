"""The server of the dashboard: its start, its visitors, its owner, its limits."""
