import sys

from compileboard.app.cli import main

sys.exit(main())
