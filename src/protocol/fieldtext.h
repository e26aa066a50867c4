/*-------------------------------------------------------------------------
 *
 * fieldtext.h
 *	  The fields in the text of a znode: "name=value name=value".
 *
 * In a value, a character that would end it is written as "%" and two
 * hexadecimal digits.  Any client may have written the text.
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
#include <stddef.h>
#include <stdint.h>

/*
 * Write a character as "%XX" and a null, and return the length, which is 3.
 * escaped: the character for which the "%XX" at this place stands; -1 if
 * there is no "%XX", or if it stands for a null, which would end the value.
 */
extern int	zkl_field_text_escape(char *to, unsigned char c);
extern int	zkl_field_text_escaped(const char *at);

/*
 * Append a field to the text, which has "size" bytes with its null.  "value"
 * is in UTF-8.  If the value does not fit, it is cut after a whole character.
 * If the name does not fit, the field is left out.
 */
extern void zkl_field_text_put(char *str, size_t size, const char *name,
							   const char *value);

/*
 * Copy the value of this field into "value", which has room for
 * strlen(str) + 1 bytes.  Returns false if the text has no such field.
 */
extern bool zkl_field_text_get(const char *str, const char *name,
							   char *value);

/*
 * Reading a text of which the order of the fields is fixed.  Each function
 * advances behind what it has read.  If the text is not what zklock itself
 * would write there, the function returns false, and the caller must reject
 * the whole text.
 *
 * The first one reads this word.  The second one reads a field with a decimal
 * number, and the blank behind it.  Leading zeros, a plus sign and numbers out
 * of range are refused.
 */
extern bool zkl_field_text_take_word(const char **at, const char *word);
extern bool zkl_field_text_take_number(const char **at, const char *field,
									   int64_t min, int64_t max,
									   int64_t *number);

/*
 * Write the text so that it can be shown: each byte of a control character
 * (C0, DEL, C1), and each that is not part of a character of UTF-8, as \xXX.
 * A raw control character could send commands to a terminal, or forge a line
 * of the log.  "shown" has room for 4 * strlen(str) + 1 bytes.
 */
extern void zkl_field_text_show(const char *str, char *shown);

#endif							/* ZKL_FIELDTEXT_H */
