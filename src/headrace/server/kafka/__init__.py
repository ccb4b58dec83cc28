"""The Kafka door: one file for each API, its versions and behaviour at the head."""
