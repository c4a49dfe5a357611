"""One file a tab: its components and their events."""
