"""Plays recorded responses on the loopback interface, byte for byte.

    with Server(responses) as server:
        base = server.base("chat-null", "pieces", "python-0")   # the base URL for one reader
        ...
        server.requests("chat-null", "pieces", "python-0")      # the number of requests

`responses` maps a key to (status, headers, body). A body is sent as `whole` in one chunk, as `pieces`
in chunks of 61 bytes, or as `dropped` in chunks with a reset of the connection instead of the end.
"""
import collections
import fcntl
import socket
import struct
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 61
# Headers of the transport, which this server sets itself.
TRANSPORT = {"transfer-encoding", "content-length", "content-encoding", "connection", "keep-alive"}


class Server:
    def __init__(self, responses):
        self.responses = responses
        self.asked = collections.Counter()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def base(self, *words):
        return f"http://127.0.0.1:{self.http.server_port}/{'/'.join(words)}"

    def requests(self, *words):
        return self.asked["/".join(words)]

    def answer(self, handler):
        handler.rfile.read(int(handler.headers.get("content-length", 0)))
        key, how, reader = handler.path.lstrip("/").split("/")[:3]
        self.asked[f"{key}/{how}/{reader}"] += 1
        status, headers, body = self.responses[key]
        handler.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in TRANSPORT:
                handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        handler.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = len(body) if how == "whole" else PIECE
        for at in range(0, len(body), size or 1):
            piece = body[at:at + size]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        if how == "dropped":
            # Closes without lingering, so that the reader gets a reset after it has read everything.
            drain(handler.connection)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()
        else:
            handler.wfile.write(b"0\r\n\r\n")
            handler.wfile.flush()


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        # A reader that disconnects in the middle of a stream is not an error of the server.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


def drain(connection):
    """Waits until the other side has received everything, because a reset discards the rest."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0\0\0\0"))[0]:
        time.sleep(0.001)
