"""The node: what serves the SDK in this process."""

from headrace.node.node import MEMORY, Node

__all__ = ["MEMORY", "Node"]
