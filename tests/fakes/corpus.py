"""Texts that break systems (failure case S29): each must come back as the same bytes, or be refused with a reason.

Feed every write path, and every path that derives something from what was written, with both.
"""

TEXTS: dict[str, str] = {
    "one character": "x",
    "white space only": " \t\n\u00a0\u3000\ufeff ",
    "line ends": "unix\nwindows\r\nold mac\rnext line\u0085line separator\u2028paragraph separator\u2029end",
    "leading and trailing space": "\n\n   indented and padded   \n\n",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f",
    "json escapes": '{"a": "\\u0000 \\ud800 \\n"} \\ \\\\ \\" / \b\f',
    "percent and format": "%s %(name)s {0} {name} $1 :name ?",
    "sql": "'; drop table documents; -- \\' $$ $body$",
    "html": "<script>alert('x')</script> &amp; &#0; <!-- -->",
    "end of text literal": "before <|endoftext|> between <|im_start|>system <|im_end|> [INST] </s> after",
    "right to left": "\u202bשלום \u202eעולם\u202c مرحبا بالعالم\u200f 123\u2069",
    "zero-width joiners": "👩‍👩‍👧‍👦 👨🏽‍🚀 🏳️‍🌈 क्‍ष",
    "composed (NFC)": "caf\u00e9 \u00c5ngstr\u00f6m \uac00",
    "decomposed (NFD)": "cafe\u0301 A\u030angstro\u0308m \u1100\u1161",
    "compatibility forms": "ﬁ ① Ａ ｶﾞ ㍿ \u212a \u0130 \u1e9e ſ",
    "stacked marks": "Z" + "\u0351\u0348\u0334" * 40 + "algo",
    "non-characters": "\ufffe\uffff\ufdd0\U0001ffff\U0010ffff",
    "replacement and byte order mark": "\ufeffstart \ufffd end\ufeff",
    "private use": "\ue000\uf8ff\U000f0000\U00100000",
    "astral letters": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎𠜱𠝹",
    "emoji without a space": "😀" * 1300,
    "han": "第3章 北岸书屋关门了。" * 90,
    "no space": "x" * 5_000,
    "long words": ("y" * 599 + " ") * 3 + "z" * 601,
    "a line of 1 MB": "All work and no play. " * 47_000,
}

REFUSED: dict[str, str] = {
    "NUL": "before\0after",
    "NUL alone": "\0",
    "a high surrogate": "before\ud83dafter",
    "a low surrogate": "\ude00",
    "a pair the wrong way round": "\ude00\ud83d",
    "a surrogate at the end": "cut in the middle of \ud83d",
}
