"""Arithmetic on edwards25519 (RFC 8032, section 5.1), for building the signatures that no library makes.

Only `make.py` uses this: points of small order, keys with a torsion part, signatures with s >= L or
with a chosen nonce. It is slow, not constant-time and must never see a real key. `check.py` does not
import it, so that a mistake here cannot hide itself.
"""

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)


def _recover_x(y, sign):
    """The x of a point, or None where y belongs to no point. Takes x = -0, which RFC 8032 refuses."""
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * SQRT_M1 % P
    if (x * x - x2) % P:
        return None
    return P - x if x % 2 != sign and x else x


class Point:
    """A point in affine coordinates."""

    def __init__(self, x, y):
        self.x, self.y = x % P, y % P

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __add__(self, other):
        t = D * self.x * other.x * self.y * other.y % P
        x = (self.x * other.y + other.x * self.y) * pow(1 + t, P - 2, P)
        y = (self.y * other.y + self.x * other.x) * pow(1 - t, P - 2, P)
        return Point(x, y)

    def __neg__(self):
        return Point(-self.x, self.y)

    def __rmul__(self, scalar):
        # Extended coordinates (X : Y : Z : T), one inversion at the end.
        def add(p, q):
            a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
            c, d = 2 * D * p[3] * q[3] % P, 2 * p[2] * q[2] % P
            e, f, g, h = b - a, d - c, d + c, b + a
            return e * f % P, g * h % P, f * g % P, e * h % P

        result, addend = (0, 1, 1, 0), (self.x, self.y, 1, self.x * self.y % P)
        while scalar:
            if scalar & 1:
                result = add(result, addend)
            addend, scalar = add(addend, addend), scalar >> 1
        inverse = pow(result[2], P - 2, P)
        return Point(result[0] * inverse, result[1] * inverse)

    def encode(self):
        return (self.y | (self.x & 1) << 255).to_bytes(32, "little")

    @staticmethod
    def decode(encoded):
        """Lenient: takes y >= p and x = -0. None where the bytes are no point of the curve."""
        number = int.from_bytes(encoded, "little")
        y, sign = number & (1 << 255) - 1, number >> 255
        x = _recover_x(y % P, sign)
        return None if x is None else Point(x, y)


IDENTITY = Point(0, 1)
BASE = Point.decode((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def _torsion_generator():
    """A point of order 8: L times any point that is not in the subgroup of order L."""
    y = 2
    while True:
        point = Point.decode(y.to_bytes(32, "little"))
        if point is not None and 4 * (L * point) != IDENTITY:
            return L * point
        y += 1


TORSION = [i * _torsion_generator() for i in range(8)]
"""The eight points of small order; index i has order 8 / gcd(i, 8)."""


def low_order_encodings():
    """All fourteen 32-byte strings that a lenient decoder reads as a point of small order, as
    (bytes, order, canonical), sorted."""
    found = {}
    for i, point in enumerate(TORSION):
        order = next(n for n in (1, 2, 4, 8) if n * point == IDENTITY)
        for y in (point.y, point.y + P):
            if y < 2**255:
                for sign in (0, 1):
                    encoded = (y | sign << 255).to_bytes(32, "little")
                    if Point.decode(encoded) == point:
                        found[encoded] = (encoded, order, encoded == point.encode())
    return [found[key] for key in sorted(found)]


def clamp(seed):
    """The secret scalar and the nonce prefix of a seed."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254
    return scalar, digest[32:]


def challenge(r, a, message):
    """k of RFC 8032: SHA-512 over R, A and the message, reduced."""
    return int.from_bytes(hashlib.sha512(r + a + message).digest(), "little") % L


def scalar_bytes(s):
    return s.to_bytes(32, "little")


def verifies(public, message, signature, cofactor):
    """The bare equation with and without the cofactor, with lenient decoding and no other check:
    what the least careful verifier would say."""
    a, r = Point.decode(public), Point.decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None:
        return False
    k = challenge(signature[:32], public, message)
    difference = (s % L) * BASE + -(r + k * a)
    return (8 * difference if cofactor else difference) == IDENTITY
