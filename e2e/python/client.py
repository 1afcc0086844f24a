#!/usr/bin/env python3
"""A small agent in another language: PyNaCl, a parser of metrics and the standard library, nothing of ours.

It enrolls against a running `mock-portal serve`, opens what was sealed to it, syncs, verifies the
release manifest, reports an operation and rotates its keys, and it proves that the portal refuses what
it must refuse. One line per check; exit 1 when one of them fails. It is written from
`docs/rules.md` and `protocol/vectors/README.md`, so that a rule which only our own code
understands shows up here.

    mock-portal serve --listen 127.0.0.1:0 --lab 127.0.0.1:0 > ready.json &
    python3 client.py ready.json [--vectors protocol/vectors]

`ready.json` is the portal's ready line (- reads standard input). `run.py` does both and stops the
portal.
"""

import argparse
import base64
import calendar
import hashlib
import http.client
import json
import pathlib
import re
import secrets
import ssl
import sys
import time
import urllib.parse

import nacl.bindings as sodium
import nacl.exceptions
import prometheus_client.parser

PAYLOAD_TYPE = "application/vnd.pbx.release+json"


# --- the protocol: no IO, no clock ------------------------------------------------------------------

def b64(data):
    return base64.b64encode(data).decode("ascii")


def unb64(text):
    data = base64.b64decode(text, validate=True)
    if b64(data) != text:
        raise ValueError(f"{text!r} is not canonical base64")
    return data


def canonical(method, path, timestamp, body):
    """The bytes that a request's signature covers (SIGN-2)."""
    return f"{method}\n{path}\n{timestamp}\n{hashlib.sha256(body).hexdigest()}".encode()


class Keys:
    """One signing key and one sealing key."""

    def __init__(self, signing_seed=None, sealing_secret=None):
        self.signing_public, self._signing_secret = sodium.crypto_sign_seed_keypair(signing_seed or secrets.token_bytes(32))
        self._sealing_secret = sealing_secret or secrets.token_bytes(32)
        self.sealing_public = sodium.crypto_scalarmult_base(self._sealing_secret)

    def sign(self, message):
        return sodium.crypto_sign(message, self._signing_secret)[:64]

    def open(self, sealed):
        """The secret in `{"sealed": …}`; anything else is a secret in clear and an error (SEAL-2)."""
        if not isinstance(sealed, dict) or set(sealed) != {"sealed"}:
            raise ValueError("unsealed_secret")
        return sodium.crypto_box_seal_open(unb64(sealed["sealed"]), self.sealing_public, self._sealing_secret)

    def key_id(self):
        return hashlib.sha256(self.signing_public).hexdigest()[:16]


def rotation_proof(old, new):
    """The new key's signature over the old public key and the new one."""
    return new.sign(old.signing_public + new.signing_public)


def verified_manifest(envelope, release_keys, release):
    """The payload of a DSSE envelope, once a release key has signed it and it names the release."""
    payload, kind = unb64(envelope["payload"]), envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)

    def good(key, signature):
        try:
            return len(signature) == 64 and sodium.crypto_sign_open(signature + signed, key) == signed
        except nacl.exceptions.BadSignatureError:
            return False

    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise ValueError("manifest_rejected: payload type")
    if not any(good(key, unb64(s["sig"])) for key in release_keys for s in envelope["signatures"]):
        raise ValueError("manifest_rejected: signature")
    manifest = json.loads(payload)
    if manifest["version"] != release:
        raise ValueError("manifest_rejected: another release")
    return manifest


def unix_seconds(text):
    """An RFC 3339 time in UTC, whole seconds."""
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


# --- transport ----------------------------------------------------------------------------------------

