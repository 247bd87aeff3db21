"""A mutation fuzzer over all verbs; `python -m tests.fuzz --minutes 60` looks for new finds."""
