"""Makes the Kafka codecs of src/headrace/wire/kafka/generated.

    definitions   reads Kafka's message definitions, and downloads them first
    layout        what one version of a message looks like on the wire
    values        the NamedTuples
    decoding      bytes to values
    encoding      values to bytes
    modules       one message's module, put together

Run it from the project's root: python -m scripts.generate_kafka_codec
"""
