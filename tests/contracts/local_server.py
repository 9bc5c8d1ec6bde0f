"""A local HTTP server in the place of a model API: tests say what it answers and read what it was asked."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]

EVENT_STREAM = "text/event-stream; charset=utf-8"


class LocalServer:
    """Answers each request with the next of the answers it was given; `requests` holds the bodies it got."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.stopping = threading.Event()
        self._answers: deque[Answer] = deque()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.owner = self  # type: ignore[attr-defined]  # how a handler finds its server

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def will_answer(self, *answers: Answer) -> None:
        self._answers.extend(answers)

    def forget(self) -> None:
        """Start anew for the next test."""
        self._answers.clear()
        for record in (self.requests, self.headers, self.paths):
            record.clear()

    def next_answer(self) -> Answer:
        return self._answers.popleft() if self._answers else raw(500, b'{"error": "no answer was prepared"}')

    @contextmanager
    def running(self) -> Iterator["LocalServer"]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 5  # an idle connection must not hold up the end of a test

    @property
    def owner(self) -> LocalServer:
        return self.server.owner  # type: ignore[attr-defined]  # set by LocalServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.owner.requests.append(json.loads(body))
        self.owner.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.owner.paths.append(self.path)
        try:
            self.owner.next_answer()(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_chunks(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a test's output is its own."""


def whole(data: Any) -> Answer:
    return raw(200, json.dumps(data).encode())


def raw(status: int, body: bytes, *, content_type: str = "application/json", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.send(status, body, {"Content-Type": content_type, **named})


def frames(*sent: bytes) -> Answer:
    """Send a stream of these pieces of bytes, one by one, to its proper end."""

    def answer(handler: Handler) -> None:
        handler.begin_chunks(EVENT_STREAM)
        for data in sent:
            handler.send_chunk(data)
        handler.send_chunk(b"")

    return answer


def cut_frames(*sent: bytes) -> Answer:
    """Send some pieces and drop the connection in the middle of the body."""

    def answer(handler: Handler) -> None:
        handler.begin_chunks(EVENT_STREAM)
        for data in sent:
            handler.send_chunk(data)
        handler.close_connection = True

    return answer


def held_frames(first: Iterable[bytes], rest: Iterable[bytes], *, until: threading.Event) -> Answer:
    """Send the first pieces, and the rest when the event is set."""

    def answer(handler: Handler) -> None:
        handler.begin_chunks(EVENT_STREAM)
        for data in first:
            handler.send_chunk(data)
        until.wait(5)
        for data in rest:
            handler.send_chunk(data)
        handler.send_chunk(b"")

    return answer


def dropped() -> Answer:
    """Close the connection without a word."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True

    return answer


def silence(handler: Handler) -> None:
    """Take the request and never answer."""
    handler.owner.stopping.wait()
    handler.close_connection = True


def trickle(handler: Handler) -> None:
    """Send one byte of the body now and then, for ever."""
    handler.begin_chunks("application/json")
    _drip(handler, lambda: handler.send_chunk(b" "))


def trickled_headers(handler: Handler) -> None:
    """Send one byte of the headers now and then, for ever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _drip(handler, lambda: handler.wfile.write(b"a"))


def trickled_frames(frame: bytes) -> Answer:
    """Send the same piece of a stream now and then, for ever."""

    def answer(handler: Handler) -> None:
        handler.begin_chunks(EVENT_STREAM)
        _drip(handler, lambda: handler.send_chunk(frame))

    return answer


def _drip(handler: Handler, send: Callable[[], object]) -> None:
    handler.close_connection = True
    while not handler.owner.stopping.wait(0.02):
        send()
