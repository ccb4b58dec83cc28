"""Sockets in, engine calls, sockets out."""
