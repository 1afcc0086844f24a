#!/usr/bin/env python3
"""Checks every vector of every file beside it with PyNaCl and the standard library alone.

This is a second implementation of what the files describe, written from the rules and sharing
nothing with `make.py`. Each `check_<kind>` below sees only the `input` of a vector and returns what
it makes of it: it builds the canonical bytes itself, signs, verifies, seals and opens with
libsodium. One place compares that with `expect`.

    python3 check.py    prints one line with the counts of each kind; exit 1 on any mismatch
"""

import base64
import binascii
import collections
import datetime
import hashlib
import json
import pathlib
import re
import sys

import nacl.bindings as sodium
import nacl.exceptions

P = 2**255 - 19


# --- spelling on the wire -------------------------------------------------------------------------

class Refused(Exception):
    """A value is not spelled as the rules want it."""


def read_base64(text, length=None):
    """KEY-2: standard alphabet, padded, canonical."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise Refused(f"base64: {error}") from None
    if base64.b64encode(data).decode() != text:
        raise Refused("base64: not canonical")
    if length is not None and len(data) != length:
        raise Refused(f"{len(data)} bytes instead of {length}")
    return data


def matches(pattern, text):
    if re.fullmatch(pattern, text, re.ASCII) is None:
        raise Refused(f"{text[:80]!r} is not {pattern}")
    return text


def read_timestamp(text):
    """KEY-2: 1 to 10 decimal digits without sign or leading zero."""
    return int(matches(r"0|[1-9][0-9]{0,9}", text))


def read_sha256(text):
    return matches(r"[0-9a-f]{64}", text)


def read_time(text):
    """WIRE-6: RFC 3339 in UTC. In milliseconds since 1970."""
    matches(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", text)
    try:
        whole = datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    except ValueError as error:
        raise Refused(str(error)) from None
    fraction = (re.sub(r"\D.*", "", text[20:]) + "000")[:3] if text[19] == "." else "0"
    return int(whole.timestamp()) * 1000 + int(fraction)


def read_id(text):
    return matches(r"[A-Za-z0-9_-]{1,64}", text)


def read_name(text):
    if ".." in matches(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        raise Refused("..")
    return text


# --- JSON -------------------------------------------------------------------------------------------

class Syntax(Refused):
    """Refused at the syntax step."""


class OldProtocol(Refused):
    """Refused with 426, between the two."""


class Shape(Refused):
    """Refused at the shape step."""


def read_json(data):
    """KEY-2's syntax step: UTF-8 without a byte order mark, one value, no member twice, depth <= 32."""
    depth = deepest = 0
    for token in re.findall(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', data, re.DOTALL):
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (b"]", b"}"):
            depth -= 1
    if deepest > 32:
        raise Syntax("deeper than 32")

    def once(members):
        if len({name for name, _ in members}) != len(members):
            raise Syntax("a member twice")
        return dict(members)

    def no_constant(name):
        raise Syntax(name)

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=once, parse_constant=no_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair is no character
    except (ValueError, RecursionError) as error:
        raise Syntax(str(error)) from None
    return value


def text_of(reader, *arguments):
    def read(value):
        if not isinstance(value, str):
            raise Shape("no string")
        return reader(value, *arguments)
    return read


def any_text(value):
    return value


def whole_number(value):
    if type(value) is not int or not 0 <= value < 2**64:
        raise Shape("no whole number of 64 bits")


def only(number):
    def read(value):
        if type(value) is not int or value != number:
            raise Shape(f"not {number}")
    return read


def one_of(*words):
    def read(value):
        if value not in words:
            raise Shape(f"{value!r} is none of {words}")
    return text_of(read)


def list_of(reader, most=None):
    def read(value):
        if not isinstance(value, list) or most is not None and len(value) > most:
            raise Shape("no list")
        for item in value:
            reader(item)
    return read


def may_be_null(reader):
    def read(value):
        if value is not None:
            reader(value)
    read.optional = True
    return read


def object_of(**members):
    """A JSON object with these members; unknown ones are ignored (WIRE-5)."""
    def read(value):
        if not isinstance(value, dict):
            raise Shape("no object")
        for name, reader in members.items():
            if name in value:
                reader(value[name])
            elif not getattr(reader, "optional", False):
                raise Shape(f"{name} is missing")
    return read


STRING = text_of(any_text)
TIME = text_of(read_time)
SHA256 = text_of(read_sha256)


def events_in_limits(events):
    list_of(EVENT, 100)(events)
    log = 0
    for event in events:
        step, lines = event.get("step"), event.get("log_tail") or []
        if event["sequence"] < 1:
            raise Shape("numbers count from 1")
        if event["state"] == "started" and step is None or event["state"] in ("unsupported", "refused") and step is not None:
            raise Shape("a step where none is due, or none where one is")
        log += sum(len(line.encode()) for line in lines)
    if log > 128 * 1024:
        raise Shape("more than 128 KiB of log")


def log_line(text):
    if len(text.encode()) > 1024:
        raise Shape("more than 1 KiB")


EVENT = object_of(
    sequence=whole_number, at=TIME, step=may_be_null(STRING), state=one_of("started", "succeeded", "failed", "unsupported", "refused"),
    message=may_be_null(STRING), log_tail=may_be_null(list_of(text_of(log_line), 200)), reason=may_be_null(STRING),
    result=may_be_null(lambda value: None))
SHAPES = {
    "RotateKeyRequest": object_of(signing_key=text_of(read_base64, 32), sealing_key=text_of(read_base64, 32),
                                  proof=text_of(read_base64, 64)),
    "OperationEvents": object_of(events=events_in_limits),
    "EnrollRequest": object_of(
        protocol=only(1), token=STRING, cluster_id=text_of(read_id), node_name=text_of(read_name), server_id=whole_number,
        signing_key=text_of(read_base64, 32), sealing_key=text_of(read_base64, 32), boot_image_sha256=SHA256,
        agent_version=text_of(read_name), arch=one_of("amd64", "arm64")),
    "Manifest": object_of(
        version=text_of(read_name), created_at=TIME, floor=whole_number, template_engine=STRING,
        agent=object_of(version=STRING, artifacts=list_of(object_of(
            arch=one_of("amd64", "arm64"), url=STRING, sha256=SHA256, size=whole_number))),
        image=object_of(k3s_version=STRING, artifacts=list_of(object_of(
            arch=one_of("amd64", "arm64"), url=STRING, sha256=SHA256, size=whole_number, entry=text_of(read_name),
            image_sha256=SHA256))),
        addons=list_of(object_of(
            name=text_of(read_name), requires=list_of(text_of(read_name)), conflicts=list_of(text_of(read_name)),
            template=STRING, health=may_be_null(object_of(deployments=list_of(object_of(namespace=STRING, name=STRING))))))),
    "SignedManifest": object_of(payloadType=STRING, payload=text_of(read_base64), signatures=list_of(object_of(
        keyid=may_be_null(STRING), sig=text_of(read_base64)))),
}


def read_shape(data, shape):
    value = read_json(data)
    if shape == "EnrollRequest" and isinstance(value, dict) and type(value.get("protocol")) is int and value["protocol"] < 1:
        raise OldProtocol()
    SHAPES[shape](value)
    return value


# --- keys and signatures ------------------------------------------------------------------------------

def sign(seed, message):
    return sodium.crypto_sign(message, sodium.crypto_sign_seed_keypair(seed)[1])[:64]


def verifies(public, message, signature):
    if len(public) != 32 or len(signature) != 64:
        return False
    try:
        sodium.crypto_sign_open(signature + message, public)
        return True
    except nacl.exceptions.BadSignatureError:
        return False


def good_signing_key(encoded):
    """KEY-1: a point of the curve, canonically encoded, not of small order. Done by hand, since
    crypto_core_ed25519_is_valid_point asks for the prime-order subgroup as well."""
    y = int.from_bytes(encoded, "little") & 2**255 - 1
    d = -121665 * pow(121666, -1, P) % P
    u, v = (y * y - 1) % P, (d * y * y + 1) % P
    x2 = u * pow(v, -1, P) % P
    if y >= P or pow(x2, (P - 1) // 2, P) not in (0, 1):
        return False
    # x = -0 needs no check of its own: x = 0 only at y = 1 and y = -1, which are of small order.
    # Doubling three times gives the identity exactly for the points of small order. Doubling needs
    # x only as x^2 and xy, so it works on (x^2, y) alone: the sign does not matter.
    for _ in range(3):
        t = d * x2 * y * y % P
        x2, y = 4 * x2 * y * y * pow((1 + t) ** 2, -1, P) % P, (y * y + x2) * pow(1 - t, -1, P) % P
    return (x2, y) != (0, 1)


def good_sealing_key(encoded):
    """KEY-1: canonical, on the curve (not its twist), and the shared secret with it is not zero, which libsodium refuses
    itself."""
    u = int.from_bytes(encoded, "little")
    if u >= P or pow(u * (u * u + 486662 * u + 1), (P - 1) // 2, P) not in (0, 1):
        return False
    try:
        sodium.crypto_scalarmult(hashlib.sha256(b"any secret key").digest(), encoded)
        return True
    except nacl.exceptions.RuntimeError:
        return False


def canonical(method, path, timestamp, body, prefix=""):
    """SIGN-2."""
    return (prefix + "\n".join([method, path, str(timestamp), hashlib.sha256(body.encode()).hexdigest()])).encode()


# --- signing.json --------------------------------------------------------------------------------------

def check_sign_request(given):
    dialect = {"base_path": "/agent/v1", "signed_prefix": "", "header_agent_id": "Pbx-Agent-Id",
               "header_timestamp": "Pbx-Timestamp", "header_signature": "Pbx-Signature", **given.get("dialect", {})}
    method, tail = {"sync": ("POST", "/sync"), "rotate-key": ("POST", "/rotate-key"),
                    "events": ("POST", f"/operations/{given.get('operation')}/events"),
                    "manifest": ("GET", f"/releases/{given.get('release')}/manifest")}[given["endpoint"]]
    path = dialect["base_path"] + tail + given.get("query", "")
    base = given["base"]
    if base.endswith(dialect["base_path"]):
        base = base[:-len(dialect["base_path"])]
    signed = canonical(method, path, given["timestamp"], given["body"], dialect["signed_prefix"])
    signature = sign(bytes.fromhex(given["seed_hex"]), signed)
    return {"url": base + path, "method": method, "path": path,
            "body_sha256": hashlib.sha256(given["body"].encode()).hexdigest(), "signed": signed.decode(),
            "headers": {dialect["header_agent_id"]: given["agent_id"],
                        dialect["header_timestamp"]: str(given["timestamp"]),
                        dialect["header_signature"]: base64.b64encode(signature).decode()}}


def verify_request(given):
    try:
        public = read_base64(given["public_b64"], 32)
        signature = read_base64(given["signature"], 64)
        timestamp = read_timestamp(given["timestamp"])
    except Refused:
        return None
    signed = canonical(given["method"], given["path"], timestamp, given["body"])
    return (public, signed) if verifies(public, signed, signature) else None


def check_verify_request(given):
    return {"valid": verify_request(given) is not None}


def check_replay(given):
    first, second = verify_request(given["first"]), verify_request(given["second"])
    return {"both_valid": first is not None and second is not None, "replay": first == second}


# --- ed25519.json -----------------------------------------------------------------------------------------

def check_sign(given):
    seed, message = bytes.fromhex(given["seed_hex"]), bytes.fromhex(given["message_hex"])
    return {"public_hex": sodium.crypto_sign_seed_keypair(seed)[0].hex(), "signature_hex": sign(seed, message).hex()}


def check_verify(given):
    return {"valid": verifies(*(bytes.fromhex(given[name]) for name in ("public_hex", "message_hex", "signature_hex")))}


# --- keys.json ----------------------------------------------------------------------------------------------

def check_signing_key_pair(given):
    public = sodium.crypto_sign_seed_keypair(bytes.fromhex(given["seed_hex"]))[0]
    return {"public_b64": base64.b64encode(public).decode(), "key_id": hashlib.sha256(public).hexdigest()[:16]}


def check_sealing_key_pair(given):
    return {"public_b64": base64.b64encode(sodium.crypto_scalarmult_base(bytes.fromhex(given["secret_hex"]))).decode()}


def check_signing_key(given):
    return {"accepted": good_signing_key(read_base64(given["public_b64"], 32))}


def check_sealing_key(given):
    return {"accepted": good_sealing_key(read_base64(given["public_b64"], 32))}


def check_rotation_proof(given):
    seed = bytes.fromhex(given["new_seed_hex"])
    signed = read_base64(given["old_public_b64"], 32) + sodium.crypto_sign_seed_keypair(seed)[0]
    return {"signed_hex": signed.hex(), "proof_b64": base64.b64encode(sign(seed, signed)).decode()}


def check_rotation_check(given):
    old, new = read_base64(given["old_public_b64"], 32), read_base64(given["new_public_b64"], 32)
    return {"valid": verifies(new, old + new, read_base64(given["proof_b64"], 64))}


# --- sealing.json -------------------------------------------------------------------------------------------

def check_seal(given):
    recipient = read_base64(given["recipient_b64"], 32)
    secret = bytes.fromhex(given["ephemeral_secret_hex"])
    ephemeral = sodium.crypto_scalarmult_base(secret)
    nonce = hashlib.blake2b(ephemeral + recipient, digest_size=24).digest()
    box = ephemeral + sodium.crypto_box(read_base64(given["plaintext_b64"]), nonce, recipient, secret)
    return {"box_b64": base64.b64encode(box).decode()}


def check_open(given):
    secret = bytes.fromhex(given["secret_hex"])
    try:
        opened = sodium.crypto_box_seal_open(read_base64(given["box_b64"]), sodium.crypto_scalarmult_base(secret), secret)
    except (nacl.exceptions.CryptoError, nacl.exceptions.TypeError, nacl.exceptions.ValueError):
        return {"plaintext_b64": None}
    return {"plaintext_b64": base64.b64encode(opened).decode()}


def check_seal_refused(given):
    try:
        sodium.crypto_box_seal(b"x", read_base64(given["recipient_b64"], 32))
        return {"refused": False}
    except nacl.exceptions.RuntimeError:
        return {"refused": True}


def check_sealed_member(given):
    value = read_json(given["text"].encode())
    if not isinstance(value, dict) or set(value) != {"sealed"} or not isinstance(value["sealed"], str):
        return {"sealed": False}
    try:
        read_base64(value["sealed"])
        return {"sealed": True}
    except Refused:
        return {"sealed": False}


# --- manifest.json -------------------------------------------------------------------------------------------

def pae(payload_type, payload):
    kind = payload_type.encode()
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def check_pae(given):
    return {"pae_hex": pae(given["payload_type"], read_base64(given["payload_b64"])).hex()}


def check_manifest(given):
    try:
        envelope = read_shape(given["envelope"].encode(), "SignedManifest")
        payload = read_base64(envelope["payload"])
        signed = pae(envelope["payloadType"], payload)
        if envelope["payloadType"] != "application/vnd.pbx.release+json":
            raise Refused("payload type")
        # DSSE's keyid is a hint that nobody signs, so it decides nothing.
        if not any(verifies(read_base64(key, 32), signed, read_base64(signature["sig"]))
                   for signature in envelope["signatures"] for key in given["release_keys_b64"]):
            raise Refused("no signature of a release key")
        if read_shape(payload, "Manifest")["version"] != given["release"]:
            raise Refused("another release")
        return {"verified": True}
    except Refused:
        return {"verified": False}


# --- text.json, json.json, routes.json ---------------------------------------------------------------------

def value_or_none(reader, *arguments):
    try:
        return reader(*arguments)
    except Refused:
        return None


def check_timestamp(given):
    return {"seconds": value_or_none(read_timestamp, given["text"])}


def check_base64(given):
    data = value_or_none(read_base64, given["text"], given["length"])
    return {"hex": None if data is None else data.hex()}


def check_sha256(given):
    return {"valid": value_or_none(read_sha256, given["text"]) is not None}


def check_time(given):
    return {"unix_ms": value_or_none(read_time, given["text"])}


def check_agent_id(given):
    return {"valid": value_or_none(read_id, given["text"]) is not None}


def check_name(given):
    return {"valid": value_or_none(read_name, given["text"]) is not None}


def check_json(given):
    data = bytes.fromhex(given["bytes_hex"]) if "bytes_hex" in given else given["text"].encode()
    try:
        read_shape(data, given["shape"])
        return {"step": "ok"}
    except Syntax:
        return {"step": "syntax"}
    except OldProtocol:
        return {"step": "protocol"}
    except Refused:
        return {"step": "shape"}


ROUTES = [("POST", r"/agent/v1/enroll", "enroll"), ("POST", r"/agent/v1/sync", "sync"),
          ("POST", r"/agent/v1/rotate-key", "rotate-key"),
          ("POST", r"/agent/v1/operations/(?P<operation>[^/]*)/events", "events"),
          ("GET", r"/agent/v1/releases/(?P<release>[^/]*)/manifest", "manifest")]


def check_route(given):
    path, mark, _ = given["target"].partition("?")
    for method, pattern, endpoint in ROUTES:
        found = re.fullmatch(pattern, path)
        if found is None:
            continue
        names = found.groupdict()
        if any(value_or_none(read_id if name == "operation" else read_name, text) is None for name, text in names.items()):
            break
        if given["method"] != method:
            return {"refusal": "method_not_allowed"}
        return {"refusal": "query"} if mark else {"endpoint": endpoint, **names}
    return {"refusal": "not_found"}


# --- all of them ----------------------------------------------------------------------------------------------

def main():
    counts, foreign, wrong = collections.Counter(), 0, 0
    for path in sorted(pathlib.Path(__file__).parent.glob("*.json")):
        document = json.loads(path.read_text())
        for vector in document["vectors"]:
            counts[vector["kind"]] += 1
            foreign += vector["origin"] != "rule"
            check = globals().get(f"check_{vector['kind']}")
            found = check(vector["input"]) if check else "no check of this kind"
            if found != vector["expect"]:
                wrong += 1
                print(f"{vector['id']} ({vector['kind']}: {vector['comment']}): expected {vector['expect']}, found {found}",
                      file=sys.stderr)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    total = sum(counts.values())
    print(f"{'FAIL' if wrong else 'ok'}: {total} vectors ({foreign} from elsewhere), {wrong} mismatches: {kinds}")
    print(f"{total - wrong} passed, {wrong} failed")  # the closing line that `cargo xtask test vectors` counts
    return 1 if wrong or total < 60 or foreign < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
