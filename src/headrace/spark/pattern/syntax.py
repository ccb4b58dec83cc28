"""The text of a pattern as a tree, by the rules of java.util.regex.Pattern (Java 17).

    choice     sequence | sequence | ...
    sequence   atoms, each with how often: ? * + {2} {2,} {2,5}; a ? behind it: few before
               many; a + behind it: possessive, it gives nothing back
    atom       character . ^ $ \\escape [class] (group)

What is refused is refused by its own name and place: back references, which would make
the work of a pattern explode, and what Java refuses itself.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Final

from headrace.spark.pattern.characters import (
    EVERY,
    NONE,
    SHORT,
    WORD,
    Characters,
    property_named,
    without_case,
)
from headrace.spark.pattern.nodes import (
    Atomic,
    Choice,
    Edge,
    Look,
    Node,
    One,
    Possessive,
    Repeat,
    Sequence,
)
from headrace.spark.pattern.tokens import PatternError, TokenReader

# Groups in groups, and classes in classes.
_DEPTH_MAX: Final = 50
_COUNT_MAX: Final = 2**31 - 1
# Those that make a difference for names: cases, and comments.
_FLAGS: Final = frozenset("idmsuxU")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}


def parse(text: str) -> Node:
    """PatternError when it is none that this understands."""
    return _Parser(text).parse()


class _Parser(TokenReader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._names: set[str] = set()
        self._depth = 0

    def parse(self) -> Node:
        found = self._choice()
        if self._next < len(self._tokens):
            raise PatternError("a ) that closes nothing", self._at())
        return found

    # The tree.

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Choice(branches)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while True:
            self._skip_comments()
            if self._is_over() or self._peek() in ("|", ")"):
                return items[0] if len(items) == 1 else Sequence(items)
            atom = self._atom()
            if atom is not None:
                items.append(self._repeated(atom))

    def _repeated(self, atom: Node) -> Node:
        self._skip_comments()
        at = self._at()
        if self._accept("?"):
            low, high = 0, 1
        elif self._accept("*"):
            low, high = 0, None
        elif self._accept("+"):
            low, high = 1, None
        elif self._accept("{"):
            low, high = self._counts(at)
        else:
            return atom
        self._skip_comments()
        if self._accept("+"):
            found: Node = Possessive(atom, low, high)
        else:
            found = Repeat(atom, low, high, self._accept("?"))
        self._skip_comments()
        if self._peek() in ("?", "*", "+", "{"):
            raise PatternError(f"{self._peek()!r}, which repeats a repetition,", self._at())
        return found

    def _counts(self, at: int) -> tuple[int, int | None]:
        low = self._number(at)
        high: int | None = low
        if self._accept(","):
            high = None if self._peek() == "}" else self._number(at)
        if not self._accept("}"):
            raise PatternError("a { that is no repetition such as {2} or {2,5}", at)
        if high is not None and high < low:
            raise PatternError(f"a repetition {{{low},{high}}}, whose end is before its start,", at)
        return low, high

    def _number(self, at: int) -> int:
        digits = ""
        while self._peek() in tuple(string.digits):
            digits += self._take("a number")
        if not digits or int(digits[:20]) > _COUNT_MAX:
            raise PatternError("a { that is no repetition such as {2} or {2,5}", at)
        return int(digits)

    def _atom(self) -> Node | None:
        """None for flags alone, which match nothing."""
        at, special = self._at(), self._peek()
        character = self._take("a pattern")
        if special == "(":
            return self._group(at)
        if special == "[":
            return One(self._class(at))
        if special == "\\":
            return self._escaped(at)
        if special == ".":
            return One(EVERY)
        if special == "^":
            return Edge(_is_start)
        if special == "$":
            return Edge(_is_end)
        if special in ("?", "*", "+"):
            raise PatternError(f"{special!r} with nothing before it to repeat", at)
        if special == "{":
            raise PatternError("a { with nothing before it to repeat", at)
        return One(self._only(character))

    # Groups.

    def _group(self, at: int) -> Node | None:
        flags = self._flags
        self._deeper(at)
        kind = self._kind_of_group(at)
        if kind == "flags":
            self._depth -= 1
            return None
        inner = self._choice()
        if not self._accept(")"):
            raise PatternError("a ( that is not closed", at)
        self._flags = flags
        self._depth -= 1
        if kind == ">":
            return Atomic(inner)
        if kind in ("=", "!", "<=", "<!"):
            return Look(inner, is_ahead="<" not in kind, is_there="=" in kind)
        return inner

    def _kind_of_group(self, at: int) -> str:
        """What stands behind (?: one of : > = ! <= <!, or "flags" for flags alone."""
        if not self._accept("?"):
            return ":"
        for kind in (":", ">", "=", "!"):
            if self._accept(kind):
                return kind
        if self._accept("<"):
            if self._peek() in ("=", "!"):
                return f"<{self._take('a group')}"
            self._name_group(at)
            return ":"
        return self._change_flags(at)

    def _name_group(self, at: int) -> None:
        name = ""
        while not self._accept(">"):
            name += self._take("the name of a group")
        if not (name.isascii() and name.isalnum() and name[:1].isalpha()):
            raise PatternError(f"(?<{name}>, which is no name of a group,", at)
        if name in self._names:
            raise PatternError(f"a second group named {name!r}", at)
        self._names.add(name)

    def _change_flags(self, at: int) -> str:
        on: set[str] = set()
        off: set[str] = set()
        chosen = on
        while True:
            flag = self._take("a group")
            if flag in (")", ":"):
                break
            if flag == "-" and chosen is on:
                chosen = off
            elif flag in _FLAGS:
                chosen.add(flag)
            else:
                raise PatternError(f"(?{flag}, which is no group or flag of Java,", at)
        self._flags = (self._flags | on) - off
        return "flags" if flag == ")" else ":"

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError(f"more than {_DEPTH_MAX} groups or classes in one another", at)

    # Characters.

    def _only(self, character: str) -> Characters:
        return self._cased(frozenset(self._variants(character)) & EVERY)

    def _variants(self, character: str) -> tuple[str, ...]:
        # A few letters beyond ASCII are the other case of one of its letters.
        if {"i", "u"} <= self._flags:
            return (character, character.lower(), character.upper())
        return (character,)

    def _cased(self, found: Characters) -> Characters:
        return without_case(found) if "i" in self._flags else found

    def _class(self, at: int) -> Characters:
        """What stands behind a [, up to its ]."""
        self._deeper(at)
        self._skip_comments()
        is_negated = self._accept("^")
        found = self._union(at)
        while self._peek() == "&":
            self._next += 2
            right = self._union(at)
            if right is None:
                raise PatternError("a && with nothing behind it", self._at())
            found = right if found is None else found & right
        self._next += 1
        self._depth -= 1
        assert found is not None
        return EVERY - found if is_negated else found

    def _union(self, at: int) -> Characters | None:
        """Everything up to ] or &&. A ] that would close nothing yet is a character.
        None when there is nothing before &&, or between && and ]."""
        found: Characters | None = None
        is_right = self._next >= 2 and self._peek(-1) == self._peek(-2) == "&"
        while True:
            self._skip_comments()
            if self._is_over():
                raise PatternError("a [ that is not closed", at)
            special = self._peek()
            if special == "&" and self._peek(1) == "&":
                return found
            if special == "]" and (found is not None or is_right):
                return found
            if special == "[":
                place = self._at()
                self._next += 1
                more = self._class(place)
            else:
                more = self._class_item(at)
            found = more if found is None else found | more

    def _class_item(self, at: int) -> Characters:
        """A character, a range of them, or a set behind a backslash."""
        first = self._class_character()
        if isinstance(first, frozenset):
            return first
        self._skip_comments()
        is_open = self._next + 1 < len(self._tokens) and self._peek(1) not in ("]", "[")
        if self._peek() != "-" or not is_open:
            return self._only(first)
        self._next += 1
        self._skip_comments()
        last = self._class_character()
        if isinstance(last, frozenset) or last < first:
            raise PatternError(
                f"a range of characters that begins with {first!r} and has no end", at
            )
        return self._cased(frozenset(each for each in EVERY if first <= each <= last))

    def _class_character(self) -> str | Characters:
        at, special = self._at(), self._peek()
        character = self._take("a class")
        if special != "\\":
            return character
        found = self._escaped_set(at)
        return self._escaped_character(at, self._take("an escape")) if found is None else found

    # Behind a backslash.

    def _escaped(self, at: int) -> Node:
        found = self._escaped_set(at)
        if found is not None:
            return One(found)
        character = self._take("an escape")
        if character in ("A", "G"):
            return Edge(_is_start)
        if character in ("z", "Z"):
            return Edge(_is_end)
        if character in ("b", "B") and self._peek() != "{":
            return Edge(_is_word_edge if character == "b" else _is_no_word_edge)
        if character == "R":
            return One(NONE)
        if character == "X":
            return One(EVERY)
        if character in "123456789k":
            raise PatternError(f"\\{character}, a back reference,", at)
        return One(self._only(self._escaped_character(at, character)))

    def _escaped_set(self, at: int) -> Characters | None:
        character = self._peek()
        if character in SHORT:
            self._next += 1
            return SHORT[character]
        if character not in ("p", "P"):
            return None
        self._next += 1
        name = self._take("a property")
        if name == "{":
            name = self._up_to_brace("a property")
        found = property_named(name)
        if found is None:
            raise PatternError(f"\\{character}{{{name}}}, a property that is not known here,", at)
        found = self._cased(found)
        return EVERY - found if character == "P" else found

    def _escaped_character(self, at: int, character: str) -> str:
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "0":
            return self._octal(at)
        if character == "x":
            digits = self._take("\\x")
            digits = self._up_to_brace("\\x") if digits == "{" else digits + self._take("\\x")
            return _coded(digits, "\\x", at)
        if character == "u":
            return _coded("".join(self._take("\\u") for _ in range(4)), "\\u", at)
        if character == "c":
            return chr(ord(self._take("\\c")) ^ 64)
        if character == "N" and self._accept("{"):
            name = self._up_to_brace("\\N")
            try:
                return unicodedata.lookup(name)
            except KeyError:
                raise PatternError(f"\\N{{{name}}}, which is no character,", at) from None
        if character.isascii() and character.isalnum():
            raise PatternError(f"\\{character}, which means nothing here,", at)
        return character

    def _octal(self, at: int) -> str:
        digits = ""
        while self._peek() in tuple("01234567") and len(digits) < 3 and int(digits + "0", 8) < 256:
            digits += self._take("\\0")
        if not digits:
            raise PatternError("\\0 without an octal number", at)
        return chr(int(digits, 8))

    def _up_to_brace(self, what: str) -> str:
        found = ""
        while not self._accept("}"):
            found += self._take(what)
        return found


def _coded(digits: str, what: str, at: int) -> str:
    try:
        if not set(digits) <= set(string.hexdigits):
            raise ValueError
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        raise PatternError(f"{what} without a hexadecimal number", at) from None


# Edges. No name of a topic has line ends.


def _is_start(_: str, at: int) -> bool:
    return at == 0


def _is_end(text: str, at: int) -> bool:
    return at == len(text)


def _is_word_edge(text: str, at: int) -> bool:
    before = at > 0 and text[at - 1] in WORD
    behind = at < len(text) and text[at] in WORD
    return before != behind


def _is_no_word_edge(text: str, at: int) -> bool:
    return not _is_word_edge(text, at)
