/*-------------------------------------------------------------------------
 *
 * describe.h
 *	  What znodes say about this backend.
 *
 * Called only by backends.
 *
 * src/describe.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DESCRIBE_H
#define ZKL_DESCRIBE_H

/*
 * The fields of a znode's text, cut to ZKL_ABOUT_SIZE.  Remembered until the role,
 * its name or application_name changes.  May look into catalogs.
 */
extern const char *zkl_describe_backend(void);

#endif							/* ZKL_DESCRIBE_H */
