"""How events are buffered: one interface, four methods, one order."""

from slackline.sync.methods.balanced import Balanced
from slackline.sync.methods.method import Method, Work
from slackline.sync.methods.readiness import Method1, Method2
from slackline.sync.methods.watermark import Watermark

#: The methods by name.
METHODS: dict[str, type[Method]] = dict(method1=Method1, method2=Method2, balanced=Balanced, watermark=Watermark)

__all__ = ["METHODS", "Method", "Work"]
