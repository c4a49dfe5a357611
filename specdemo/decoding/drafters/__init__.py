"""Who proposes the tokens of a round: one file and one row of the registry each."""
