"""Models that are run in a loop: their states, decoding step by step, and checks of the loop."""
