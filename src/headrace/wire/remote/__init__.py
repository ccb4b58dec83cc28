"""How a client of ours speaks to a node: method calls as one private Kafka API."""
