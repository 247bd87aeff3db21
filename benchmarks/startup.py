"""How long the command line takes to start: from the shell to the end of the process, interpreter included.

``python -m benchmarks.startup``. The peer is Python itself, which starts and ends.
"""

from __future__ import annotations

from benchmarks.measuring import Report, Way, measured
from tests import models

SETUP = """
import resource, subprocess, sys
def run(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
"""
COMMANDS = {
    "--help": "'-m', 'onnx_nb', '--help'",
    "diff --help": "'-m', 'onnx_nb', 'diff', '--help'",
    "summary of SqueezeNet": "'-m', 'onnx_nb', 'summary', path",
    "audit of SqueezeNet": "'-m', 'onnx_nb', 'audit', path",
}


def main() -> int:
    """Print the figures; none has a limit."""
    report = Report(__spec__.name, __doc__)
    given = {"path": str(models.light("squeezenet"))}
    for name, words in COMMANDS.items():
        ways = {
            "onnx_nb": Way(f"more['child'] = run({words})", SETUP),
            "python": Way("more['child'] = run('-c', 'pass')", SETUP),
        }
        texts = {
            way: f"{found.median('child'):.3f} CPU s, {found.median('wall'):.3f} s"
            for way, found in measured(ways, given).items()
        }
        report.row(name, texts)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
