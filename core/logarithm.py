"""The natural logarithm that the frozen lexical scores are defined by: fdlibm's, as V8 has it (memory-agent.md §2.3).

The C library's `log`, which Python's math.log calls, differs in the last bit often enough to swap ranks.

This is a port of the algorithm of fdlibm as adapted by V8. Their notices (also in LICENSE.v8):

====================================================
Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.

Developed at SunSoft, a Sun Microsystems, Inc. business.
Permission to use, copy, modify, and distribute this
software is freely granted, provided that this notice
is preserved.
====================================================

The original source code covered by the above license above has been
modified significantly by Google Inc.
Copyright 2016 the V8 project authors. All rights reserved.
"""

import struct

_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
_LG1 = 6.666666666666735130e-01
_LG2 = 3.999999999940941908e-01
_LG3 = 2.857142874366239149e-01
_LG4 = 2.222219843214978396e-01
_LG5 = 1.818357216161805012e-01
_LG6 = 1.531383769920937332e-01
_LG7 = 1.479819860511658591e-01

_LEAST_NORMAL = 2.0**-1022
_MANTISSA = (1 << 52) - 1


def log(x: float) -> float:
    """ln(x), to the last bit as JavaScript's Math.log. Raises ValueError unless `x` is positive, normal and finite."""
    if not _LEAST_NORMAL <= x < float("inf"):
        raise ValueError(f"the logarithm takes a positive, normal number, not {x!r}")
    bits: int = struct.unpack("<Q", struct.pack("<d", x))[0]
    high = (bits >> 32) & 0xFFFFF  # the top 20 bits of the mantissa
    # Halve the mantissa where that brings 1 + f between sqrt(1/2) and sqrt(2).
    halved = (high + 0x95F64) & 0x100000
    exponent = (bits >> 52) - 1023 + (halved >> 20)
    f = struct.unpack("<d", struct.pack("<Q", (halved ^ 0x3FF00000) << 32 | bits & _MANTISSA))[0] - 1.0
    k = float(exponent)

    if (2 + high) & 0xFFFFF < 3:  # |f| < 2^-20
        if f == 0.0:
            return k * _LN2_HI + k * _LN2_LO
        r = f * f * (0.5 - 0.33333333333333333 * f)
        return f - r if exponent == 0 else k * _LN2_HI - ((r - k * _LN2_LO) - f)

    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (_LG2 + w * (_LG4 + w * _LG6))
    t2 = z * (_LG1 + w * (_LG3 + w * (_LG5 + w * _LG7)))
    r = t2 + t1
    if 0x6147A <= high <= 0x6B851:
        g = 0.5 * f * f
        if exponent == 0:
            return f - (g - s * (g + r))
        return k * _LN2_HI - ((g - (s * (g + r) + k * _LN2_LO)) - f)
    if exponent == 0:
        return f - s * (f - r)
    return k * _LN2_HI - ((s * (f - r) - k * _LN2_LO) - f)
