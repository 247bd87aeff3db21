"""What a model computes: feeds, sessions, every intermediate value in windows, its statistics."""
