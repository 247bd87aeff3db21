"""Tests of models that are run in a loop."""
