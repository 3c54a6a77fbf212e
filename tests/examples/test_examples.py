# SPDX-License-Identifier: MIT
"""Runs the examples, as a user would: test_examples.py MINIMAL THREADS HTTP_SERVER

Each against a redis-server of its own, on a socket in a temporary folder.  What is counted is exact
but for the tokens that accrue while it is counted, so those are allowed for by the clock.
"""

import contextlib
import http.client
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

MINIMAL, THREADS, HTTP_SERVER = sys.argv[1:4]
PATIENCE_S = 20  # far above what anything here takes


@contextlib.contextmanager
def redis_server():
    """A private redis-server; gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "socket")
        command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
        with subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL) as server:
            try:
                wait_for(lambda: path.exists() and server.poll() is None)
                yield f"unix://{path}"
            finally:
                server.terminate()
                server.wait()


def wait_for(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def run(*command):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{command}: exit status {done.returncode}: {done.stderr}"
    return done.stdout


class Server:
    """http_server on a port that the system chose."""

    def __init__(self, url=None, rate=1, burst=5):
        command = [HTTP_SERVER, "--listen", "127.0.0.1:0"]
        command += ["--rate", str(rate), "--burst", str(burst)]
        command += ["--url", url] if url else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def connect(self):
        return contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        )

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def get(connection, client, method="GET"):
    connection.request(method, "/", headers={"X-Client": client})
    response = connection.getresponse()
    body = response.read()
    return response, body


def count_served(server, client, requests):
    """Statuses of so many requests on one connection, and the seconds they took, rounded up."""
    start = time.monotonic()
    with server.connect() as connection:
        statuses = [get(connection, client)[0].status for _ in range(requests)]
    return statuses, math.ceil(time.monotonic() - start)


def verdicts(output):
    return re.findall(r"^\d (\w+):", output, re.M)


def minimal_admits_three_of_five():
    assert verdicts(run(MINIMAL)) == ["ALLOWED"] * 3 + ["DENIED"] * 2


def minimal_shares_its_limit_through_redis():
    with redis_server() as url:
        assert verdicts(run(MINIMAL, url)) == ["ALLOWED"] * 3 + ["DENIED"] * 2
        assert verdicts(run(MINIMAL, url)) == ["DENIED"] * 5


def check_threads(*url):
    start = time.monotonic()
    output = run(THREADS, *url)
    seconds = math.ceil(time.monotonic() - start)
    rows = re.findall(r"^\w+ +served +(\d+), turned away +(\d+), failed (\d+)$", output, re.M)
    served = [int(row[0]) for row in rows]
    assert len(rows) == 4, output
    assert all(int(row[2]) == 0 for row in rows), output
    assert all(int(row[0]) + int(row[1]) == 100 for row in rows), output
    assert max(served) <= 60 + seconds, output  # 60 a minute each
    assert 150 <= sum(served) <= 150 + 3 * seconds, output  # 150 a minute together


def threads_stays_within_both_limits():
    check_threads()


def threads_does_so_through_redis():
    with redis_server() as url:
        check_threads(url)


def http_server_counts_exactly():
    with redis_server() as url, Server(url) as server:
        statuses, seconds = count_served(server, "alice", 30)
        assert set(statuses) == {200, 429}, statuses
        assert statuses[:5] == [200] * 5, statuses
        assert 5 <= statuses.count(200) <= 5 + seconds, statuses


def http_server_works_without_redis():
    with Server() as server:
        statuses, seconds = count_served(server, "alice", 30)
        assert statuses[:5] == [200] * 5, statuses
        assert 5 <= statuses.count(200) <= 5 + seconds, statuses


def http_server_limits_each_client_by_itself():
    with redis_server() as url, Server(url) as server:
        count_served(server, "alice", 30)
        statuses, _ = count_served(server, "bob", 5)
        assert statuses == [200] * 5, statuses


def http_server_shares_limits_with_its_like():
    with redis_server() as url, Server(url, burst=40) as one, Server(url, burst=40) as two:
        start = time.monotonic()
        served = sum(count_served(s, "alice", 60)[0].count(200) for s in (one, two))
        # What one has leased and not spent, the other cannot have: a budget of 5 % is 2 tokens.
        assert 38 <= served <= 40 + math.ceil(time.monotonic() - start), served


def http_server_tells_clients_about_their_limit():
    with redis_server() as url, Server(url) as server, server.connect() as connection:
        left = []
        for _ in range(5):
            response, body = get(connection, "alice")
            assert response.status == 200 and body == b"within the limit\n", (response.status, body)
            assert response.getheader("RateLimit-Policy") == '"client";q=5;w=5'
            assert response.getheader("Retry-After") is None
            told = response.getheader("RateLimit") or ""
            fields = re.fullmatch(r'"client";r=(\d+)(;t=\d+)?', told)
            assert fields, response.getheaders()
            left.append(int(fields[1]))
        assert left == sorted(left, reverse=True) and left[0] <= 5 and left[-1] <= 1, left
        response, body = get(connection, "alice")
        assert response.status == 429 and body == b"over the limit\n", (response.status, body)
        assert response.getheader("RateLimit-Policy") == '"client";q=5;w=5'
        wait_s = int(response.getheader("Retry-After"))
        assert wait_s == 1, wait_s
        time.sleep(wait_s)
        assert get(connection, "alice")[0].status == 200


def http_server_answers_503_when_the_store_cannot():
    with Server("unix:///nowhere/socket") as server, server.connect() as connection:
        response, _ = get(connection, "alice")
        assert response.status == 503, response.status


def http_server_keeps_connections_and_order():
    """Three requests in one write, the second with a body; then a HEAD; then a close."""
    requests = (
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Client: a\r\n\r\n"
        b"POST / HTTP/1.1\r\nHost: h\r\nX-Client: b\r\nContent-Length: 5\r\n\r\nhello"
        b"HEAD / HTTP/1.1\r\nHost: h\r\nX-Client: a\r\n\r\n"
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Client: a\r\nConnection: close\r\n\r\n"
    )
    with redis_server() as url, Server(url, burst=2) as server:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as link:
            link.sendall(requests)
            answer = b"".join(iter(lambda: link.recv(65536), b"")).decode()
    assert re.findall(r"^HTTP/1\.1 (\d+)", answer, re.M) == ["200", "200", "200", "429"], answer
    assert answer.count("Connection: keep-alive") == 3, answer
    assert answer.count("within the limit\n") == 2, answer  # none in answer to HEAD
    assert answer.endswith("over the limit\n"), answer


def http_server_puts_headers_together():
    """A header's name and value cut by the network are one header."""
    with redis_server() as url, Server(url, burst=1) as server:
        count_served(server, "alice", 2)
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in (b"GET / HTTP/1.1\r\nX-Cl", b"ient: al", b"ice\r\nHost: h\r\n", b"\r\n"):
                link.sendall(piece)
                time.sleep(0.02)  # so that they arrive apart
            assert link.recv(65536).startswith(b"HTTP/1.1 429 ")


