/*-------------------------------------------------------------------------
 *
 * serverrecord.c
 *	  The record of a server: an ephemeral znode that says that it takes part.
 *
 * src/protocol/serverrecord.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "protocol/fieldtext.h"
#include "protocol/serverrecord.h"

/*
 * ZooKeeper refuses slashes, "." and "..", and some characters.  So each byte
 * but these is written as %XX.
 */
void
zkl_server_record_name(const char *name, char znode[ZKL_SERVERRECORD_NAME_SIZE])
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_";
	char	   *to = znode;

	for (const char *at = name; *at != '\0' && to < znode + ZKL_SERVERRECORD_NAME_SIZE - 3; at++)
	{
		if (strchr(plain, *at) != NULL && !(*at == '.' && at == name))
			*to++ = *at;
		else
			to += zkl_field_text_escape(to, (unsigned char) *at);
	}
	*to = '\0';
}

/*
 * An ensemble that was emptied counts its transactions from the beginning
 * again, so a czxid alone may occur twice.
 */
void
zkl_server_record_birth(int64_t czxid, int64_t ctime_ms,
						char birth[ZKL_SERVERRECORD_BIRTH_SIZE])
{
	snprintf(birth, ZKL_SERVERRECORD_BIRTH_SIZE, "%llx-%llx",
			 (unsigned long long) czxid, (unsigned long long) ctime_ms);
}
