"""One module for each kind of server: its requests, and what its responses mean. `table` lists them."""
