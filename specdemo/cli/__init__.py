"""The command line: ``python -m specdemo``."""
