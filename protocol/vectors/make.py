#!/usr/bin/env python3
"""Makes the vector files beside it. Needs PyNaCl (see e2e/python/requirements.txt), nothing else.

Every value follows from fixed seeds, so a second run changes no byte. The one exception are the
boxes of `crypto_box_seal`, whose ephemeral key libsodium draws itself: a stored box is kept as long
as it still opens to the plaintext asked for.

Wherever libsodium has a word to say (is this signature valid, does this box open, is this key a
point), it is asked here, the answer goes into the vector, and the script stops if it differs from
what the rules expect. README.md describes files and kinds.

    python3 make.py          writes the files
    python3 make.py --check  writes nothing, fails if a file would change
"""

import base64
import hashlib
import json
import pathlib
import sys

import nacl.bindings as sodium
import nacl.exceptions

import edwards25519 as curve

HERE = pathlib.Path(__file__).parent
FOREIGN = {"pynacl", "rfc8032", "rfc7748", "wycheproof", "cctv", "dsse"}
ORIGINS = FOREIGN | {"rule"}


# --- the form of a file -------------------------------------------------------------------------

class Topic:
    """One file: its kinds with their meaning, and its vectors in order."""

    def __init__(self, name, about, kinds):
        self.name, self.about, self.kinds, self.vectors = name, about, kinds, []

    def add(self, kind, origin, rules, comment, given, expect, libsodium=None):
        assert kind in self.kinds and origin in ORIGINS, (kind, origin)
        vector = {"id": f"{self.name}/{len(self.vectors) + 1}", "kind": kind, "origin": origin,
                  "rules": rules.split(), "comment": comment, "input": given, "expect": expect}
        if libsodium is not None:
            vector["libsodium"] = libsodium
        self.vectors.append(vector)

    def text(self):
        counts = {kind: sum(v["kind"] == kind for v in self.vectors) for kind in self.kinds}
        assert all(counts.values()), f"{self.name}: a kind without a vector: {counts}"
        document = {"format": 1, "topic": self.name, "about": self.about, "kinds": self.kinds,
                    "vectors": self.vectors}
        return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def b64(data):
    return base64.b64encode(data).decode("ascii")


def seed(label):
    """32 bytes that belong to a label; no vector draws a random number."""
    return hashlib.sha256(b"pbx vectors: " + label.encode()).digest()


# --- libsodium's word -----------------------------------------------------------------------------

def signing_pair(secret_seed):
    """(public key, libsodium's 64-byte secret key)"""
    return sodium.crypto_sign_seed_keypair(secret_seed)


def sign(secret_seed, message):
    return sodium.crypto_sign(message, signing_pair(secret_seed)[1])[:64]


def libsodium_verifies(public, message, signature):
    if len(signature) != 64 or len(public) != 32:
        return False
    try:
        return sodium.crypto_sign_open(signature + message, public) == message
    except nacl.exceptions.BadSignatureError:
        return False


def libsodium_opens(box, public, secret):
    try:
        return sodium.crypto_box_seal_open(box, public, secret)
    except (nacl.exceptions.CryptoError, nacl.exceptions.TypeError, nacl.exceptions.ValueError):
        return None


def libsodium_multiplies(secret, public):
    """The shared secret, or None where libsodium refuses it for being zero."""
    try:
        return sodium.crypto_scalarmult(secret, public)
    except nacl.exceptions.RuntimeError:
        return None


# --- signing.json -----------------------------------------------------------------------------------

TYPICAL_REPORT = json.dumps({
    "protocol": 1, "sequence": 4711, "agent_version": "1.4.0", "arch": "amd64",
    "node_name": "fsn1-server-1",
    "boot": {"image_sha256": hashlib.sha256(b"boot image").hexdigest(), "entry": "pbx-2026.11.1-amd64.efi"},
    "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"}, "leader": True,
    "document": {"applied_generation": 18, "seen_generation": 18, "result": "applied", "message": None},
    "addons": [{"name": "cert-manager", "state": "pending", "message": "health check not passing yet"}],
    "operation": {"id": "op_01J9ZZ", "kind": "snapshot.save", "step": "confirm_s3", "state": "running"},
    "update": {"running": "1.4.0", "rolled_back_from": None},
    "restart_pending": False, "clock_offset_ms": -120, "keys_created_at": "2026-09-01T00:00:00Z",
    "last_error": None, "problems": []}, separators=(",", ":"))

NOW = 1796000523


def canonical(method, path, timestamp, body, signed_prefix=""):
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"{signed_prefix}{method}\n{path}\n{timestamp}\n{digest}".encode()


