"""How events are buffered: one interface, four methods, one order."""

from slackline.sync.methods.balanced import Balanced
from slackline.sync.methods.method import Method, Work
from slackline.sync.methods.method1 import Method1
from slackline.sync.methods.method2 import Method2
from slackline.sync.methods.watermark import Watermark

#: The methods by name.
METHODS: dict[str, type[Method]] = {
    "method1": Method1,
    "method2": Method2,
    "balanced": Balanced,
    "watermark": Watermark,
}

__all__ = ["METHODS", "Method", "Work"]
