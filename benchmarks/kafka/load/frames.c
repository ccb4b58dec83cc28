/* Requests as bytes. One topic and one partition to a request. */
#include "frames.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

enum { BATCH_HEADER_BYTES = 61, CHECKED_FROM = 21 };

void put(Buffer *buffer, const void *data, size_t length) {
    if (buffer->length + length > buffer->size) {
        buffer->size = (buffer->length + length) * 2;
        buffer->data = realloc(buffer->data, buffer->size);
        if (!buffer->data) fail("no memory for a request");
    }
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

static void put_number(Buffer *buffer, uint64_t value, int bytes) {
    uint8_t data[8];
    for (int i = 0; i < bytes; i++) data[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    put(buffer, data, bytes);
}

void put_8(Buffer *buffer, int value) { put_number(buffer, (uint64_t)value, 1); }
void put_16(Buffer *buffer, int value) { put_number(buffer, (uint64_t)value, 2); }
void put_32(Buffer *buffer, int64_t value) { put_number(buffer, (uint64_t)value, 4); }
void put_64(Buffer *buffer, int64_t value) { put_number(buffer, (uint64_t)value, 8); }

void write_64(uint8_t *place, int64_t value) {
    for (int i = 0; i < 8; i++) place[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
}

static void write_32(uint8_t *place, uint32_t value) {
    for (int i = 0; i < 4; i++) place[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void put_varint(Buffer *buffer, uint64_t value) {
    for (; value > 127; value >>= 7) put_8(buffer, (int)(value & 127) | 128);
    put_8(buffer, (int)value);
}

static void put_signed_varint(Buffer *buffer, int64_t value) {
    put_varint(buffer, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

void put_length(Buffer *buffer, uint64_t length) { put_varint(buffer, length + 1); }

void put_text(Buffer *buffer, const char *text) {
    put_length(buffer, strlen(text));
    put(buffer, text, strlen(text));
}

size_t begin_frame(Buffer *buffer, int api, int version) {
    size_t start = buffer->length;
    put_32(buffer, 0);
    put_16(buffer, api);
    put_16(buffer, version);
    /* Answers come in the order of requests, so one number does for all. */
    put_32(buffer, 7);
    put_16(buffer, 4);
    put(buffer, "load", 4);
    put_8(buffer, 0);
    return start;
}

void end_frame(Buffer *buffer, size_t start) {
    write_32(buffer->data + start, (uint32_t)(buffer->length - start - 4));
}

int64_t take(Reader *reader, int bytes) {
    if (reader->at + (size_t)bytes > reader->length) fail("an answer ends early");
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | reader->data[reader->at++];
    /* The sign is in the first bit of what was read. */
    int shift = 64 - 8 * bytes;
    return (int64_t)(value << shift) >> shift;
}

static uint64_t take_varint(Reader *reader) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = (uint64_t)take(reader, 1) & 255;
        value |= (byte & 127) << shift;
        if (byte < 128) return value;
    }
    fail("an answer has a number that does not end");
}

uint64_t take_length(Reader *reader) {
    uint64_t length = take_varint(reader);
    return length ? length - 1 : 0;
}

void skip(Reader *reader, uint64_t bytes) {
    if (bytes > reader->length - reader->at) fail("an answer ends early");
    reader->at += bytes;
}

void skip_text(Reader *reader) { skip(reader, take_length(reader)); }

void skip_tags(Reader *reader) {
    for (uint64_t count = take_varint(reader); count; count--) {
        take_varint(reader);
        skip(reader, take_varint(reader));
    }
}

static uint32_t crc32c(const uint8_t *data, size_t length) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

void put_batch(Buffer *buffer, int64_t first_value, int records, int size) {
    size_t start = buffer->length;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    put_64(buffer, 0);           /* base offset: the broker's */
    put_32(buffer, 0);           /* length: below */
    put_32(buffer, -1);          /* leader epoch: the broker's */
    put_8(buffer, 2);            /* magic */
    put_32(buffer, 0);           /* checksum: below */
    put_16(buffer, 0);           /* attributes */
    put_32(buffer, records - 1); /* last offset delta */
    put_64(buffer, now_ms);      /* first and greatest timestamp */
    put_64(buffer, now_ms);
    put_64(buffer, -1); /* producer id, epoch and sequence: none */
    put_16(buffer, -1);
    put_32(buffer, -1);
    put_32(buffer, records);
    Buffer record = {0};
    for (int number = 0; number < records; number++) {
        record.length = 0;
        put_8(&record, 0);
        put_signed_varint(&record, 0);
        put_signed_varint(&record, number);
        put_signed_varint(&record, -1);
        put_signed_varint(&record, size);
        put(&record, value_of(first_value + number), size);
        put_signed_varint(&record, 0);
        put_signed_varint(buffer, (int64_t)record.length);
        put(buffer, record.data, record.length);
    }
    free(record.data);
    uint8_t *batch = buffer->data + start;
    size_t length = buffer->length - start;
    write_32(batch + 8, (uint32_t)(length - 12));
    write_32(batch + 17, crc32c(batch + CHECKED_FROM, length - CHECKED_FROM));
}

void put_produce(Buffer *buffer, int partition, const Buffer *batch) {
    size_t start = begin_frame(buffer, PRODUCE, 10);
    put_8(buffer, 0); /* no transaction */
    put_16(buffer, options.acks);
    put_32(buffer, 30000);
    put_length(buffer, 1);
    put_text(buffer, options.topic);
    put_length(buffer, 1);
    put_32(buffer, partition);
    put_length(buffer, batch->length);
    put(buffer, batch->data, batch->length);
    put(buffer, "\0\0\0", 3);
    end_frame(buffer, start);
}

size_t put_fetch(Buffer *buffer, int partition, int64_t offset, int bytes_max) {
    size_t start = begin_frame(buffer, FETCH, 12);
    put_32(buffer, -1);    /* a client, not a replica */
    put_32(buffer, 500);   /* wait at most, for at least, up to */
    put_32(buffer, 1);
    put_32(buffer, bytes_max);
    put_8(buffer, 0);      /* also what is not committed */
    put_32(buffer, 0);     /* no session */
    put_32(buffer, -1);
    put_length(buffer, 1);
    put_text(buffer, options.topic);
    put_length(buffer, 1);
    put_32(buffer, partition);
    put_32(buffer, -1);
    size_t place = buffer->length - start;
    put_64(buffer, offset);
    put_32(buffer, -1);
    put_64(buffer, -1);
    put_32(buffer, bytes_max);
    put(buffer, "\0\0", 2);
    put_length(buffer, 0); /* nothing forgotten, no rack, no tags */
    put_text(buffer, "");
    put_8(buffer, 0);
    end_frame(buffer, start);
    return place;
}
