"""The laws of the estimators."""

from linscan.testing.test_estimators import *  # noqa: F403
