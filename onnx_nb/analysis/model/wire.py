"""Find the weights of a .onnx file without parsing them, and write them back into a file.

`scan` walks the protobuf wire format with small positioned reads. Each large weight of the main graph is replaced by an
external-data reference to its bytes in the same file, so that a file serves as its own external-data file; the rest is
small and parsed as usual. `splice` is the inverse: it streams the weights back into a stripped proto.

Touching a memory map instead would be simpler and wrong: in a page cache of large folios each touch maps 2 MB.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from google.protobuf.message import Message
from onnx import TensorProto

from onnx_nb.analysis.errors import ModelFileError

if TYPE_CHECKING:
    from onnx_nb.analysis.model.storage import Extent

THRESHOLD: Final = 1024
"""Bytes; smaller weights stay in the proto, as a reference would take as much space."""

PROTO_LIMIT: Final = 2**31 - 1
"""Bytes of the longest message that protobuf reads and writes."""

_FIRST_READ: Final = 4096
_LARGEST_READ: Final = 1 << 20
_COPY_BYTES: Final = 1 << 20
"""Bytes of a weight that are in memory while it is written."""
_ZEROS: Final = bytes(_COPY_BYTES)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_WIRE_TYPES: Final = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_MODEL_GRAPH, _MODEL_OPSET_IMPORT = 7, 8
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_TAG: Final = _GRAPH_NODE << 3 | _BYTES
_INITIALIZER_TAG: Final = _GRAPH_INITIALIZER << 3 | _BYTES
_SMALL_TAGS: Final = frozenset((_INITIALIZER_TAG, 13 << 3 | _BYTES))
"""Tags of fields that, like nodes, may occur thousands of times: weights and value_info."""
_TENSOR_DATA_TYPE, _TENSOR_SEGMENT, _TENSOR_NAME = 2, 3, 8
_TENSOR_FLOAT_DATA, _TENSOR_RAW_DATA, _TENSOR_DOUBLE_DATA = 4, 9, 10
_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 13, 14
_TENSOR_FIELDS: Final = 1000
"""Fields of a tensor that are looked at for its bytes; one with more of them stays whole."""
_TENSOR_TYPED_DATA: Final = frozenset((4, 5, 6, 7, 10, 11))
_TENSOR_DATA: Final = _TENSOR_TYPED_DATA | {_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION, _TENSOR_RAW_DATA}
# A packed repeated float is the same bytes as raw_data; complex numbers are pairs in it.
_LAID_OUT_LIKE_RAW: Final = {
    _TENSOR_FLOAT_DATA: (TensorProto.FLOAT, TensorProto.COMPLEX64),
    _TENSOR_DOUBLE_DATA: (TensorProto.DOUBLE, TensorProto.COMPLEX128),
}


def scan(source: BinaryIO | bytes, *, location: str, name: str = "model") -> bytes:
    """Return a serialized ModelProto without its large weights, which are not read."""
    window = Window(source, name)
    if window.size == 0:
        raise ModelFileError(f"{name} is empty.", advice="Export or download the model again.")
    try:
        return _scan_model(window, location)
    except NotProtobufError as error:
        kind = _kind_of(window.read(0, min(512, window.size)))
        if kind:
            raise ModelFileError(f"{name} is not an ONNX model: it is {kind[0]}.", advice=kind[1]) from None
        advice = "Check that the download or copy was completed, or export the model again."
        raise ModelFileError(f"{name} is not an ONNX model, or only a part of one: {error}.", advice=advice) from None


def _kind_of(head: bytes) -> tuple[str, str] | None:
    """Return the kind of file that starts with ``head``, if well known, and advice."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for pattern, kind, advice in _SIGNATURES:
        if re.match(pattern, text if pattern.startswith(b"(?i)") else head, re.DOTALL):
            return kind, advice
    return None


