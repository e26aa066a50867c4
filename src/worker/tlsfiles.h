/*-------------------------------------------------------------------------
 *
 * tlsfiles.h
 *	  The certificates and the key of this server, from zklock.ssl_*.
 *
 * Called only by identity.c.
 *
 * src/worker/tlsfiles.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TLSFILES_H
#define ZKL_TLSFILES_H

/*
 * Read the three files.  Without the settings, there is no TLS.  *changed:
 * handles that are opened from now on use something else than before.  False:
 * the files cannot be used, as *error says, and those from before stay in use.
 */
extern bool zkl_tls_files_load(bool *changed, const char **error);

#endif							/* ZKL_TLSFILES_H */
