"""Numbers and judgements, from traces alone."""
