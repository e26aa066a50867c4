/*-------------------------------------------------------------------------
 *
 * sessionacl.c
 *	  Who may do what with the znodes that this server makes, and whether
 *	  ZooKeeper believes who this server is.
 *
 * src/zookeeper/sessionacl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "zookeeper/sessionint.h"

/*
 * Put together for each request, which is nothing beside the request itself.
 * So a change of the setting counts for the next znode.  The client copies the
 * list when it takes the request.
 */
const struct ACL_vector *
zkl_session_acl(void)
{
	static struct ACL entries[ZKL_ACL_ENTRIES];
	static struct ACL_vector result = {0, entries};

	result.count = zkl_settings_acl.nentries;
	for (int i = 0; i < result.count; i++)
	{
		ZklAclEntry *entry = &zkl_settings_acl.entry[i];

		entries[i].perms = entry->permissions;
		entries[i].id.scheme = entry->scheme;
		entries[i].id.id = entry->id;
	}
	return &result;
}

/*
 * The client says it through the state of its handle, and the server through
 * the code of a reply.  Both may come.
 */
void
zkl_session_note_refused(void)
{
	if (zkl_session_state.auth_refused)
		return;
	zkl_session_state.auth_refused = true;
	zkl_session_append_event(ZKL_SESSION_REFUSED);
}
