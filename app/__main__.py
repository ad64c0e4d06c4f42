import sys

from compileboard.app.cli.main import main

sys.exit(main())
