"""A proxy that turns requests of a client into constrained ones, which a model of random weights can answer.

A request with the marker gets a forced call of one tool, whose arguments the proxy's schema fixes, until the
output of that call is in the conversation. Any other gets a fixed answer as JSON. Both are the server's own
constrained decoding: the answers pass unchanged.
"""

import http.client
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

MARKER = "use-the-tool"
OUTPUT = "42-penguins"
ANSWER = "All is well."
ENDPOINTS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


def strict(values):
    """Return a schema that allows one object only."""
    properties = {name: {"const": value} for name, value in values.items()}
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Turner:
    """The changes to requests.

    Args:
        arguments: Arguments of a call, by the name of the tool; the first one that the client declares is
            called.
        text: Regular expression of the answers, in place of the JSON; for chat completions only.
    """

    def __init__(self, arguments, text=None):
        self.arguments, self.text = arguments, text

    def turn(self, endpoint, body):
        """Change a request; return the name of the tool whose call is forced, or None."""
        told = json.dumps(body)
        declared = [_name(tool) for tool in body.get("tools") or ()]
        wanted = next((name for name in self.arguments if name in declared), None)
        name = wanted if MARKER in told and OUTPUT not in told else None
        getattr(self, f"_{endpoint}")(body, name)
        return name

    def _chat(self, body, name):
        body["reasoning_effort"] = "none"
        if name is not None:
            _tool(body, name)["function"]["parameters"] = strict(self.arguments[name])
            body["tool_choice"] = {"type": "function", "function": {"name": name}}
        elif self.text is not None:
            body["guided_regex"] = self.text
        else:
            schema = {"name": "answer", "schema": strict({"answer": ANSWER})}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
            _without_calls(body, "none")

    def _responses(self, body, name):
        body["reasoning"] = {"effort": "none"}
        if name is not None:
            _tool(body, name)["parameters"] = strict(self.arguments[name])
            body["tool_choice"] = {"type": "function", "name": name}
        else:
            form = {"type": "json_schema", "name": "answer", "schema": strict({"answer": ANSWER})}
            body["text"] = {**(body.get("text") or {}), "format": form}
            _without_calls(body, "none")

    def _messages(self, body, name):
        body["thinking"] = {"type": "disabled"}
        if name is not None:
            _tool(body, name)["input_schema"] = strict(self.arguments[name])
            body["tool_choice"] = {"type": "tool", "name": name}
        else:
            form = {"type": "json_schema", "schema": strict({"answer": ANSWER})}
            body["output_config"] = {**(body.get("output_config") or {}), "format": form}
            _without_calls(body, {"type": "none"})


def _name(tool):
    return tool.get("name") or tool.get("function", {}).get("name")


def _tool(body, name):
    return next(tool for tool in body["tools"] if _name(tool) == name)


def _without_calls(body, choice):
    if body.get("tools"):
        body["tool_choice"] = choice


class Exchange:
    """One request of a client and its answer.

    Attributes:
        sent: The body as the client sent it.
        forced: Name of the tool whose call the proxy forced; None for none.
        pieces: Number of server-sent events of the answer.
    """

    def __init__(self, method, path, sent):
        self.method, self.path, self.sent = method, path, sent
        self.forced, self.status, self.pieces, self.answer, self.is_over = None, 0, 0, "", False

    @property
    def is_question(self):
        """True if the model was asked."""
        return self.method == "POST" and any(self.path.endswith(end) for end in ENDPOINTS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._pass_on(b"")

    do_HEAD = do_GET

    def do_POST(self):
        self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _pass_on(self, content):
        path = self.path.partition("?")[0]
        exchange = Exchange(self.command, path, content.decode("utf-8", "replace"))
        self.server.exchanges.append(exchange)
        for end, endpoint in ENDPOINTS.items():
            if self.command == "POST" and path.endswith(end):
                body = json.loads(content)
                exchange.forced = self.server.turner.turn(endpoint, body)
                content = json.dumps(body).encode()
        server = http.client.HTTPConnection(*self.server.target, timeout=600)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            headers["accept-encoding"] = "identity"
            server.request(self.command, self.path, content or None, headers)
            answer = server.getresponse()
            exchange.status = answer.status
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            while piece := answer.read1(65536):
                exchange.answer += piece.decode("utf-8", "replace")
                self.wfile.write(piece)
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has left
        finally:
            exchange.pieces = exchange.answer.count("\ndata:") + exchange.answer.startswith("data:")
            exchange.is_over = True
            server.close()
            self.close_connection = True

    def log_message(self, *_):
        pass


@contextmanager
def turning_proxy(url, turner):
    """Run the proxy before a server; yield its address, and the list of its exchanges."""
    parts = urlsplit(url)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.target, server.turner, server.exchanges = (parts.hostname, parts.port), turner, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.exchanges
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
