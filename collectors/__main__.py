"""Run the collector's command line: `python -m collectors`."""

import sys

from compileboard.collectors.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