def signing():
    topic = Topic("signing", "How a request is signed and checked (SIGN-1 to SIGN-3), and what counts as a replay.", {
        "sign_request": "From seed, configured base URL and request to the URL, the signed bytes and the three headers. "
                        "`endpoint` is one of sync, events, manifest, rotate-key; `query` is appended to the path as it stands.",
        "verify_request": "Is the signature right for this request? `timestamp` and `signature` are header values as received.",
        "replay": "Two requests in the order they came: are both signatures right, and is the second a replay of the "
                  "first? The memory is keyed by the verifying key and the signed bytes, never by the signature.",
    })

    key = seed("agent signing key")
    public = signing_pair(key)[0]

    def sign_request(rules, comment, base, endpoint, timestamp, body="", operation=None, release=None, query="",
                     dialect=None):
        dialect = dialect or {}
        base_path = dialect.get("base_path", "/agent/v1")
        tail = {"sync": "/sync", "rotate-key": "/rotate-key", "events": f"/operations/{operation}/events",
                "manifest": f"/releases/{release}/manifest"}[endpoint]
        method = "GET" if endpoint == "manifest" else "POST"
        path = base_path + tail + query
        signed = canonical(method, path, timestamp, body, dialect.get("signed_prefix", ""))
        signature = sign(key, signed)
        assert libsodium_verifies(public, signed, signature)
        given = {"seed_hex": key.hex(), "agent_id": "agt_01J9ZZ0000", "base": base, "endpoint": endpoint,
                 "timestamp": timestamp, "body": body}
        for name, value in (("operation", operation), ("release", release), ("query", query), ("dialect", dialect)):
            if value:
                given[name] = value
        names = [dialect.get("header_agent_id", "Pbx-Agent-Id"), dialect.get("header_timestamp", "Pbx-Timestamp"),
                 dialect.get("header_signature", "Pbx-Signature")]
        topic.add("sign_request", "pynacl", rules, comment, given, {
            "url": base.removesuffix(base_path) + path, "method": method, "path": path,
            "body_sha256": hashlib.sha256(body.encode()).hexdigest(), "signed": signed.decode(),
            "headers": dict(zip(names, ["agt_01J9ZZ0000", str(timestamp), b64(signature)]))},
            "signed by crypto_sign, verified by crypto_sign_open")

    host = "https://agents.example.org"
    sign_request("SIGN-1 SIGN-2 SIGN-3", "a sync with a typical report", host, "sync", NOW, TYPICAL_REPORT)
    sign_request("SIGN-2", "the same report a second later has another signature", host, "sync", NOW + 1, TYPICAL_REPORT)
    sign_request("SIGN-2", "no body: the hash of nothing is signed", host, "manifest", NOW, release="2026.11.1")
    sign_request("SIGN-2", "events of an operation", host, "events", NOW, operation="op_01J9ZZ", body=
                 '{"events":[{"sequence":1,"at":"2026-11-30T01:02:03Z","step":"save","state":"started"}]}')
    sign_request("SIGN-2", "the longest operation ID", host, "events", NOW, operation="Aa9_-" * 12 + "Zz0-",
                 body='{"events":[]}')
    sign_request("SIGN-2", "a rotation", host, "rotate-key", NOW,
                 '{"signing_key":"AAAA","sealing_key":"AAAA","proof":"AAAA"}')
    sign_request("SIGN-2 FILE-15", "a prefix inside the base is sent and not signed: a proxy may strip it",
                 "https://host/prefix", "sync", NOW, TYPICAL_REPORT)
    sign_request("SIGN-2 FILE-15", "a longer prefix, a port, a GET", "https://agents.example.org:8443/a/b", "manifest",
                 NOW, release="2026.11.1")
    sign_request("SIGN-2 FILE-15", "a trailing base path in the base is cut", host + "/agent/v1", "sync", NOW, "{}")
    sign_request("SIGN-2 FILE-15", "a prefix and a trailing base path", "https://host/prefix/agent/v1", "sync", NOW, "{}")
    sign_request("SIGN-2", "loopback without TLS signs the same bytes", "http://127.0.0.1:8470", "sync", NOW, "{}")
    sign_request("SIGN-2 KEY-2", "a clock at the epoch", host, "sync", 0, "{}")
    sign_request("SIGN-2 KEY-2", "the largest timestamp", host, "sync", 9999999999, "{}")
    sign_request("SIGN-2", "the body is hashed as bytes: UTF-8 beyond ASCII", host, "sync", NOW,
                 '{"message":"Größe 🚀 \\u00e4"}')
    sign_request("SIGN-2", "the body is hashed as sent: spaces and a last newline count", host, "sync", NOW,
                 '{ "protocol" : 1 }\r\n')
    sign_request("SIGN-2", "a query is part of the path (the portal refuses it afterwards)", host, "sync", NOW, "{}",
                 query="?trace=1")
    sign_request("SIGN-2", "a bare question mark is a query", host, "sync", NOW, "{}", query="?")
    sign_request("SIGN-2 SIGN-3", "a dialect: another base path, a prefix of the signed bytes, other header names",
                 "https://host/prefix", "sync", NOW, "{}", dialect={
                     "base_path": "/v2/nodes", "signed_prefix": "pbx-v2\n", "header_agent_id": "X-Node",
                     "header_timestamp": "X-Time", "header_signature": "X-Sig"})

    path = "/agent/v1/sync"
    good = sign(key, canonical("POST", path, NOW, TYPICAL_REPORT))

    def verify_request(rules, comment, expected, *, origin="pynacl", method="POST", path=path, timestamp=str(NOW),
                       body=TYPICAL_REPORT, signature=good, spelled=None, verifying=public):
        spelling_is_right = timestamp.isascii() and timestamp.isdigit() and spelled is None
        word = spelling_is_right and libsodium_verifies(verifying, canonical(method, path, timestamp, body), signature)
        assert spelling_is_right is False or word == expected, comment
        topic.add("verify_request", origin, rules, comment, {
            "public_b64": b64(verifying), "method": method, "path": path, "timestamp": timestamp, "body": body,
            "signature": b64(signature) if spelled is None else spelled}, {"valid": expected},
            f"crypto_sign_open: {'accepted' if word else 'refused'}" if spelling_is_right else None)

    def signed(text):
        return sign(key, text.encode())

    digest = hashlib.sha256(TYPICAL_REPORT.encode()).hexdigest()
    verify_request("SIGN-2", "right", True)
    verify_request("SIGN-2", "another method", False, method="PUT")
    verify_request("SIGN-2", "the method in small letters", False, method="post")
    verify_request("SIGN-2", "another path", False, path="/agent/v1/rotate-key")
    verify_request("SIGN-2", "a trailing slash", False, path=path + "/")
    verify_request("SIGN-2", "a query that was not signed", False, path=path + "?a=1")
    verify_request("SIGN-2", "a bare question mark that was not signed", False, path=path + "?")
    verify_request("SIGN-2", "another timestamp", False, timestamp=str(NOW + 1))
    verify_request("SIGN-2", "a body with one space more", False, body=TYPICAL_REPORT + " ")
    verify_request("SIGN-2", "an empty body", False, body="")
    verify_request("SIGN-2", "another agent's key", False, verifying=signing_pair(seed("another agent"))[0])
    verify_request("SIGN-2", "signed with the prefix of the base in the path", False,
                   signature=signed(f"POST\n/prefix{path}\n{NOW}\n{digest}"))
    verify_request("SIGN-2", "signed with the whole URL", False,
                   signature=signed(f"POST\nhttps://agents.example.org{path}\n{NOW}\n{digest}"))
    verify_request("SIGN-2", "signed without the base path", False, signature=signed(f"POST\n/sync\n{NOW}\n{digest}"))
    verify_request("SIGN-2", "signed with a trailing newline", False, signature=signed(f"POST\n{path}\n{NOW}\n{digest}\n"))
    verify_request("SIGN-2", "signed with CR LF", False, signature=signed(f"POST\r\n{path}\r\n{NOW}\r\n{digest}"))
    verify_request("SIGN-2", "signed with the hash in capitals", False,
                   signature=signed(f"POST\n{path}\n{NOW}\n{digest.upper()}"))
    verify_request("SIGN-2", "signed with the hash in base64", False, signature=signed(
        f"POST\n{path}\n{NOW}\n{b64(bytes.fromhex(digest))}"))
    verify_request("SIGN-2", "signed with the body itself", False, signature=signed(f"POST\n{path}\n{NOW}\n{TYPICAL_REPORT}"))
    verify_request("SIGN-2", "signed with milliseconds", False, signature=signed(f"POST\n{path}\n{NOW}000\n{digest}"))
    verify_request("SIGN-2", "signed over a hash of the bytes (prehashed)", False, signature=sign(
        key, hashlib.sha512(canonical("POST", path, NOW, TYPICAL_REPORT)).digest()))
    verify_request("SIGN-3 KEY-2", "the signature without padding", False, origin="rule", spelled=b64(good).rstrip("="))
    verify_request("SIGN-3 KEY-2", "the signature in the URL-safe alphabet", False, origin="rule",
                   spelled=base64.urlsafe_b64encode(good).decode())
    assert set("+/") & set(b64(good)), "the vector above needs a signature with + or /"
    verify_request("SIGN-3 KEY-2", "the signature with a space around it", False, origin="rule", spelled=" " + b64(good))
    verify_request("SIGN-3 KEY-2", "the signature in hex", False, origin="rule", spelled=good.hex())
    verify_request("SIGN-3", "no signature", False, origin="rule", spelled="")
    verify_request("SIGN-3", "63 bytes", False, origin="rule", spelled=b64(good[:63]))
    verify_request("SIGN-3", "65 bytes", False, origin="rule", spelled=b64(good + b"\0"))
    for spelling in (f"+{NOW}", f"0{NOW}", f"{NOW}.0", f" {NOW}", f"{NOW}000"):
        # Signed over exactly this spelling, so that only the form of the timestamp is wrong.
        verify_request("SIGN-3 KEY-2", f"a timestamp spelled {spelling!r}, signed as spelled", False, origin="rule",
                       timestamp=spelling, signature=sign(key, canonical("POST", path, spelling, TYPICAL_REPORT)),
                       spelled=b64(sign(key, canonical("POST", path, spelling, TYPICAL_REPORT))))

    def request(secret_seed, method, path, timestamp, body, signature=None):
        text = canonical(method, path, timestamp, body)
        signature = signature or sign(secret_seed, text)
        return {"public_b64": b64(signing_pair(secret_seed)[0]), "method": method, "path": path,
                "timestamp": str(timestamp), "body": body, "signature": b64(signature)}

    def replay(rules, comment, first, second, expected):
        def word(r):
            return libsodium_verifies(base64.b64decode(r["public_b64"]),
                                      canonical(r["method"], r["path"], r["timestamp"], r["body"]),
                                      base64.b64decode(r["signature"]))
        assert word(first) and word(second), comment
        topic.add("replay", "pynacl", rules, comment, {"first": first, "second": second},
                  {"both_valid": True, "replay": expected}, "crypto_sign_open: accepted both")

    sync = request(key, "POST", path, NOW, TYPICAL_REPORT)
    manifest_path = "/agent/v1/releases/2026.11.1/manifest"
    replay("SIGN-5", "the same request twice", sync, sync, True)
    scalar, _ = curve.clamp(key)
    nonce = int.from_bytes(seed("a nonce of its own"), "little") % curve.L
    message = canonical("POST", path, NOW, TYPICAL_REPORT)
    r = (nonce * curve.BASE).encode()
    other = r + curve.scalar_bytes((nonce + curve.challenge(r, public, message) * scalar) % curve.L)
    assert other != good
    replay("SIGN-5 KEY-3", "the same signed bytes under a second valid signature of the same key (another nonce): "
           "a memory of signatures would let it pass", sync, request(key, "POST", path, NOW, TYPICAL_REPORT, other), True)
    replay("KEY-3", "two agents fetch the same manifest in the same second: the signed bytes are the same, the keys are not",
           request(key, "GET", manifest_path, NOW, ""), request(seed("another agent"), "GET", manifest_path, NOW, ""), False)
    replay("SIGN-5", "the same manifest a second later", request(key, "GET", manifest_path, NOW, ""),
           request(key, "GET", manifest_path, NOW + 1, ""), False)
    replay("SIGN-5", "another body in the same second", sync, request(key, "POST", path, NOW, "{}"), False)
    replay("SIGN-5", "another path in the same second", request(key, "POST", path, NOW, "{}"),
           request(key, "POST", "/agent/v1/rotate-key", NOW, "{}"), False)
    return topic


# --- ed25519.json -------------------------------------------------------------------------------------

