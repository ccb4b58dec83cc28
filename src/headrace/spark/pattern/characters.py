"""Sets of characters: what Java's classes and properties mean for names of topics.

Names of topics are ASCII, so each set is a part of its 128 characters, and what has
none of them (Greek letters, line ends of Unicode) is the empty set.

Rejected: Python's `re` for classes. It has neither intersections nor properties, and
other ideas of what a space is.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Final

Characters = frozenset[str]

EVERY: Final[Characters] = frozenset(map(chr, range(128)))
NONE: Final[Characters] = frozenset()
_UPPER: Final = frozenset(string.ascii_uppercase)
_LOWER: Final = frozenset(string.ascii_lowercase)
_ALPHA: Final = _UPPER | _LOWER
_DIGIT: Final = frozenset(string.digits)
_PUNCT: Final = frozenset(string.punctuation)
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_CONTROL: Final = frozenset(each for each in EVERY if unicodedata.category(each) == "Cc")
WORD: Final[Characters] = _ALPHA | _DIGIT | {"_"}

# Behind a backslash; the capital letter is all others.
_ESCAPED: Final = {
    "d": _DIGIT,
    "w": WORD,
    "s": _SPACE,
    "h": frozenset(" \t"),
    "v": frozenset("\n\x0b\f\r"),
}
SHORT: Final[dict[str, Characters]] = _ESCAPED | {
    name.upper(): EVERY - found for name, found in _ESCAPED.items()
}

_POSIX: Final = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": EVERY,
    "Alpha": _ALPHA,
    "Digit": _DIGIT,
    "Alnum": _ALPHA | _DIGIT,
    "Punct": _PUNCT,
    "Graph": _ALPHA | _DIGIT | _PUNCT,
    "Print": _ALPHA | _DIGIT | _PUNCT | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits),
    "Space": _SPACE,
}
# As methods of java.lang.Character have them.
_JAVA: Final = {
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaTitleCase": NONE,
    "javaAlphabetic": _ALPHA,
    "javaLetter": _ALPHA,
    "javaDigit": _DIGIT,
    "javaLetterOrDigit": _ALPHA | _DIGIT,
    "javaIdeographic": NONE,
    "javaDefined": EVERY,
    "javaISOControl": _CONTROL,
    "javaSpaceChar": frozenset(" "),
    "javaWhitespace": _SPACE | frozenset("\x1c\x1d\x1e\x1f"),
    "javaMirrored": frozenset("()<>[]{}"),
}
# Behind Is, and without regard to case.
_BINARY: Final = {
    "alphabetic": _ALPHA,
    "letter": _ALPHA,
    "ideographic": NONE,
    "lowercase": _LOWER,
    "uppercase": _UPPER,
    "titlecase": NONE,
    "white_space": _SPACE,
    "control": _CONTROL,
    "punctuation": frozenset(e for e in EVERY if unicodedata.category(e).startswith("P")),
    "hex_digit": frozenset(string.hexdigits),
    "digit": _DIGIT,
    "assigned": EVERY,
    "noncharacter_code_point": NONE,
    "join_control": NONE,
}
# Scripts and blocks that have ASCII characters.
_SCRIPTS: Final = {
    "latin": _ALPHA,
    "latn": _ALPHA,
    "common": EVERY - _ALPHA,
    "zyyy": EVERY - _ALPHA,
}
_BLOCKS: Final = {"basiclatin": EVERY, "basic_latin": EVERY, "basic latin": EVERY}
_CATEGORIES: Final = frozenset((
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp",
    "Cc", "Cf", "Co", "Cs", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So", "Pi", "Pf",
    "L", "M", "N", "Z", "C", "P", "S",
))  # fmt: skip


def property_named(name: str) -> Characters | None:
    """What stands between the brackets of \\p{...}; None for a name that is not known."""
    kind, equals, value = name.partition("=")
    if equals:
        if kind.lower() in ("general_category", "gc"):
            return _category(value)
        if kind.lower() in ("script", "sc"):
            return _SCRIPTS.get(value.lower())
        if kind.lower() in ("block", "blk"):
            return _BLOCKS.get(value.lower())
        return None
    if name.startswith("In"):
        return _BLOCKS.get(name[2:].lower())
    if name.startswith("Is"):
        bare = name[2:]
        found = _BINARY.get(bare.lower(), _SCRIPTS.get(bare.lower()))
        return _category(bare) if found is None else found
    return _POSIX.get(name, _JAVA.get(name, _category(name)))


def _category(name: str) -> Characters | None:
    if name in ("all", "L1"):
        return EVERY
    if name == "LC":
        return _ALPHA
    if name == "LD":
        return _ALPHA | _DIGIT
    if name not in _CATEGORIES:
        return None
    return frozenset(each for each in EVERY if unicodedata.category(each).startswith(name))


def without_case(found: Characters) -> Characters:
    """The set with the other case of each of its letters."""
    return found | {each.swapcase() for each in found & _ALPHA}
