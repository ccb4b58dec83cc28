/* What raw modes share. */
#ifndef HEADRACE_RAW_H
#define HEADRACE_RAW_H

/* A connected socket that blocks, without delays of Nagle's. */
int connect_to_broker(void);

#endif
