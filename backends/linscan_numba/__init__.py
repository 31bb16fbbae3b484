"""The numba backend."""
