"""Try an installed onnx_nb as a newcomer does, on any system, with nothing but what the wheel brings.

    python .ci/try_wheel.py

Run it with the Python of a fresh environment. It draws nothing, so it needs no Jupyter and no browser. It
fails at the first request to another machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

LOCAL = ("127.0.0.1", "::1", "localhost")


def offline(event: str, args: tuple[Any, ...]) -> None:
    """Refuse what would leave the machine."""
    if event == "socket.getaddrinfo" and args[0] not in (*LOCAL, None, ""):
        raise PermissionError(f"asked for the address of {args[0]}")
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in LOCAL:
        raise PermissionError(f"connected to {args[1][0]}")


def main() -> None:
    """Build a model, look at it, run, cut, simplify and compare it, and show it on the command line."""
    sys.addaudithook(offline)
    sys.path.pop(0)  # the folder of this script, which may lie in a checkout
    import numpy as np
    import onnx.parser

    import onnx_nb
    from onnx_nb.cli import shell

    assert Path(onnx_nb.__file__).is_relative_to(sysconfig.get_path("purelib")), onnx_nb.__file__
    text = """<ir_version: 10, opset_import: ["": 21]> net (float[batch, 3] x) => (float[batch, 3] y)
        <float[3] w = {1, 2, 3}> { a = Mul(x, w)  i = Identity(a)  r = Relu(i)  y = Neg(r) }"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        model = onnx_nb.load(path)
        x = np.array([[1, -1, 2]], np.float32)
        np.testing.assert_array_equal(onnx_nb.run(model, {"x": x})["y"], [[-1, 0, -6]])
        part = onnx_nb.extract(model, ["a"], ["r"])
        np.testing.assert_array_equal(onnx_nb.run(part, {"a": x})["r"], [[1, 0, 2]])
        simple = onnx_nb.simplify(model)
        assert simple.verdict == "verified", simple.verdict
        assert onnx_nb.compare(model, simple.model, {"x": x}).first_divergent() is None
        widget = onnx_nb.ModelGraph(model)
        assert len(widget._code.code) > 10_000  # noqa: SLF001 (the bundle that the browser loads)
        page = Path(folder) / "model.html"
        assert shell.main(["show", str(path), "-o", str(page)]) == 0
        assert page.stat().st_size > 100_000
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert shell.main(["summary", str(path), "--json"]) == 0
        assert json.loads(said.getvalue())["nodes"] == 4
        del model, part, simple, widget  # Windows removes no file that is mapped
    command = Path(sysconfig.get_path("scripts")) / f"onnx-nb{'.exe' if sys.platform == 'win32' else ''}"
    subprocess.run([command, "--version"], check=True)
    extension = Path(sysconfig.get_path("data")) / "share" / "jupyter" / "labextensions" / "onnx-nb"
    described = json.loads((extension / "package.json").read_text(encoding="utf-8"))
    assert described["version"] == onnx_nb.__version__
    assert (extension / described["jupyterlab"]["_build"]["load"]).is_file()


if __name__ == "__main__":
    main()
