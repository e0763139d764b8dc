#!/usr/bin/env python3
"""A service that sends notices. It knows HTTP and idempotency keys, and nothing of Waybill or Kafka."""
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

answers, recalled = {}, set()  # by idempotency key; a real service keeps both with its effects


def send(key, body):
    if key in recalled:
        return 410, {"code": "recalled", "message": "it was recalled before it arrived"}
    return 200, answers.setdefault(key, {"message": "m-%d" % (len(answers) + 1)})


def recall(key, body):
    key = body["undo_of"]["idempotency_key"]
    recalled.add(key)
    return 200, {"recalled": answers.pop(key, None) is not None}  # undoing what never happened succeeds


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = {"/send": send, "/recall": recall}.get(self.path)
        status, answer = operation(self.headers["Idempotency-Key"], body) if operation else (404, {"code": "no_such_operation"})
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9001), Service).serve_forever()
