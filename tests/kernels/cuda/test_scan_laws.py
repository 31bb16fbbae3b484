"""The laws of a scan."""

from linscan.testing.test_scan import *  # noqa: F403
