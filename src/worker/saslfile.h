/*-------------------------------------------------------------------------
 *
 * saslfile.h
 *	  The user and the password of this server, from zklock.sasl_*.
 *
 * Called only by identity.c.
 *
 * src/worker/saslfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SASLFILE_H
#define ZKL_SASLFILE_H

/*
 * Read the password.  Without the settings, there is no SASL.  *changed:
 * handles that are opened from now on use something else than before.  False:
 * the file cannot be used, as *error says, and what was before stays in use.
 */
extern bool zkl_sasl_file_load(bool *changed, const char **error);

/* In a child of the worker. */
extern void zkl_sasl_file_forget(void);

#endif							/* ZKL_SASLFILE_H */
