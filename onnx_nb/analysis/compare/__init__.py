"""Two sides of one computation: metrics, lockstep, isolated errors, quantizers, verdicts."""
