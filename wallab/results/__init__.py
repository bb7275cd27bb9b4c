"""What follows from records alone: summaries, comparisons, tables, pages."""
