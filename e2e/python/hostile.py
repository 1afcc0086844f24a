#!/usr/bin/env python3
"""Hostile requests against a running portal: does it ever answer what its description does not describe?

    python3 hostile.py --portal-binary target/debug/mock-portal [--examples 30] [--seed 1]

Schemathesis makes requests from both OpenAPI documents that the portal serves: right ones, wrong ones, and right ones whose
bytes are mangled. Those of the agents' side are signed, three of four times, since an unsigned one gets no further than
its headers. Every answer must have a documented status, content type, headers and body, and be no 5xx (nothing here makes
the portal unable to decide); the portal must not panic, log an error or end. The seed is printed: the same seed makes the
same requests.
"""

import argparse
import collections
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import hypothesis
import hypothesis.strategies as st
import openapi_spec_validator
import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance, negative_data_rejection, response_headers_conformance, response_schema_conformance,
    status_code_conformance)

import client

DESCRIBED = [not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
             response_schema_conformance]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
READY_SECONDS, STOP_SECONDS = 30, 30
CHANCE = st.integers(0, 1 << 64).map(random.Random)  # drawn from hypothesis, so it is printed and comes again


class Agent(client.Agent):
    """An agent that is enrolled."""

    cluster = operation = None

    def __init__(self, portal, name):
        super().__init__(portal, name)
        self.stamps = {}

    def known(self):
        """What can stand in a path so that something is there."""
        return {"/agents/{id}": {"id": self.agent_id}, "/clusters/{id}": {"id": self.cluster},
                "/operations/{id}": {"id": self.operation}, "/releases/{version}": {"version": "2026.11.1"}}


class Portal:
    """The running program, and one connection to each of its addresses."""

    def __init__(self, binary, log, data):
        self.process = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0", "--data", str(data)],
                                        stdout=subprocess.PIPE, stderr=log, text=True)
        overdue = threading.Timer(READY_SECONDS, self.process.kill)  # readline has no deadline of its own
        overdue.start()
        ready = json.loads(self.process.stdout.readline())
        overdue.cancel()
        self.session = requests.Session()
        self.session.trust_env = False
        self.agents, self.lab = (url[:url.index("/", 8)] for url in (ready["agents_url"], ready["lab_url"]))
        self.server, self.control = client.Server(ready["agents_url"]), client.Server(ready["lab_url"])

    def stop(self, check):
        self.process.send_signal(signal.SIGTERM)
        check.equal("the portal ends with exit code 0 on SIGTERM", self.process.wait(STOP_SECONDS), 0)

    def document(self, api):
        return self.control.lab("GET", f"/openapi.json?api={api}")

    def agent(self, name):
        """An agent that is enrolled, in a cluster that has a document, with an operation in hand."""
        cluster = f"clu-{name}"
        token = self.control.lab("POST", "/tokens", {"cluster_id": cluster, "node_name": name})["tokens"][0]["token"]
        self.control.lab("PUT", f"/clusters/{cluster}/desired", client.desired_document())
        self.control.lab("POST", f"/clusters/{cluster}/operations", {"kind": "snapshot.save", "params": {"name": "x"}})
        agent = Agent(self.server, name)
        agent.cluster = cluster
        answer = agent.post("/enroll", {
            "protocol": 1, "token": token, "cluster_id": cluster, "node_name": name, "server_id": 42,
            "signing_key": client.b64(agent.keys.signing_public), "sealing_key": client.b64(agent.keys.sealing_public),
            "boot_image_sha256": "ab" * 32, "agent_version": "1.4.0", "arch": "amd64"})
        agent.agent_id = answer.json["agent_id"]
        agent.operation = agent.sync().json["operation"]["id"]
        return agent


def stamp(agent, method, path, body):
    """A second at which these bytes were not signed before: a replay is a fault of its own."""
    key = (method, path, body)
    agent.stamps[key] = agent.stamps.get(key, -1) + 1
    return agent.now() - 30 + agent.stamps[key] % 80


def sign(agent, request):
    """The three headers over the request as it will be sent (SIGN-2)."""
    body = request.body or b""
    body = body if isinstance(body, bytes) else body.encode()
    at = stamp(agent, request.method, request.path_url, body)
    signature = agent.keys.sign(client.canonical(request.method, request.path_url, at, body))
    request.headers.update({"Pbx-Agent-Id": agent.agent_id, "Pbx-Timestamp": str(at), "Pbx-Signature": client.b64(signature)})


