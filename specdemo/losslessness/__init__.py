"""Is a lane's output the target's own? Tests with stated error rates."""
