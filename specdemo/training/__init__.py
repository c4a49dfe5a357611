"""How the builtin pair was made, and how to make it again: ``python -m specdemo.training --help``."""
