"""Pictures and pages of results: what can be kept when the kernel is gone."""
