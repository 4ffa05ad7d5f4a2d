"""The Lab: settings, training, and what it shows, except the page itself."""
