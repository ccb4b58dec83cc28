"""Topics as tables and tables as topics: `format("headrace")` for PySpark.

    source       the data source that Spark finds: schema, reader, writer
    registering  where Spark does not find it by itself
    options      every option, checked when a query is planned
    foreign_options  those of other sources: taken without effect, or refused and why
    pattern      subscribePattern, as Java reads it
    offset_words where to begin and to end, as users write it
    offsets      where a stream stands, as Spark's checkpoint keeps it
    planning     topics, bounds and splits, by Kafka's protocol
    batch        reading once
    stream       reading on and on
    rows         a split's records as Arrow batches, in an executor
    decoding     values as structs: JSON, Avro, Protobuf
    zones        JSON's times that name no zone
    letters      bad records as dead letters
    filters      what a query's filters leave of its ranges
    directory    the same from a directory that nobody has open
    views        dead letters and delayed messages
    sink         writing, at least once or exactly once
    outgoing     rows of Arrow batches as records for partitions
    each_batch   streams that write updates, by foreachBatch
    plain_errors what is refused, without Spark's tracebacks

Splits are what Spark calls input partitions. Nothing here keeps state between two
calls but a stream's reader; Spark's checkpoint owns the truth.
"""
