"""The calls: everything that one can ask of a node, written once for all doors."""

from headrace.calls.face import Face
from headrace.calls.served import Served

__all__ = ["Face", "Served"]
