/* Requests as bytes, in the versions that today's clients send: all of them with
 * compact lengths and tagged fields. Numbers are big-endian. */
#ifndef HEADRACE_FRAMES_H
#define HEADRACE_FRAMES_H

#include <stddef.h>
#include <stdint.h>

enum { PRODUCE = 0, FETCH = 1, FIND_COORDINATOR = 10, SHARE_HEARTBEAT = 76, SHARE_FETCH = 78 };

typedef struct {
    uint8_t *data;
    size_t length;
    size_t size;
} Buffer;

void put(Buffer *buffer, const void *data, size_t length);
void put_8(Buffer *buffer, int value);
void put_16(Buffer *buffer, int value);
void put_32(Buffer *buffer, int64_t value);
void put_64(Buffer *buffer, int64_t value);
/* A length is written one higher, so that 0 can stand for null. */
void put_length(Buffer *buffer, uint64_t length);
void put_text(Buffer *buffer, const char *text);
void write_64(uint8_t *place, int64_t value);

/* A frame begins with its size, which is known when it ends. */
size_t begin_frame(Buffer *buffer, int api, int version);
void end_frame(Buffer *buffer, size_t start);

/* What is read of an answer. Reading beyond its end ends the program. */
typedef struct {
    const uint8_t *data;
    size_t length;
    size_t at;
} Reader;

int64_t take(Reader *reader, int bytes);
uint64_t take_length(Reader *reader);
void skip(Reader *reader, uint64_t bytes);
void skip_text(Reader *reader);
void skip_tags(Reader *reader);

/* A batch of so many records, none of them compressed, by no producer in particular;
 * its values begin with this one. */
void put_batch(Buffer *buffer, int64_t first_value, int records, int size);
void put_produce(Buffer *buffer, int partition, const Buffer *batch);
/* Where in the frame the offset stands is returned, so that it can be changed. */
size_t put_fetch(Buffer *buffer, int partition, int64_t offset, int bytes_max);

#endif
