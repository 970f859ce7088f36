"""Slackline on Spark Structured Streaming: detectors on ordered streams, per key.

>>> from slackline.spark import current, detect, session, synchronise, typed
"""

from typing import TYPE_CHECKING

from slackline.core.extras import explain, lazy

try:  # stateful processors in Python need packages that pyspark does not require
    import google.protobuf
    import grpc_status
    import pandas
    import pyspark
except ImportError as error:
    raise explain(error, "slackline.spark") from error

from slackline.core.payload import PayloadError
from slackline.spark.metrics import metrics_of_progress
from slackline.spark.order import order
from slackline.spark.output import current, final, latest, typed
from slackline.spark.pipeline import detect
from slackline.spark.session import check_failure, configure, session
from slackline.spark.synchronise import synchronise

if TYPE_CHECKING:
    from slackline.spark.kafka_hosts import SparkHosts, hosts
    from slackline.spark.nodes import SparkCluster, cluster

__all__ = [
    "PayloadError",
    "SparkCluster",
    "SparkHosts",
    "check_failure",
    "cluster",
    "configure",
    "current",
    "detect",
    "final",
    "latest",
]
__all__ += ["hosts", "metrics_of_progress", "order", "session", "synchronise", "typed"]

# Not needed in the workers of queries.
__getattr__ = lazy(
    __name__,
    dict.fromkeys(("SparkCluster", "cluster"), "slackline.spark.nodes")
    | dict.fromkeys(("SparkHosts", "hosts"), "slackline.spark.kafka_hosts"),
)

del google, grpc_status, pandas, pyspark
