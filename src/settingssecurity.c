/*-------------------------------------------------------------------------
 *
 * settingssecurity.c
 *	  The settings that say who this server is to ZooKeeper, and what others
 *	  may do with its znodes.
 *
 * src/settingssecurity.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "settings.h"

char	   *zkl_auth_file = NULL;
char	   *zkl_acl = NULL;
ZklAcl		zkl_settings_acl;
char	   *zkl_ssl_ca_file = NULL;
char	   *zkl_ssl_cert_file = NULL;
char	   *zkl_ssl_key_file = NULL;
char	   *zkl_sasl_user = NULL;
char	   *zkl_sasl_password_file = NULL;

static void define_acl(void);
static bool check_acl(char **newval, void **extra, GucSource source);
static void assign_acl(const char *newval, void *extra);
static void define_text(const char *name, const char *purpose,
						const char *detail, char **variable,
						GucStringCheckHook check);
static bool check_tls(char **newval, void **extra, GucSource source);
static bool check_sasl(char **newval, void **extra, GucSource source);

/*
 * The names of files help those who look for secrets, so not every role may
 * see these settings.
 */
void
zkl_settings_define_security(void)
{
	define_acl();
	define_text("zklock.auth_file",
				"The file with this server's credentials for ZooKeeper.",
				"Each line is a scheme, a blank, and the credentials.",
				&zkl_auth_file, NULL);
	define_text("zklock.ssl_ca_file",
				"The file with the authorities that sign the certificates of ZooKeeper servers.",
				"With it, all connections to ZooKeeper use TLS.",
				&zkl_ssl_ca_file, check_tls);
	define_text("zklock.ssl_cert_file",
				"The file with this server's certificate for ZooKeeper.",
				NULL,
				&zkl_ssl_cert_file, check_tls);
	define_text("zklock.ssl_key_file",
				"The file with the private key of \"zklock.ssl_cert_file\".",
				NULL,
				&zkl_ssl_key_file, check_tls);
	define_text("zklock.sasl_user",
				"The user as which this server authenticates with ZooKeeper by SASL.",
				"The mechanism is DIGEST-MD5.",
				&zkl_sasl_user, check_sasl);
	define_text("zklock.sasl_password_file",
				"The file with the password of \"zklock.sasl_user\".",
				NULL,
				&zkl_sasl_password_file, check_sasl);
}

static void
define_text(const char *name, const char *purpose, const char *detail,
			char **variable, GucStringCheckHook check)
{
	DefineCustomStringVariable(name, purpose, detail, variable, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check, NULL, NULL);
}

/* The hashes in an access control list help those who guess passwords. */
static void
define_acl(void)
{
	DefineCustomStringVariable("zklock.acl",
							   "The access control list of the znodes that this server creates.",
							   "\"open\", \"creator\", or a list of scheme:id:permissions.",
							   &zkl_acl,
							   "open",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_acl, assign_acl, NULL);
}

static bool
check_acl(char **newval, void **extra, GucSource source)
{
	ZklAcl		acl;
	const char *fault = zkl_acl_parse(*newval, &acl);

	if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL;
}

static void
assign_acl(const char *newval, void *extra)
{
	(void) zkl_acl_parse(newval, &zkl_settings_acl);
}

/*
 * A server that is told to use TLS must not go on without it.
 */
static bool
check_tls(char **newval, void **extra, GucSource source)
{
#ifndef ZKLOCK_TLS
	if ((*newval)[0] != '\0')
	{
		GUC_check_errdetail("zklock was built with a library of ZooKeeper's C client that has no TLS.");
		GUC_check_errhint("Build zklock with a library that has it, or use stunnel, as the documentation of zklock describes.");
		return false;
	}
#endif
	return true;
}

/* The same for SASL. */
static bool
check_sasl(char **newval, void **extra, GucSource source)
{
#ifndef ZKLOCK_SASL
	if ((*newval)[0] != '\0')
	{
		GUC_check_errdetail("zklock was built with a library of ZooKeeper's C client that has no SASL.");
		GUC_check_errhint("Build zklock with a library that has it, or use \"zklock.auth_file\".");
		return false;
	}
#endif
	return true;
}
