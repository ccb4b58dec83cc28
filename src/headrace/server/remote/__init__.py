"""The door of our own clients, which shares the Kafka door's port."""
