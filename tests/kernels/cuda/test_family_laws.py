"""The laws of the other estimators."""

from linscan.testing.test_families import *  # noqa: F403
