"""Describes the HTTP API for programs (OpenAPI 3.1): paths from the routes, what each does from the handlers'
docstrings, answers from the types that the daemon makes them of.

python docs/openapi_page.py build/site/openapi.json
"""

from __future__ import annotations

import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, TypedDict

from bftrainer import __version__
from bftrainer.daemon.answers.views.impact import ImpactView
from bftrainer.daemon.answers.views.pool import NodeView, StatusView
from bftrainer.daemon.answers.views.trainers import DetailsView, SubmittedView, TrainerView

sys.path.insert(0, str(Path(__file__).parent))
from http_page import routes

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}
Row = dict[str, Any]


class PoolView(TypedDict):
    """The nodes; `size`: how many of them, or of their GPUs, as `unit` says, are in the pool."""

    size: int
    unit: str
    nodes: list[NodeView]


class ProbeView(TypedDict):
    """The daemon's state in a word, and what is wrong."""

    state: str
    reasons: list[str]


class FileOfYaml(TypedDict):
    """`spec`: the text of a YAML file, `name`: the file's, `base`: the folder where relative paths start."""

    spec: str
    name: str
    base: str


class FileOfTrainer(FileOfYaml, total=False):
    """`resume`: go on from the checkpoints of the trainer of this name or number."""

    resume: str | None


class Priority(TypedDict):
    """The new priority."""

    priority: float


class More(TypedDict, total=False):
    """`trials`: how many more; `points`: values of parameters that the next ones try."""

    trials: int
    points: list[Row]


ANSWERS: dict[str, tuple[int, Any]] = {
    "Routes.submit": (201, SubmittedView),
    "Routes.trainers": (200, list[TrainerView]),
    "Routes.show": (200, DetailsView),
    "Routes.cancel": (200, TrainerView),
    "Routes.prioritise": (200, TrainerView),
    "Routes.pool": (200, PoolView),
    "Routes.rows": (200, list[Row]),
    "Routes.status": (200, StatusView),
    "Routes.feed": (200, EVENTS),
    "Routes.administer": (200, StatusView),
    "Routes.impact": (200, ImpactView),
    "Routes.metrics": (200, TEXT),
    "StudyRoutes.submit": (201, Row),
    "StudyRoutes.listed": (200, list[Row]),
    "StudyRoutes.show": (200, Row),
    "StudyRoutes.order": (200, Row),
    "StudyRoutes.prioritise": (200, Row),
    "StudyRoutes.add": (200, Row),
    "probes.<locals>.alive": (200, ProbeView),
    "probes.<locals>.ready": (200, ProbeView),
}
BODIES: dict[str, Any] = {
    "Routes.submit": FileOfTrainer,
    "Routes.prioritise": Priority,
    "StudyRoutes.submit": FileOfYaml,
    "StudyRoutes.prioritise": Priority,
    "StudyRoutes.add": More,
}
QUERIES: dict[str, dict[str, type]] = {
    "Routes.trainers": {"limit": int, "skip": int, "after": int},
    "Routes.rows": {"trainer": str, "limit": int, "before": int},
    "Routes.feed": {"parts": str},
    "Routes.impact": {"days": float},
    "StudyRoutes.listed": {"limit": int},
    "StudyRoutes.show": {"course": int, "trials": int, "after": int},
}


def document() -> dict[str, Any]:
    """The whole description."""
    known: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes():
        info = route.resource.get_info()
        path = info.get("path") or info["formatter"]
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bftrainer",
            "version": __version__,
            "description": "See docs/http.md for how to reach the daemon, bounds, and errors.",
        },
        "paths": paths,
        "components": {"schemas": dict(sorted(known.items()))},
    }


def _operation(route: Any, path: str, known: dict[str, Any]) -> dict[str, Any]:
    handler = route.handler.__qualname__
    status, answer = ANSWERS[handler]
    kind, shape = (answer, str) if isinstance(answer, str) else (JSON, answer)
    found: dict[str, Any] = {
        "summary": " ".join((route.handler.__doc__ or "").split()),
        "parameters": [_variable(name, route) for name in re.findall(r"\{(\w+)\}", path)]
        + [
            {"name": name, "in": "query", "schema": schema(of, known)}
            for name, of in QUERIES.get(handler, {}).items()
        ],
        "responses": {
            str(status): {"description": "done", "content": {kind: {"schema": schema(shape, known)}}},
            "default": {"description": "why not", "content": {JSON: {"schema": schema(Row, known)}}},
        },
    }
    if body := BODIES.get(handler):
        content = {JSON: {"schema": schema(body, known)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _variable(name: str, route: Any) -> dict[str, Any]:
    choice = re.search(rf"\(\?P<{name}>([\w|]+)\)", route.resource.get_info()["pattern"].pattern)
    words = {"enum": choice[1].split("|")} if choice else {}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", **words}}


def schema(of: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; those of dictionaries with known keys are put into `known`."""
    origin, parts = typing.get_origin(of), typing.get_args(of)
    if of is Any:
        return {}
    if typing.is_typeddict(of):
        if of.__name__ not in known:
            known[of.__name__] = {}  # it may contain itself
            hints = typing.get_type_hints(of)
            known[of.__name__] = {
                "type": "object",
                "description": " ".join((of.__doc__ or "").split()),
                "properties": {name: schema(hint, known) for name, hint in hints.items()},
                "required": sorted(of.__required_keys__),
            }
        return {"$ref": f"#/components/schemas/{of.__name__}"}
    if origin in (list, tuple):
        return {"type": "array", "items": schema(parts[0], known)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(parts[1], known)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [schema(part, known) for part in parts]}
    return {"type": NAMES[of]}


if __name__ == "__main__":
    text = json.dumps(document(), indent=1) + "\n"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
