"""What runs behind a button: queue, worker, progress, stop."""
