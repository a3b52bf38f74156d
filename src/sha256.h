/* SPDX-License-Identifier: MIT */
/* SHA-256 (FIPS 180-4). */
#ifndef WD_SHA256_H
#define WD_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { WD_SHA256_BYTES = 32 };

struct wd_sha256 {
    uint32_t state[8];
    uint64_t length;         /* bytes so far */
    unsigned char block[64]; /* its first length % 64 bytes wait for the rest */
};

void wd_sha256_init(struct wd_sha256 *h);
void wd_sha256_add(struct wd_sha256 *h, const void *data, size_t bytes);
/** Adds a field: its length as 8 bytes, then itself, so that fields never run into each other. */
void wd_sha256_field(struct wd_sha256 *h, const void *data, size_t bytes);
void wd_sha256_end(struct wd_sha256 *h, unsigned char digest[WD_SHA256_BYTES]);

#endif
