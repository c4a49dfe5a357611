#!/usr/bin/env bash
# Makes its own environment, finds a browser, checks style and types, and runs every test.
set -euo pipefail
cd "$(dirname "$0")/.."

environment="${SPECDEMO_TEST_ENV:-.venv-tests}"
python="$environment/bin/python"
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$environment"
"$python" -m pip install --quiet --disable-pip-version-check -r requirements.txt -r tests/requirements.txt

# An installed browser, else Debian's package, else Playwright's own.
find_browser() {
  for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    command -v "$name" && return 0
  done
  return 1
}
if ! browser="$(find_browser)"; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    (apt-get update && apt-get install -y --no-install-recommends chromium) >/dev/null 2>&1 || true
  fi
  if ! browser="$(find_browser)"; then
    "$python" -m playwright install --with-deps chromium
    browser=""
  fi
fi
export SPECDEMO_TEST_BROWSER="$browser"

# int4 weights in float32 unpack with code that optimum-quanto compiles at its first use, with the ninja of pip.
PATH="$(cd "$environment/bin" && pwd):$PATH"
export PATH
if ! command -v c++ >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  (apt-get update && apt-get install -y --no-install-recommends g++ python3-dev) >/dev/null 2>&1 || true
fi
export GRADIO_ANALYTICS_ENABLED=False HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# Tests run side by side, one to a core: threads of one would wait for cores that another uses.
export OMP_NUM_THREADS=1

"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy &
types=$!
# Files run side by side; each is a process of its own, so that one app and one browser serve its tests.
"$python" -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@" || failed=$?
wait "$types"
exit "${failed:-0}"