class CannotGoOn(Exception):
    """The portal refused what everything after it needs."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        kind = headers.get("content-type", "").split(";")[0]
        self.json = json.loads(body) if body and kind in ("application/json", "application/problem+json") else None
        self.code = self.json.get("code") if isinstance(self.json, dict) and status != 200 else None


class Server:
    """One keep-alive connection to a base URL; opened again when the server has closed it."""

    def __init__(self, base, ca_file=None):
        self.url = urllib.parse.urlsplit(base)
        self.tls = ssl.create_default_context(cafile=ca_file) if self.url.scheme == "https" else None
        self.connection = None

    def connect(self):
        if self.tls:
            return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=30, context=self.tls)
        return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=30)

    def call(self, method, target, body=b"", headers=None):
        headers = {"Content-Type": "application/json", **(headers or {})} if method in ("POST", "PUT") else headers or {}
        for last in (False, True):
            self.connection, fresh = self.connection or self.connect(), self.connection is None
            try:
                self.connection.request(method, target, body or (b"" if method in ("POST", "PUT") else None), headers)
                response = self.connection.getresponse()
                answer = Answer(response.status, response.headers, response.read())
            except (http.client.RemoteDisconnected, ConnectionError):
                self.connection.close()
                self.connection = None
                if fresh or last:
                    raise
                continue
            if response.will_close:
                self.connection = None
            return answer

    def lab(self, method, path, value=None):
        """A call of the control API that must succeed."""
        answer = self.call(method, self.url.path + path, b"" if value is None else json.dumps(value).encode())
        if answer.status != 200:
            raise CannotGoOn(f"control API: {method} {path} answered {answer.status}: {answer.body[:400]!r}")
        return answer.json


class Agent:
    """What one node knows: its keys, its ID, and how far its clock is from the portal's."""

    def __init__(self, portal, node_name):
        self.portal, self.node_name = portal, node_name
        self.base_path = "/agent/v1"
        self.prefix = portal.url.path.rstrip("/").removesuffix(self.base_path)
        self.keys, self.agent_id, self.sequence, self.offset = Keys(), None, 0, 0

    def now(self):
        return int(time.time()) + self.offset

    def post(self, path, value):
        """An unsigned call: only /enroll."""
        return self.portal.call("POST", self.prefix + self.base_path + path, json.dumps(value).encode())

    def signed(self, method, path, value=None, *, keys=None, timestamp=None, signature=None, headers=None, agent_id=None,
               body=None):
        """A signed call; the members after `*` are for requests that are meant to be wrong."""
        path = self.base_path + path
        body = body if body is not None else b"" if value is None else json.dumps(value, separators=(",", ":")).encode()
        fixed = timestamp is not None
        timestamp = timestamp if fixed else self.now()
        for attempt in (timestamp, timestamp + 1):
            made = (keys or self.keys).sign(canonical(method, path, attempt, body))
            answer = self.portal.call(method, self.prefix + path, body, {
                "Pbx-Agent-Id": agent_id or self.agent_id, "Pbx-Timestamp": str(attempt),
                "Pbx-Signature": b64(signature or made), **(headers or {})})
            if answer.code != "replayed" or fixed:
                break  # ANS-3: signed once more, with the next second
        return answer

    def report(self, **changes):
        self.sequence += 1
        return {"protocol": 1, "sequence": self.sequence, "agent_version": "1.4.0", "arch": "amd64",
                "node_name": self.node_name, "boot": {"image_sha256": "ab" * 32, "entry": "pbx-2026.11.1-amd64.efi"},
                "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"}, "leader": True,
                "document": {"applied_generation": 0, "seen_generation": 0, "result": "applied", "message": None},
                "addons": [], "operation": None, "update": {"running": "1.4.0", "rolled_back_from": None},
                "restart_pending": False, "clock_offset_ms": self.offset * 1000, "keys_created_at": "2026-09-01T00:00:00Z",
                "last_error": None, "problems": [], **changes}

    def sync(self, **more):
        return self.signed("POST", "/sync", self.report(), **more)


# --- the checks -----------------------------------------------------------------------------------------

class Checks:
    def __init__(self):
        self.done = self.failed = 0

    def equal(self, what, found, expected):
        self.done += 1
        if found == expected:
            print(f"ok    {what}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {what}: expected {expected!r}, found {found!r}", flush=True)

    def summary(self):
        return f"{self.done - self.failed} passed, {self.failed} failed"

    def refused(self, what, answer, status, code):
        self.equal(f"{what} is {status} {code}", (answer.status, answer.code), (status, code))
        return answer

    def needs(self, what, answer):
        """A 200 without which nothing after it makes sense."""
        self.equal(what, answer.status, 200)
        if answer.status != 200:
            raise CannotGoOn(f"{what}: {answer.status} {answer.body[:400]!r}")
        return answer.json


