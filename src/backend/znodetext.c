/*-------------------------------------------------------------------------
 *
 * znodetext.c
 *	  What the text of one of zklock's znodes says about a backend.
 *
 * src/backend/znodetext.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "backend/display.h"
#include "backend/znodetext.h"
#include "protocol/fieldtext.h"
#include "protocol/recipe.h"
#include "settings.h"

/* The fields of the text; the views' columns have the same order. */
static const char *const fields[] = {
	"server", "pid", "database", "role", "application"
};

/* The last description, and the facts from which it was made. */
static struct
{
	bool		valid;
	Oid			role;
	char		application[NAMEDATALEN];
	char		owner_text[ZKL_OWNER_TEXT_SIZE];
}			described;

static void describe(void);
static void put_fields(char owner_text[ZKL_OWNER_TEXT_SIZE], int pid, const char *database,
					   const char *role, const char *application);
static void on_role_changed(Datum arg, int cache, uint32 hash);

/*
 * Writing
 */

/* Each claim uses this description, so the usual case must cost next to nothing. */
const char *
zkl_znode_text_of_backend(void)
{
	if (!described.valid || described.role != GetUserId() ||
		strcmp(described.application, application_name) != 0)
		describe();
	return described.owner_text;
}

static void
describe(void)
{
	static bool registered = false;

	if (!registered)
		CacheRegisterSyscacheCallback(AUTHOID, on_role_changed, (Datum) 0);
	registered = true;

	/*
	 * If the role changes while the catalogs are read, that makes the
	 * description invalid again.  After an error, it has no role, so the next
	 * call makes it again.
	 */
	described.valid = true;
	described.role = InvalidOid;
	zkl_znode_text_of_claim(MyProcPid, described.owner_text);
	strlcpy(described.application, application_name,
			sizeof(described.application));
	described.role = GetUserId();
}

void
zkl_znode_text_of_claim(int pid, char owner_text[ZKL_OWNER_TEXT_SIZE])
{
	const char *database = OidIsValid(MyDatabaseId) ?
	get_database_name(MyDatabaseId) : NULL;

	put_fields(owner_text, pid, database, GetUserNameFromId(GetUserId(), true),
			   application_name);
}

void
zkl_znode_text_of_leader(char owner_text[ZKL_OWNER_TEXT_SIZE])
{
	put_fields(owner_text, MyProcPid, NULL, NULL, "zklock leader");
}

/*
 * The server's name always has room, because its setting limits its length.  A
 * later field that does not fit is cut or left out.
 */
static void
put_fields(char owner_text[ZKL_OWNER_TEXT_SIZE], int pid, const char *database,
		   const char *role, const char *application)
{
	char		number[12];
	const char *const values[lengthof(fields)] = {
		zkl_settings_node_name(), number, database, role, application
	};

	snprintf(number, sizeof(number), "%d", pid);
	owner_text[0] = '\0';
	for (int i = 0; i < lengthof(fields); i++)
		zkl_field_text_put(owner_text, ZKL_OWNER_TEXT_SIZE, fields[i],
						   values[i] ? values[i] : "");
}

/*
 * The role may have been renamed, or its OID may now belong to another role.
 */
static void
on_role_changed(Datum arg, int cache, uint32 hash)
{
	described.valid = false;
}

/*
 * Reading
 */

bool
zkl_znode_text_add(ZklRow *row, const char *data)
{
	bool		any = false;

	for (int i = 0; i < lengthof(fields); i++)
	{
		char	   *field = data ? zkl_znode_text_field(data, fields[i]) : NULL;

		any |= field != NULL;
		if (strcmp(fields[i], "pid") == 0)
			zkl_row_add_if(row, field != NULL && atoi(field) > 0,
						   Int32GetDatum(field != NULL ? atoi(field) : 0));
		else
			zkl_row_add_text(row, field != NULL ? zkl_znode_text_show(field) : NULL);
	}
	return any;
}

char *
zkl_znode_text_field(const char *data, const char *name)
{
	char	   *value = palloc(strlen(data) + 1);

	return zkl_field_text_get(data, name, value) ? value : NULL;
}

const char *
zkl_znode_text_show(const char *text)
{
	char	   *shown = palloc(4 * strlen(text) + 1);

	zkl_field_text_show(text, shown);
	return zkl_display_path(shown);
}
