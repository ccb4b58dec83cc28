"""Kafka's wire protocol: the frame, the messages and their codecs.

    api        which APIs and versions there are, and their codecs, loaded on first use
    frame      the size, the header and the body of a request or a response
    errors     the error codes
    embedded   what consumers put inside JoinGroup and SyncGroup
    primitives what the generated codecs are made of
    generated  the messages, one module each; see docs/kafka-codec.md

A message is a NamedTuple without methods; its codecs are functions beside it.
"""
