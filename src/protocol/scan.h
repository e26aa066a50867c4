/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  Reading the fields of a text that any client may have written.
 *
 * Each function advances behind what it has read.  If the text is not what
 * zklock itself would write there, the function returns false, and the caller
 * must reject the whole text.
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

/* Read this word. */
extern bool zkl_scan_word(const char **at, const char *word);

/*
 * Read a field with a decimal number, and the blank behind it.  Leading
 * zeros, a plus sign and numbers out of range are refused.
 */
extern bool zkl_scan_number(const char **at, const char *field, int64_t min,
							int64_t max, int64_t *number);

#endif							/* ZKL_SCAN_H */
