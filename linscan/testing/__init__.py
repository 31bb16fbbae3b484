"""The laws that every backend keeps, as tests; a stranger's backend runs them too.

Run them on every backend that is installed, or on those that are named::

    pytest --pyargs linscan.testing
    LINSCAN_TEST_BACKENDS=toy,numpy pytest --pyargs linscan.testing

A backend that is named must be able to run here; the others are skipped, with their reason, where
they cannot.  Each is tried with every array library and device that it owns.  The tests need
pytest and hypothesis: ``pip install 'linscan[test]'``.
"""
