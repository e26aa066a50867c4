/*-------------------------------------------------------------------------
 *
 * describe.c
 *	  What znodes say about this backend.
 *
 * src/backend/describe.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "backend/describe.h"
#include "protocol/recipe.h"
#include "settings.h"

/* The last description, and what it was made of. */
static struct
{
	bool		valid;
	Oid			role;
	char		application[NAMEDATALEN];
	char		about[ZKL_ABOUT_SIZE];
}			described;

static void describe(void);
static void append_field(StringInfo text, const char *name,
						 const char *value);
static void on_role_changed(Datum arg, int cache, uint32 hash);

/* Each claim carries it, so the usual case must cost next to nothing. */
const char *
zkl_describe_backend(void)
{
	if (!described.valid || described.role != GetUserId() ||
		strcmp(described.application, application_name) != 0)
		describe();
	return described.about;
}

static void
describe(void)
{
	static bool registered = false;
	StringInfoData text;
	const char *database;

	if (!registered)
		CacheRegisterSyscacheCallback(AUTHOID, on_role_changed, (Datum) 0);
	registered = true;

	/*
	 * A change while the catalogs are read makes it invalid again.  An error
	 * there leaves it without a role, so the next call makes it anew.
	 */
	described.valid = true;
	described.role = InvalidOid;
	database = OidIsValid(MyDatabaseId) ? get_database_name(MyDatabaseId) : NULL;

	initStringInfo(&text);
	append_field(&text, "server", zkl_settings_node_name());
	appendStringInfo(&text, " pid=%d", MyProcPid);
	append_field(&text, "database", database);
	append_field(&text, "role", GetUserNameFromId(GetUserId(), true));
	append_field(&text, "application", application_name);
	strlcpy(described.about, text.data, sizeof(described.about));
	strlcpy(described.application, application_name,
			sizeof(described.application));
	described.role = GetUserId();
	pfree(text.data);
}

void
zkl_describe_leader(char about[ZKL_ABOUT_SIZE])
{
	StringInfoData text;

	initStringInfo(&text);
	append_field(&text, "server", zkl_settings_node_name());
	appendStringInfo(&text, " pid=%d", MyProcPid);
	append_field(&text, "database", NULL);
	append_field(&text, "role", NULL);
	append_field(&text, "application", "zklock leader");
	strlcpy(about, text.data, ZKL_ABOUT_SIZE);
	pfree(text.data);
}

/* The role may have been renamed, or its OID may now be another role's. */
static void
on_role_changed(Datum arg, int cache, uint32 hash)
{
	described.valid = false;
}

/* " name=value", with spaces, percent and control characters as %XX */
static void
append_field(StringInfo text, const char *name, const char *value)
{
	if (text->len > 0)
		appendStringInfoChar(text, ' ');
	appendStringInfo(text, "%s=", name);
	for (const char *at = value ? value : ""; *at; at++)
	{
		unsigned char c = (unsigned char) *at;

		if (c <= ' ' || c == '%' || c == 0x7f)
			appendStringInfo(text, "%%%02X", c);
		else
			appendStringInfoChar(text, c);
	}
}
