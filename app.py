"""The entry of the app: ``python app.py`` on a laptop, and of the Space."""

from specdemo.errors import SpecDemoError
from specdemo.interrupts import interruptible

with interruptible():
    from specdemo.ui.page import build
    from specdemo.ui.serving import serve

    try:
        demo = build()
    except SpecDemoError as error:  # such as a bad environment variable: a sentence is enough
        raise SystemExit(str(error)) from None

if __name__ == "__main__":
    serve(demo)
