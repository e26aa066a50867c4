/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  Reading the fields of a text that any client may have written.
 *
 * Each function goes on behind what it has read.  If the text is not what
 * zklock itself would write there, the function returns false, and the caller
 * gives the whole text up.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/scan.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SCAN_H
#define ZKL_SCAN_H

#include <stdbool.h>
#include <stdint.h>

/* This word, if it is there. */
extern bool zkl_scan_word(const char **at, const char *word);

/*
 * A field with a number in decimal, and the blank behind it: neither leading
 * zeros, nor a plus sign, nor a number out of range.
 */
extern bool zkl_scan_number(const char **at, const char *field, int64_t min,
							int64_t max, int64_t *number);

#endif							/* ZKL_SCAN_H */
