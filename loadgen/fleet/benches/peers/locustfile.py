"""The peer Locust: each user posts the file that PEER_BODY names, again and again, with Locust's faster client."""

import os
from pathlib import Path

from locust import FastHttpUser, task
from locust.contrib.fasthttp import insecure_ssl_context_factory

BODY = Path(os.environ["PEER_BODY"]).read_bytes()
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
# One for all users: each would read the machine's certificates otherwise.
TLS = insecure_ssl_context_factory()


class Agent(FastHttpUser):
    @staticmethod
    def ssl_context_factory(cafile=None):
        return TLS

    @task
    def sync(self):
        self.client.post("/sync", data=BODY, headers=HEADERS)
