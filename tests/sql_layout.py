"""SQL laid out for review: one clause a line, sub-selects indented, long lists wrapped."""

from __future__ import annotations

import re
import textwrap

_OPENS_A_QUERY = {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}
_BEGINS_A_LINE = {
    "FROM", "WHERE", "GROUP", "ORDER", "LIMIT", "FOR", "UNION", "SET", "VALUES", "RETURNING", "JOIN", "LEFT", "SELECT"
}  # fmt: skip
_STAYS = {("DELETE", "FROM"), ("OUTER", "JOIN"), ("ALL", "SELECT")}
_WIDTH = 110


def laid_out(sql: str) -> str:
    """Equal SQL gives an equal layout, however the blanks in it were spread."""
    words = re.findall(r"[()]|[^()\s]+", sql)
    queries: list[bool] = []
    text, before = "", ""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        in_query = not queries or queries[-1]
        if (word == ")" and queries.pop()) or (in_query and _begins_a_line(before, word, after) and before != "("):
            text += _break(queries)
        elif text and word != ")" and before != "(" and not (word == "(" and _is_called(before)):
            text += " "
        text += word
        if word == "(":
            queries.append(after in _OPENS_A_QUERY or after == "(")
            text += _break(queries) if queries[-1] else ""
        before = word
    return "\n".join(map(_wrapped, text.lstrip().replace(") ,", "),").splitlines())) + "\n"


def _begins_a_line(before: str, word: str, after: str) -> bool:
    conflict = (word, after) == ("ON", "CONFLICT")
    return conflict or (word in _BEGINS_A_LINE and (before, word) not in _STAYS)


def _is_called(name: str) -> bool:
    return (name.isidentifier() and (name.islower() or name in {"CAST", "EXISTS", "EXTRACT"})) or name.endswith("%")


def _break(queries: list[bool]) -> str:
    return "\n" + "  " * sum(queries)


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
