"""Kafka's messages, one module each; made by `python -m scripts.generate_kafka_codec`."""
