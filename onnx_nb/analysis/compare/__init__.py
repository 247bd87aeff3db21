"""Two sides of one computation: metrics, lockstep, node matching, diff."""
