/*-------------------------------------------------------------------------
 *
 * display.h
 *	  Paths and moments, as the user sees them; and who may see what.
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

/* A path, in the encoding of the database. */
extern const char *zkl_display_path(const char *path);

/*
 * May this user see what a backend with this role does, or what backends with
 * any roles do?  The same rule as for pg_stat_activity.
 */
extern bool zkl_display_may_see(Oid role);
extern bool zkl_display_may_see_all(void);

#endif							/* ZKL_DISPLAY_H */
