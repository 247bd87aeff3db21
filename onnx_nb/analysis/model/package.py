"""Folders of models that are run together, as onnxruntime-genai, optimum and transformers.js lay them out.

A `Package` is its decoder, so that it stands wherever a model does, with the other models and what the configuration
says beside it. A folder comes from anywhere: no file outside it is opened, and its configuration is only data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import bytes_text, closest_text, count_text, path_text, quoted
from onnx_nb.analysis.model.model import Model, load, storage_of
from onnx_nb.analysis.model.saved import read_json, reading
from onnx_nb.analysis.model.storage import file_names
from onnx_nb.analysis.model.tensors import attributes, listed
from onnx_nb.analysis.results import Panel, Still, StillTable

CONFIGURATIONS: Final = ("genai_config.json", "config.json")
"""Files that describe a package; the first that is there counts."""
_PRECISION: Final = re.compile(r"_(fp16|fp32|b?n?b4|q4\w*|u?int8|quantized|merged|optimized)$")
"""Suffix that optimum and transformers.js add to the name of a file."""
_DECODERS: Final = ("decoder", "decoder_with_past", "model", "decoder_model")
"""Roles of the model that is run in a loop, the best first."""
_MODELS: Final = 100
"""Maximum number of models of a folder."""
_LENGTHS: Final = (1_024, 8_192, 32_768)
"""Tokens for which the size of the caches is shown."""
_ATTENTIONS: Final = ("GroupQueryAttention", "MultiHeadAttention", "Attention", "SparseAttention", "PagedAttention")
_SAID: Final = {
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "heads of keys and values": ("num_key_value_heads",),
    "head size": ("head_size", "head_dim"),
    "window": ("sliding_window",),
    "vocabulary": ("vocab_size",),
}
"""Facts on a decoder, and the keys under which configurations state them."""


class Statement(NamedTuple):
    """A fact as the configuration of a package states it, beside what the graph has."""

    what: str
    configuration: str
    graph: str
    ok: bool

    @property
    def message(self) -> str:
        """The contradiction in a sentence."""
        return f"{self.what}: the configuration says {self.configuration}, the graph {self.graph}."


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
    """Section ``model`` of a genai_config.json; empty if the package has none."""
    folder: Path

    def __init__(self, folder: Path, models: Mapping[str, Model], configuration: Mapping[str, Any]) -> None:
        role = next((role for role in _DECODERS if role in models), next(iter(models)))
        main = models[role]
        super().__init__(main.proto, name=main.name, path=main.path, storage=storage_of(main))
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

    def statements(self) -> Iterator[Statement]:
        """Yield what the configuration says of the decoder, and what the graph has, as far as both say it."""
        section = self.configuration.get("decoder")
        section = {**self.configuration, **section} if isinstance(section, dict) else dict(self.configuration)
        sizes = self._sizes()
        for what, keys in _SAID.items():
            number = next((section[key] for key in keys if section.get(key)), None)
            number = number.get("window_size") if isinstance(number, dict) else number
            if sizes[what] and isinstance(number, int):
                texts = f"{number:,}", listed(sorted(sizes[what]), "{:,}".format)
                yield Statement(what, *texts, number in sizes[what])
        for what, infos in (("inputs", self.inputs), ("outputs", self.outputs)):
            if isinstance(templates := section.get(what), dict):
                patterns = {t: re.escape(t).replace("%d", r"\d+", 1) for t in templates.values() if isinstance(t, str)}
                pairs = [(t, i.name) for t, text in patterns.items() for i in infos if re.fullmatch(text, i.name)]
                absent = patterns.keys() - {template for template, _ in pairs}
                # nobody has to read an output
                orphans = {info.name for info in infos if what == "inputs"} - {name for _, name in pairs}
                if absent or orphans:
                    extra = [f"also {listed(sorted(names))}" if names else "no others" for names in (absent, orphans)]
                    yield Statement(what, extra[0], extra[1], ok=False)

    def _sizes(self) -> dict[str, set[int]]:
        """Return the sizes that the decoder has, by the words of `_SAID`."""
        sizes: dict[str, set[Any]] = {what: set() for what in _SAID}
        nodes, weights = self.proto.graph.node, self.initializers
        readers = {name: node for node in reversed(nodes) for name in node.input}
        for node in nodes:
            facts = attributes(node) if node.op_type in _ATTENTIONS else {}
            heads, reader = facts.get("num_heads") or facts.get("q_num_heads"), readers.get(next(iter(node.output), ""))
            sizes["heads"] |= {heads}
            sizes["heads of keys and values"] |= {facts.get("kv_num_heads")}
            sizes["window"] |= {facts.get("local_window_size")}
            if heads and reader is not None and len(reader.input) > 1:  # the projection of all heads
                weight = weights.get(reader.input[1])
                width = attributes(reader).get("K") or (weight.shape[0] if weight and weight.shape else 0)
                sizes["head size"] |= {0 if width % heads else width // heads}
        layers = set[str]()
        for info in self.inputs:
            layer, shape = re.search(r"past\D*(\d+)", info.name), info.shape or ()
            if layer and len(shape) == 4:
                layers.add(layer[1])
                sizes["heads of keys and values"] |= {shape[1]}
                sizes["head size"] |= {shape[3]}
        sizes["layers"] = {len(layers)}
        logits = next((info.shape for info in self.outputs if info.name == "logits"), None)
        sizes["vocabulary"] = {(logits or (0,))[-1]}
        return {what: {n for n in numbers if isinstance(n, int) and n > 0} for what, numbers in sizes.items()}

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of all keys and values of so many tokens, in one row; 0 if a size is not known."""
        sizes, total = self._sizes()["head size"], 0
        size = min(sizes) if len(sizes) == 1 else None
        for info in self.inputs:
            if "past" in info.name and len(shape := info.shape or ()) == 4:
                heads, width = shape[1], shape[3] if isinstance(shape[3], int) else size
                bits = re.search(r"\d+$", info.dtype)
                if not (isinstance(heads, int) and isinstance(width, int) and bits):
                    return 0
                total += tokens * heads * width * int(bits[0]) // 8
        return total

    def _panel(self) -> Panel:
        return Panel(self._widget, (self,), shows_result=False)

    def _still(self) -> Still:
        models = [
            (role, path_text(m.path.name if m.path else ""), f"{len(m.proto.graph.node):,}", bytes_text(m.nbytes))
            for role, m in self.models.items()
        ]
        statements = list(self.statements())
        wrong = [statement for statement in statements if not statement.ok]
        verdict = f"{wrong[0].message[0].upper()}{wrong[0].message[1:]}" if wrong else "Configuration and graph agree."
        tables = [StillTable(("Model", "File", "Nodes", "Weights"), models, "model", 2)]
        alarms = [not statement.ok for statement in statements]
        rows = [(what, said, has) for what, said, has, _ in statements]
        if statements:
            tables.append(StillTable(("", "Configuration", "Graph"), rows, "entry", 3, "", alarms))
        if self.cache_bytes(1):
            sizes = [(f"{tokens:,}", bytes_text(self.cache_bytes(tokens))) for tokens in _LENGTHS]
            tables.append(StillTable(("Tokens", "Caches"), sizes, "length"))
        step = "`onnx_nb.decode(package, …)` writes with it; the graph is that of its decoder."
        name, ok = quoted(path_text(self.folder.name)), not wrong if statements else None
        message = f"Package {name}: {count_text(len(models), 'model')}. {verdict if statements else ''}".rstrip()
        return Still(message, "", tables, (step,), ok=ok)

    def __repr__(self) -> str:
        sizes = (
            f"{role}: {count_text(len(m.proto.graph.node), 'node')}, {bytes_text(m.nbytes)}"
            for role, m in self.models.items()
        )
        return f"Package({path_text(self.folder.name)!r}, {'; '.join(sizes)})"


def open_package(folder: Path) -> Package | None:
    """Return the package in a folder; ``None`` if it is none."""
    names = file_names(folder)
    parts = sorted(name for name in names if (folder / name).is_dir() and not (folder / name).is_symlink())[:_MODELS]
    names += [f"{part}/{name}" for part in parts for name in file_names(folder / part)]
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
        part = Path(name).parent.name
        files.setdefault(part if part not in {"", "onnx"} else _role(Path(name).stem), name)
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
