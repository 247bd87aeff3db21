"""Running a model: feeds, sessions, windows, capture, statistics, executors."""
