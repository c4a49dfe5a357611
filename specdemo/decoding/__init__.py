"""Token ids in, rounds out. Nothing here prints, sleeps or knows of a user interface."""
