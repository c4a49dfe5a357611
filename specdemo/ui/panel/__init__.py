"""The side panel: pair, prompt, settings, lanes."""
