"""Conditions such as ``bytes <= 1.05 * base.bytes``: read by a parser of their own, never run.

::

    condition  = comparison { ("and" | "or") comparison }
    comparison = sum ("<=" | "<" | ">=" | ">" | "==" | "!=") sum
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = number | name | "-" factor | "(" sum ")"
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping

from rooftile.errors import InputError
from rooftile.records.gate import Condition

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][\w.]*)|(?P<sign><=|>=|==|!=|[<>+\-*/()]))",
    re.ASCII,
)
_END = "the end"
_DEEPEST = 100  # brackets and minus signs within each other


def evaluate(expression: str, figures: Mapping[str, float]) -> Condition:
    """Whether a condition holds.

    Args:
        expression: The condition.
        figures: Name to value.

    Returns:
        The condition with the figures that were compared.

    Raises:
        InputError: A name is not known, or the text is no condition: the message points at the
            place.
    """
    return _Parser(expression, figures).condition()


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str, figures: Mapping[str, float]) -> None:
        self.text = text
        self.figures = figures
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0
        self.compared: list[str] = []

    def condition(self) -> Condition:
        """The whole expression."""
        holds = self._conjunction()
        while self._take("or"):
            holds = self._conjunction() or holds
        if self._word() != _END:
            raise self._error(f"wanted 'and', 'or' or the end, got {self._word()!r}")
        return Condition(self.text, holds, tuple(self.compared))

    def _conjunction(self) -> bool:
        holds = self._comparison()
        while self._take("and"):
            holds = self._comparison() and holds
        return holds

    def _comparison(self) -> bool:
        left = self._sum()
        sign = self._word()
        if sign not in _COMPARE:
            raise self._error(f"wanted one of {' '.join(_COMPARE)}, got {sign!r}")
        self.at += 1
        right = self._sum()
        if not (math.isfinite(left) and math.isfinite(right)):
            raise self._error("the numbers become too large to compare")
        self.compared.append(f"{_number(left)} {sign} {_number(right)}")
        return _COMPARE[sign](left, right)

    def _sum(self) -> float:
        value = self._product()
        while (sign := self._word()) in ("+", "-"):
            self.at += 1
            other = self._product()
            value = value + other if sign == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._factor()
        while (sign := self._word()) in ("*", "/"):
            self.at += 1
            place = self.at
            other = self._factor()
            if sign == "/" and other == 0:
                self.at = place
                raise self._error("division by 0")
            value = value * other if sign == "*" else value / other
        return value

    def _factor(self) -> float:
        kind, word, _ = self.tokens[self.at]
        if kind == "number":
            value = float(word.replace("_", ""))
            if not math.isfinite(value):
                raise self._error(f"wanted a number below 1e308, got {word!r}")
            self.at += 1
            return value
        if kind == "name" and word not in ("and", "or"):
            if word not in self.figures:
                raise self._unknown(word)
            self.at += 1
            return self.figures[word]
        if word not in ("-", "("):
            raise self._error(f"wanted a number, a name or '(', got {word!r}")
        self.at += 1
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} brackets within each other")
        value = -self._factor() if word == "-" else self._bracket()
        self.depth -= 1
        return value

    def _bracket(self) -> float:
        value = self._sum()
        if not self._take(")"):
            raise self._error(f"wanted ')', got {self._word()!r}")
        return value

    def _take(self, word: str) -> bool:
        if self._word() != word:
            return False
        self.at += 1
        return True

    def _word(self) -> str:
        return self.tokens[self.at][1]

    def _tokens(self) -> list[tuple[str, str, int]]:
        """Kind, word and place of each token, the end's last."""
        tokens: list[tuple[str, str, int]] = []
        place = 0
        text = self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                place += len(text[place:]) - len(text[place:].lstrip())
                raise _pointed(self.text, place, f"wanted no {text[place]!r}")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()
        return [*tokens, ("end", _END, len(text))]

    def _error(self, words: str) -> InputError:
        return _pointed(self.text, self.tokens[self.at][2], words)

    def _unknown(self, name: str) -> InputError:
        near = difflib.get_close_matches(name, self.figures, n=1)
        hint = f", near: {near[0]}" if near else ""
        if name.startswith("base.") and not any(k.startswith("base.") for k in self.figures):
            hint = ", a baseline is given by --base"
        names = ", ".join(known for known in self.figures if not known.startswith("base."))
        return self._error(f"unknown name {name!r}{hint}; names: {names}")


def _pointed(text: str, place: int, words: str) -> InputError:
    text = "".join(sign if sign.isprintable() else " " for sign in text)  # one line, as wide
    return InputError(f"{words}\n  {text}\n  {' ' * place}^")


def _number(value: float) -> str:
    whole = value == int(value) or abs(value) >= 1e6
    return f"{value:,.0f}" if whole else f"{value:.6g}"
