"""Values for fuzzing, made from a schema: such that fit it, such that nearly do, and any others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]
Values = st.SearchStrategy[Any]

TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Co"]), max_size=10),  # surrogates, controls
    st.sampled_from(["", "0", "-1", "1e9", "nan", "null", "../..", "\0", "\x1b[2J", "{0}", "%s", "x" * 5000]),
)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-2, 2),
    st.floats(),
    st.sampled_from([2**31, 2**53, 2**63, 2**64, 10**15, 10**16, 10**400, 1e308, 5e-324, -0.0]),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
ANYTHING: Values = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def fitting(schema: Schema | bool, defs: Mapping[str, Schema]) -> Values:
    """Values of a JSON schema; where it says nothing, anything."""
    if isinstance(schema, bool):
        return ANYTHING
    if "$ref" in schema:
        return st.deferred(lambda: fitting(defs[schema["$ref"].rpartition("/")[2]], defs))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([fitting(one, defs) for one in schema[several]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    return _of_kind(schema, defs)


def _of_kind(schema: Schema, defs: Mapping[str, Schema]) -> Values:
    kind = str(schema.get("type"))
    if kind == "object":
        return _object(schema, defs)
    if kind == "array":
        most = min(5, schema.get("maxItems", 5))
        return st.lists(
            fitting(schema.get("items", {}), defs), min_size=schema.get("minItems", 0), max_size=most
        )
    simple = _simple(schema)
    return simple[kind] if kind in simple else ANYTHING | st.dictionaries(TEXTS, NUMBERS, max_size=5)


def _simple(schema: Schema) -> dict[str, Values]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    longest = min(schema.get("maxLength", 30), 2000)
    return {
        "string": st.text(min_size=schema.get("minLength", 0), max_size=longest) | TEXTS,
        "integer": st.integers(least, most) | st.integers(0, 5),
        "number": st.floats(least, most, allow_nan=False) | st.integers(0, 5),
        "boolean": st.booleans(),
        "null": st.none(),
    }


def _object(schema: Schema, defs: Mapping[str, Schema]) -> Values:
    fields = {name: fitting(one, defs) for name, one in schema.get("properties", {}).items()}
    needed = {name: value for name, value in fields.items() if name in schema.get("required", ())}
    if not fields:
        further = schema.get("additionalProperties")
        inner = fitting(further, defs) if further else LEAVES
        return st.dictionaries(st.text(max_size=10), inner, max_size=4)
    optional = {name: value for name, value in fields.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional=optional)


@st.composite
def spoilt(draw: st.DrawFn, values: Values) -> Any:
    """A value with one part replaced, left out, doubled or wrapped; at times with none."""
    found = draw(values)
    for _ in range(draw(st.integers(0, 2))):
        found = _spoil(draw, found)
    return found


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(sorted(value, key=repr)))
        rest = {key: kept for key, kept in value.items() if key != name}
        match draw(st.integers(0, 4)):
            case 0:
                return rest
            case 1:
                return {**rest, draw(TEXTS): value[name]}
            case 2:
                return {**value, draw(TEXTS): draw(ANYTHING)}
        return {**rest, name: _spoil(draw, value[name])}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _spoil(draw, value[place]), *value[place + 1 :]]
    return draw(st.one_of(ANYTHING, st.just([value]), st.just({"": value})))
