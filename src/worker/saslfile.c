/*-------------------------------------------------------------------------
 *
 * saslfile.c
 *	  The user and the password of this server, from zklock.sasl_*.
 *
 * src/worker/saslfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "worker/saslfile.h"
#include "worker/secretfile.h"
#include "zookeeper/session.h"

static const char *take_password(char *line, int length);

bool
zkl_sasl_file_load(bool *changed, const char **error)
{
	ZklSecretFile file = {"zklock.sasl_password_file", zkl_sasl_password_file, false};
	char		line[ZKL_SASL_PASSWORD_SIZE + 2];	/* with the line's end */
	const char *fault;
	int			length;

	*changed = false;
	if (zkl_sasl_user[0] == '\0')
	{
		*changed = zkl_session_end_sasl();
		return true;
	}
	length = zkl_secret_file_read(&file, line, sizeof(line), error);
	if (length < 0)
		return false;
	fault = take_password(line, length);
	if (fault == NULL)
		fault = zkl_session_set_sasl(zkl_sasl_user, line, changed);
	if (fault != NULL)
		*error = zkl_secret_file_error(&file, fault);
	explicit_bzero(line, sizeof(line));
	return fault == NULL;
}

/* The only line of the file is the password; null-terminate it. */
static const char *
take_password(char *line, int length)
{
	if (length > 0 && line[length - 1] == '\n')
		length--;
	if (length > 0 && line[length - 1] == '\r')
		length--;
	if (length == 0)
		return "there is no password in it";
	if (length >= ZKL_SASL_PASSWORD_SIZE)
		return "the password is too long";
	if (memchr(line, '\n', length) != NULL || memchr(line, '\0', length) != NULL)
		return "it must have one line, with the password";
	line[length] = '\0';

	return NULL;
}

void
zkl_sasl_file_forget(void)
{
	(void) zkl_session_end_sasl();
}
