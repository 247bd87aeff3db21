"""Channel between a widget in the browser and the kernel. Every request gets exactly one reply.

The browser sends ``{id, verb, args}``. The kernel replies with ``{id, value}`` and binary buffers, with ``{id, error:
{type, message, advice}}`` or with ``{id, cancelled: true}``, and before that, at most ten times a second, it sends
``{id, progress: {fraction, message}}``. ``{id, cancel: true}`` from the browser stops a request while it waits or runs.
One worker thread per widget runs the verbs in order, so a long one does not block the kernel's message loop. Messages
arrive on the main thread or, while a cell runs, on that of a subshell. Ids and promises are an idea from manzt/quak.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import OnnxNbError

if TYPE_CHECKING:
    from ipywidgets import Widget

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.1
"""Seconds between progress messages; the notebook server drops messages, even replies, of a faster sender."""


class Cancelled(Exception):  # noqa: N818 - a reply, not an error
    """The browser asked to stop a request."""


@dataclass(frozen=True)
class Reply:
    """The value of a reply: JSON, and buffers that are sent unchanged."""

    value: Any = None
    buffers: list[bytes] = field(default_factory=list)


@dataclass
class Call:
    """One request, through which a verb reports progress and notices that it should stop."""

    id: int
    verb: str
    args: Mapping[str, Any]
    send: Callable[[dict[str, Any], list[bytes]], None]
    stop: threading.Event = field(default_factory=threading.Event)
    _reported: float = 0.0

    def progress(self, fraction: float, message: str) -> None:
        """Report the fraction done to the browser; raise `Cancelled` if the request should stop."""
        self.check()
        now = time.monotonic()
        if now - self._reported >= PROGRESS_INTERVAL:
            self._reported = now
            self.send({"id": self.id, "progress": {"fraction": fraction, "message": message}}, [])

    def check(self) -> None:
        """Raise `Cancelled` if the browser asked to stop."""
        if self.stop.is_set():
            raise Cancelled


Verb = Callable[[Call], Reply]


class Channel:
    """The kernel's end of the channel of a widget, whose custom messages are requests.

    Only names in ``verbs`` can be called: a message is data, never code. ``"ping"`` is answered at once, so that the
    browser can distinguish long requests from a kernel that does not receive messages.
    """

    def __init__(self, widget: Widget, verbs: Mapping[str, Verb]) -> None:
        self._widget = widget
        self._verbs = dict(verbs)
        self._calls: dict[int, Call] = {}
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        widget.on_msg(self._receive)

    def close(self) -> None:
        """Stop the running request and the worker."""
        with self._lock:
            for call in self._calls.values():
                call.stop.set()
            if self._worker is not None:
                self._queue.put(None)
                self._worker = None

    def _receive(self, _widget: Widget, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or not isinstance(content.get("id"), int):
            return
        number = content["id"]
        if content.get("cancel"):
            with self._lock:
                call = self._calls.get(number)
            if call is not None:
                call.stop.set()
            return
        if content.get("verb") == "ping":
            self._widget.send({"id": number, "value": None}, [])
            return
        args = content.get("args")
        call = Call(number, str(content.get("verb")), args if isinstance(args, dict) else {}, self._widget.send)
        with self._lock:
            self._calls[number] = call
            if self._worker is None:
                # daemon: the kernel does not wait for a verb when it shuts down
                self._worker = threading.Thread(target=self._work, name=f"onnx_nb {call.verb}", daemon=True)
                self._worker.start()
            self._queue.put(call)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                content, buffers = self._reply(call)
                self._widget.send({"id": call.id, **content}, buffers)
            finally:
                with self._lock:
                    self._calls.pop(call.id, None)

    def _reply(self, call: Call) -> tuple[dict[str, Any], list[bytes]]:
        try:
            call.check()
            if call.verb not in self._verbs:
                message = f"this kernel's onnx_nb does not know the request {call.verb!r}."
                raise OnnxNbError(message, advice="Restart the kernel if onnx_nb was upgraded.")  # noqa: TRY301
            reply = self._verbs[call.verb](call)
        except Cancelled:
            return {"cancelled": True}, []
        except OnnxNbError as error:
            return {"error": {"type": type(error).__name__, "message": error.message, "advice": error.advice}}, []
        except Exception as error:  # the browser must get a reply whatever happens; the traceback goes to the log
            logger.exception("request %r failed", call.verb)
            advice = "This is a fault in onnx_nb; the kernel's log has the traceback."
            return {"error": {"type": type(error).__name__, "message": str(error), "advice": advice}}, []
        return {"value": reply.value}, reply.buffers
