/*-------------------------------------------------------------------------
 *
 * display.h
 *	  Paths and moments, as the user sees them.
 *
 * Called only by backends.
 *
 * src/backend/display.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DISPLAY_H
#define ZKL_DISPLAY_H

#include "datatype/timestamp.h"

/* A moment of zkl_now(), as a timestamp. */
extern TimestampTz zkl_display_time(int64 moment);

/*
 * A path, in the encoding of the database; characters that the encoding lacks
 * are escaped.  prepare finds out how to convert, which reads catalogs, and so
 * may raise an error.  zkl_display_path() may be called at any time; before
 * prepare, it escapes all characters that are not ASCII.
 */
extern void zkl_display_prepare(void);
extern const char *zkl_display_path(const char *path);

/* The path that zkl_display_path() has shown as this text; NULL if there is none. */
extern const char *zkl_display_unescape(const char *shown);

#endif							/* ZKL_DISPLAY_H */
