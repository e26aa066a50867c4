/*-------------------------------------------------------------------------
 *
 * fieldtext.h
 *	  The fields in the text of a znode: "name=value name=value".
 *
 * A value has "%" and two hexadecimal digits for a character that would end it.
 * Any client may have written the text.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/fieldtext.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FIELDTEXT_H
#define ZKL_FIELDTEXT_H

#include <stdbool.h>

/*
 * Write the value of this field, which has room for strlen(text) + 1 bytes.
 * False: the text has no such field.
 */
extern bool zkl_field_text_get(const char *text, const char *name,
							   char *value);

#endif							/* ZKL_FIELDTEXT_H */
