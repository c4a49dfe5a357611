"""One module for each kind of server: what it is asked, and what its answers mean. `table` lists them."""
