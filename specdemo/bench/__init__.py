"""``python -m specdemo.bench``: interleaved, repeated measurements, as a table and as JSON."""
