"""`python -m perdure` is the command line."""

from perdure.apps.cli.main import main

raise SystemExit(main())