def mangle(body, chance):
    """A few bytes of a body changed, doubled or lost."""
    body = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(body))
        match chance.randint(0, 3):
            case 0:
                del body[at:at + chance.randint(1, 8)]
            case 1:
                body[at:at] = bytes(chance.choices(b'{}[]",:0\\u\x00\xff\xef', k=chance.randint(1, 6)))
            case 2:
                body[at:at] = body[:at][-chance.randint(1, 40):]
            case _:
                body = body[:at] if chance.random() < 0.2 else body
    return bytes(body)


class Hunt:
    """One document's operations, hunted one after the other."""

    def __init__(self, check, portal, options):
        self.check, self.portal, self.options, self.sent = check, portal, options, 0
        self.seen = {}  # statuses, by operation and by how the requests were made

    def send(self, base, case, chance, agent=None, mangled=False):
        """Sends a case and judges its answer."""
        request = self.portal.session.prepare_request(requests.Request(**{
            key: value for key, value in case.as_transport_kwargs(base_url=base).items()
            if key in ("method", "url", "headers", "params", "data", "json", "files", "cookies")}))
        if mangled:
            body = request.body or b""
            request.body = mangle(body if isinstance(body, bytes) else body.encode(), chance)
            request.headers["Content-Length"] = str(len(request.body))
        if agent is not None:
            sign(agent, request)
        response = self.portal.session.send(request, timeout=30, allow_redirects=False)
        self.sent += 1
        # Whether wrong data is refused can be asked only where nothing but the description's own data was sent.
        wrong = agent is None and not mangled and case.meta is not None and case.meta.generation.mode == GenerationMode.NEGATIVE
        case.validate_response(response, checks=[*DESCRIBED, negative_data_rejection] if wrong else DESCRIBED)
        return response

    def judged(self, what, body):
        """A hunt is one check; what it found is shown as it was found."""
        try:
            body()
            found = None
        except (Exception, BaseExceptionGroup) as error:  # whatever it is, it names what was found
            traceback.print_exc()
            found = f"{type(error).__name__}: {error}"[:2000]
        self.check.equal(what, found, None)

    def operation(self, operation, base, agents, signed):
        for mode in ("right", "wrong", "mangled"):
            if mode == "mangled" and not operation.body:
                continue
            generation = GenerationMode.NEGATIVE if mode == "wrong" else GenerationMode.POSITIVE
            if mode == "wrong" and not (operation.body or list(operation.iter_parameters())):
                continue
            what = f"{operation.method.upper()} {operation.path}, {mode}"
            seen = self.seen[what] = collections.Counter()
            self.judged(what, lambda: self.cases(operation, base, agents, signed, generation, mode == "mangled", seen))
            print(f"      {dict(sorted(seen.items()))}")

    def cases(self, operation, base, agents, signed, generation, mangled, seen):
        wrong = generation == GenerationMode.NEGATIVE

        @hypothesis.seed(self.options.seed)
        @hypothesis.settings(max_examples=self.options.examples, deadline=None, database=None, report_multiple_bugs=False,
                             suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet)
        @hypothesis.given(case=operation.as_strategy(generation_mode=generation), chance=CHANCE)
        def one(case, chance):
            agent = chance.choice(agents)
            if not wrong and chance.random() < 0.8:
                known = next((value for path, value in agent.known().items() if path in operation.path), None)
                case.path_parameters = known or case.path_parameters
            signs = signed and chance.random() < 0.8
            seen[self.send(base, case, chance, agent if signs else None, mangled).status_code] += 1

        one()

    def methods(self, document, base):
        """Every method that a path does not have is 405, and `Allow` names those that it has."""
        wrong = []
        for path, calls in document["paths"].items():
            url = base + path.replace("{id}", "x").replace("{version}", "x")
            has = {method.upper() for method in calls if method.upper() in METHODS}
            for method in METHODS:
                # A control call that is asked for with GET can be asked for with HEAD.
                if method in has or (method == "HEAD" and "GET" in has):
                    continue
                response = self.portal.session.request(method, url, timeout=30)
                self.sent += 1
                allow = {word.strip() for word in response.headers.get("Allow", "").split(",")} - {"HEAD"}
                if (response.status_code, allow) != (405, has):
                    wrong.append((method, path, response.status_code, response.headers.get("Allow")))
        self.check.equal("another method of any path is 405 and told the right ones", wrong, [])

    def documents(self, schema, lab_schema, agent):
        """What was generated for the control API reaches an agent: whatever it takes, the agent's answer is described."""
        sync = schema[f"{agent.base_path}/sync"]["POST"]
        desired = lab_schema["/_lab/v1/clusters/{id}/desired"]["PUT"]
        operations = lab_schema["/_lab/v1/clusters/{id}/operations"]["POST"]
        taken = [0, 0]

        @hypothesis.seed(self.options.seed)
        @hypothesis.settings(max_examples=self.options.examples, deadline=None, database=None, report_multiple_bugs=False,
                             suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet)
        @hypothesis.given(desired=desired.as_strategy(), operation=operations.as_strategy(), chance=CHANCE)
        def one(desired, operation, chance):
            for at, case in enumerate((desired, operation)):
                case.path_parameters = {"id": agent.cluster}
                taken[at] += self.send(self.portal.lab, case, chance).status_code == 200
            case = sync.Case(method="POST", body=agent.report(), media_type="application/json", headers={})
            answer = self.send(self.portal.agents, case, chance, agent)
            assert answer.status_code == 200, (answer.status_code, answer.text)
            offer = answer.json()["operation"]
            if offer:
                failed = {"sequence": 1, "at": "2026-11-30T01:02:03Z", "state": "failed"}
                agent.signed("POST", f"/operations/{offer['id']}/events", {"events": [failed]}, timestamp=stamp(
                    agent, "POST", offer["id"], b""))

        one()
        self.check.equal("some generated documents and operations were taken", [count > 0 for count in taken], [True, True])


