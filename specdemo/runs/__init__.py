"""From a person's request to traces."""
