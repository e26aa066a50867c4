/*-------------------------------------------------------------------------
 *
 * tlsfiles.c
 *	  The certificates and the key of this server, from zklock.ssl_*.
 *
 * src/worker/tlsfiles.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "worker/secretfile.h"
#include "worker/tlsfiles.h"
#include "zookeeper/session.h"

/* A file with all authorities of a system has some 200 kB. */
#define MAX_SIZE		(1024 * 1024)

bool
zkl_tls_files_load(bool *changed, const char **error)
{
	ZklSecretFile file[ZKL_TLS_TEXTS] = {
		[ZKL_TLS_CA] = {"zklock.ssl_ca_file", zkl_ssl_ca_file, true},
		[ZKL_TLS_CERTIFICATE] = {"zklock.ssl_cert_file", zkl_ssl_cert_file, true},
		[ZKL_TLS_KEY] = {"zklock.ssl_key_file", zkl_ssl_key_file, false}
	};
	ZklTlsText	content[ZKL_TLS_TEXTS] = {0};
	int			faulty = ZKL_TLS_CA;
	const char *fault = NULL;

	*changed = false;
	*error = NULL;
	if (zkl_ssl_ca_file[0] == '\0')
	{
		*changed = zkl_session_end_tls();
		return true;
	}
	for (int i = 0; i < ZKL_TLS_TEXTS && *error == NULL; i++)
	{
		content[i].data = palloc(MAX_SIZE);
		content[i].length = zkl_secret_file_read(&file[i], content[i].data, MAX_SIZE,
												 error);
	}
	if (*error == NULL)
		fault = zkl_session_set_tls(content, changed, &faulty);
	if (fault != NULL)
		*error = zkl_secret_file_error(&file[faulty], fault);
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
	{
		if (content[i].data != NULL)
		{
			explicit_bzero(content[i].data, MAX_SIZE);
			pfree(content[i].data);
		}
	}
	return *error == NULL;
}
