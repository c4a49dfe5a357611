"""From a name to a pair of models that can work together."""
