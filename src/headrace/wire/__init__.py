"""Bytes to messages and back, one package per protocol; no sockets, no state."""
