/*-------------------------------------------------------------------------
 *
 * identity.c
 *	  Who this server is to ZooKeeper: all that its files say about it.
 *
 * src/worker/identity.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "worker/authfile.h"
#include "worker/identity.h"
#include "worker/saslfile.h"
#include "worker/tlsfiles.h"

/* TLS first: what it says of a file is the nearest to the network. */
static bool (*const parts[]) (bool *changed, const char **error) =
{
	zkl_tls_files_load, zkl_sasl_file_load, zkl_auth_file_load
};

static bool is_loaded = false;

static const char *settings_fault(void);

bool
zkl_identity_load(const char **error)
{
	bool		changed;

	if (is_loaded)
		return true;
	*error = settings_fault();
	if (*error != NULL)
		return false;
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (!parts[i] (&changed, error))
			return false;
	}
	is_loaded = true;
	return true;
}

bool
zkl_identity_reload(void)
{
	const char *error = settings_fault();
	bool		any_changed = false;
	bool		changed;

	/* The next attempt to open a session reads the files. */
	if (!is_loaded)
		return false;
	for (int i = 0; i < lengthof(parts) && error == NULL; i++)
	{
		(void) parts[i] (&changed, &error);
		any_changed |= changed;
	}
	if (error != NULL)
		ereport(LOG,
				errmsg("credentials for ZooKeeper were not reloaded: %s", error));
	return any_changed;
}

void
zkl_identity_show(void)
{
	zkl_auth_file_show();
}

void
zkl_identity_forget(void)
{
	zkl_auth_file_forget();
	zkl_sasl_file_forget();
}

/*
 * What is wrong with the settings together.  A setting that is forgotten must
 * not make the server go on without encryption or without a name.
 */
static const char *
settings_fault(void)
{
	int			ntls = (zkl_ssl_ca_file[0] != '\0') +
	(zkl_ssl_cert_file[0] != '\0') + (zkl_ssl_key_file[0] != '\0');
	int			nsasl = (zkl_sasl_user[0] != '\0') +
	(zkl_sasl_password_file[0] != '\0');

	if (ntls != 0 && ntls != 3)
		return "\"zklock.ssl_ca_file\", \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" must be set together";
	if (nsasl == 1)
		return "\"zklock.sasl_user\" and \"zklock.sasl_password_file\" must be set together";
	if (ntls != 0 && nsasl != 0)
		return "the library of ZooKeeper's C client can use TLS or SASL, but not both";
	return NULL;
}