def hunt(check, portal, options):
    for api in ("agent", "lab"):
        document, found = portal.document(api), None
        try:
            openapi_spec_validator.validate(document)
        except Exception as error:  # the validator names the place
            found = str(error)[:2000]
        check.equal(f"the description of {api} is OpenAPI 3.1", found, None)
    hunt = Hunt(check, portal, options)
    agents = [portal.agent(f"hostile-{number}") for number in range(3)]
    documents = {api: portal.document(api) for api in ("agent", "lab")}
    bases = {"agent": portal.agents, "lab": portal.lab}
    schemas = {}
    for api, document in documents.items():
        schemas[api] = schemathesis.openapi.from_dict(document)
        schemas[api].config.update(base_url=bases[api])
    for api, schema in schemas.items():
        for result in schema.get_all_operations():
            operation = result.ok()
            hunt.operation(operation, bases[api], agents, signed=api == "agent")
        hunt.methods(documents[api], bases[api])
    # Last, since a reset was among the calls: what is made here is there at the end.
    last = portal.agent("hostile-last")
    hunt.judged("generated documents and operations reach an agent described",
                lambda: hunt.documents(schemas["agent"], schemas["lab"], last))
    # What only ever refuses was not hunted. A token and a proof cannot be guessed, everything else can.
    check.equal("only what cannot be guessed was never answered 200", [
        what for what, seen in hunt.seen.items() if what.endswith(", right") and not seen[200]],
        ["POST /agent/v1/enroll, right", "POST /agent/v1/rotate-key, right"])
    check.equal("the portal says that it is well", portal.control.call("GET", "/healthz").json, {"status": "ok"})
    return hunt.sent


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--portal-binary", required=True, help="path of the mock-portal program")
    parser.add_argument("--examples", type=int, default=30, help="requests of each kind to each operation (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="what is generated; 0 chooses one (default 1)")
    options = parser.parse_args()
    options.seed = options.seed or random.randrange(1, 1 << 32)
    print(f"seed {options.seed}", flush=True)
    check, began = client.Checks(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log, data = pathlib.Path(folder, "portal.log"), pathlib.Path(folder, "portal.data")
        portal = Portal(options.portal_binary, log.open("w"), data)
        try:
            sent = hunt(check, portal, options)
            check.equal("the portal is still running", portal.process.poll(), None)
            agents = portal.control.lab("GET", "/agents?limit=1000")
            check.equal("an agent is there at the end", len(agents["agents"]), 1)
            portal.stop(check)
            portal = Portal(options.portal_binary, log.open("a"), data)
            check.equal("what was kept of all that is read again", portal.control.lab("GET", "/agents?limit=1000"), agents)
            portal.stop(check)
            bad = [line for line in log.read_text(errors="replace").splitlines() if "panicked" in line or "ERROR" in line]
            check.equal("it has logged no error and no panic", bad[:5], [])
        finally:
            if portal.process.poll() is None:
                portal.process.kill()
                portal.process.wait()
    print(f"{sent} requests in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print(check.summary())
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
