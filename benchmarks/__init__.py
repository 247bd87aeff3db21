"""Our work and the same by a peer, measured in one run: ``python -m benchmarks`` writes docs/performance.md."""
