"""Power cuts: which cells keep what they acknowledged."""
