"""The endpoints for programs and agents, and what guards the page from strangers."""
