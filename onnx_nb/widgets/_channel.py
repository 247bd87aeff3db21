"""Channel between a widget in the browser and the kernel. Every request gets exactly one reply.

The browser sends ``{id, verb, args}``. The kernel replies with ``{id, value}``, with ``{id, error: {type, message,
advice}}`` or with ``{id, cancelled: true}``, and before that, at most ten times a second, it sends ``{id, progress:
{fraction, message}}``. ``{id, cancel: true}`` from the browser stops a request while it waits or runs. Binary buffers
come with ``{id, value, buffers: count}``; a browser whose host lost them sends the request again with ``text: true``,
and gets ``{id, value, base64: […]}``.
One worker thread per widget runs the verbs in order, so a long one does not block the kernel's message loop. Messages
arrive on the main thread or, while a cell runs, on that of a subshell. A message is untrusted data: a `Call` checks its
arguments, and a reply that cannot be sent becomes an error that can. Ids and promises are an idea from manzt/quak.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from onnx_nb.analysis.errors import EditError, OnnxNbError
from onnx_nb.analysis.formatting import quoted, shortened

if TYPE_CHECKING:
    from ipywidgets import Widget

    from onnx_nb.widgets.protocol import EmptyRequest


logger = logging.getLogger(__name__)
AnyRequest = TypeVar("AnyRequest", bound="EmptyRequest")

PROGRESS_INTERVAL = 0.1
"""Seconds between progress messages; the notebook server drops messages, even replies, of a faster sender."""


class Cancelled(Exception):  # noqa: N818 - a reply, not an error
    """The browser asked to stop a request."""


@dataclass(frozen=True)
class Reply:
    """The value of a reply, a class of `protocol` or JSON, and buffers that are sent unchanged."""

    value: Any = None
    buffers: list[bytes] = field(default_factory=list)


@dataclass(eq=False)
class Call(Generic[AnyRequest]):
    """One request, through which a verb reads its arguments, reports progress and notices that it should stop."""

    id: Any
    verb: str
    args: Mapping[str, Any]
    send: Callable[[dict[str, Any], list[bytes]], None]
    in_text: bool = False
    """Whether the reply has its buffers as text."""
    stop: threading.Event = field(default_factory=threading.Event)
    _report_time: float = 0.0

    def progress(self, fraction: float, message: str) -> None:
        """Report the fraction done to the browser; raise `Cancelled` if the request should stop."""
        self.check()
        now = time.monotonic()
        if now - self._report_time >= PROGRESS_INTERVAL:
            self._report_time = now
            self.reply({"progress": {"fraction": fraction, "message": message}})

    def check(self) -> None:
        if self.stop.is_set():
            raise Cancelled

    def reply(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message about this request. Surrogates, as in names of files that are not UTF-8, become ``?``."""
        text = json.dumps({"id": self.id, **content}, ensure_ascii=False, default=_plain)
        self.send(json.loads(text.encode("utf-8", "replace")), buffers or [])

    @property
    def request(self) -> AnyRequest:
        """The arguments as the verb's class of `protocol`. Raises `OnnxNbError` for what is missing or wrong."""
        from onnx_nb.widgets.protocol import VERBS

        kind, values = VERBS[self.verb].request, {}
        for entry in fields(kind):
            value = self.args.get(entry.name)
            if value is None and (entry.default is not MISSING or entry.default_factory is not MISSING):
                continue
            words, fits = _KINDS[str(entry.type).removesuffix(" | None")]
            if not fits(value):
                message = f"{quoted(entry.name)} of the request {quoted(self.verb)} is {words}, not "
                raise OnnxNbError(f"{message}{shortened(repr(value), 100)}.", advice=RELOAD)
            values[entry.name] = value
        return cast("AnyRequest", kind(**values))


RELOAD: Final = "Restart the kernel and reload the page, so that both have the same version of onnx_nb."


def is_number(value: Any) -> bool:
    """Return whether a value is a whole number, 0 or more, up to the largest that the browser writes exactly."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_TEXT: Final = ("a text", lambda value: isinstance(value, str))
_KINDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "str": _TEXT,
    "int": ("a whole number, 0 or more", is_number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "list[str]": ("a list of texts", _list_of(_TEXT[1])),
    "list[int]": ("a list of whole numbers, 0 or more", _list_of(is_number)),
    "dict[str, Any]": ("an object", lambda value: isinstance(value, dict)),
}
"""Annotation of an argument → its kind in words, and whether a value is one."""


def _plain(value: Any) -> Any:
    """Return what JSON holds of a reply's class or of a number of numpy."""
    return vars(value) if is_dataclass(value) else value.item()


