"""Streams groups (KIP-1071): instances of one Kafka Streams application, and the tasks that
the broker shares out among them."""