_ONNX_FILE, _EXPORT, _CONVERT, _READ = (
    "Give the path of a model; if this should be one, download or export it again.",
    "Export it with torch.onnx.export first.",
    "Convert it to ONNX with tf2onnx first.",
    "Read it with onnx.load(path, format='{}') and give the result.",
)
# (pattern at the start of the file, its kind, advice); "(?i)" marks text, which may follow blanks.
_SIGNATURES: Final = (
    (rb"version https://git-lfs", "a git-LFS pointer, not the file itself", "Run 'git lfs pull' in its repository."),
    (rb"(?i)<(!doctype html|html|head|body)", "an HTML page", "Use the link of the file itself to download it."),
    (rb"(?i)<\s*ir_version", "an ONNX model in text form", _READ.format("onnxtxt")),
    (rb"(?i)<(\?xml|net)", "an XML file", _ONNX_FILE),
    (rb"PK\x03\x04", "a zip archive, as PyTorch's .pt and .pth files are", _EXPORT),
    (rb"\x80[\x02-\x05]", "a Python pickle, as old PyTorch files are", _EXPORT),
    (rb"\x89HDF", "an HDF5 file, as Keras writes", _CONVERT),
    (rb"....TFL3", "a TensorFlow Lite model", _CONVERT),
    (rb"....ORTM", "an ORT-format model of onnxruntime", "Give the .onnx file it was made from."),
    (rb"GGUF", "a GGUF file", _ONNX_FILE),
    (rb".{6}\0\0\{", "a safetensors file: weights without a graph", "Export the model to ONNX first."),
    (rb"\x1f\x8b", "a gzip archive", "Unpack it first."),
    (rb"\x93NUMPY", "a numpy array", "Read it with numpy.load."),
    (rb"(?i)(ir_version:|opset_import\s*\{)", "an ONNX model in text form", _READ.format("textproto")),
    (rb"(?i)[\[{]", "a JSON file", f"If it is an ONNX model in JSON form: {_READ.format('json')}"),
    (rb"\0*\Z", "filled with zeros", "The download was probably interrupted: get the file again."),
    (rb"[\t\n\r\f -~]*\Z", "a text file", _ONNX_FILE),
)


class NotProtobufError(Exception):
    """The bytes stop being valid protobuf at some position."""


