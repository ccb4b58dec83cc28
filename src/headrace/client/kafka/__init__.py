"""A small synchronous client of Kafka's protocol, for processes that come and go.

    connection   one socket to one broker: versions agreed on, requests in order
    cluster      who leads which partition, who coordinates whom; offsets by time
    fetching     one partition from an offset to an offset, the next answer under way
    producing    batches to partitions: idempotent, or as one transaction
    offsets      what a group has committed

Executors of Spark live for a task: nothing here has a thread, a cache on disk or a
membership. It speaks to Headrace, Apache Kafka and whatever else keeps to the protocol.
"""
