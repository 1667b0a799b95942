"""Runs a function over small work items on Spark's executors and brings back what each says.

The items and the answers are a few kilobytes; the rows themselves never pass through here. A LakewardError raised on
an executor comes back whole, with its facts and hint, instead of as a Python traceback inside a Java one.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

import lakeward.errors
from bronze.allocation import give_back_freed_memory, keep_freed_memory
from bronze.work import Manifest
from lakeward.errors import LakewardError

Item = TypeVar("Item")


def run_tasks(
    spark: SparkSession, task: Callable[[Item], Manifest], items: Sequence[Item]
) -> list[Manifest | LakewardError]:
    """`task` over `items`, each in a Spark task of its own; what each answered or raised, in the items' order."""
    if not items:
        return []
    pickled = [pickle.dumps(item) for item in items]

    def each(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                answer = _answer(task, pickled[number])
                yield pa.RecordBatch.from_pydict({"number": [number], "answer": [answer]}, _ANSWER)

    numbers = spark.range(0, len(items), 1, len(items))
    found = numbers.mapInArrow(each, "number BIGINT, answer STRING").collect()
    answers = [json.loads(row["answer"]) for row in sorted(found, key=lambda r: r["number"])]
    return [_error(a["error"]) if "error" in a else Manifest(**a) for a in answers]


def first_error(answers: Sequence[Manifest | LakewardError]) -> list[Manifest]:
    """The answers, or the first error among them raised."""
    for answer in answers:
        if isinstance(answer, LakewardError):
            raise answer
    return [a for a in answers if isinstance(a, Manifest)]


_ANSWER = pa.schema([("number", pa.int64()), ("answer", pa.string())])


def _answer(task: Callable[[Any], Manifest], pickled: bytes) -> str:
    keep_freed_memory()
    try:
        return json.dumps(dataclasses.asdict(task(pickle.loads(pickled))))
    except LakewardError as error:
        facts = {k: str(v) for k, v in error.facts.items()}
        doc = {"type": type(error).__name__, "message": error.message, "hint": error.hint, "facts": facts}
        return json.dumps({"error": doc})
    finally:
        give_back_freed_memory()


def _error(doc: dict[str, Any]) -> LakewardError:
    kind: type[LakewardError] = getattr(lakeward.errors, doc["type"], LakewardError)
    return kind(doc["message"], hint=doc["hint"], **doc["facts"])
