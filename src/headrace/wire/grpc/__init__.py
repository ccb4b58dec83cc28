"""gRPC on the wire: the .proto, and what is generated from it."""
