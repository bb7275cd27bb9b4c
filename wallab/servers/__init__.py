"""Servers: sources, patches, builds and their checks."""
