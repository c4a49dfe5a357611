"""``python -m specdemo run|race|sweep|pairs``."""

from specdemo.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
