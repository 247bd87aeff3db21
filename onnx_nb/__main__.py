"""``python -m onnx_nb``: the command line."""

import sys

from onnx_nb.cli.shell import main

if __name__ == "__main__":
    sys.exit(main())
