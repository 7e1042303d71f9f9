"""`python -m tpusim` is the command `tpusim`."""

import sys

from tpusim.cli import main

if __name__ == "__main__":
    sys.exit(main())
