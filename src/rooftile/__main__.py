"""``python -m rooftile``: the command line."""

from __future__ import annotations

from rooftile.cli import main

if __name__ == "__main__":
    main()
