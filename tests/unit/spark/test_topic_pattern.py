"""`subscribePattern` as Java understands it. `tests/spark/test_batch_read.py` asks Java
itself about the same patterns and names."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidOption
from headrace.spark.pattern import topics
from headrace.spark.pattern.topics import TopicPattern

NAMES = (
    "a", "b", "ab", "aab", "abc", "AB", "Orders", "orders", "orders-1", "orders-10", "my.orders",
    "metrics-a", "metrics-b", "metrics_a", "a.b", "a-b", "a_b", "x1", "9", "ABBA",
    "team7.orders-eu-1",
)  # fmt: skip

# Each with those of the names that it matches, separated by spaces.
MATCHES = {
    "orders": "orders",
    "metrics-.*": "metrics-a metrics-b",
    " orders ": "orders",
    "a|b|orders": "a b orders",
    "(a|b)+": "a b ab aab",
    "^orders$": "orders",
    r"orders(-\d+)?": "orders orders-1 orders-10",
    r"orders-\d{2,}": "orders-10",
    r"orders-\d{1}": "orders-1",
    "a{0,2}b": "b ab aab",
    "a*?b": "b ab aab",
    # Possessive parts and atomic groups give nothing back.
    "a*+b": "b ab aab",
    "a*+ab": "",
    "(?>a|ab)c": "",
    "(?>ab|a)c": "abc",
    "(?:a|ab)(?:c|bc)": "abc",
    "(?:b*?){1,2}+": "",
    "[a-z]++": "a b ab aab abc orders",
    "[a-z]*+s": "",
    "(?>a??)b": "b",
    # Classes: unions, intersections, and what is not special in them.
    "[ab]+": "a b ab aab",
    "[^a-z]+": "9 AB ABBA",
    "[a-b[x-z]]+[0-9]": "x1",
    "[a-z&&[^b]]+": "a orders",
    "[a-z&&[def]&&[^f]rs]+": "",
    "[^a-z&&[ab]]": "9",
    "[&&[a]]": "a",
    "[a.]+[.][b]": "a.b",
    "a[-.]b": "a-b a.b",
    "a[.-]b": "a-b a.b",
    "[]a]": "a",
    "[a&]": "a",
    r"[\w&&[^\d]]+": "AB ABBA Orders a a_b aab ab abc b metrics_a orders",
    r"[\Qa.\E]+b": "ab aab a.b",
    # Predefined classes and properties.
    r"\w+": "a b ab aab abc AB Orders orders metrics_a a_b x1 9 ABBA",
    r"\W|\d": "9",
    r"\p{Alpha}+": "a b ab aab abc AB Orders orders ABBA",
    r"\p{Lower}+\p{Punct}\p{Digit}+": "orders-1 orders-10",
    r"\p{Lu}\p{Ll}*": "Orders",
    r"\pL\pN": "x1",
    r"\p{L}+": "a b ab aab abc AB Orders orders ABBA",
    r"\p{IsL}\p{IsDigit}": "x1",
    r"\p{IsAlphabetic}{4}": "ABBA",
    r"\p{general_category=Lu}+": "AB ABBA",
    r"\p{script=Latin}\p{IsCommon}": "x1",
    r"\p{InBasicLatin}": "9 a b",
    r"\p{javaUpperCase}+": "AB ABBA",
    r"\P{Alnum}|\p{ASCII}": "9 a b",
    r"[\p{L}&&[^\p{Lu}]]+": "a b ab aab abc orders",
    r"a\p{Pd}b|a\p{Pc}b": "a-b a_b",
    r"[\p{javaTitleCase}a]": "a",
    r"[\h-b]+": "b",
    r"\p{IsPunctuation}|[^\p{IsLetter}]": "9",
    # Quotes and escapes.
    r"\Qa.b\E": "a.b",
    r"\Qa.b": "a.b",
    r"\Qa\E.\Qb\E": "a.b a-b a_b aab",
    r"a\.b": "a.b",
    r"\x61\u0062\x{63}": "abc",
    r"\0141\0142": "ab",
    r"\N{LATIN SMALL LETTER A}": "a",
    r"a\Qb\E+": "ab",
    "\u00e9|a": "a",
    # Line ends and spaces, of which names have none.
    r"a\R*": "a",
    r"[\h\v\s]*a": "a",
    r"\Aa\z": "a",
    r"\Ga\Z": "a",
    r"\Xb": "ab",
    # Flags.
    "(?i)orders": "orders Orders",
    "(?i:o)rders": "orders Orders",
    "o(?i)RDERS": "orders",
    "(?i)[a-b]{2}": "ab AB",
    r"(?i)\p{Lower}{2}": "ab AB",
    r"(?i)\p{Lu}{2}": "ab AB",
    "(?i)[^a]": "b 9",
    "(?i)a(?-i)b": "ab",
    "(?i)(?:x|a)b|ABC": "ab AB abc",
    "(?iu)\u017f|a": "a",
    "(?x) a b # and a comment": "ab",
    "(?x) [ a b ] +": "a b ab aab",
    "(?sm-d)a.b": "a.b a-b a_b aab",
    "(?U)\\w": "a b 9",
    # Groups that have names, and looks to both sides.
    "(?<team>team\\d)\\.(?<rest>.*)": "team7.orders-eu-1",
    "(?!orders).*rders.*": "Orders my.orders team7.orders-eu-1",
    "(?=.*-).*\\d": "orders-1 orders-10 team7.orders-eu-1",
    ".*(?<=-)\\d+": "orders-1 orders-10 team7.orders-eu-1",
    ".*(?<!-)\\d+": "x1 9 orders-10",
    "(?<=a*)b": "b",
    ".*\\borders\\b.*": "orders orders-1 orders-10 my.orders team7.orders-eu-1",
    ".*\\Brders": "orders Orders my.orders",
    "()*a|(a|b|)*c?": "a aab ab abc b",
    "(a?){3}b": "b ab aab",
    "(?:(?:a+)+)+b": "ab aab",
    "(?i)(?:ab?){1,2}+": "a aab ab AB",
}  # fmt: skip
# What Java takes, and what is refused here.
REFUSED = {
    r"(a)\1": r"has \\1, a back reference, at character 4",
    r"(?<x>a)\k<x>": r"has \\k, a back reference,",
    r"a\b{g}": r"has \\b",
}
# What Java refuses too.
WRONG = {
    "(a": r"a \( that is not closed at character 1",
    "a)": r"a \) that closes nothing at character 2",
    "[a": r"a \[ that is not closed at character 1",
    "*a": r"'\*' with nothing before it",
    "a**": r"'\*', which repeats a repetition",
    "a{": r"a \{ that is no repetition",
    "a{2,1}": r"\{2,1\}, whose end is before its start",
    "{": r"a \{ with nothing before it",
    "[z-a]": "a range of characters that begins with 'z'",
    r"[a-\d]": "a range of characters",
    r"\p{Nope}": r"\\p\{Nope\}, a property that is not known",
    r"\p{Alpha": "a property, which is not complete, at character 9",
    r"\y": r"\\y, which means nothing here",
    "\\": "an escape, which is not complete",
    r"\xg1": r"\\x without a hexadecimal number",
    "(?P<x>a)": r"\(\?P, which is no group or flag of Java",
    "(?<1>a)": r"\(\?<1>, which is no name",
    "(?<x>a)(?<x>b)": "a second group named 'x'",
    r"\N{NO SUCH THING}": "which is no character",
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_matches_whole_names(pattern: str) -> None:
    wanted = sorted(MATCHES[pattern].split())
    assert TopicPattern(pattern).choose(NAMES) == wanted


@pytest.mark.parametrize(("pattern", "says"), [*REFUSED.items(), *WRONG.items()])
def test_what_is_not_understood_is_named_with_its_place(pattern: str, says: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"'subscribePattern': .* has .*{says.removeprefix('has ')}"
    ):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|aa)+b", "(a*)*b", "(.*)*(.*)*(.*)*b", "(a?){249}a{249}b", "(?=(a+)+b)a*"],
)
def test_what_keeps_other_engines_busy_for_ever_is_compared_in_few_steps(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_STEPS_OF_NAME_MAX", 200_000)
    assert TopicPattern(pattern).choose(["a" * 249]) == []


def test_what_takes_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_STEPS_OF_NAME_MAX", 100)
    with pytest.raises(
        InvalidOption, match="'subscribePattern': .* takes too long .* such as 'aaa"
    ):
        TopicPattern("(a+)+b").choose(["a" * 249])
    monkeypatch.setattr(topics, "_STEPS_OF_NAME_MAX", 1_000_000)
    monkeypatch.setattr(topics, "_STEPS_MAX", 1_000)
    with pytest.raises(InvalidOption, match="takes too long"):
        TopicPattern("(a+)+b").choose(["a" * length for length in range(100, 249)])


def test_a_pattern_has_its_limits() -> None:
    for text in ("(" * 60 + ")" * 60, "[" * 60 + "a" + "]" * 60):
        with pytest.raises(InvalidOption, match="more than 50 groups or classes in one another"):
            TopicPattern(text)
    with pytest.raises(InvalidOption, match="has 1001 characters; give at most 1000"):
        TopicPattern("a" * 1_001)
    with pytest.raises(InvalidOption, match="'subscribePattern' is empty; give a pattern"):
        TopicPattern("  ")