# RFC 8032, section 7.1: seed, public key, message, signature.
RFC8032 = [
    ("TEST 1", "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("TEST 2", "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("TEST 3", "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
    ("TEST SHA(abc)", "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
     "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"),
]


def ed25519():
    topic = Topic("ed25519", "Strict verification (SIGN-7): s < L, R and the key canonical and not of small order, "
                             "the equation without the cofactor.", {
        "sign": "The deterministic signature of RFC 8032 from seed and message.",
        "verify": "Does this signature verify under this key? A signature that is not 64 bytes does not.",
    })

    def verify(origin, rules, comment, public, message, signature, expected):
        word = libsodium_verifies(public, message, signature)
        assert word == expected, comment
        topic.add("verify", origin, rules, comment,
                  {"public_hex": public.hex(), "message_hex": message.hex(), "signature_hex": signature.hex()},
                  {"valid": expected}, f"crypto_sign_open: {'accepted' if word else 'refused'}")

    for name, secret, public, message, signature in RFC8032:
        secret, public, message, signature = map(bytes.fromhex, (secret, public, message, signature))
        assert signing_pair(secret)[0] == public and sign(secret, message) == signature, name
        topic.add("sign", "rfc8032", "SIGN-8", f"RFC 8032, section 7.1, {name}",
                  {"seed_hex": secret.hex(), "message_hex": message.hex()},
                  {"public_hex": public.hex(), "signature_hex": signature.hex()}, "crypto_sign: the same")
        verify("rfc8032", "SIGN-8", f"RFC 8032, section 7.1, {name}", public, message, signature, True)

    # Kinds of Wycheproof's EdDSA file, by its flags, for a key and a message of our own.
    secret = seed("ed25519 verify")
    public = signing_pair(secret)[0]
    scalar, prefix = curve.clamp(secret)
    message = b"POST\n/agent/v1/sync\n1796000523\n" + hashlib.sha256(b"").hexdigest().encode()
    good = sign(secret, message)
    r, s = good[:32], int.from_bytes(good[32:], "little")
    zero, one = bytes(32), curve.scalar_bytes(1)

    def wycheproof(flag, comment, signature, message=message):
        verify("wycheproof", "SIGN-7", f"{flag}: {comment}", public, message, signature, False)

    verify("wycheproof", "SIGN-7", "Valid: the signature that the following change", public, message, good, True)
    for factor in (1, 2, 4, 8, 15):
        if s + factor * curve.L < 2**256:
            wycheproof("SignatureMalleability", f"s + {factor} L", r + curve.scalar_bytes(s + factor * curve.L))
    wycheproof("SignatureMalleability", "the highest bit of s set", good[:63] + bytes([good[63] | 0x80]))
    wycheproof("SignatureMalleability", "L - s with -R", (-curve.Point.decode(r)).encode() + curve.scalar_bytes(curve.L - s))
    for name, left in (("0", zero), ("1", one), ("L", curve.scalar_bytes(curve.L)), ("p", curve.scalar_bytes(curve.P))):
        for also, right in (("0", zero), ("1", one), ("L - 1", curve.scalar_bytes(curve.L - 1)),
                            ("L", curve.scalar_bytes(curve.L)), ("p", curve.scalar_bytes(curve.P))):
            wycheproof("InvalidSignature", f"R = {name}, s = {also}", left + right)
    wycheproof("InvalidSignature", "another message", good, message + b" ")
    wycheproof("InvalidSignature", "a flipped bit in R", bytes([good[0] ^ 1]) + good[1:])
    wycheproof("InvalidSignature", "a flipped bit in s", good[:32] + bytes([good[32] ^ 1]) + good[33:])
    wycheproof("InvalidEncoding", "R and s swapped", good[32:] + good[:32])
    wycheproof("InvalidEncoding", "R back to front", good[:32][::-1] + good[32:])
    nonce = int.from_bytes(seed("nonce"), "little") % curve.L
    right_r = (nonce * curve.BASE).encode()
    flipped = right_r[:31] + bytes([right_r[31] ^ 0x80])
    wycheproof("InvalidEncoding", "the sign of R flipped and s made for the flipped bytes: the equation gives R with its "
               "right sign", flipped + curve.scalar_bytes((nonce + curve.challenge(flipped, public, message) * scalar) % curve.L))
    wycheproof("TruncatedSignature", "no byte", b"")
    wycheproof("TruncatedSignature", "R alone", good[:32])
    wycheproof("TruncatedSignature", "63 bytes", good[:63])
    wycheproof("CompressedSignature", "the first byte of s cut, the rest moved up", good[:32] + good[33:])
    wycheproof("SignatureWithGarbage", "a zero byte after it", good + b"\0")
    wycheproof("SignatureWithGarbage", "a zero byte before it", b"\0" + good)
    wycheproof("SignatureWithGarbage", "twice", good + good)

    # Kinds of CCTV's ed25519 vectors, by its flags: key and R with low-order points and low-order parts.
    def search(wanted):
        """The first message of a fixed sequence for which the signature does what is wanted."""
        return next(m for m in (b"pbx vectors %d" % i for i in range(2000)) if wanted(m))

    def cctv(flags, comment, public, message, signature, expected=False):
        verify("cctv", "SIGN-7", f"{flags}: {comment}", public, message, signature, expected)

    for encoded, order, canonical_form in curve.low_order_encodings():
        flags = "low_order_A" + ("" if canonical_form else ", non_canonical_A")
        # R = rB, s = r: holds for every message for which k is a multiple of the key's order, so
        # anyone can sign under this key.
        message = search(lambda m: curve.challenge(right_r, encoded, m) % order == 0)
        signature = right_r + curve.scalar_bytes(nonce)
        assert curve.verifies(encoded, message, signature, cofactor=False)
        cctv(flags, f"a key of order {order}; the signature was made without a secret and the bare equation holds",
             encoded, message, signature)

    for encoded, order, canonical_form in curve.low_order_encodings():
        flags = "low_order_R" + ("" if canonical_form else ", non_canonical_R")
        message = b"pbx vectors"
        signature = encoded + curve.scalar_bytes(curve.challenge(encoded, public, message) * scalar % curve.L)
        assert curve.verifies(public, message, signature, cofactor=True)
        bare = curve.verifies(public, message, signature, cofactor=False)
        assert bare == (order == 1)
        cctv(flags + ("" if bare else ", low_order_residue"), f"R of order {order} and a good key; the equation holds "
             + ("even without the cofactor" if bare else "only with the cofactor"), public, message, signature)

    for index in (1, 2, 4):
        torsion = curve.TORSION[index]
        order = {1: 8, 2: 4, 4: 2}[index]
        mixed_key = (scalar * curve.BASE + torsion).encode()
        mixed_r = (nonce * curve.BASE + torsion).encode()

        def build(a, r, message):
            return r + curve.scalar_bytes((nonce + curve.challenge(r, a, message) * scalar) % curve.L)

        for name, a, r in (("A", mixed_key, right_r), ("A and R", mixed_key, mixed_r), ("R", public, mixed_r)):
            flags = ", ".join(f"low_order_component_{part}" for part in name.split(" and "))
            for residue in (True, False):
                if name == "R" and not residue:
                    continue  # nothing cancels R's part under a key of prime order

                message = search(lambda m: curve.verifies(a, m, build(a, r, m), cofactor=False) != residue)
                signature = build(a, r, message)
                assert curve.verifies(a, message, signature, cofactor=True)
                cctv(flags + (", low_order_residue" if residue else ""),
                     f"a part of order {order} in {name}; the equation holds "
                     + ("only with the cofactor" if residue else "without the cofactor too, and neither point is of small order"),
                     a, message, signature, expected=not residue)

    # Keys that are no key at all.
    y = next(y for y in range(2, 99) if curve.Point.decode(y.to_bytes(32, "little")) is None)
    verify("cctv", "SIGN-7", f"the key is no point of the curve (y = {y})", y.to_bytes(32, "little"), message, good, False)
    return topic



# --- keys.json ------------------------------------------------------------------------------------------

# RFC 7748, section 6.1: secret key and public key of Alice and Bob.
RFC7748 = [
    ("Alice", "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
     "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"),
    ("Bob", "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
     "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"),
]

# u-coordinates of points of small order on Curve25519 and its twist, below 2^255.
ORDER_8_U = (325606250916557431795983626356110631294008115727848805560023387167927233504,
             39382357235489614581723060781553021112529911719440698176882885853963445705823)


def low_order_u():
    """Every 32-byte string whose shared secret with any secret key is zero, as (bytes, what it is)."""
    p = curve.P
    found = []
    for u, what in ((0, "u = 0"), (1, "u = 1"), (ORDER_8_U[0], "u of order 8"), (ORDER_8_U[1], "u of order 8, the other"),
                    (p - 1, "u = -1"), (p, "u = p, the spelling of 0"), (p + 1, "u = p + 1, the spelling of 1")):
        found.append((u.to_bytes(32, "little"), what))
        found.append(((u | 1 << 255).to_bytes(32, "little"), what + ", with the unused bit set"))
    return found


def keys():
    topic = Topic("keys", "Key pairs, key IDs, weak keys (KEY-1) and the proof of a rotation.", {
        "signing_key_pair": "From the 32-byte seed to the Ed25519 public key and its key ID.",
        "sealing_key_pair": "From the 32-byte X25519 secret key to the public key.",
        "signing_key": "May this Ed25519 public key be registered? If not, the portal answers 400 invalid_key.",
        "sealing_key": "May this X25519 public key be registered? If not, the portal answers 400 invalid_key.",
        "rotation_proof": "From the old public key and the new seed to the 64 bytes that are signed and the proof.",
        "rotation_check": "Does `proof` prove that whoever rotates from the old to the new key holds the new one?",
    })
    for label in ("agent signing key", "release key 1", "release key 2"):
        public = signing_pair(seed(label))[0]
        topic.add("signing_key_pair", "pynacl", "KEY-1", f"the key called {label!r}", {"seed_hex": seed(label).hex()},
                  {"public_b64": b64(public), "key_id": hashlib.sha256(public).hexdigest()[:16]}, "crypto_sign_seed_keypair")
    for name, secret, public, *_ in RFC8032[:2]:
        public = bytes.fromhex(public)
        topic.add("signing_key_pair", "rfc8032", "KEY-1", f"RFC 8032, section 7.1, {name}", {"seed_hex": secret},
                  {"public_b64": b64(public), "key_id": hashlib.sha256(public).hexdigest()[:16]}, "crypto_sign_seed_keypair")
    for name, secret, public in RFC7748:
        assert sodium.crypto_scalarmult_base(bytes.fromhex(secret)).hex() == public, name
        topic.add("sealing_key_pair", "rfc7748", "SEAL-1", f"RFC 7748, section 6.1, {name}", {"secret_hex": secret},
                  {"public_b64": b64(bytes.fromhex(public))}, "crypto_scalarmult_base: the same")
    secret = seed("agent sealing key")
    topic.add("sealing_key_pair", "pynacl", "SEAL-1", "the bytes of the secret key are clamped, not hashed",
              {"secret_hex": secret.hex()}, {"public_b64": b64(sodium.crypto_scalarmult_base(secret))}, "crypto_scalarmult_base")

    def signing_key(origin, comment, encoded, accepted, note=""):
        word = sodium.crypto_core_ed25519_is_valid_point(encoded)
        assert word == accepted or note, comment
        topic.add("signing_key", origin, "KEY-1 SIGN-7", comment + note, {"public_b64": b64(encoded)},
                  {"accepted": accepted}, f"crypto_core_ed25519_is_valid_point: {str(word).lower()}")

    signing_key("pynacl", "a good key", signing_pair(seed("agent signing key"))[0], True)
    for encoded, order, canonical_form in curve.low_order_encodings():
        signing_key("cctv", f"a point of order {order}" + ("" if canonical_form else ", in a non-canonical encoding"), encoded, False)
    for y in range(curve.P + 2, 2**255):
        if curve.Point.decode(y.to_bytes(32, "little")):
            signing_key("pynacl", f"a point of large order with y = p + {y - curve.P}, not canonical",
                        y.to_bytes(32, "little"), False)
    off = [y for y in range(2, 99) if curve.Point.decode(y.to_bytes(32, "little")) is None][:2]
    for y in off:
        signing_key("pynacl", f"no point of the curve has y = {y}", y.to_bytes(32, "little"), False)
    scalar, _ = curve.clamp(seed("agent signing key"))
    for index in (1, 4):
        signing_key("cctv", f"a key with a part of order {8 // index}: of large order, so it is taken",
                    (scalar * curve.BASE + curve.TORSION[index]).encode(), True,
                    " (libsodium's function asks for the prime-order subgroup, its verification does not)")

    def sealing_key(comment, encoded, accepted, note=""):
        word = libsodium_multiplies(seed("agent sealing key"), encoded) is not None
        assert word == accepted or note, comment
        topic.add("sealing_key", "rule" if note else "pynacl", "KEY-1 SEAL-6", comment + note, {"public_b64": b64(encoded)}, {"accepted": accepted},
                  f"crypto_scalarmult: {'ok' if word else 'refused'}")

    sealing_key("a good key", sodium.crypto_scalarmult_base(secret), True)
    sealing_key("u = 9, the base point", (9).to_bytes(32, "little"), True)
    sealing_key("u = 2 belongs to the twist, not to the curve: no secret key has it as its public key",
                (2).to_bytes(32, "little"), False, " (libsodium multiplies it all the same)")
    for encoded, what in (((curve.P + 9).to_bytes(32, "little"), "u = p + 9"),
                          ((9 | 1 << 255).to_bytes(32, "little"), "u = 9 with the unused bit set")):
        sealing_key(what + ", another spelling of the base point", encoded, False, " (libsodium multiplies it all the same)")
    for encoded, what in low_order_u():
        sealing_key(what, encoded, False)

    old_seed, new_seed = seed("agent signing key"), seed("agent signing key, rotated")
    old, new = signing_pair(old_seed)[0], signing_pair(new_seed)[0]
    proof = sign(new_seed, old + new)
    topic.add("rotation_proof", "pynacl", "KEY-1 OP-9", "the old public key, then the new one, signed with the new one",
              {"old_public_b64": b64(old), "new_seed_hex": new_seed.hex()},
              {"signed_hex": (old + new).hex(), "proof_b64": b64(proof)}, "crypto_sign")

    def rotation(comment, proof, expected, old=old, new=new):
        word = libsodium_verifies(new, old + new, proof)
        assert word == expected, comment
        topic.add("rotation_check", "pynacl", "KEY-1 OP-9", comment, {"old_public_b64": b64(old), "new_public_b64": b64(new),
                  "proof_b64": b64(proof)}, {"valid": expected}, f"crypto_sign_open: {'accepted' if word else 'refused'}")

    rotation("right", proof, True)
    rotation("the keys the other way round", sign(new_seed, new + old), False)
    rotation("signed with the old key", sign(old_seed, old + new), False)
    rotation("the new key alone", sign(new_seed, new), False)
    rotation("the base64 of the two keys signed", sign(new_seed, (b64(old) + b64(new)).encode()), False)
    rotation("another agent's proof of the same new key", sign(new_seed, signing_pair(seed("another agent"))[0] + new), False)
    rotation("s + L", proof[:32] + curve.scalar_bytes(int.from_bytes(proof[32:], "little") + curve.L), False)
    rotation("a new key of order 4 proves itself without a secret", new=bytes(32), proof=bytes(64), expected=False)
    return topic


# --- sealing.json -----------------------------------------------------------------------------------------

def hsalsa20(key, nonce=bytes(16)):
    """HSalsa20, by which crypto_box derives its key from the shared secret."""
    def word(data, i):
        return int.from_bytes(data[4 * i:4 * i + 4], "little")

    sigma = b"expand 32-byte k"
    x = [word(sigma, 0), *(word(key, i) for i in range(4)), word(sigma, 1), *(word(nonce, i) for i in range(4)),
         word(sigma, 2), *(word(key, i) for i in range(4, 8)), word(sigma, 3)]
    quarters = [(0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
                (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)]
    for _ in range(10):
        for a, b, c, d in quarters:
            for to, left, right, turn in ((b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)):
                value = (x[left] + x[right]) & 0xffffffff
                x[to] ^= (value << turn | value >> 32 - turn) & 0xffffffff
    return b"".join(x[i].to_bytes(4, "little") for i in (0, 5, 10, 15, 6, 7, 8, 9))


def seal_nonce(ephemeral, recipient):
    return hashlib.blake2b(ephemeral + recipient, digest_size=24).digest()


def seal_with(ephemeral_secret, recipient, plaintext):
    """crypto_box_seal with a given ephemeral key."""
    ephemeral = sodium.crypto_scalarmult_base(ephemeral_secret)
    return ephemeral + sodium.crypto_box(plaintext, seal_nonce(ephemeral, recipient), recipient, ephemeral_secret)


def stored_boxes():
    """The boxes that an earlier run kept, by plaintext."""
    path = HERE / "sealing.json"
    if not path.exists():
        return {}
    return {v["expect"]["plaintext_b64"]: v["input"]["box_b64"] for v in json.loads(path.read_text())["vectors"]
            if v["kind"] == "open" and v["comment"].startswith("crypto_box_seal")}


def sealing():
    topic = Topic("sealing", "libsodium's sealed boxes (crypto_box_seal, X25519-XSalsa20-Poly1305 with a BLAKE2b nonce): "
                             "ephemeral public key of 32 bytes, tag of 16 bytes, ciphertext.", {
        "seal": "The box for a recipient when the ephemeral secret key is the given one. A sender draws it anew for every box.",
        "open": "Opens to the plaintext, or is refused. The right shape that does not open is unopenable_secret.",
        "seal_refused": "Sealing to this recipient must fail: the shared secret is zero and the box would be open to anyone.",
        "sealed_member": "Is this JSON value a sealed secret, or a secret in clear (unsealed_secret)? Only the exact shape "
                         "is sealed; whether it opens is another question.",
    })
    secret = seed("agent sealing key")
    public = sodium.crypto_scalarmult_base(secret)
    stream = b"".join(hashlib.sha256(b"plaintext %d" % i).digest() for i in range(512))
    plaintexts = [("empty", b""), ("1 byte", b"\x00"), ("a k3s token", b"K10" + b"ab" * 32 + b"::server:pbx"),
                  ("64 bytes", stream[:64]), ("65 bytes", stream[:65]), ("UTF-8", "Größe 🚀".encode()), ("16 KiB", stream)]
    assert hsalsa20(libsodium_multiplies(secret, public)) == sodium.crypto_box_beforenm(public, secret)

    for name, plaintext in plaintexts:
        ephemeral_secret = seed("ephemeral " + name)
        box = seal_with(ephemeral_secret, public, plaintext)
        assert libsodium_opens(box, public, secret) == plaintext
        topic.add("seal", "pynacl", "SEAL-1 SEAL-5", f"{name}: what a sender in another language makes, libsodium opens",
                  {"recipient_b64": b64(public), "ephemeral_secret_hex": ephemeral_secret.hex(), "plaintext_b64": b64(plaintext)},
                  {"box_b64": b64(box)}, "crypto_box, opened by crypto_box_seal_open")

    def opens(rules, comment, box, expected, secret=secret):
        public = sodium.crypto_scalarmult_base(secret)
        word = libsodium_opens(box, public, secret)
        assert word == expected, comment
        topic.add("open", "pynacl", rules, comment, {"secret_hex": secret.hex(), "box_b64": b64(box)},
                  {"plaintext_b64": None if expected is None else b64(expected)},
                  f"crypto_box_seal_open: {'opened' if word is not None else 'refused'}")

    stored = stored_boxes()
    for name, plaintext in plaintexts:
        kept = base64.b64decode(stored.get(b64(plaintext), ""))
        if libsodium_opens(kept, public, secret) != plaintext:
            kept = sodium.crypto_box_seal(plaintext, public)
        opens("SEAL-1 SEAL-5", f"crypto_box_seal: {name}", kept, plaintext)

    box = seal_with(seed("ephemeral"), public, b"secret value")
    opens("SEAL-5", "the box that the following change", box, b"secret value")

    def flipped(at):
        return box[:at] + bytes([box[at] ^ 1]) + box[at + 1:]

    for at, what in ((0, "ephemeral key"), (32, "tag"), (48, "ciphertext"), (len(box) - 1, "last byte")):
        opens("SEAL-3", f"a flipped bit in the {what}", flipped(at), None)
    opens("SEAL-3", "another recipient", box, None, secret=seed("another agent's sealing key"))
    opens("SEAL-3", "one byte short", box[:-1], None)
    opens("SEAL-3", "one byte long", box + b"\0", None)
    opens("SEAL-3", "nothing", b"", None)
    opens("SEAL-3", "an ephemeral key alone", box[:32], None)
    opens("SEAL-3", "47 bytes, one fewer than the box of nothing", box[:47], None)
    opens("SEAL-3", "the nonce made from the keys the other way round", box[:32] + sodium.crypto_box(
        b"secret value", seal_nonce(public, box[:32]), public, seed("ephemeral")), None)
    opens("SEAL-3", "a zero nonce", box[:32] + sodium.crypto_box(b"secret value", bytes(24), public, seed("ephemeral")), None)
    opens("SEAL-3", "the tag after the ciphertext", box[:32] + box[48:] + box[32:48], None)
    zero_key = hsalsa20(bytes(32))
    for encoded, what in low_order_u():
        forged = encoded + sodium.crypto_secretbox(b"forged", seal_nonce(encoded, public), zero_key)
        opens("SEAL-6", f"a low-order ephemeral key, {what}: made without any secret, opens for whoever does not check", forged, None)
    for encoded, what in low_order_u():
        try:
            sodium.crypto_box_seal(b"x", encoded)
            raise AssertionError(f"libsodium seals to {what}")
        except nacl.exceptions.RuntimeError:
            topic.add("seal_refused", "pynacl", "KEY-1 SEAL-6", what, {"recipient_b64": b64(encoded)}, {"refused": True},
                      "crypto_box_seal: refused")

    text = b64(box)
    for comment, value, expected in (
            ("exactly the shape", {"sealed": text}, True),
            ("the shape of a box that does not open", {"sealed": "AAAA"}, True),
            ("the shape with an empty box: it does not open, but it is not in clear", {"sealed": ""}, True),
            ("a string", "hunter2", False),
            ("the box as a bare string", text, False),
            ("null", None, False),
            ("a number", 7, False),
            ("an empty object", {}, False),
            ("an array", [text], False),
            ("another member beside it", {"sealed": text, "clear": "hunter2"}, False),
            ("an unknown member beside it, however harmless", {"sealed": text, "v": 1}, False),
            ("another spelling of the member", {"Sealed": text}, False),
            ("no string inside", {"sealed": None}, False),
            ("an object inside", {"sealed": {"sealed": text}}, False),
            ("not base64", {"sealed": "hunter2!"}, False),
            ("base64 without its padding", {"sealed": b64(box[:47]).rstrip("=")}, False),
            ("URL-safe base64", {"sealed": base64.urlsafe_b64encode(b"\xfb\xff\xbf").decode()}, False),
            ("base64 with bits left over", {"sealed": "AB=="}, False)):
        topic.add("sealed_member", "rule", "SEAL-2", comment, {"text": json.dumps(value)}, {"sealed": expected})
    return topic


# --- manifest.json --------------------------------------------------------------------------------------

PAYLOAD_TYPE = "application/vnd.pbx.release+json"


def pae(payload_type, payload):
    """DSSE v1's pre-authentication encoding; lengths are of bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def release_payload(version="2026.11.1", **changes):
    payload = {
        "version": version, "created_at": "2026-11-20T08:00:00Z", "floor": 12, "template_engine": "minijinja",
        "agent": {"version": "1.4.0", "artifacts": [
            {"arch": "amd64", "url": "https://agents.example.org/artifacts/" + hashlib.sha256(b"agent").hexdigest(),
             "sha256": hashlib.sha256(b"agent").hexdigest(), "size": 9123456}]},
        "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": [
            {"arch": "amd64", "url": "https://agents.example.org/artifacts/" + hashlib.sha256(b"image").hexdigest(),
             "sha256": hashlib.sha256(b"image").hexdigest(), "size": 512000000, "entry": "pbx-2026.11.1-amd64.efi",
             "image_sha256": hashlib.sha256(b"unpacked image").hexdigest()}]},
        "addons": [{"name": "cert-manager", "requires": [], "conflicts": [],
                    "template": "kind: HelmChart\nmetadata:\n  name: {{ name }}\n",
                    "health": {"deployments": [{"namespace": "cert-manager", "name": "cert-manager"}]}}]}
    payload.update(changes)
    return payload


def manifest():
    topic = Topic("manifest", "Release manifests: a DSSE v1 envelope around a JSON payload, signed by a release key.", {
        "pae": "The bytes that DSSE signs, from payload type and payload.",
        "manifest": "Is this envelope, asked for as the manifest of `release`, verified by one of the release keys? If not, "
                    "the agent reports manifest_rejected and changes nothing.",
    })
    for origin, comment, payload_type, payload in (
            ("dsse", "the example of the DSSE specification", "http://example.com/HelloWorld", b"hello world"),
            ("rule", "nothing", "", b""),
            ("rule", "the type of a release", PAYLOAD_TYPE, b'{"version":"2026.11.1"}'),
            ("rule", "lengths count bytes, not characters", "type/\u00fc", "Gr\u00f6\u00dfe".encode()),
            ("rule", "spaces and newlines in the payload are left alone", "a b", b" 3 x\n")):
        topic.add("pae", origin, "SYNC-4", comment, {"payload_type": payload_type, "payload_b64": b64(payload)},
                  {"pae_hex": pae(payload_type, payload).hex()})

    first, second, foreign = seed("release key 1"), seed("release key 2"), seed("somebody's key")
    both = [first, second]

    def key_id(secret):
        return hashlib.sha256(signing_pair(secret)[0]).hexdigest()[:16]

    def compact(value):
        return json.dumps(value, separators=(",", ":")).encode()

    typical = compact(release_payload())

    def signature(secret, payload=typical, payload_type=PAYLOAD_TYPE, key_id_as=None, signed=None):
        signed = pae(payload_type, payload) if signed is None else signed
        return {"keyid": key_id(secret) if key_id_as is None else key_id_as, "sig": b64(sign(secret, signed))}

    def envelope(*signatures, payload=typical, payload_type=PAYLOAD_TYPE, payload_text=None):
        return {"payloadType": payload_type, "payload": b64(payload) if payload_text is None else payload_text,
                "signatures": list(signatures)}

    def manifest(rules, comment, envelope, expected, keys=both, release="2026.11.1", origin="pynacl"):
        text = envelope if isinstance(envelope, str) else json.dumps(envelope, separators=(",", ":"))
        topic.add("manifest", origin, rules, comment, {
            "release_keys_b64": [b64(signing_pair(key)[0]) for key in keys], "release": release, "envelope": text},
            {"verified": expected})

    manifest("SYNC-4 UPD-4", "signed with the first key", envelope(signature(first)), True)
    manifest("SYNC-4 UPD-4", "signed with the second key", envelope(signature(second)), True)
    manifest("UPD-4", "signed with both", envelope(signature(first), signature(second)), True)
    manifest("UPD-4", "one key built in", envelope(signature(first)), True, keys=[first])
    manifest("UPD-4", "signed with the key that is not built in", envelope(signature(second)), False, keys=[first])
    manifest("UPD-4", "no key built in", envelope(signature(first)), False, keys=[])
    manifest("UPD-4", "a foreign signature before the right one", envelope(signature(foreign), signature(first)), True)
    manifest("UPD-4", "a foreign signature alone", envelope(signature(foreign)), False)
    manifest("UPD-4", "a foreign signature under the ID of a release key",
             envelope(signature(foreign, key_id_as=key_id(first))), False)
    manifest("FAIL-4", "no signature", envelope(), False)
    manifest("FAIL-4", "the payload alone is signed, without its pre-authentication encoding",
             envelope(signature(first, signed=typical)), False)
    manifest("FAIL-4", "the base64 of the payload is signed",
             envelope(signature(first, signed=pae(PAYLOAD_TYPE, b64(typical).encode()))), False)
    manifest("FAIL-4", "the encoding with a newline for a space",
             envelope(signature(first, signed=pae(PAYLOAD_TYPE, typical).replace(b" ", b"\n", 1))), False)
    manifest("FAIL-4", "another payload type, rightly signed",
             envelope(signature(first, payload_type="application/json"), payload_type="application/json"), False)
    manifest("FAIL-4", "the payload type changed after signing", envelope(signature(first), payload_type=PAYLOAD_TYPE + "2"), False)
    changed = compact(release_payload(floor=13))
    manifest("FAIL-4", "the payload changed after signing", envelope(signature(first), payload=changed), False)
    right = signature(first)
    raw = base64.b64decode(right["sig"])
    malleable = raw[:32] + curve.scalar_bytes(int.from_bytes(raw[32:], "little") + curve.L)
    manifest("SIGN-7", "s + L in the signature", envelope({**right, "sig": b64(malleable)}), False)
    manifest("WIRE-6", "a signature of 63 bytes", envelope({**right, "sig": b64(raw[:63])}), False)
    # A payload whose base64 has padding and one of the two letters in which the alphabets differ.
    fancy = next(p for p in (compact(release_payload(template_engine="minijinja", notes="x" * i + "???>>>")) for i in range(12))
                 if b64(p).endswith("=") and set("+/") & set(b64(p)))
    text = b64(fancy)
    manifest("SYNC-4", "the payload that the two following spell differently",
             envelope(signature(first, fancy), payload_text=text), True)
    manifest("WIRE-6", "the payload in URL-safe base64",
             envelope(signature(first, fancy), payload_text=text.replace("+", "-").replace("/", "_")), False)
    manifest("WIRE-6", "the payload without its padding", envelope(signature(first, fancy), payload_text=text.rstrip("=")), False)

    def signed_payload(rules, comment, payload, expected, **more):
        payload = payload if isinstance(payload, bytes) else compact(payload)
        manifest(rules, comment, envelope(signature(first, payload), payload=payload), expected, **more)

    signed_payload("UPD-6", "the manifest of another release, rightly signed", release_payload("2026.10.1"), False)
    signed_payload("UPD-6", "asked for under another name", release_payload(), False, release="2026.11.2")
    signed_payload("WIRE-5", "unknown members in the payload", release_payload(notes={"de": "Hinweise"}), True)
    manifest("WIRE-5", "unknown members in the envelope", {**envelope(signature(first)), "expires": None}, True)
    without_floor = release_payload()
    del without_floor["floor"]
    signed_payload("UPD-6", "no floor", without_floor, False)
    signed_payload("UPD-6", "a floor that is no whole number", release_payload(floor=1.5), False)
    signed_payload("UPD-6", "a negative floor", release_payload(floor=-1), False)
    signed_payload("KEY-2", "a member twice", typical[:-1] + b',"floor":99}', False)
    signed_payload("KEY-2", "an array for the object", [release_payload()], False)
    signed_payload("KEY-2", "bytes after the object", typical + b"{}", False)
    signed_payload("KEY-2", "a byte order mark", b"\xef\xbb\xbf" + typical, False)
    signed_payload("KEY-2", "no JSON", b"release 2026.11.1", False)
    signed_payload("SYNC-4", "the empty payload", b"", False)
    bad_hash = release_payload()
    bad_hash["agent"]["artifacts"][0]["sha256"] = bad_hash["agent"]["artifacts"][0]["sha256"].upper()
    signed_payload("KEY-2", "a hash in capitals", bad_hash, False)
    return topic


# --- text.json ----------------------------------------------------------------------------------------------

def text():
    topic = Topic("text", "How single values are spelled on the wire (KEY-2, WIRE-6, SIGN-3, FILE-18).", {
        "timestamp": "The signature's timestamp, as header value.",
        "base64": "Base64 of exactly `length` bytes: standard alphabet, padded, canonical.",
        "sha256": "A SHA-256 as 64 lower-case hex digits.",
        "time": "Every other time: RFC 3339 in UTC.",
        "agent_id": "An agent's or an operation's ID.",
        "name": "A name from the network that becomes a path or an object's name.",
    })

    def timestamp(text, seconds):
        topic.add("timestamp", "rule", "KEY-2 SIGN-3", "taken" if seconds is not None else "refused", {"text": text},
                  {"seconds": seconds})

    for good in ("0", "1", "59", "1796000523", "9999999999"):
        timestamp(good, int(good))
    for bad in ("", "00", "01", "01796000523", "+1796000523", "-1", " 1796000523", "1796000523 ", "1796000523.0", "1e9",
                "0x6b0c", "10000000000", "1796000523000", "1_796_000_523", "1,796,000,523", "\u0661\u0667\u0669", "now",
                "2026-11-30T01:02:03Z", "1796000523\n"):
        timestamp(bad, None)

    def base64_text(comment, text, data, length):
        topic.add("base64", "rule", "KEY-2 WIRE-6", comment, {"text": text, "length": length},
                  {"hex": None if data is None else data.hex()})

    key, signature = b"\xfb\xff\xbf" * 10 + b"\xfb\xff", bytes(range(64))
    base64_text("32 bytes", b64(key), key, 32)
    base64_text("32 zero bytes", b64(bytes(32)), bytes(32), 32)
    base64_text("64 bytes", b64(signature), signature, 64)
    base64_text("the URL-safe alphabet", base64.urlsafe_b64encode(key).decode(), None, 32)
    base64_text("no padding", b64(key).rstrip("="), None, 32)
    base64_text("half of the padding", b64(signature)[:-1], None, 64)
    base64_text("padding too much", b64(key) + "=", None, 32)
    base64_text("bits left over: another spelling of the same bytes",
                b64(bytes(32))[:-2] + "B=", None, 32)
    base64_text("bits left over in the last digit of 64 bytes", b64(signature)[:-3] + "x==", None, 64)
    base64_text("31 bytes", b64(key[:31]), None, 32)
    base64_text("33 bytes", b64(key + b"x"), None, 32)
    base64_text("nothing", "", None, 32)
    base64_text("a newline inside", b64(key)[:20] + "\n" + b64(key)[20:], None, 32)
    base64_text("a newline at the end", b64(key) + "\n", None, 32)
    base64_text("a space in front", " " + b64(key), None, 32)
    base64_text("hex", key.hex(), None, 32)
    base64_text("a letter beyond ASCII", "\u00e4" + b64(key)[1:], None, 32)

    digest = hashlib.sha256(b"").hexdigest()

    def sha256(comment, text, valid):
        topic.add("sha256", "rule", "KEY-2 WIRE-6", comment, {"text": text}, {"valid": valid})

    sha256("the hash of nothing", digest, True)
    sha256("digits only", "0" * 64, True)
    sha256("capitals", digest.upper(), False)
    sha256("one capital", digest[:-1] + "F", False)
    sha256("63 digits", digest[:-1], False)
    sha256("65 digits", digest + "0", False)
    sha256("nothing", "", False)
    sha256("no hex digit", "g" + digest[1:], False)
    sha256("a prefix", "sha256:" + digest, False)
    sha256("0x in front", "0x" + digest[2:], False)
    sha256("a space in front", " " + digest[1:], False)
    sha256("base64", b64(hashlib.sha256(b"").digest()), False)

    def time(comment, text, unix_ms):
        topic.add("time", "rule", "WIRE-6", comment, {"text": text}, {"unix_ms": unix_ms})

    time("seconds", "2026-11-30T01:02:03Z", 1796000523000)
    time("the epoch", "1970-01-01T00:00:00Z", 0)
    time("before the epoch", "1969-12-31T23:59:59Z", -1000)
    time("milliseconds", "2026-11-30T01:02:03.250Z", 1796000523250)
    time("one digit of a fraction", "2026-11-30T01:02:03.5Z", 1796000523500)
    time("digits beyond the millisecond are cut off", "2026-11-30T01:02:03.999999999Z", 1796000523999)
    time("UTC spelled as an offset", "2026-11-30T01:02:03+00:00", 1796000523000)
    time("a point without digits", "2026-11-30T01:02:03.Z", None)
    time("a leap day", "2028-02-29T00:00:00Z", 1835395200000)
    time("no leap day", "2027-02-29T00:00:00Z", None)
    time("month 13", "2026-13-01T00:00:00Z", None)
    time("hour 24", "2026-11-30T24:00:00Z", None)
    time("no zone", "2026-11-30T01:02:03", None)
    time("another zone", "2026-11-30T03:02:03+02:00", None)
    time("a date", "2026-11-30", None)
    time("Unix seconds", "1796000523", None)
    time("an HTTP date", "Mon, 30 Nov 2026 01:02:03 GMT", None)
    time("a space in front", " 2026-11-30T01:02:03Z", None)
    time("something behind", "2026-11-30T01:02:03Z[UTC]", None)
    time("nothing", "", None)

    def identifier(kind, rules, good, bad):
        for text, valid in [(t, True) for t in good] + [(t, False) for t in bad]:
            topic.add(kind, "rule", rules, "taken" if valid else "refused", {"text": text}, {"valid": valid})

    identifier("agent_id", "SIGN-7 FILE-8", ("a", "agt_01J9ZZ", "-", "_", "A-z_9", "x" * 64),
               ("", "x" * 65, "a.b", "a/b", "../a", "a b", "a\n", "\u00e4", "a%20b", "a\x00"))
    identifier("name", "FILE-18", ("a", "9", "pbx-hcloud-ccm.yaml", "2026.11.1", "A_b-c.d", "x" * 63),
               ("", "x" * 64, ".a", "-a", "_a", "a..b", "..", "a/b", "a\\b", "a b", "a\n", "\u00e4", "a:b", "a\x00", "v1+k3s1"))
    return topic


# --- json.json -----------------------------------------------------------------------------------------------

def json_bodies():
    topic = Topic("json", "JSON bodies: what the syntax step refuses and what the shape step refuses (KEY-2, WIRE-5, SIGN-6). "
                          "Both answer 400 invalid_request, but 426 comes between them.", {
        "json": "The body of a request, read as `shape`: `ok`, or the step that refuses it first: `syntax`, `protocol` (426, where the "
                "lowest protocol spoken is 1) or `shape`.",
    })
    key = b64(seed("a key"))
    rotate = {"signing_key": key, "sealing_key": key, "proof": b64(seed("a key") * 2)}
    event = {"sequence": 1, "at": "2026-11-30T01:02:03Z", "step": "save", "state": "started", "message": None,
             "log_tail": None, "reason": None, "result": None}

    def body(rules, comment, body, step, shape="RotateKeyRequest", origin="rule"):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body, ensure_ascii=False)
        given = {"shape": shape}
        try:
            given["text"] = body if isinstance(body, str) else body.decode()
        except UnicodeDecodeError:
            given["bytes_hex"] = body.hex()
        topic.add("json", origin, rules, comment, given, {"step": step})

    def events(rules, comment, expected, *replaced, **changes):
        body(rules, comment, {"events": list(replaced) or [{**event, **changes}]}, expected, "OperationEvents")

    text = json.dumps(rotate)
    inner = text[1:-1]
    body("KEY-2", "a plain body", rotate, "ok")
    body("KEY-2", "white space around it", "\t\r\n " + text + " \n", "ok")
    body("WIRE-5", "an unknown member", {**rotate, "later": {"a": [1, 2.5e3, None, "\u00fc"]}}, "ok")
    body("WIRE-5", "members in another order", dict(reversed(rotate.items())), "ok")
    body("WIRE-5", "a member's name spelled with an escape", text.replace("proof", "\\u0070roof"), "ok")
    body("WIRE-5", "an unknown member with a number that no double holds", text[:-1] + ',"x":123456789012345678901234567890}', "ok")
    events("KEY-2", "plain events", "ok")
    body("WIRE-5", "members that may be null left out", {"events": [{"sequence": 1, "at": "2026-11-30T01:02:03Z", "state": "succeeded"}]},
         "ok", "OperationEvents")

    for comment, wrong in (
            ("nothing", ""), ("white space alone", " \n"), ("half of it", text[:-1]), ("a comma at the end", text[:-1] + ",}"),
            ("a comment", text[:-1] + "/* */}"), ("single quotes", text.replace('"', "'")), ("a name without quotes", "{proof:1}"),
            ("NaN", text[:-1] + ',"x":NaN}'), ("Infinity", text[:-1] + ',"x":-Infinity}'), ("a leading zero", text[:-1] + ',"x":01}'),
            ("a plus sign", text[:-1] + ',"x":+1}'), ("a bare point", text[:-1] + ',"x":.5}'), ("a point without digits", text[:-1] + ',"x":1.}'),
            ("a digit beyond ASCII", text[:-1] + ',"x":\u0661}'), ("hex", text[:-1] + ',"x":0x1}'), ("True", text[:-1] + ',"x":True}'),
            ("a raw newline in a string", text[:-1] + ',"x":"a\nb"}'), ("an unknown escape", text[:-1] + ',"x":"\\q"}'),
            ("a short escape", text[:-1] + ',"x":"\\u12"}'), ("half of a surrogate pair", text[:-1] + ',"x":"\\ud800"}'),
            ("a space that JSON does not know", "\u00a0" + text), ("bytes behind it", text + "x"), ("a second body", text + text),
            ("a closing brace too many", text + "}"), ("a NUL behind it", text + "\x00"), ("HTML", "<html></html>"),
            ("a byte order mark", "\ufeff" + text), ("UTF-16", text.encode("utf-16")), ("Latin-1", b'{"x":"\xfc",' + inner.encode() + b"}"),
            ("an overlong form", b'{"x":"\xc0\xaf",' + inner.encode() + b"}"), ("a surrogate in UTF-8", b'{"x":"\xed\xa0\x80",' + inner.encode() + b"}"),
            ("a lone 0xff", b"\xff"),
            ("a member twice", text[:-1] + f',"proof":"{rotate["proof"]}"}}'),
            ("a member twice, once spelled with an escape", text[:-1] + ',"pr\\u006fof":""}'),
            ("an unknown member twice", text[:-1] + ',"x":1,"x":1}'),
            ("a member twice inside an unknown one", text[:-1] + ',"x":[{"a":1,"a":2}]}'),
            ("a member twice where the shape is wrong too: syntax comes first", '{"x":1,"x":2}'),
            ("an array for the object, a member twice in it", '[{"x":1,"x":2}]'),
            ("the empty name twice", text[:-1] + ',"":1,"":2}')):
        body("KEY-2", comment, wrong, "syntax")
    body("KEY-2", "the same name in two objects is no duplicate", text[:-1] + ',"x":{"a":1},"y":{"a":2}}', "ok")
    for opened, closed, what in (("[", "]", "arrays"), ('{"a":', "}", "objects")):
        inside = "1" if opened != "[" else ""
        for depth, step in ((32, "ok"), (33, "syntax")):
            nested = opened * (depth - 1) + inside + closed * (depth - 1)
            body("KEY-2", f"{depth} levels of {what}, the body being the first", text[:-1] + f',"x":{nested}}}', step)
    body("KEY-2", "brackets in a string are no depth", text[:-1] + ',"x":"' + "[" * 99 + '"}', "ok")
    body("KEY-2", "10,000 brackets: refused, not a full stack", "[" * 10000, "syntax")
    body("KEY-2", "32 levels of arrays, of the wrong shape only", "[" * 32 + "]" * 32, "shape")

    for comment, wrong in (
            ("an array for the object", "[]"), ("the members' values in an array", json.dumps(list(rotate.values()))),
            ("an array around it", [rotate]), ("a string", '"x"'), ("null", "null"), ("a number", "1"), ("true", "true"),
            ("no member", {}), ("a missing member", {k: v for k, v in rotate.items() if k != "proof"}),
            ("null where a value is due", {**rotate, "proof": None}), ("a number for a string", {**rotate, "proof": 1}),
            ("an object for a string", {**rotate, "proof": {}}), ("another case of a name", text.replace("proof", "Proof")),
            ("a key of 31 bytes", {**rotate, "signing_key": b64(bytes(31))}),
            ("a key without its padding", {**rotate, "signing_key": key.rstrip("=")}),
            ("a proof of 32 bytes", {**rotate, "proof": key})):
        body("KEY-2 SIGN-6", comment, wrong, "shape")
    events("KEY-2", "an array for an event", "shape", [1, "2026-11-30T01:02:03Z", "save", "started", None, None, None, None])
    events("KEY-2", "a fraction for a whole number", "shape", sequence=1.5)
    events("KEY-2", "a whole number spelled as a fraction", "shape", sequence=1.0)
    body("KEY-2", "an exponent for a whole number", json.dumps({"events": [event]}).replace('"sequence": 1', '"sequence": 1e0'),
         "shape", "OperationEvents")
    events("KEY-2", "a negative number", "shape", sequence=-1)
    events("KEY-2", "a number beyond 64 bits", "shape", sequence=2**64)
    events("KEY-2", "a string for a number", "shape", sequence="1")
    events("KEY-2", "true for a number", "shape", sequence=True)
    events("WIRE-6", "a time in another zone", "shape", at="2026-11-30T03:02:03+02:00")
    events("WIRE-5", "an unknown state", "shape", state="paused")
    events("WIRE-5", "an unknown reason is tolerated", "ok", step=None, state="failed", reason="not_known_yet")
    body("KEY-2", "an object for the list", {"events": {}}, "shape", "OperationEvents")
    body("KEY-2", "null for the list", {"events": None}, "shape", "OperationEvents")

    def numbered(count):
        return {"events": [{"sequence": i, "at": event["at"], "step": "save", "state": "started"} for i in range(1, count + 1)]}

    body("OPS-8", "100 events", numbered(100), "ok", "OperationEvents")
    body("OPS-8", "101 events", numbered(101), "shape", "OperationEvents")
    events("OPS-3", "200 lines of log", "ok", log_tail=["x"] * 200)
    events("OPS-3", "201 lines of log", "shape", log_tail=["x"] * 201)
    events("OPS-8", "a line of 1 KiB", "ok", log_tail=["x" * 1024])
    events("OPS-8", "a line of one byte more", "shape", log_tail=["x" * 1025])
    events("OPS-8", "a line of 1 KiB and one byte in 513 letters: bytes count, not letters", "shape", log_tail=["\u00e4" * 512 + "x"])
    events("OPS-8", "events are numbered from 1", "shape", sequence=0)
    events("OPS-8", "a number twice in one call is for the portal to sort out", "ok", event, event)
    events("OPS-8", "a step that starts needs its name", "shape", step=None)
    events("OPS-5", "unsupported is said of a whole operation, not of a step", "shape", state="unsupported")

    enrollment = {"protocol": 1, "token": "pbxe_Zk", "cluster_id": "clu_01J9", "node_name": "fsn1-server-1", "server_id": 42424242,
                  "signing_key": key, "sealing_key": key, "boot_image_sha256": "ab" * 32, "agent_version": "1.4.0", "arch": "amd64"}

    def protocol(comment, step, **changes):
        body("SIGN-6", comment, {**enrollment, **changes}, step, "EnrollRequest")

    protocol("a plain enrollment", "ok")
    protocol("the protocol before the lowest", "protocol", protocol=0)
    protocol("far below the lowest", "protocol", protocol=-5)
    body("SIGN-6", "an old protocol comes before the shape", {"protocol": 0}, "protocol", "EnrollRequest")
    body("SIGN-6", "syntax comes before an old protocol", '{"protocol":0,"protocol":0}', "syntax", "EnrollRequest")
    body("SIGN-6", "an old protocol inside another object is not the body's", {"x": {"protocol": 0}}, "shape", "EnrollRequest")
    body("SIGN-6", "an old protocol inside an array is not the body's", [{"protocol": 0}], "shape", "EnrollRequest")
    protocol("above the highest", "shape", protocol=2)
    protocol("a fraction", "shape", protocol=0.5)
    protocol("a text", "shape", protocol="0")
    protocol("null", "shape", protocol=None)
    body("SIGN-6", "no protocol", {k: v for k, v in enrollment.items() if k != "protocol"}, "shape", "EnrollRequest")
    protocol("a hash in capitals", "shape", boot_image_sha256="AB" * 32)
    protocol("a node's name with ..", "shape", node_name="a..b")
    protocol("a cluster's ID with a slash", "shape", cluster_id="a/b")
    protocol("a server ID in a string", "shape", server_id="42424242")
    protocol("an architecture nobody has", "shape", arch="riscv64")
    return topic


# --- routes.json ---------------------------------------------------------------------------------------------

def routes():
    topic = Topic("routes", "Which endpoint a request is for, and in which order a wrong one is refused (SIGN-2, SIGN-6).", {
        "route": "From method and request target (without the prefix of the base) to the endpoint, or to the refusal: "
                 "`not_found` 404, `method_not_allowed` 405, or `query`, the 400 invalid_request that comes in the place of "
                 "the JSON syntax, after signature, skew and replay.",
    })

    def route(comment, method, target, **expect):
        topic.add("route", "rule", "SIGN-2 SIGN-6", comment, {"method": method, "target": target}, expect)

    base = "/agent/v1"
    route("enrollment", "POST", base + "/enroll", endpoint="enroll")
    route("sync", "POST", base + "/sync", endpoint="sync")
    route("events", "POST", base + "/operations/op_01J9ZZ/events", endpoint="events", operation="op_01J9ZZ")
    route("a manifest", "GET", base + "/releases/2026.11.1/manifest", endpoint="manifest", release="2026.11.1")
    route("a rotation", "POST", base + "/rotate-key", endpoint="rotate-key")
    for target in ("/", base, base + "/", base + "/sync/", base + "//sync", "//agent/v1/sync", base + "/Sync", "/sync", "/agent/v2/sync",
                   base + "/s%79nc", base + "/./sync", base + "/enroll/../sync", "/prefix/agent/v1/sync", base + "/sync;a=1",
                   base + "/operations//events", base + "/operations/a.b/events", base + "/operations/" + "x" * 65 + "/events",
                   base + "/operations/op_1", base + "/operations/op_1/events/", base + "/operations/a/b/events"):
        route("no such path", "POST", target, refusal="not_found")
    for target in (base + "/releases//manifest", base + "/releases/a..b/manifest", base + "/releases/.a/manifest",
                   base + "/releases/a%2fb/manifest", base + "/releases/2026.11.1", base + "/releases/2026.11.1/manifest/"):
        route("no such path", "GET", target, refusal="not_found")
    for method, target in (("GET", "/sync"), ("PUT", "/sync"), ("post", "/sync"), ("GET", "/enroll"), ("DELETE", "/rotate-key"),
                           ("POST", "/releases/2026.11.1/manifest"), ("HEAD", "/releases/2026.11.1/manifest"),
                           ("GET", "/operations/op_1/events"), ("OPTIONS", "/sync")):
        route("another method", method, base + target, refusal="method_not_allowed")
    route("a query", "POST", base + "/sync?a=1", refusal="query")
    route("a bare question mark is a query", "POST", base + "/sync?", refusal="query")
    route("a query on a GET", "GET", base + "/releases/2026.11.1/manifest?x", refusal="query")
    route("a query on the enrollment", "POST", base + "/enroll?x", refusal="query")
    route("an unknown path comes before the query", "POST", base + "/nope?x", refusal="not_found")
    route("the method comes before the query", "GET", base + "/sync?x", refusal="method_not_allowed")
    return topic


def main():
    topics = [signing(), ed25519(), keys(), sealing(), manifest(), text(), json_bodies(), routes()]
    stale = []
    for topic in topics:
        path = HERE / f"{topic.name}.json"
        content = topic.text()
        if not path.exists() or path.read_text() != content:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(content)
    vectors = [v for topic in topics for v in topic.vectors]
    foreign = sum(v["origin"] in FOREIGN for v in vectors)
    print(f"{len(vectors)} vectors, {foreign} of them from elsewhere; changed: {', '.join(stale) or 'nothing'}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
