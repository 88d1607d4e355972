"""``python -m sb3_budget.bench`` is the command ``sb3-budget``."""

import sys

from sb3_budget.bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
