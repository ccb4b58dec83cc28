"""The node under load from a C client, beside a real Apache Kafka."""
