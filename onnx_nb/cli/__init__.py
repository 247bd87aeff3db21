"""The command line and the magics: one table of verbs, each of which writes and runs a few lines of Python."""
