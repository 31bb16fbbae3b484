"""The numpy backend."""
