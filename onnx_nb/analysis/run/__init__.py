"""What a model computes: feeds, sessions, windows, capture, statistics, executors."""
