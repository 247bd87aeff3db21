"""Pictures and pages of results, which can be kept without a kernel."""
