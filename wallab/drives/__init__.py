"""Drives: simulated, real, and put up by hand."""
