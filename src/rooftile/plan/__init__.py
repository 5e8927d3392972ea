"""Decisions: what to fuse, what to do about an op, which tile, which launch."""