class Window:
    """A part of the source held in memory; it grows during sequential reading and shrinks after a jump."""

    def __init__(self, source: BinaryIO | bytes, name: str) -> None:
        self.name = name
        self._file = io.BytesIO(source) if isinstance(source, bytes) else source
        self.bytes, self.start = b"", 0
        self.size = self._file.seek(0, io.SEEK_END)
        self._length = _FIRST_READ

    def at(self, position: int, need: int) -> int:
        """Make ``need`` bytes from ``position`` available (fewer at the end) and return their index in `bytes`."""
        index = position - self.start
        if index < 0 or index + need > len(self.bytes):
            near = 0 <= index <= len(self.bytes) + self._length
            self._length = min(self._length * 4, _LARGEST_READ) if near else _FIRST_READ
            self.bytes = self.read(position, min(position + max(need, self._length), self.size))
            self.start = position
            index = 0
        return index

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``."""
        if self.start <= start and end <= self.start + len(self.bytes):
            return self.bytes[start - self.start : end - self.start]
        self._file.seek(start)
        data = b""
        while len(data) < end - start:
            more = self._file.read(end - start - len(data))
            if not more:
                raise NotProtobufError(f"it ends at byte {start + len(data)} although it had {self.size} bytes")
            data += more
        return data

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Return the number at ``position`` and the position after it."""
        index = self.at(position, 10)
        data = self.bytes
        if position < end and data[index] < 128:
            return data[index], position + 1
        value = shift = 0
        for byte in data[index : index + min(10, end - position)]:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (2**64 - 1), position + shift // 7
        raise NotProtobufError(f"the number at byte {position} has no end")

    def fields(self, position: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (field number, wire type, start, start of payload, end) of each field of the message."""
        while position < end:
            start = position
            tag, position = self.varint(position, end)
            number, wire_type = tag >> 3, tag & 7
            payload = position
            if wire_type == _VARINT:
                _, position = self.varint(position, end)
            elif wire_type == _BYTES:
                length, payload = self.varint(position, end)
                position = payload + length
            elif wire_type in (_FIXED64, _FIXED32):
                position += 8 if wire_type == _FIXED64 else 4
            else:
                number = 0  # no field has it
            if not 0 < number < 2**29:
                raise NotProtobufError(f"byte {start} starts no field")
            if position > end:
                whole = f"the file ends at {self.size}" if end == self.size else f"the message around it ends at {end}"
                raise NotProtobufError(f"the field at byte {start} goes on to byte {position}, but {whole}")
            yield number, wire_type, start, payload, position

    def skip_small(self, position: int, end: int, threshold: int) -> int:
        """Skip the nodes and small weights in the window; this loop determines the speed of a scan."""
        index = self.at(position, 1)
        data, start = self.bytes, self.start
        # Four bytes ahead are looked at: a tag and a length of up to three.
        limit = min(end - start, len(data)) - 4
        while index < limit and ((tag := data[index]) == _NODE_TAG or tag in _SMALL_TAGS):
            length, head = data[index + 1], 2
            if length >= 128:
                second, head = data[index + 2], 3
                length = length & 127 | (second & 127) << 7
                if second >= 128:
                    third, head = data[index + 3], 4
                    if third >= 128:
                        break
                    length |= third << 14
            if length >= threshold and tag == _INITIALIZER_TAG:
                break
            index += head + length
        return index + start


Part: TypeAlias = "bytes | Extent"
"""A part of a message; the bytes of an extent are copied into a file a little at a time."""
_Part: TypeAlias = "Part | tuple[int, int]"
"""A part of a message in the making; a pair is a span of the source, read only at the end."""


def _message(number: int, parts: list[_Part]) -> list[_Part]:
    return [_encoded(number << 3 | _BYTES) + _encoded(sum(map(_nbytes, parts))), *parts]


def _nbytes(part: _Part) -> int:
    if isinstance(part, bytes):
        return len(part)
    return part[1] - part[0] if isinstance(part, tuple) else part.nbytes


def _joined(window: Window, parts: list[_Part]) -> list[Part]:
    """Read the spans and join neighboring bytes, so that writing takes one call for each run of them."""
    result: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes | tuple):
            run.append(part if isinstance(part, bytes) else window.read(*part))
        else:
            result += [b"".join(run), part]
            run.clear()
    return [*result, b"".join(run)]


_Replace: TypeAlias = "Callable[[int, int], list[_Part] | None]"


def _graph_parts(window: Window, position: int, end: int, threshold: int, replace: _Replace) -> list[_Part]:
    """Return the parts of a graph in which weights of ``threshold`` bytes may be replaced by others."""
    graph: list[_Part] = []
    while position < end:
        start = position
        position = window.skip_small(start, end, threshold)
        content = None
        if position > end:
            raise NotProtobufError(f"a node or weight goes on to byte {position}, but the graph ends at {end}")
        if position == start:
            number, wire_type, _, payload, position = next(window.fields(start, end))
            if number == _GRAPH_INITIALIZER and wire_type == _BYTES and position - payload >= threshold:
                content = replace(payload, position)
        last = graph[-1] if graph else None
        if content is not None:
            graph += _message(_GRAPH_INITIALIZER, content)
        elif isinstance(last, tuple) and last[1] == start:
            graph[-1] = last[0], position
        else:
            graph.append((start, position))
    return graph


def _scan_model(window: Window, location: str) -> bytes:
    model: list[_Part] = []
    graphs = opsets = ir_version = 0
    for number, wire_type, start, payload, end in window.fields(0, window.size):
        if _MODEL_WIRE_TYPES.get(number, wire_type) != wire_type:
            if number == 2 and wire_type == _VARINT:
                message = f"{window.name} is not an ONNX model; it may be a single tensor."
                raise ModelFileError(message, advice="Read a tensor with onnx.load_tensor.")
            raise NotProtobufError(f"byte {start} is not a field of a ModelProto")
        if number == _MODEL_GRAPH:
            graphs += 1
            strip = functools.partial(_stripped, window, location)
            model += _message(_MODEL_GRAPH, _graph_parts(window, payload, end, THRESHOLD, strip))
            continue
        opsets += number == _MODEL_OPSET_IMPORT
        if number == 1:
            ir_version, _ = window.varint(payload, end)
        model.append((start, end))
    if not graphs:
        raise NotProtobufError("it holds no graph")
    if not opsets and ir_version >= 3:
        raise NotProtobufError("it names no operator set (opset_import), which comes after the graph")
    nbytes = sum(map(_nbytes, model))
    if nbytes > PROTO_LIMIT:
        message = f"{window.name} holds {nbytes / 1e9:.1f} GB besides its weights, more than protobuf can parse."
        raise ModelFileError(message, advice="Move large Constant nodes to initializers when exporting.")
    return b"".join(part for part in _joined(window, model) if isinstance(part, bytes))


def _stripped(window: Window, location: str, position: int, end: int) -> list[_Part] | None:
    """Return a tensor with a reference in place of its bytes; ``None`` if they cannot be referred to."""
    tensor: list[_Part] = []
    data: tuple[int, int, int] | None = None
    data_type = 0
    for count, (number, wire_type, start, payload, stop) in enumerate(window.fields(position, end)):
        if count > _TENSOR_FIELDS:
            return None
        if number == _TENSOR_RAW_DATA or number in _TENSOR_TYPED_DATA:
            if data is not None or wire_type != _BYTES:
                return None
            data = number, payload, stop
        elif number == _TENSOR_SEGMENT:
            return None
        elif number == _TENSOR_DATA_LOCATION:
            if window.varint(payload, stop)[0] != TensorProto.DEFAULT:
                return None
        elif number != _TENSOR_EXTERNAL_DATA:
            if number == _TENSOR_DATA_TYPE and wire_type == _VARINT:
                data_type, _ = window.varint(payload, stop)
            # Nearly always short and in the window: read now, not by a jump back at the end.
            tensor.append(window.read(start, stop) if stop - start < _FIRST_READ else (start, stop))
    if data is None or data[2] - data[1] < THRESHOLD:
        return None
    number, start, stop = data
    is_raw = number == _TENSOR_RAW_DATA and data_type != TensorProto.STRING
    if not is_raw and data_type not in _LAID_OUT_LIKE_RAW.get(number, ()):
        return None
    reference = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", start), ("length", stop - start)):
        reference.external_data.add(key=key, value=str(value))
    return [*tensor, reference.SerializeToString()]


def splice(proto: bytes, weight_of: Callable[[TensorProto], Extent | None]) -> list[Part]:
    """Put weights back into a stripped proto."""
    window = Window(proto, "the proto")

    def spliced(position: int, end: int) -> list[_Part] | None:
        tensor = TensorProto.FromString(window.read(position, end))
        weight = weight_of(tensor) if tensor.data_location == TensorProto.EXTERNAL else None
        if weight is None:
            return None
        fields = [(number, (start, stop)) for number, _, start, _, stop in window.fields(position, end)]
        fields = [(number, span) for number, span in fields if number not in _TENSOR_DATA]
        # Protobuf writes fields by number, and so do we: a model saved unchanged is then the same file.
        before = [span for number, span in fields if number <= _TENSOR_NAME]
        after = [span for number, span in fields if number > _TENSOR_NAME]
        return [*before, _encoded(_TENSOR_RAW_DATA << 3 | _BYTES) + _encoded(weight.nbytes), weight, *after]

    model: list[_Part] = []
    for number, _, start, payload, end in window.fields(0, window.size):
        if number == _MODEL_GRAPH:
            model += _message(_MODEL_GRAPH, _graph_parts(window, payload, end, 0, spliced))
        else:
            model.append((start, end))
    return _joined(window, model)


def write(file: BinaryIO, parts: Sequence[Part], watch: Callable[[bytes | memoryview], None] | None = None) -> None:
    """Write the parts one after the other, a few megabytes of weights in memory at a time; ``watch`` sees all bytes."""
    for part in parts:
        nbytes = 0
        for data in (part,) if isinstance(part, bytes) else part.stream(_COPY_BYTES):
            nbytes += len(data)
            if watch is not None:
                watch(data)
            # Copying first makes the comparison one memcmp, instead of one Python object a byte of a memoryview.
            if len(data) == _COPY_BYTES and not data[0] and not data[-1] and bytes(data) == _ZEROS:
                file.seek(_COPY_BYTES, io.SEEK_CUR)
            else:
                file.write(data)
        if nbytes != _nbytes(part):
            raise ModelFileError(f"a weight gave {nbytes} bytes instead of {_nbytes(part)}.")
    # A hole at the end exists only once the file has its full length.
    file.truncate(file.tell())


def copy_fields(source: Message, target: Message, *, without: Collection[str] = ()) -> None:
    r"""Copy the fields that are set, except some."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if isinstance(value, str | bytes | int | float):
            set_field(target, field.name, value)
        elif field.type == field.TYPE_STRING and any(isinstance(item, bytes) for item in value):
            target.MergeFromString(b"".join(_text_field(field.number, item) for item in value))
        else:  # a message, or a repeated field
            getattr(target, field.name).MergeFrom(value)


def set_entries(field: Any, entries: Iterable[Any]) -> None:
    """Put entries in the place of those of a repeated field; they may be some of its own."""
    items = [*entries]
    del field[:]
    field.extend(items)


def set_field(message: Message, name: str, value: str | bytes | float) -> None:
    """Set a field that holds one value; a string may be bytes that are not UTF-8, as protobuf's parser returns it."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if isinstance(value, bytes) and field.type == field.TYPE_STRING:
        message.MergeFromString(_text_field(field.number, value))
    else:
        setattr(message, name, value)


def _text_field(number: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _encoded(number << 3 | _BYTES) + _encoded(len(data)) + data


def _encoded(number: int) -> bytes:
    """Return the number as a varint."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)
