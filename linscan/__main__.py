"""``python -m linscan``, the same as ``linscan``."""

import sys

from linscan.cli import main

if __name__ == "__main__":
    sys.exit(main())
