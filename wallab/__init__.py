"""A patched-PostgreSQL lab for reviewers of WAL I/O patches."""

__version__ = "0.1.0"
