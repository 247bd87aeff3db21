"""Folders of models that are run together, as onnxruntime-genai, optimum and transformers.js lay them out.

A `Package` is its decoder, so that it stands wherever a model does, with the other models and what the configuration
says beside it. A folder comes from anywhere: no file outside it is opened, and its configuration is only data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import bytes_text, closest_text, count_text, path_text, quoted
from onnx_nb.analysis.model.model import Model, load, outline_of, storage_of
from onnx_nb.analysis.model.saved import read_json, reading
from onnx_nb.analysis.model.storage import file_names

CONFIGURATIONS: Final = ("genai_config.json", "config.json")
"""Files that describe a package; the first that is there counts."""
_PRECISION: Final = re.compile(r"_(fp16|fp32|b?n?b4|q4\w*|u?int8|quantized|merged|optimized)$")
"""What optimum and transformers.js append to the name of a file."""
_DECODERS: Final = ("decoder", "decoder_with_past", "model", "decoder_model")
"""Roles of the model that is run in a loop, the best first."""
_MODELS: Final = 100
"""Maximum number of models of a folder."""


class Package(Model):
    """The models of a folder, by role, and its configuration; it stands for its decoder. Made by `load`.

    Examples
    --------
    >>> import onnx_nb
    >>> package = onnx_nb.load("folder/")  # doctest: +SKIP
    >>> package["encoder"], package.configuration["eos_token_id"]  # doctest: +SKIP
    """

    models: Mapping[str, Model]
    """The models by role: "decoder", "encoder", "vision", …"""
    configuration: Mapping[str, Any]
    """What the configuration says, of the section ``model`` in a genai_config.json; empty without one."""
    folder: Path

    def __init__(self, folder: Path, models: Mapping[str, Model], configuration: Mapping[str, Any]) -> None:
        role = next((role for role in _DECODERS if role in models), next(iter(models)))
        main = models[role]
        outline = outline_of(main), lambda: main.proto
        super().__init__(outline, name=main.name, path=main.path, storage=storage_of(main))
        self.folder = folder
        self.models = MappingProxyType({**models, role: self})
        self.configuration = MappingProxyType(dict(configuration))

    def __getitem__(self, role: str) -> Model:
        """Return the model with a role.

        Raises
        ------
        ModelFileError
            If the package has none.
        """
        if role not in self.models:
            message = f"package {quoted(self.folder.name)} has no {quoted(role)}."
            raise ModelFileError(message, advice=f"It has: {', '.join(map(quoted, self.models))}.")
        return self.models[role]

    def __repr__(self) -> str:
        sizes = (
            f"{role}: {count_text(len(outline_of(m).graph.node), 'node')}, {bytes_text(m.nbytes)}"
            for role, m in self.models.items()
        )
        return f"Package({path_text(self.folder.name)!r}, {'; '.join(sizes)})"


def open_package(folder: Path) -> Package | None:
    """Return the package in a folder; ``None`` if it is none.

    Raises
    ------
    ModelFileError
        If its configuration cannot be read, or names a model that is not there or lies outside.
    """
    names = [*file_names(folder), *(f"onnx/{name}" for name in file_names(folder / "onnx"))]
    configuration: dict[str, Any] = {}
    origin = next((name for name in CONFIGURATIONS if name in names), "")
    if origin:
        with reading(folder / origin, "a configuration"):
            content = read_json(folder / origin)
            configuration = content.get("model", content) if origin == CONFIGURATIONS[0] else content
            if not isinstance(configuration, dict):
                raise TypeError("it is no JSON object")
    files = _files_by_role(configuration) if origin == CONFIGURATIONS[0] else {}
    for name in files.values():
        if Path(name).name not in file_names(_inside(folder, name).parent):
            message = f"{origin} of {quoted(path_text(folder))} names {quoted(name)}, which is not there."
            raise ModelFileError(message, advice=closest_text(name, names))
    model_files = sorted((name for name in names if name.endswith(".onnx")), key=lambda name: (len(name), name))
    for name in model_files[:_MODELS] if not files else ():
        files.setdefault(_role(Path(name).stem), name)
    if not files or not (origin or any(role in files for role in ("decoder", "encoder"))):
        return None
    return Package(folder, {role: load(_inside(folder, name)) for role, name in files.items()}, configuration)


def _files_by_role(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the models that a genai_config.json names."""
    sections = dict(configuration)
    for stage in configuration.get("pipeline", []) if isinstance(configuration.get("pipeline"), list) else ():
        sections |= stage if isinstance(stage, dict) else {}
    names = {role: section.get("filename") for role, section in sections.items() if isinstance(section, dict)}
    return {role: name for role, name in names.items() if isinstance(name, str)}


def _role(stem: str) -> str:
    """Return the role that the name of a file tells: of "decoder_model_merged_q4" it is "decoder"."""
    while stem != (shorter := _PRECISION.sub("", stem)):
        stem = shorter
    role = re.sub(r"^(encoder|decoder)_model(?=$|_)", r"\1", stem)
    return role.replace("decoder_with_past_model", "decoder_with_past")


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        message = f"the configuration of {quoted(path_text(folder))} names {quoted(name)}, which lies outside."
        raise ModelFileError(message, advice="Put the model into the folder.")
    return path
