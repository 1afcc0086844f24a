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

HERE = pathlib.Path(__file__).parent
READY_SECONDS = 30
STOP_SECONDS = 30


def one_run(binary, options):
    """The number of things that went wrong."""
    print(f"--- mock-portal serve {' '.join(options)}", flush=True)
    portal = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0", *options],
                              stdout=subprocess.PIPE, text=True)
    overdue = threading.Timer(READY_SECONDS, portal.kill)  # readline has no deadline of its own
    overdue.start()
    try:
        ready = portal.stdout.readline()
        overdue.cancel()
        if not ready:
            print(f"FAIL  the portal printed no ready line within {READY_SECONDS} s (exit code {portal.wait()})")
            return 1
        client = subprocess.run([sys.executable, HERE / "client.py", "-", "--vectors", HERE.parent.parent / "protocol" / "vectors"],
                                input=ready, text=True)
        portal.send_signal(signal.SIGTERM)
        code = portal.wait(STOP_SECONDS)
        print(f"{'FAIL' if code else 'ok'}    the portal ends with exit code {code} on SIGTERM", flush=True)
        return bool(client.returncode) + bool(code)
    except subprocess.TimeoutExpired:
        print(f"FAIL  the portal still runs {STOP_SECONDS} s after SIGTERM")
        return 1
    finally:
        overdue.cancel()
        if portal.poll() is None:
            portal.kill()
            portal.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--portal-binary", required=True, help="path of the mock-portal program")
    binary = parser.parse_args().portal_binary
    wrong = sum(one_run(binary, options) for options in ([], ["--tls", "self-signed"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