Verb = Callable[[Call[Any]], Reply]


class Channel:
    """The kernel's end of the channel of a widget, whose custom messages are requests.

    Only names in ``verbs`` can be called: a message is data, never code. ``"ping"`` is answered at once, so that the
    browser can distinguish long requests from a kernel that does not receive messages.
    """

    def __init__(self, widget: Widget, verbs: Mapping[str, Verb]) -> None:
        self._widget = widget
        self._verbs: dict[str, Verb] = {"ping": lambda _call: Reply(), **verbs}
        self._calls: list[Call[Any]] = []
        self._queue: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        widget.on_msg(self._receive)

    def close(self) -> None:
        """Stop the running request and the worker, and hear no more."""
        self._widget.on_msg(self._receive, remove=True)
        with self._lock:
            for call in self._calls:
                call.stop.set()
            if self._worker is not None:
                self._queue.put(None)
                self._worker = None

    def _receive(self, _widget: Widget, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or content.get("id") is None:
            return  # without an id, nothing waits for a reply
        if content.get("cancel"):
            with self._lock:
                for call in self._calls:
                    if call.id == content["id"]:
                        call.stop.set()
            return
        verb, in_text = str(content.get("verb")), content.get("text") is True
        call = Call(content["id"], verb, content.get("args") or {}, self._widget.send, in_text)
        with self._lock:
            if any(other.id == call.id and other.in_text == in_text for other in self._calls):
                return  # sent again by a page that lost its connection
            self._calls.append(call)
            running = call.verb != "ping" and (self._worker is not None or self._start())
            if running:
                self._queue.put(call)
        if not running:
            self._answer(call)

    def _start(self) -> bool:
        """Start the worker. Returns False if the system allows no more threads."""
        # daemon: the kernel does not wait for a verb when it shuts down
        worker = threading.Thread(target=self._work, name=f"onnx_nb {self._calls[-1].verb:.20}", daemon=True)
        try:
            worker.start()
        except RuntimeError:
            return False
        self._worker = worker
        return True

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            self._answer(call)

    def _answer(self, call: Call[Any]) -> None:
        """Reply to a request exactly once, whatever its verb or the sending of its reply raises."""
        try:
            call.reply(*self._reply(call))
        except BaseException as error:  # noqa: BLE001 (the worker must survive for the requests after this one)
            try:
                logger.exception("request %r failed", call.verb)
                advice = "This is a fault in onnx_nb; the kernel's log has the traceback."
                call.reply({"error": {"type": type(error).__name__, "message": str(error), "advice": advice}})
            except BaseException:  # the comm takes nothing at all, so nobody can be told but the log
                logger.exception("no reply to request %r can be sent", call.verb)
        finally:
            with self._lock:
                self._calls.remove(call)

    def _reply(self, call: Call[Any]) -> tuple[dict[str, Any], list[bytes]]:
        try:
            call.check()
            if not is_number(call.id) or not isinstance(call.args, dict):
                message = f"the request {quoted(call.verb)} needs a whole number as its id and an object as its args."
                raise OnnxNbError(message, advice=RELOAD)  # noqa: TRY301
            if call.verb not in self._verbs:
                message = f"this kernel's onnx_nb does not know the request {quoted(call.verb)}."
                raise OnnxNbError(message, advice="Restart the kernel if onnx_nb was upgraded.")  # noqa: TRY301
            reply = self._verbs[call.verb](call)
        except Cancelled:
            return {"cancelled": True}, []
        except OnnxNbError as error:
            about = {"type": type(error).__name__, "message": error.message, "advice": error.advice}
            return {"error": about | ({"node": error.node} if isinstance(error, EditError) else {})}, []
        if not reply.buffers:
            return {"value": reply.value}, []
        if call.in_text:
            return {"value": reply.value, "base64": [base64.b64encode(buffer).decode() for buffer in reply.buffers]}, []
        return {"value": reply.value, "buffers": len(reply.buffers)}, reply.buffers
