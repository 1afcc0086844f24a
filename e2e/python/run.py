#!/usr/bin/env python3
"""Starts `mock-portal serve`, lets `client.py` loose on it, stops it with SIGTERM, wants exit code 0.

    python3 run.py --portal-binary target/debug/mock-portal

Twice: over plain HTTP and over TLS with a self-signed certificate. Both addresses take a free port.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import threading

import client

VECTORS = pathlib.Path(__file__).resolve().parent.parent.parent / "protocol" / "vectors"
READY_SECONDS = 30
STOP_SECONDS = 30


def one_run(check, binary, options):
    print(f"--- mock-portal serve {' '.join(options)}", flush=True)
    portal = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0", *options],
                              stdout=subprocess.PIPE, text=True)
    overdue = threading.Timer(READY_SECONDS, portal.kill)  # readline has no deadline of its own
    overdue.start()
    try:
        ready = portal.stdout.readline()
        overdue.cancel()
        check.equal(f"the portal is ready within {READY_SECONDS} s", bool(ready), True)
        if ready:
            client.run(check, ready, VECTORS)
        portal.send_signal(signal.SIGTERM)
        try:
            ended = portal.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            ended = f"still running after {STOP_SECONDS} s"
        check.equal("the portal ends with exit code 0 on SIGTERM", ended, 0)
    finally:
        overdue.cancel()
        if portal.poll() is None:
            portal.kill()
            portal.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--portal-binary", required=True, help="path of the mock-portal program")
    binary = parser.parse_args().portal_binary
    check = client.Checks()
    for options in ([], ["--tls", "self-signed"]):
        one_run(check, binary, options)
    print(check.summary())
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
