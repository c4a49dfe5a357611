"""The entry of the app: ``python app.py`` on a laptop, and of the Space."""

from specdemo.ui.page import build, launch_options

demo = build()

if __name__ == "__main__":
    demo.launch(**launch_options())