def check_vectors(check, directory):
    """The functions above against the published vectors, before they meet a portal."""
    def vectors(topic, kind):
        document = json.loads((directory / f"{topic}.json").read_text())
        return [v for v in document["vectors"] if v["kind"] == kind]

    wrong = []
    for v in vectors("signing", "sign_request"):
        given, expect = v["input"], v["expect"]
        if "dialect" not in given:
            signed = canonical(expect["method"], expect["path"], given["timestamp"], given["body"].encode())
            signature = Keys(bytes.fromhex(given["seed_hex"])).sign(signed)
            if (signed.decode(), b64(signature)) != (expect["signed"], expect["headers"]["Pbx-Signature"]):
                wrong.append(v["id"])
    for v in vectors("sealing", "open"):
        try:
            opened = b64(Keys(None, bytes.fromhex(v["input"]["secret_hex"])).open({"sealed": v["input"]["box_b64"]}))
        except (ValueError, nacl.exceptions.CryptoError):
            opened = None
        if opened != v["expect"]["plaintext_b64"]:
            wrong.append(v["id"])
    for v in vectors("manifest", "manifest"):
        if v["expect"]["verified"]:
            keys = [unb64(key) for key in v["input"]["release_keys_b64"]]
            verified_manifest(json.loads(v["input"]["envelope"]), keys, v["input"]["release"])
    check.equal("the client signs, opens and verifies as the vectors say", wrong, [])


CLUSTER, NODE = "clu_python", "python-server-1"
CLEAR = {"hcloud_token": "hcloud-in-clear", "access_key": "AKIA-in-clear", "secret_key": "s3-secret-in-clear"}


def desired_document():
    """What the operator sets: secrets in clear, the portal seals them for each agent."""
    return {"release": "2026.11.1", "agent_version": "1.4.0",
            "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
            "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"},
            "secrets": {"hcloud_token": CLEAR["hcloud_token"],
                        "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "b", "folder": CLUSTER,
                               "access_key": CLEAR["access_key"], "secret_key": CLEAR["secret_key"]}},
            "addons": [{"name": "cert-manager", "enabled": True, "options": {"replicas": 2},
                        "secret_options": {"acme_key": "acme-in-clear"}}]}


def opened_secrets(keys, holder):
    """Every secret of an object with `hcloud_token` and `s3`, opened."""
    return {"hcloud_token": keys.open(holder["hcloud_token"]).decode(),
            "access_key": keys.open(holder["s3"]["access_key"]).decode(),
            "secret_key": keys.open(holder["s3"]["secret_key"]).decode()}


def enroll(check, agent, token, server_id):
    request = {"protocol": 1, "token": token, "cluster_id": CLUSTER, "node_name": NODE, "server_id": server_id,
               "signing_key": b64(agent.keys.signing_public), "sealing_key": b64(agent.keys.sealing_public),
               "boot_image_sha256": "ab" * 32, "agent_version": "1.4.0", "arch": "amd64"}
    check.refused("an enrollment with an unknown token", agent.post("/enroll", {**request, "token": "pbxe_unknown"}),
                  401, "invalid_token")
    check.refused("an enrollment with a signing key of small order", agent.post("/enroll", {**request, "signing_key": b64(bytes(32))}),
                  400, "invalid_key")
    check.refused("an enrollment with a sealing key of small order", agent.post("/enroll", {**request, "sealing_key": b64(bytes(32))}),
                  400, "invalid_key")
    check.refused("an enrollment of another node", agent.post("/enroll", {**request, "node_name": "another"}), 401, "server_mismatch")
    check.refused("an enrollment with an older protocol", agent.post("/enroll", {**request, "protocol": 0}), 426, "protocol_too_old")
    answer = check.needs("the agent enrolls", agent.post("/enroll", request))
    agent.agent_id = answer["agent_id"]
    check.equal("its ID is well-formed", re.fullmatch(r"[A-Za-z0-9_-]{1,64}", agent.agent_id) is not None, True)
    secrets_in_answer = opened_secrets(agent.keys, answer["secrets"])
    check.equal("its secrets open", secrets_in_answer, CLEAR)
    k3s = [agent.keys.open(answer["k3s"][name]) for name in ("token", "agent_token")]
    check.equal("k3s's tokens open", all(k3s), True)
    check.equal("no secret in clear in the answer", [v for v in CLEAR.values() if v in json.dumps(answer)], [])
    again = check.needs("the same enrollment again", agent.post("/enroll", request))
    check.equal("gives the same agent and the same secrets",
                (again["agent_id"], opened_secrets(agent.keys, again["secrets"]),
                 [agent.keys.open(again["k3s"][name]) for name in ("token", "agent_token")]),
                (agent.agent_id, secrets_in_answer, k3s))
    other = Keys()
    check.refused("the token with other keys", agent.post("/enroll", {**request, "signing_key": b64(other.signing_public),
                                                                      "sealing_key": b64(other.sealing_public)}), 401, "token_used")


