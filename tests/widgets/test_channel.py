"""The kernel's end of the channel: each request gets exactly one answer."""

from __future__ import annotations

import base64
import sys
import threading
from typing import Any

import pytest
from jupyter_client.session import json_packer

from onnx_nb.analysis.errors import ExtractionError
from onnx_nb.widgets._channel import PROGRESS_INTERVAL, Call, Channel, Reply


class Browser:
    """Stands in for a widget with a browser behind it."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.buffers: list[list[bytes]] = []
        self.answered = threading.Semaphore(0)
        self.handler: Any = None

    def on_msg(self, handler: Any) -> None:
        self.handler = handler

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.answers.append(content)
        self.buffers.append(buffers)
        self.answered.release()

    def ask(self, content: object) -> None:
        self.handler(self, content, [])

    def wait(self, count: int = 1) -> list[dict[str, Any]]:
        for _ in range(count):
            assert self.answered.acquire(timeout=60), f"only {len(self.answers)} answers came"
        return self.answers


def test_a_value_and_its_buffers_come_back_under_the_id() -> None:
    browser = Browser()
    Channel(browser, {"double": lambda call: Reply(2 * call.args["n"], [b"xy"])})
    browser.ask({"id": 7, "verb": "double", "args": {"n": 21}})
    assert browser.wait() == [{"id": 7, "value": 42, "buffers": 1}]
    assert browser.buffers == [[b"xy"]]


def test_a_request_that_is_sent_again_while_it_is_worked_on_is_answered_once() -> None:
    browser, begun, go = Browser(), threading.Semaphore(0), threading.Event()

    def slow(_call: Call[Any]) -> Reply:
        begun.release()
        assert go.wait(60)
        return Reply("done")

    Channel(browser, {"slow": slow})
    browser.ask({"id": 7, "verb": "slow"})
    assert begun.acquire(timeout=60)
    browser.ask({"id": 7, "verb": "slow"})  # by a page that lost its connection
    go.set()
    browser.ask({"id": 8, "verb": "slow"})
    assert browser.wait(2) == [{"id": 7, "value": "done"}, {"id": 8, "value": "done"}]


def test_buffers_that_a_host_lost_come_as_text_when_asked_again() -> None:
    browser, sent = Browser(), [b"\x00\xff", b""]
    Channel(browser, {"columns": lambda call: Reply(call.args["part"], sent)})
    browser.ask({"id": 7, "verb": "columns", "args": {"part": "a"}})
    assert browser.wait() == [{"id": 7, "value": "a", "buffers": 2}]
    browser.ask({"id": 7, "verb": "columns", "args": {"part": "a"}, "text": True})
    again = browser.wait()[1]
    assert (again["id"], again["value"]) == (7, "a")
    assert [base64.b64decode(text) for text in again["base64"]] == sent
    assert browser.buffers[1] == []


@pytest.mark.parametrize(
    ("thrown", "expected"),
    [
        (ExtractionError("no.", advice="Add x."), {"type": "ExtractionError", "message": "no.", "advice": "Add x."}),
        (ZeroDivisionError("oops"), {"type": "ZeroDivisionError", "message": "oops"}),
    ],
)
def test_whatever_a_verb_raises_is_answered(
    thrown: Exception, expected: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def verb(_call: Call[Any]) -> Reply:
        raise thrown

    browser = Browser()
    Channel(browser, {"fail": verb})
    browser.ask({"id": 1, "verb": "fail"})
    assert expected.items() <= browser.wait()[0]["error"].items()
    # only what is our fault is logged, with its traceback
    assert bool(caplog.records) == isinstance(thrown, ZeroDivisionError)


def test_an_unknown_verb_and_a_strange_message_do_no_harm() -> None:
    browser = Browser()
    Channel(browser, {})
    strange: object
    for strange in (None, [], {"verb": "ping"}, {"cancel": True}, {"id": 3, "cancel": True}):
        browser.ask(strange)  # nothing waits for a reply to these
    browser.ask({"id": 4, "verb": "__init__", "args": {}})
    answers = browser.wait()
    assert len(answers) == 1
    assert "does not know the request '__init__'" in answers[0]["error"]["message"]


@pytest.mark.parametrize("number", ["1", -1, 1.5, True, [1], {"a": 1}, 1 << 60, "\ud800"])
def test_a_request_with_another_id_gets_an_error(number: object) -> None:
    browser = Browser()
    Channel(browser, {})
    browser.ask({"id": number, "verb": "ping"})
    browser.ask({"id": 1, "verb": "ping", "args": "not a dict"})
    answers = browser.wait(2)
    assert answers[0]["id"] == ("?" if number == "\ud800" else number)
    assert [answer["error"]["type"] for answer in answers] == ["OnnxNbError", "OnnxNbError"]


class Sending(Browser):
    """A widget whose messages are packed as ipykernel packs them, and that cannot send some of them."""

    def __init__(self, refused: int) -> None:
        super().__init__()
        self.refused = refused

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        json_packer(content).decode("utf-8")
        if self.refused > 0:
            self.refused -= 1
            raise ConnectionError("the socket is closed")
        super().send(content, buffers)


def test_a_reply_that_cannot_be_sent_is_an_error_and_the_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    browser = Sending(refused=0)
    Channel(
        browser,
        {
            "object": lambda _: Reply(object()),
            "surrogate": lambda _: Reply({"\ud800": "\udcff"}),
            "go": lambda _: Reply(),
        },
    )
    browser.ask({"id": 1, "verb": "object"})
    assert "AttributeError" in str(browser.wait()[0]["error"])
    browser.ask({"id": 2, "verb": "surrogate"})
    browser.ask({"id": 3, "verb": "\ud800"})
    assert browser.wait(2)[1]["value"] == {"?": "?"}
    assert browser.answers[2]["id"] == 3
    browser.refused = 1
    browser.ask({"id": 4, "verb": "go"})
    assert browser.wait()[3]["error"]["message"] == "the socket is closed"
    browser.refused = 2  # not even the error can be sent
    browser.ask({"id": 5, "verb": "go"})
    browser.ask({"id": 6, "verb": "go"})
    assert browser.wait()[4:] == [{"id": 6, "value": None}]
    assert "no reply to request 'go' can be sent" in caplog.text


def test_a_verb_that_ends_its_thread_is_answered_and_the_worker_goes_on() -> None:
    browser = Browser()
    Channel(browser, {"exit": lambda _: sys.exit(3), "go": lambda _: Reply()})
    browser.ask({"id": 1, "verb": "exit"})
    browser.ask({"id": 2, "verb": "go"})
    answers = browser.wait(2)
    assert (answers[0]["error"]["type"], answers[1]) == ("SystemExit", {"id": 2, "value": None})


def test_a_request_is_answered_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser()
    Channel(browser, {"go": lambda _: Reply()})

    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        browser.ask({"id": 1, "verb": "go"})
        assert browser.answers == [{"id": 1, "value": None}]
    browser.ask({"id": 2, "verb": "go"})
    assert browser.wait(2)[1] == {"id": 2, "value": None}


def test_verbs_run_in_order_off_the_calling_thread() -> None:
    browser, seen = Browser(), list[tuple[int, str]]()

    def verb(call: Call[Any]) -> Reply:
        seen.append((call.id, threading.current_thread().name))
        return Reply()

    Channel(browser, {"go": verb})
    for number in range(20):
        browser.ask({"id": number, "verb": "go"})
    browser.wait(20)
    assert [number for number, _ in seen] == list(range(20))
    assert threading.current_thread().name not in {name for _, name in seen}


def test_a_ping_passes_a_long_request() -> None:
    browser, started, enough = Browser(), threading.Event(), threading.Event()

    def slow(_call: Call[Any]) -> Reply:
        started.set()
        assert enough.wait(60)
        return Reply()

    Channel(browser, {"slow": slow})
    browser.ask({"id": 1, "verb": "slow"})
    assert started.wait(60)
    browser.ask({"id": 2, "verb": "ping"})
    assert browser.answers == [{"id": 2, "value": None}]
    enough.set()
    assert browser.wait(2)[1] == {"id": 1, "value": None}


def test_cancelling_reaches_a_verb_that_runs_and_one_that_waits() -> None:
    browser, started = Browser(), threading.Event()

    def slow(call: Call[Any]) -> Reply:
        started.set()
        while True:
            call.progress(0.5, "working")
            call.stop.wait(0.01)

    Channel(browser, {"slow": slow})
    browser.ask({"id": 1, "verb": "slow"})
    browser.ask({"id": 2, "verb": "slow"})
    assert started.wait(60)
    browser.ask({"id": 2, "cancel": True})
    browser.ask({"id": 1, "cancel": True})
    while len([a for a in browser.answers if a.get("cancelled")]) < 2:
        browser.wait()
    assert [a["id"] for a in browser.answers if a.get("cancelled")] == [1, 2]


def test_progress_is_told_at_most_ten_times_a_second() -> None:
    browser = Browser()

    def busy(call: Call[Any]) -> Reply:
        for step in range(1000):
            call.progress(step / 1000, "working")
        return Reply("done")

    Channel(browser, {"busy": busy})
    browser.ask({"id": 1, "verb": "busy"})
    while browser.answers[-1:] != [{"id": 1, "value": "done"}]:
        browser.wait()
    reported = [a for a in browser.answers if "progress" in a]
    assert PROGRESS_INTERVAL == 0.1
    assert 1 <= len(reported) < 1000
