"""A setup of the page as an address, read and written."""