def sync_and_manifest(check, agent, generation, release_keys):
    answer = check.needs("the agent syncs", agent.sync())
    desired = answer["desired"]
    check.equal("the document has the generation that the control API told", desired["generation"], generation)
    check.equal("its secrets open", opened_secrets(agent.keys, desired["secrets"]), CLEAR)
    check.equal("an add-on's secret opens", agent.keys.open(desired["addons"][0]["secret_options"]["acme_key"]), b"acme-in-clear")
    check.equal("no secret in clear in the document", [v for v in [*CLEAR.values(), "acme-in-clear"] if v in json.dumps(answer)], [])
    release = desired["release"]
    envelope = check.needs("the release manifest is there", agent.signed("GET", f"/releases/{release}/manifest"))
    manifest = verified_manifest(envelope, release_keys, release)
    check.equal("it is signed by a release key and names its release", manifest["version"], release)
    try:
        verified_manifest(envelope, [Keys().signing_public], release)
        check.equal("no other key verifies it", "verified", "manifest_rejected")
    except ValueError:
        check.equal("no other key verifies it", "manifest_rejected", "manifest_rejected")
    check.refused("the manifest of an unknown release", agent.signed("GET", "/releases/1999.1/manifest"), 404, "not_found")


def operation(check, agent, lab):
    made = lab.lab("POST", f"/clusters/{CLUSTER}/operations", {"kind": "snapshot.save", "params": {"name": "nightly"}})
    offer = check.needs("a sync with an operation waiting", agent.sync())["operation"]
    check.equal("hands it to this node", (offer["id"], offer["kind"], offer["target"], offer["params"]),
                (made["id"], "snapshot.save", NODE, {"name": "nightly"}))
    path = f"/operations/{offer['id']}/events"

    def event(sequence, step, state, **more):
        return {"sequence": sequence, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "step": step, "state": state,
                "message": None, "log_tail": None, "reason": None, "result": None, **more}

    steps = [event(1, "save", "started"), event(2, "save", "succeeded"), event(3, "confirm_s3", "started"),
             event(4, "confirm_s3", "succeeded")]
    check.equal("its events are acknowledged", agent.signed("POST", path, {"events": steps}).json, {"accepted_sequence": 4})
    check.equal("a repeat is acknowledged as well", agent.signed("POST", path, {"events": steps[1:3]}).json, {"accepted_sequence": 4})
    check.equal("an event beyond a gap is not", agent.signed("POST", path, {"events": [event(7, "report", "succeeded")]}).json,
                {"accepted_sequence": 4})
    check.equal("it is handed out until it is finished", (check.needs("another sync", agent.sync())["operation"] or {}).get("id"), offer["id"])
    result = {"name": "nightly", "size": 1 << 20, "sha256": "cd" * 32, "location": f"s3://b/{CLUSTER}/nightly"}
    last = [event(5, "report", "started"), event(6, "report", "succeeded"), event(7, "report", "succeeded"),
            event(8, None, "succeeded", result=result)]
    answer = agent.signed("POST", path, {"events": last})
    check.equal("its last event is acknowledged", answer.json, {"accepted_sequence": 8})
    check.equal("then it is handed out no more", check.needs("another sync", agent.sync())["operation"], None)
    check.equal("the operator sees it succeeded", lab.lab("GET", f"/operations/{offer['id']}")["state"], "succeeded")
    check.refused("events of an unknown operation", agent.signed("POST", "/operations/op_unknown/events", {"events": steps}),
                  404, "not_found")


