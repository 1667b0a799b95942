"""Classes of Spark's JVM."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of this whole name.

    By `spark._jvm.a.b.C` Py4J has the JVM look for a class `a` in each package it knows, then for `a.b`, each time in
    all jars.
    """
    return getattr(spark._jvm, name)
