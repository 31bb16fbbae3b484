"""linscan's speed over its commits, one target at a time: see docs/asv.md."""
