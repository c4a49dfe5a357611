"""``python -m specdemo run|race|sweep|advise|load|compare|pairs|space``."""

from specdemo.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