def refusals(check, agent):
    now = agent.now()
    answer = check.refused("a wrong signature", agent.sync(signature=bytes(range(64))), 401, "bad_signature")
    check.equal("with WWW-Authenticate and problem+json", (answer.headers["www-authenticate"], answer.headers["content-type"]),
                ("Pbx", "application/problem+json"))
    check.refused("another key's signature", agent.sync(keys=Keys()), 401, "bad_signature")
    check.refused("a malformed timestamp", agent.sync(headers={"Pbx-Timestamp": f"+{now}"}), 401, "bad_signature")
    check.refused("no signature", agent.sync(headers={"Pbx-Signature": ""}), 401, "bad_signature")
    check.refused("an agent nobody knows", agent.sync(agent_id="agt_unknown"), 401, "unknown_agent")

    body = json.dumps(agent.report()).encode()
    check.needs("a sync", agent.signed("POST", "/sync", body=body, timestamp=now))
    check.refused("the same request again", agent.signed("POST", "/sync", body=body, timestamp=now), 400, "replayed")
    check.needs("the same body in the next second", agent.signed("POST", "/sync", body=body, timestamp=now + 1))

    check.needs("a clock 60 seconds ahead", agent.sync(timestamp=agent.now() + 60))
    for ahead in (-62, 62):
        answer = check.refused(f"a clock {ahead} seconds ahead", agent.sync(timestamp=agent.now() + ahead), 409, "clock_skew")
        check.equal("it tells the portal's time", abs(unix_seconds(answer.json["portal_time"]) - agent.now()) <= 5, True)
    agent.offset = -7200
    answer = check.refused("two hours behind", agent.sync(), 409, "clock_skew")
    agent.offset = unix_seconds(answer.json["portal_time"]) - int(time.time())
    check.needs("healed by the portal's time", agent.sync())

    check.refused("an array for the report", agent.signed("POST", "/sync", [agent.report()]), 400, "invalid_request")
    check.refused("a member twice", agent.signed("POST", "/sync", body=b'{"x":1,"x":2}'), 400, "invalid_request")
    answer = check.refused("an older protocol", agent.signed("POST", "/sync", agent.report(protocol=0)), 426, "protocol_too_old")
    check.equal("it names a release and the upgrade", (type(answer.json.get("release")), answer.headers["upgrade"]), (str, "pbx-agent/2"))
    check.refused("a query", agent.signed("POST", "/sync?a=1", agent.report()), 400, "invalid_request")
    check.refused("an unknown path", agent.signed("POST", "/nowhere", {}), 404, "not_found")
    answer = check.refused("another method", agent.signed("GET", "/sync"), 405, "method_not_allowed")
    check.equal("it names the right one", answer.headers["allow"], "POST")
    check.refused("another content type", agent.sync(headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type")
    check.refused("a body over 256 KiB", agent.signed("POST", "/sync", body=b" " * (256 * 1024 + 1)), 413, "body_too_large")


def rotate(check, agent):
    old, new = agent.keys, Keys()

    def request(keys, proof):
        return {"signing_key": b64(keys.signing_public), "sealing_key": b64(keys.sealing_public), "proof": b64(proof)}

    check.refused("a rotation with the old key's proof", agent.signed("POST", "/rotate-key", request(
        new, old.sign(old.signing_public + new.signing_public))), 400, "invalid_key")
    check.refused("a rotation to the key it has", agent.signed("POST", "/rotate-key", request(old, rotation_proof(old, old))),
                  400, "invalid_key")
    body = request(new, rotation_proof(old, new))
    answer = check.needs("the agent rotates its keys", agent.signed("POST", "/rotate-key", body))
    check.equal("the answer names the new key", answer, {"active_key_id": new.key_id()})
    check.equal("the same rotation again, as after a lost answer", agent.signed("POST", "/rotate-key", body).json, answer)
    desired = check.needs("the old key still syncs", agent.sync())["desired"]
    check.equal("sealed to the old sealing key", opened_secrets(old, desired["secrets"]), CLEAR)
    desired = check.needs("the new key syncs", agent.sync(keys=new))["desired"]
    check.equal("sealed to the new sealing key", opened_secrets(new, desired["secrets"]), CLEAR)
    check.refused("the old key after the switch", agent.sync(keys=old), 401, "bad_signature")
    agent.keys = new
    check.equal("the same rotation once more, signed with the new key", agent.signed("POST", "/rotate-key", body).json, answer)


def metrics(check, lab):
    """What a scraper reads, by the parser of Prometheus's own client."""
    check.equal("the portal says that it is well", lab.call("GET", "/healthz").json, {"status": "ok"})
    answer = lab.call("GET", "/metrics")
    families = {family.name: family for family in prometheus_client.parser.text_string_to_metric_families(answer.body.decode())}

    def value(name, family, **labels):
        return [sample.value for sample in families[family].samples if sample.name == name and sample.labels == labels]

    check.equal("every family of its metrics has a type and a help",
                [family.name for family in families.values() if family.type == "unknown" or not family.documentation], [])
    check.equal("they count the replay", value("mock_portal_answers_total", "mock_portal_answers", endpoint="sync", outcome="replayed"), [1])
    check.equal("they know the agent", value("mock_portal_agents", "mock_portal_agents", state="revoked"), [1])
    check.equal("they know the operation", value("mock_portal_operations", "mock_portal_operations", kind="snapshot.save",
                                                 state="succeeded"), [1])
    endpoints = {sample.labels["endpoint"] for sample in families["mock_portal_answer_seconds"].samples}
    check.equal("they measure every endpoint", sorted(endpoints), ["enroll", "events", "manifest", "rotate-key", "sync"])
    for endpoint in sorted(endpoints):
        buckets = [sample.value for sample in families["mock_portal_answer_seconds"].samples
                   if sample.name.endswith("_bucket") and sample.labels["endpoint"] == endpoint]
        count = value("mock_portal_answer_seconds_count", "mock_portal_answer_seconds", endpoint=endpoint)
        check.equal(f"the buckets of {endpoint} grow up to the count", (buckets, buckets[-1:]), (sorted(buckets), count))


def against_portal(check, ready):
    lab = Server(ready["lab_url"])
    portal = Server(ready["agents_url"], ready.get("ca_pem_file"))
    release_keys = [unb64(key["public"]) for key in ready["release_keys"]]
    check.equal("each release key has the ID of its bytes", [key["id"] for key in ready["release_keys"]],
                [hashlib.sha256(key).hexdigest()[:16] for key in release_keys])

    token = lab.lab("POST", "/tokens", {"cluster_id": CLUSTER, "node_name": NODE})["tokens"][0]["token"]
    generation = lab.lab("PUT", f"/clusters/{CLUSTER}/desired", desired_document())["generation"]

    agent = Agent(portal, NODE)
    enroll(check, agent, token, server_id=42424242)
    sync_and_manifest(check, agent, generation, release_keys)
    operation(check, agent, lab)
    refusals(check, agent)
    rotate(check, agent)
    lab.lab("POST", f"/agents/{agent.agent_id}/revoke")
    check.refused("a sync of a revoked agent", agent.sync(), 401, "revoked")
    check.refused("a wrong signature of a revoked agent", agent.sync(keys=Keys()), 401, "bad_signature")
    metrics(check, lab)


def run(check, ready, vectors=None):
    """Every check, those of the vectors first. `ready` is the portal's ready line."""
    if vectors:
        check_vectors(check, vectors)
    try:
        against_portal(check, json.loads(ready))
    except CannotGoOn as error:
        check.equal("the portal answers so that the client can go on", str(error), "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ready", help="file with the portal's ready line, or - for standard input")
    parser.add_argument("--vectors", type=pathlib.Path, help="folder of the test vectors, to check this client first")
    options = parser.parse_args()
    check = Checks()
    run(check, sys.stdin.readline() if options.ready == "-" else pathlib.Path(options.ready).read_text(), options.vectors)
    print(check.summary())
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
