"""Several prompts decoded together, each row exactly its own run."""