def http_server_closes_on_what_is_no_http():
    with redis_server() as url, Server(url) as server:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as link:
            link.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            assert link.recv(65536) == b""
        assert count_served(server, "alice", 1)[0] == [200]


def http_server_ends_in_order():
    """At SIGTERM and SIGINT, with an idle connection and one in the middle of a request."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with redis_server() as url, Server(url) as server, server.connect() as connection:
            assert get(connection, "alice")[0].status == 200
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as link:
                link.sendall(b"GET / HTTP/1.1\r\nHost:")
                assert server.end(number) == 0


def http_server_gives_back_its_leases():
    with redis_server() as url:
        start = time.monotonic()
        with Server(url, burst=100) as server:
            before = count_served(server, "alice", 10)[0].count(200)
            assert server.end() == 0
        with Server(url, burst=100) as server:
            after = count_served(server, "alice", 150)[0].count(200)
        seconds = math.ceil(time.monotonic() - start)
        assert before == 10, before
        assert 90 <= after <= 90 + seconds, after


TESTS = [
    minimal_admits_three_of_five,
    minimal_shares_its_limit_through_redis,
    threads_stays_within_both_limits,
    threads_does_so_through_redis,
    http_server_counts_exactly,
    http_server_works_without_redis,
    http_server_limits_each_client_by_itself,
    http_server_shares_limits_with_its_like,
    http_server_tells_clients_about_their_limit,
    http_server_answers_503_when_the_store_cannot,
    http_server_keeps_connections_and_order,
    http_server_puts_headers_together,
    http_server_closes_on_what_is_no_http,
    http_server_ends_in_order,
    http_server_gives_back_its_leases,
]

os.environ.pop("http_proxy", None)
sys.exit(tap.run(TESTS))
